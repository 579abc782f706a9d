"""`veilgraph.check`: a plan beside its model, with paths wherever the command line has them."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from veilgraph.checks import checking
from veilgraph.checks.accuracy import read_labels
from veilgraph.checks.kept_ranges import ranges_file, with_ranges
from veilgraph.checks.layer_errors import Check
from veilgraph.checks.plan_programs import states_of
from veilgraph.compilation.models import Model
from veilgraph.compilation.parts import Parts
from veilgraph.compilation.samples import as_numbers, read_given
from veilgraph.ir.plan.given import PLAIN
from veilgraph.library import (
    AnyArrays,
    AnyPlan,
    AnyWeights,
    opened_arrays,
    opened_plan,
    opened_weights,
)
from veilgraph.plans import Plan
from veilgraph.reports.text import plan_inputs
from veilgraph.runtime.simulate import entry_of

Samples: TypeAlias = npt.NDArray[np.float32]


def check(
    plan: AnyPlan,
    weights: AnyWeights,
    model: Model,
    inputs: AnyArrays | str | Path,
    *,
    tolerance: float | None = None,
    labels: str | Path | None = None,
    avgpool: bool = False,
    entry: str | None = None,
) -> Check:
    """Compares a plan's exact integers with its model, layer by layer.

    Args:
        plan: a plan, or the path of model.plan; exact ranges beside it are read too.
        weights: the plan's own, by name, or the path of model.weights.
        model: what the plan, or this entry of it, was compiled from.
        inputs: samples by input, on a new first axis: arrays, .npy files, or one .npz of all. A
            state's array is optional: else it is zero, and then what the sample before left.
        tolerance: of each layer's worst difference, as a share of its largest value; if None, 0.05
            of each output's.
        labels: a .npy file of what is right for each sample, to count right decisions.
        avgpool: say also what the model decides with average pools in place of max pools.
        entry: which of the plan's entries is compared; the first if None.

    Returns:
        Errors by layer and output; `status()` is the error that the verb would end with, or None.

    Raises:
        UsageError: files or arrays that don't fit, or a model that is not the plan's.
        AccuracyError: a sample or a weight that its encoding can't hold.
    """
    found = opened_plan(plan)
    if isinstance(plan, str | Path):
        found = with_ranges(found, ranges_file(Path(plan)))
    number = entry_of(found, entry)
    samples = opened_samples(found, inputs, number)
    arrays = {n: np.asarray(w, np.float32) for n, w in opened_weights(found, weights).items()}
    right = None
    if labels is not None:
        right = read_labels(
            Path(labels), min((len(array) for array in samples.values()), default=1)
        )
    return checking.check(
        found, arrays, model, samples, tolerance, labels=right, avgpool=avgpool, entry=entry
    )


def opened_samples(plan: Plan, inputs: AnyArrays | str | Path, entry: int) -> dict[str, Samples]:
    """Samples of each input of an entry, and of those states that are given.

    Raises:
        UsageError: files or arrays that don't fit.
    """
    tensors, parts = plan_inputs(plan, entry), Parts.in_plan(plan)
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    taken = {tensor.name: tensor.given_shape for tensor in tensors}
    columns = {tensor.name: tensor.columns for tensor in tensors if tensor.columns}
    encodings = {tensor.name: tensor.given for tensor in tensors if tensor.given != PLAIN}
    states = {tensor.name: tensor.shape for tensor in states_of(plan, entry)}
    if isinstance(inputs, str | Path):
        given = read_given(inputs, taken, parts, columns, encodings, states)
        return as_numbers(given, encodings, columns)
    given = parts.split(opened_arrays(inputs, tensors))
    samples = as_numbers(given, encodings, columns)
    checking.require_samples(samples, shapes, states)
    return samples

"""The library's functions, with paths wherever the command line has them, and results as objects.

`simulate`, `check`, `inspect` and `bench` do what the verbs do. A plan may
be model.plan, weights model.weights, arrays .npy or .npz files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from veilgraph.commands.files import read_inputs
from veilgraph.compilation.parts import Parts
from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.column_files import columns_named, places_of
from veilgraph.ir.plan.tables import Tensor
from veilgraph.measuring import measure as benching
from veilgraph.measuring.measure import Measurement
from veilgraph.measuring.pricing import Prediction, predict
from veilgraph.plans import Plan
from veilgraph.reports.text import plan_inputs
from veilgraph.runtime import simulate as simulating
from veilgraph.runtime.store import weights as weight_files

AnyPlan: TypeAlias = Plan | str | Path
AnyWeights: TypeAlias = Mapping[str, npt.ArrayLike] | str | Path | None
AnyArrays: TypeAlias = Mapping[str, npt.ArrayLike | str | Path]
Arrays: TypeAlias = dict[str, npt.ArrayLike]


def simulate(
    plan: AnyPlan,
    weights: AnyWeights,
    inputs: AnyArrays,
    *,
    iterations: int = 1,
    device: simulating.Devices = "cpu",
    threads: int = 1,
    isa: str | None = None,
    cubins: Path | None = None,
    entry: str | None = None,
) -> simulating.Answer:
    """Runs a plan with all parties in this process, which shows what it does and protects nothing.

    Args:
        plan: a plan, or the path of model.plan.
        weights: all weights by name, or the path of model.weights; None where they are public.
        inputs: all inputs by name: arrays, or paths of .npy files, or of .csv files for tables
            whose columns the plan names. A table of several owners may be given whole.
        iterations: inferences in one session, on the same inputs.
        device: where all parties compute, or where each does, by name: `cpu`, `cuda:0`.
        threads: that each party's kernels may use.
        isa: instruction set of the kernels; the best of this processor if None.
        cubins: a folder of the GPU's kernels that `prepare` compiled.
        entry: which of the plan's entries is run; the first if None. States begin as zero, and each
            inference goes on from the one before.

    Raises:
        UsageError, AccuracyError: a file or an array that does not fit the plan.
        SecurityAbort: the weights of another plan.
    """
    opened = opened_plan(plan)
    arrays = opened_weights(opened, weights)
    number = simulating.entry_of(opened, entry)
    given = Parts.in_plan(opened).split(opened_arrays(inputs, plan_inputs(opened, number)))
    return simulating.simulate(
        opened,
        arrays,
        given,
        iterations=iterations,
        device=device,
        threads=threads,
        isa=isa,
        cubins=cubins,
        entry=entry,
    )


def inspect(plan: AnyPlan, network: str | None = None, entry: str | None = None) -> Prediction:
    """What a plan costs on a network, layer by layer; `rows()` of it is for pandas.

    Args:
        network: `lan`, `wan` or a YAML file; the one that the plan was compiled for if None.
        entry: whose runs; the plan's first if None.
    """
    opened = opened_plan(plan)
    return predict(opened, network, entry=simulating.entry_of(opened, entry))


def bench(
    plan: AnyPlan,
    weights: AnyWeights = None,
    inputs: AnyArrays | None = None,
    *,
    iterations: int = 10,
    warm_up: int = benching.WARM_UP_RUNS,
    entry: str | None = None,
    **options: Any,
) -> Measurement:
    """Measures a plan with all parties on this machine, as `veilgraph bench` does.

    Args:
        weights, inputs: as in `simulate`; what is not given is drawn at random, for no protocol's
            time depends on values.
        iterations: inferences that count, after `warm_up` that don't.
        entry: as in `simulate`.
        options: `processes`, `device`, `threads`, `isa`, `cubins`, `shape`, as
            `measuring.measure.measure` has them.
    """
    opened = opened_plan(plan)
    arrays: Mapping[str, npt.ArrayLike] = (
        benching.random_weights(opened) if weights is None else opened_weights(opened, weights)
    )
    number = simulating.entry_of(opened, entry)
    drawn: Arrays = dict(benching.random_inputs(opened, number))
    known = opened_arrays(inputs or {}, plan_inputs(opened, number))
    given = drawn | Parts.in_plan(opened).split(known)
    return benching.measure(
        opened, arrays, given, iterations=iterations, warm_up=warm_up, entry=entry, **options
    )


def save_weights(
    weights: Mapping[str, npt.NDArray[np.float32]], path: str | Path, plan: Plan
) -> None:
    """Writes model.weights for a plan, as `compile` does; only its owner may read the file.

    Raises:
        UsageError: weights that the plan needs are missing, or the file can't be written.
    """
    missing = [tensor.name for tensor in plan.secret_weights if tensor.name not in weights]
    if missing:
        raise UsageError(
            f"These are not the plan's weights: {missing[0]} is missing.",
            "Give the weights that `compile` returned beside the plan.",
        )
    weight_files.save_weights(weights, path, plan.digest)


def load_weights(path: str | Path, plan: AnyPlan) -> dict[str, npt.NDArray[np.float32]]:
    """The weights in model.weights, which must be those of the plan.

    Raises:
        UsageError: no such file, no weights, or a party's shares of them.
        SecurityAbort: the weights of another plan.
    """
    return weight_files.load_weights(path, opened_plan(plan).digest)


# What is given


def opened_plan(plan: AnyPlan) -> Plan:
    """A plan, read where a path is given."""
    if isinstance(plan, Plan):
        return plan
    if not isinstance(plan, str | Path):
        raise UsageError(
            f"An object of type {type(plan).__name__} is given in place of a plan.",
            "Give what `compile` returned first, or the path of model.plan.",
        )
    return Plan.load(plan)


def opened_weights(plan: Plan, weights: AnyWeights) -> Mapping[str, npt.ArrayLike]:
    """Weights by name, read where a path is given."""
    if isinstance(weights, str | Path):
        return load_weights(weights, plan)
    if weights is None and plan.secret_weights:
        raise UsageError(
            "This plan's weights are secret, and none were given.",
            "Give what `compile` returned second, or the path of model.weights.",
        )
    if not isinstance(weights, Mapping | None):
        raise UsageError(
            f"An object of type {type(weights).__name__} is given in place of weights.",
            "Give arrays by name, or the path of model.weights.",
        )
    return weights or {}


def opened_arrays(given: AnyArrays, tensors: Sequence[Tensor] = ()) -> Arrays:
    """Arrays by name, read where a file is given: .npy, or .csv of one of these tensors.

    A data frame in place of all has the columns of each of them.
    """
    if hasattr(given, "columns"):
        frame: Any = given
        names = list(map(str, frame.columns))
        for tensor in tensors:
            if not tensor.given.lacks:
                known = {tensor.name: tensor.columns}
                places_of(
                    "The data frame", names, columns_named(tensor.name, tensor.given_shape, known)
                )
        return {tensor.name: frame for tensor in tensors}
    if not isinstance(given, Mapping):
        raise UsageError(
            f"An object of type {type(given).__name__} is given in place of inputs.",
            'Give arrays or .npy files by name: {"image": array}.',
        )
    files = {name: Path(x) for name, x in given.items() if isinstance(x, str | Path)}
    arrays = {name: x for name, x in given.items() if not isinstance(x, str | Path)}
    return {**arrays, **read_inputs(files, tensors)}

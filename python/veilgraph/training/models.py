"""Models that train: at the graph level, with the loss that a user gives, and under all names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.compilation.models import Model, import_model, is_torch
from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.training import COUNTER, LABELS, RUNNING_MEAN
from veilgraph.passes.graph.recognize_activations import RecognizeActivations
from veilgraph.passes.graph.training.programs import Training
from veilgraph.training.batches import one_hot


def judged_by(
    model: Model,
    samples: Mapping[str, npt.ArrayLike],
    batch: int,
    loss: str | Callable[..., Any],
) -> tuple[Graph, int]:
    """The model with its loss, and how many numbers a row of labels has if a user gave the loss.

    Raises:
        UsageError: a function as the loss of another model than a module of PyTorch.
    """
    if isinstance(loss, str):
        return forward_of(model, samples, batch), 0
    if not callable(loss):
        raise UsageError(
            f"A loss of type {type(loss).__name__} makes no sense.",
            "Give its name, the name of an output, or a function of output and labels.",
        )
    if not hasattr(model, "named_parameters") or not is_torch(model):
        raise UsageError(
            "A function can be the loss of a PyTorch module alone.",
            "Name the loss, or let the model compute it and name that output.",
        )
    if LABELS not in samples:
        raise UsageError("There are no `labels` for the loss.", "Give a row of them an example.")
    from veilgraph.training.own_loss import with_loss

    labels, whole = np.asarray(samples[LABELS]), dict(samples)
    if labels.ndim == 1 and labels.dtype.kind in "iu":
        others = {name: x for name, x in samples.items() if name != LABELS}
        graph = forward_of(model, others, batch)
        (output, *_) = graph.outputs.values()
        whole[LABELS] = one_hot(labels, prod(shape_of(output)[1:]))
    numbers = prod(np.shape(whole[LABELS])[1:])
    graph = _imported(with_loss(model, loss), whole, batch, has_loss=True)
    return RecognizeActivations().run(graph), numbers


def forward_of(model: Model, samples: Mapping[str, npt.ArrayLike], batch: int) -> Graph:
    """The model at the graph level, for batches of `batch` rows.

    Activations that it writes out are one function each, which has one derivative.
    """
    return RecognizeActivations().run(_imported(model, samples, batch))


def _imported(
    model: Model, samples: Mapping[str, npt.ArrayLike], batch: int, has_loss: bool = False
) -> Graph:
    if is_torch(model):
        if not hasattr(model, "training"):
            raise UsageError(
                "An exported program does not say which of its tensors are to be trained.",
                "Give the module itself in Python, or an ONNX model.",
            )
        given = {n: np.asarray(x) for n, x in samples.items() if has_loss or n != LABELS}
        named = {
            n: (x if x.dtype.kind in "iub" and n != LABELS else x.astype(np.float32))[:batch]
            for n, x in given.items()
        }
        return import_model(model, None, named, trains=True)[0]
    shapes = {n: (batch, *np.shape(x)[1:]) for n, x in samples.items() if n != LABELS}
    from veilgraph.frontend.onnx.training_mode import in_training

    found = in_training(model, shapes)
    return found.tell(import_model(found.model, shapes)[0])


def tied_names(model: Model, begun: Collection[str]) -> dict[str, str]:
    """Of a module's tied parameters and statistics, the names that are no state's, each with the
    state's.
    """
    every = [*_named(model, "named_parameters"), *_named(model, "named_buffers")]
    states = {id(tensor): name for name, tensor in every if name in begun}
    return {
        name: states[id(tensor)]
        for name, tensor in every
        if name not in begun and id(tensor) in states
    }


def counters(model: Model, training: Training) -> dict[str, tuple[int, int]]:
    """Of a module's counts of batches, where each begins and by how much a step raises it."""
    buffers = dict(_named(model, "named_buffers"))
    norms = {id(buffers[name]): count for name, count in training.norms.items() if name in buffers}
    found = {}
    for name, counter in buffers.items():
        layer, _, own = name.rpartition(COUNTER)
        mean = buffers.get(f"{layer}{RUNNING_MEAN}")
        if not own and mean is not None and id(mean) in norms:
            found[name] = int(counter), norms[id(mean)]
    return found


def _named(model: Model, which: str) -> list[tuple[str, Any]]:
    """A module's parameters or buffers, under all of their names; none of another model."""
    return list(getattr(model, which)(remove_duplicate=False)) if hasattr(model, which) else []

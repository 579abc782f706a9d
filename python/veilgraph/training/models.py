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

ALIKE = 2.0**-10  # of a loss: how far it may be off between class numbers and one-hot rows


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
        whole[LABELS] = _as_rows(labels, shape_of(output), loss)
    numbers = prod(np.shape(whole[LABELS])[1:])
    graph = _imported(with_loss(model, loss), whole, batch, has_loss=True)
    return RecognizeActivations().run(graph), numbers


def _as_rows(
    labels: npt.NDArray[Any], output: tuple[int, ...], loss: Callable[..., Any]
) -> npt.NDArray[np.float32]:
    """Class numbers as a loss takes them that is a function: one-hot rows, or 0 and 1.

    Raises:
        UsageError: an output of other rows than classes; a loss that means another thing by class
            numbers than by one-hot rows, as with weights of classes.
    """
    if prod(output[1:]) == 1:
        return labels.reshape(-1, *output[1:]).astype(np.float32)
    if len(output) != 2:
        raise UsageError(
            f"Labels are one number a row, and the model's output is of shape {list(output)}.",
            "Give labels of the output's own shape.",
        )
    import torch

    rows = one_hot(labels, output[1])
    z = torch.randn(output, generator=torch.Generator().manual_seed(0))
    first = labels[: output[0]]
    try:
        by_number = float(loss(z, torch.from_numpy(first.astype(np.int64))))
    except Exception:  # a user's function, which may take rows alone
        return rows
    by_row = float(loss(z, torch.from_numpy(rows[: output[0]])))
    if abs(by_number - by_row) > ALIKE * max(abs(by_number), 1.0):
        raise UsageError(
            f"The loss of class numbers is {by_number:.4g}, and that of one-hot rows "
            f"{by_row:.4g}: another function.",
            "Give labels as rows, as this loss is to take them.",
        )
    return rows


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

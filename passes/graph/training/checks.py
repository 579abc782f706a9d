"""What a model that is trained has to be, so that its steps are those that were asked for."""

from __future__ import annotations

from fnmatch import fnmatchcase
from math import prod

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph import ops
from veilgraph.ir.training import CORRECT, COUNTED, LABELS, LOSS, OVERFLOW
from veilgraph.passes.graph.training.batch_norms import share_of
from veilgraph.passes.graph.training.losses import LOSSES
from veilgraph.passes.graph.training.programs import Training


def require_trainable(training: Training) -> None:
    """Raises UsageError for what can't be trained."""
    graph = training.forward
    for pattern in training.frozen:
        if not any(fnmatchcase(name, pattern) for name in graph.weights):
            raise UsageError(
                f"No parameter is named like `{pattern}`.",
                f"The parameters are {', '.join(graph.weights) or 'none'}.",
            )
    if not training.parameters:
        raise UsageError(
            "The model has no parameter to train.",
            "Give one whose weights are initialisers, and freeze not all of them.",
        )
    _require_norms(training)
    _require_own_names(training)
    _require_loss(training)
    _require_answers(training)


def _require_norms(training: Training) -> None:
    """Batch norms whose statistics a step can let follow."""
    norms = [op for op in training.forward.operations if isinstance(op, ops.BatchNorm)]
    # Gradients say nothing about what a norm normalises by.
    if trained := [name for name in training.read_by(norms) if name in training.parameters]:
        raise UsageError(
            f"Running statistics of a batch norm would be trained: {', '.join(trained)}.",
            "Freeze them, and the layer goes on normalising by them.",
        )
    cumulative = [op for op in training.followed_norms() if share_of(op) is not None]
    if several := [n for n in training.read_by(cumulative) if training.norms[n] > 1]:
        raise UsageError(
            f"A mean over all batches is of several places of a model: {several[0]}.",
            "Give this batch norm a momentum, such as 0.1, or each place a norm of its own.",
        )
    if training.is_noisy and training.statistics:
        raise UsageError(
            f"Running statistics would tell of rows without noise: {training.statistics[0]}.",
            "Freeze the batch norms, or take layer norms.",
        )


def _require_own_names(training: Training) -> None:
    """Receivers and owners go by name, over all entries: no two things have the same."""
    given = {*training.announced, *training.masks, *training.noises.values()}
    given |= {*training.given_shapes} if training.batch.rows else set()
    given |= {COUNTED} if training.counts else set()
    told = given | {OVERFLOW} | ({LOSS} if training.named else set())
    told |= {CORRECT} if training.counts else set()
    held = {*training.held.values(), *training.counting}
    taken = (
        ("an input", training.forward.inputs, given | ({LABELS} if training.named else set())),
        ("an output", training.forward.outputs, told),
        ("a parameter", training.begun, given | told | held | {LABELS, LOSS}),
    )
    for kind, names, own in taken:
        if clashing := [name for name in names if name in own]:
            raise UsageError(
                f"The model has {kind} `{clashing[0]}`, a name that the plan uses itself.",
                "Rename it in the model.",
            )


def _require_loss(training: Training) -> None:
    """A loss that is known, of an output that it takes; or an output that is one number."""
    outputs = training.forward.outputs
    if training.named:
        training.named.check(outputs[training.output])
    elif training.loss not in outputs:
        raise UsageError(
            f"There is no loss `{training.loss}`, and no such output.",
            f"Losses are {', '.join(LOSSES)}; the outputs are {', '.join(outputs)}.",
        )
    elif prod(shape_of(outputs[training.loss])) != 1:
        raise UsageError(
            f"The loss `{training.loss}` is no single number, but of shape "
            f"{list(shape_of(outputs[training.loss]))}.",
            "Take the mean of it over the batch in the model.",
        )


def _require_answers(training: Training) -> None:
    """Answers that are right or wrong, where they are counted."""
    if not training.counts:
        return
    if training.named is None or not training.named.decides:
        named = ", ".join(name for name, loss in LOSSES.items() if loss.decides)
        raise UsageError(
            f"The loss `{training.loss}` is of no answers that are correct or not.",
            f"Correct answers are counted of {named}; an output of the model, or the loss, can be "
            "revealed in their place.",
        )
    if training.named.by_row and training.labels.classes < 2:
        raise UsageError(
            "Of one class every answer is the same.", "Take binary_cross_entropy, or more classes."
        )

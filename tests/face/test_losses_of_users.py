"""Losses that are functions, and inputs that are whole numbers, of PyTorch modules that train."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from training_cases import BATCH, CLASSES, RATE, ROWS, Perceptron, X, Y, logistic

import veilgraph
from veilgraph.ir.errors import UsageError
from veilgraph.training.batches import orders

STEPS = 10
TARGETS = np.random.default_rng(4).standard_normal((ROWS, CLASSES)).astype(np.float32)
SMOOTH = nn.CrossEntropyLoss(label_smoothing=0.1)


def squared_and_weighed(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return ((output - labels) ** 2 * torch.tensor([1.0, 2.0, 0.5])).mean()


LOSSES: dict[str, tuple[Any, Any]] = {
    "weighed": (squared_and_weighed, TARGETS),
    "huber": (nn.HuberLoss(), TARGETS),
    "smooth": (SMOOTH, Y),
}


def by_torch(model: nn.Module, x: Any, labels: Any, loss: Any) -> tuple[list[float], Any]:
    losses, optimizer = [], torch.optim.SGD(model.parameters(), RATE)
    for rows in islice(orders(ROWS, BATCH, 0), STEPS):
        optimizer.zero_grad()
        value = loss(model(torch.tensor(x[rows])), torch.tensor(labels[rows]))
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses, {name: p.detach().numpy() for name, p in model.named_parameters()}


@pytest.mark.parametrize("which", LOSSES)
def test_a_function_is_the_loss(which: str) -> None:
    """Parameters keep the module's names, and class numbers become one-hot rows."""
    loss, labels = LOSSES[which]
    rows = {"x": X, "labels": labels}
    plan, weights = veilgraph.compile_training(
        Perceptron().train(), rows, loss=loss, batch=BATCH, rate=RATE, steps=STEPS,
        owners={"labels": "bob"}, reveal={"parameters": "alice", "loss": "alice"},
    )  # fmt: skip
    found = veilgraph.simulate_training(plan, weights, rows, rate=RATE, steps=STEPS)
    losses, parameters = by_torch(Perceptron().train(), X, labels, loss)
    assert found.losses == pytest.approx(losses, abs=0.02)
    for name, wanted in parameters.items():
        assert found.parameters[name] == pytest.approx(wanted, abs=0.02)
    model = Perceptron().train()
    rehearsed = veilgraph.rehearse(plan, weights, model, rows, rate=RATE, loss=loss)
    real, fixed = rehearsed.epochs[-1]
    assert fixed.loss == pytest.approx(real.loss, abs=0.02)


class OneNumber(nn.Module):
    """A logit a row, without an axis of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.last = nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x).squeeze(-1)


def test_labels_of_one_number_have_the_outputs_shape() -> None:
    """[rows, 1] beside [rows] would be each row with each: another loss, and no error."""
    rows = {"x": X, "labels": Y}
    plan, weights = veilgraph.compile_training(
        OneNumber().train(), rows, loss=nn.MSELoss(), batch=BATCH, rate=RATE, steps=STEPS,
        reveal={"parameters": "alice", "loss": "alice"},
    )  # fmt: skip
    found = veilgraph.simulate_training(plan, weights, rows, rate=RATE, steps=STEPS)
    losses, parameters = by_torch(
        OneNumber().train(), X, Y, lambda z, y: functional.mse_loss(z, y.float())
    )
    assert found.losses == pytest.approx(losses, abs=0.02)
    for name, wanted in parameters.items():
        assert found.parameters[name] == pytest.approx(wanted, abs=0.02)


def test_weights_of_classes_weigh_rows_otherwise_than_class_numbers() -> None:
    """PyTorch divides by the sum of weights in one case, and by the rows in the other."""
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0, 0.5]))
    with pytest.raises(UsageError, match=r"one-hot rows .*: another function"):
        veilgraph.compile_training(
            Perceptron().train(), {"x": X, "labels": Y}, loss=loss, batch=BATCH, steps=2
        )


class TakesLabels(nn.Module):
    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return x + labels


@pytest.mark.parametrize(
    ("model", "given", "told"),
    [
        (logistic(), {}, "A function can be the loss of a PyTorch module alone"),
        (TakesLabels().train(), {}, "TakesLabels has an argument `labels` of its own"),
        (Perceptron().train(), {"samples": {"x": X}}, "There are no `labels` for the loss"),
        (Perceptron().train(), {"loss": 3}, "A loss of type int makes no sense"),
        (
            Perceptron().train(),
            {"loss": lambda output, labels: output - labels},
            "the loss is no single number",
        ),
    ],
)
def test_functions_that_are_no_loss(model: Any, given: dict[str, Any], told: str) -> None:
    options: dict[str, Any] = {"samples": {"x": X, "labels": TARGETS}, "loss": nn.MSELoss()}
    options |= given
    with pytest.raises(UsageError, match=told):
        veilgraph.compile_training(model, options.pop("samples"), batch=BATCH, steps=2, **options)


def test_an_exported_program_does_not_say_what_is_trained() -> None:
    exported = torch.export.export(Perceptron().train(), (torch.tensor(X[:BATCH]),))
    with pytest.raises(UsageError, match="does not say which of its tensors are to be trained"):
        veilgraph.compile_training(
            exported, {"x": X, "labels": Y}, loss="cross_entropy", batch=BATCH
        )


class Looked(nn.Module):
    """Rows of a table, by numbers that nobody else sees."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table, self.last = nn.Embedding(7, 4), nn.Linear(8, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.last(self.table(ids).flatten(1))


def test_an_embedding_of_several_owners_takes_whole_numbers() -> None:
    ids = np.random.default_rng(5).integers(0, 7, (ROWS, 2))
    plan, weights = veilgraph.compile_training(
        Looked().train(), {"ids": ids, "labels": Y}, loss="cross_entropy",
        batch={"alice": 10, "bob": 6}, rate=RATE, steps=STEPS, reveal={"parameters": "alice"},
    )  # fmt: skip
    own = {
        who: {"ids": ids[rows], "labels": Y[rows]}
        for who, rows in (("alice", slice(0, 100)), ("bob", slice(100, 160)))
    }
    veilgraph.simulate_training(plan, weights, own, rate=RATE, steps=2)
    own["bob"]["ids"] = own["bob"]["ids"] + 0.5
    with pytest.raises(UsageError, match="Row 0 of `ids` holds a number that is not whole"):
        veilgraph.simulate_training(plan, weights, own, rate=RATE, steps=2)


def test_an_embedding_is_trained_on_whole_numbers() -> None:
    ids = np.random.default_rng(5).integers(0, 7, (ROWS, 2))
    rows = {"ids": ids, "labels": Y}
    plan, weights = veilgraph.compile_training(
        Looked().train(), rows, loss="cross_entropy", batch=BATCH, rate=RATE, steps=STEPS,
        reveal={"parameters": "alice"},
    )  # fmt: skip
    found = veilgraph.simulate_training(plan, weights, rows, rate=RATE, steps=STEPS)
    _, parameters = by_torch(Looked().train(), ids, Y, functional.cross_entropy)
    for name, wanted in parameters.items():
        assert found.parameters[name] == pytest.approx(wanted, abs=0.02)
    halves = {"ids": ids + 0.5, "labels": Y}
    with pytest.raises(UsageError, match="Row 0 of `ids` holds a number that is not whole"):
        veilgraph.simulate_training(plan, weights, halves, rate=RATE, steps=1)

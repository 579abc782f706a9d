"""How many answers are correct is told, of all rows that are evaluated, and nothing of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from training_cases import BATCH, INPUTS, WITH_CLEARTEXT, Perceptron, X, Y

import veilgraph
from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.training import MOST_ANSWERS, Recipe
from veilgraph.reports.text import reveals, verified_or_why
from veilgraph.training.plan_steps import inputs_of
from veilgraph.training.runs.evaluations import Evaluation
from veilgraph.training.simulated import Trained

# Whole numbers and a half, no two alike in a row: no rounding turns an answer over.
ROWS = np.argsort(X, axis=1).astype(np.float32) - 2.5
CLASSES = {"x": ROWS, "labels": Y}
BITS = {"x": ROWS, "labels": np.stack([Y == 0, X[:, 0] > 0], 1).astype(np.float32)}
RATE = 1e-3


class Copied(nn.Module):
    """The first numbers of a row."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.last = nn.Linear(INPUTS, outputs, bias=False)
        self.last.weight.data = torch.eye(outputs, INPUTS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x)


def compiled(suite: str, outputs: int, data: Any, **options: Any) -> tuple[veilgraph.Plan, Any]:
    alone = suite == "cleartext"
    given: dict[str, Any] = {
        "loss": "cross_entropy",
        "batch": BATCH,
        "rate": RATE,
        "steps": 4,
        "reveal": {"correct": "alice" if alone else "bob"},
        "owners": None if alone else {"labels": "bob"},
        **WITH_CLEARTEXT[suite],
    }
    model = Copied(outputs).train()
    return veilgraph.compile_training(model, data, **{**given, **options})


def counted(plan: veilgraph.Plan, weights: Any, data: Any, rows: Any) -> Trained:
    return veilgraph.simulate_training(plan, weights, data, rate=RATE, steps=1, evaluate=rows)


@pytest.mark.parametrize("suite", WITH_CLEARTEXT)
def test_classes(suite: str) -> None:
    """Of fewer rows than a batch, as many, and more: what fills a batch counts nothing."""
    plan, weights = compiled(suite, 3, CLASSES)
    for count in (5, BATCH, 2 * BATCH + 1):
        rows = {name: x[:count] for name, x in CLASSES.items()}
        found = counted(plan, weights, CLASSES, rows)
        assert found.correct == (ROWS[:count, :3].argmax(axis=1) == Y[:count]).sum()
        assert found.outputs == [{}] * -(-count // BATCH)


@pytest.mark.parametrize("suite", WITH_CLEARTEXT)
def test_zeros_and_ones(suite: str) -> None:
    """An answer for each number of a row; 1 is right of what is 0 or above."""
    plan, weights = compiled(suite, 2, BITS, loss="binary_cross_entropy")
    rows = {name: x[: BATCH + 3] for name, x in BITS.items()}
    wanted = ((rows["x"][:, :2] >= 0) == (rows["labels"] == 1)).sum()
    assert counted(plan, weights, BITS, rows).correct == wanted
    assert 0 < wanted < 2 * (BATCH + 3)


def test_of_equal_numbers_the_first_is_the_answer() -> None:
    """As of torch.argmax; a logit of 0 answers 1."""
    equal = {"x": np.ones((BATCH, INPUTS), np.float32), "labels": np.arange(BATCH) % 3}
    plan, weights = compiled("rep3", 3, CLASSES, rate=1e-6)
    found = veilgraph.simulate_training(plan, weights, CLASSES, rate=1e-6, steps=1, evaluate=equal)
    assert found.correct == (equal["labels"] == 0).sum()


def test_rows_of_several_owners() -> None:
    """An owner with fewer batches repeats a row, which counts once."""
    plan, weights = compiled(
        "rep3", 3, CLASSES, batch={"alice": 10, "bob": 6}, owners=None, reveal={"correct": "carol"}
    )
    own = {
        "alice": {name: x[:25] for name, x in CLASSES.items()},
        "bob": {name: x[25:32] for name, x in CLASSES.items()},
    }
    found = counted(plan, weights, own, own)
    assert found.correct == (ROWS[:32, :3].argmax(axis=1) == Y[:32]).sum()


def test_beside_outputs_and_with_soft_labels() -> None:
    """Training may weigh classes; what is evaluated has one class a row."""
    weighted = np.eye(3, dtype=np.float32)[Y] * np.array([1.0, 0.5, 2.0], np.float32)
    plan, weights = compiled(
        "rep3", 3, {"x": ROWS, "labels": weighted},
        reveal={"correct": "bob", "output": "carol"}, reveal_as="argmax",
    )  # fmt: skip
    data = {"x": ROWS, "labels": weighted}
    found = counted(plan, weights, data, CLASSES)
    answers = np.concatenate([each["output"] for each in found.outputs])
    assert found.correct == (answers == Y).sum() == (ROWS[:, :3].argmax(axis=1) == Y).sum()
    with pytest.raises(UsageError, match="The label of row 0 is no class"):
        counted(plan, weights, data, {"x": ROWS, "labels": np.full((len(X), 3), 1 / 3)})


def test_only_who_is_named_is_told_and_once() -> None:
    plan, _ = compiled("rep3", 3, CLASSES)
    entries = plan.manifest.entries
    told = {
        (entries[t.entry], t.name, who)
        for who, program in plan.programs.items()
        for t in program.outputs
        if entries[t.entry] in ("evaluate", "correct")
    }
    assert told == {("correct", "correct", "bob")}
    assert plan.manifest.receivers["correct"] == ("bob",)
    assert inputs_of(plan, "correct") == []
    text = "\n".join(map(str, reveals(plan, verified_or_why(plan))))
    assert "correct" in text


def test_by_default_nothing_is_counted() -> None:
    plan, _ = compiled("rep3", 3, CLASSES, reveal=None)
    assert not {"evaluate", "correct"} & {*plan.manifest.entries}
    assert "correct.sum" not in plan.manifest.states


def test_a_rehearsal_steps_and_counts_nothing() -> None:
    plan, weights = compiled("rep3", 3, CLASSES)
    found = veilgraph.rehearse(plan, weights, Copied(3).train(), CLASSES, rate=RATE)
    assert found.status() is None


def test_another_plan_that_counts_goes_on_from_the_same_checkpoints() -> None:
    """The sum is in none of them."""
    plan, _ = compiled("rep3", 3, CLASSES, reveal=None)
    other, _ = compiled("rep3", 3, CLASSES, like=plan, steps=8)
    assert "correct.sum" in other.manifest.states
    assert other.manifest.options["unsaved"] == ["correct.sum"]


@pytest.mark.parametrize(
    ("outputs", "loss", "told"),
    [
        (2, "mse", "The loss `mse` is of no answers that are correct or not"),
        (1, "cross_entropy", "Of one class every answer is the same"),
    ],
)
def test_losses_without_answers(outputs: int, loss: str, told: str) -> None:
    data = {"x": ROWS, "labels": BITS["labels"][:, :outputs]}
    with pytest.raises(UsageError, match=told):
        compiled("rep3", outputs, data, loss=loss)


def test_more_answers_than_can_be_counted() -> None:
    plan, _ = compiled("rep3", 3, CLASSES)
    many = Evaluation.of(Recipe.of(plan.manifest.options), {"bob": MOST_ANSWERS + 1})
    with pytest.raises(UsageError, match=f"{MOST_ANSWERS + 1} answers are to be counted"):
        many.require_counted()


@pytest.mark.parametrize("told", [-1.0, 6.0, 2.5])
def test_a_number_that_cannot_be_is_refused(told: float) -> None:
    """As of a party that counts what fills a batch."""
    plan, _ = compiled("rep3", 3, CLASSES)
    evaluation = Evaluation.of(Recipe.of(plan.manifest.options), {"bob": 5})
    with pytest.raises(SecurityAbort, match=r"Of 5 answers .* can't be correct"):
        evaluation.possible({"correct": np.array([told], np.float32)})
    assert evaluation.possible({"correct": np.array([5.0], np.float32)})
    assert not evaluation.possible({})


def test_a_model_that_has_such_an_output() -> None:
    """Receivers go by name."""

    class Named(Perceptron):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
            return {"correct": super().forward(x)}

    with pytest.raises(UsageError, match="an output `correct`, a name that the plan uses itself"):
        veilgraph.compile_training(
            Named().train(), {"x": X, "labels": Y}, loss="cross_entropy", batch=BATCH,
            reveal={"correct": "bob"},
        )  # fmt: skip

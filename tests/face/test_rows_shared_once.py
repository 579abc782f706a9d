"""Rows that are shared once: steps find them among the states, and send none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from training_cases import BATCH, DATA, RATE, ROWS, STEPS, WITH_CLEARTEXT, Perceptron, X, by_torch
from training_cases import trained as trained_by

import veilgraph
from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import Phase
from veilgraph.training.batches import batches_of
from veilgraph.training.exact_rehearsal import rehearse
from veilgraph.training.plan_steps import step_bytes


def trained(suite: str, share_once: bool = True) -> tuple[veilgraph.Plan, Any]:
    return trained_by("perceptron", suite, share_once=share_once)


@pytest.mark.parametrize("suite", WITH_CLEARTEXT)
def test_steps_are_those_of_torch_on_the_same_rows(suite: str) -> None:
    """In two epochs of another order, by shares of rows that were sent once."""
    plan, weights = trained(suite)
    veilgraph.verify(plan)
    assert plan.manifest.entries == ("step", "start", "evaluate", "reveal", "share", "audit")
    found = veilgraph.simulate_training(
        plan, weights, DATA, rate=RATE, steps=STEPS, evaluate={"x": X[: 2 * BATCH]}
    )
    losses, wanted = by_torch("perceptron", [RATE] * STEPS)
    assert np.abs(np.array(found.losses) - losses).max() < 0.1
    assert found.parameters.keys() == wanted.keys()
    for name, array in wanted.items():
        assert np.abs(found.parameters[name] - array).max() < 0.05
    assert [outputs["output"].shape for outputs in found.outputs] == [(BATCH, 3)] * 2


def online(plan: Plan, entry: str) -> int:
    """Bytes of all parties."""
    return sum(plan.sent_bytes(Phase.ONLINE, plan.manifest.entries.index(entry)).values())


def test_a_step_sends_no_rows() -> None:
    """It sends less online, by no more than what the rows cost that are shared once.

    A row that an owner shares has a part that is zero, for which the first product sends less.
    """
    (once, _), (each, _) = trained("rep3"), trained("rep3", share_once=False)
    assert 0 < online(each, "step") - online(once, "step") <= online(once, "share")
    inputs = {t.name for p in once.programs.values() for t in p.inputs if t.entry == 0}
    assert inputs == {"step_size", "momentum", "decay"}
    assert step_bytes(once) < step_bytes(each)


def test_rows_are_no_parameters() -> None:
    """An audit looks at no rows, and nobody receives any."""
    (once, _), (each, _) = trained("rep3"), trained("rep3", share_once=False)
    assert online(once, "audit") == online(each, "audit")
    told = {r.what for r in veilgraph.verify(once).revealed}
    assert not any("rows" in what for what in told)
    (loss,) = (r for r in veilgraph.verify(once).revealed if r.what == "output loss")
    assert {"x", "labels"} <= set(loss.depends)


@pytest.mark.parametrize("rows", [BATCH, BATCH + 1, 3 * BATCH, 4 * BATCH - 1])
def test_batches_that_share_take_each_row(rows: int) -> None:
    found = list(batches_of(rows, BATCH, -(-rows // BATCH)))
    assert all(len(each) == BATCH for each in found)
    assert {*np.concatenate(found).tolist()} == set(range(rows))
    assert len(found) == -(-rows // BATCH)


def test_rows_that_fill_no_batch_are_shared_too() -> None:
    """The last ones with rows before them."""
    plan, weights = trained("rep3")
    rows = {name: x[: 3 * BATCH + 5] for name, x in DATA.items()}
    once = veilgraph.simulate_training(plan, weights, rows, rate=RATE, epochs=3)
    plan, weights = trained("rep3", share_once=False)
    each = veilgraph.simulate_training(plan, weights, rows, rate=RATE, epochs=3)
    assert len(once.losses) == len(each.losses) == 9
    assert np.abs(np.array(once.losses) - each.losses).max() < 0.05


def test_a_rehearsal_in_exact_integers() -> None:
    plan, weights = trained("rep3")
    found = rehearse(plan, weights, Perceptron().train(), DATA, rate=RATE, epochs=2)
    assert found.status() is None
    real, fixed = found.epochs[-1]
    assert abs(real.right - fixed.right) <= 3


def test_a_row_out_of_range_is_refused_by_its_number() -> None:
    plan, weights = trained("rep3")
    far = X.copy()
    far[ROWS - 1] *= 100
    with pytest.raises(AccuracyError, match=f"Row {ROWS - 1} of `x` holds a number outside"):
        veilgraph.simulate_training(plan, weights, {**DATA, "x": far}, rate=RATE)

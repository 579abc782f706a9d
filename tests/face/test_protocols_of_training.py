"""A step's protocols are chosen as an inference's are: by a goal, and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from training_cases import BATCH, DATA, Perceptron, logistic

import veilgraph
from veilgraph.cli import main
from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.training import STEP
from veilgraph.training.plan_steps import step_bytes


def compiled(**named: Any) -> veilgraph.Plan:
    return veilgraph.compile_training(
        Perceptron().train(), DATA, loss="cross_entropy", batch=BATCH, steps=5, audit=False, **named
    )[0]


def rounds(plan: veilgraph.Plan) -> int:
    return plan.rounds(Phase.ONLINE, plan.manifest.entries.index(STEP))


def chosen(plan: veilgraph.Plan) -> set[str]:
    return {layer.protocol for layer in plan.layers if layer.protocol}


def test_each_goal_is_best_at_what_it_is_for() -> None:
    fast = compiled(goal="fewest-rounds", roles="fixed")
    small = compiled(goal="least-bytes", roles="rotated")
    assert rounds(fast) < rounds(small)
    assert step_bytes(fast) > step_bytes(small)
    told = {"goal": "least-bytes", "roles": "rotated"}
    assert told.items() <= small.manifest.options.items()


def test_what_is_prepared_ahead_has_no_price() -> None:
    """A tree sends the least online, and most of all in the offline phase."""
    prepared = compiled(goal="least-bytes", prepared=True)
    assert "compare=tree" in chosen(prepared)
    held = compiled(goal="least-bytes", prepared=True, most_store=20_000)
    assert "compare=tree" not in chosen(held)


def test_a_variant_is_named_by_hand() -> None:
    assert "compare=merges" in chosen(compiled(protocols={"compare": "merges"}))


def test_a_keyword_that_there_is_not_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'ownr'"):
        compiled(ownr={"labels": "bob"})


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({"goal": "speed"}, "Protocols can't be chosen by 'speed'"),
        ({"roles": "none"}, "Roles can't be 'none'"),
        ({"protocols": "fewest-rounds"}, "is 'fewest-rounds', and not a variant for each op"),
        ({"protocols": {"compare": "ripples"}}, "ripples"),
    ],
)
def test_what_makes_no_sense_is_refused(named: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        compiled(**named)


def test_the_command_line_says_them_too(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_bytes(logistic().SerializeToString())
    np.savez("rows.npz", **DATA)
    given = ["--train", "cross_entropy", "--batch", "16", "--calibrate", "rows.npz", "--rehearse"]
    asked = ["--protocols", "fewest-rounds", "--roles", "fixed", "--protocol", "compare=merges"]
    found = CliRunner().invoke(main, ["compile", "model.onnx", *given, "5", "--prepared", *asked])
    assert found.exit_code == 0, found.output
    options = veilgraph.Plan.load(tmp_path / "model.plan").manifest.options
    assert (options["goal"], options["roles"]) == ("fewest-rounds", "fixed")
    assert options["protocols"] == {"compare": "merges"}

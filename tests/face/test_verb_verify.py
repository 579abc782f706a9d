"""`veilgraph verify`, and `run` and `prepare`, which verify before they take part."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from small_plans_to_verify import bare, retold
from verbs import Compiled, json_of, reason, run_verb

from veilgraph.measuring.processes import write_configs
from veilgraph.plans import Plan
from veilgraph.verification.verified_plans import recorded
from veilgraph.verification.verify import verify

BLOCKED = """
import sys
for name in ("torch_mlir", "onnx", "onnxruntime", "torch"):
    sys.modules[name] = None
from veilgraph.cli import main
main()
"""


@pytest.fixture
def leaky(copied: Compiled) -> Plan:
    """The digits plan as `leaky.plan`: its text is the honest one's, its tables send an input."""
    plan = copied.plan
    made = replace(retold(plan, bare), ir=plan.ir, layers=plan.layers)
    made.save("leaky.plan")
    write_configs(copied.folder, plan.manifest.parties)
    return made


def test_says_what_was_checked_and_what_is_revealed(digits: Compiled) -> None:
    shown = run_verb("verify", digits.file("digits.plan")).stdout
    for text in (
        *("one of three parties may be curious", "hidden from alice; bob; carol"),
        *(digits.plan.digest, "output logits", "10 numbers", "image, weights", "431 k numbers"),
    ):
        assert text in shown
    found = json_of("verify", digits.file("digits.plan"))
    assert found["coalitions"] == [["alice"], ["bob"], ["carol"]]
    assert found["revealed"][0] == {
        "what": "output logits", "numbers": 10, "to": ["alice"], "depends": ["image", "weights"],
        "kind": "output",
    }  # fmt: skip


def test_a_party_has_no_compiler_and_no_model(digits: Compiled, tmp_path: Path) -> None:
    (tmp_path / "digits.plan").write_bytes(Path(digits.file("digits.plan")).read_bytes())
    command = [sys.executable, "-c", BLOCKED, "verify", "digits.plan", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["suite"] == "rep3"


def test_with_a_configuration_run_need_not_verify_again(copied: Compiled) -> None:
    write_configs(copied.folder, copied.plan.manifest.parties)
    assert run_verb("verify", "digits.plan", "--config", "carol.yaml").exit_code == 0
    assert recorded(copied.plan, Path("carol.state")) == verify(copied.plan)
    assert recorded(copied.plan, Path("alice.state")) is None


def test_a_plan_that_leaks_is_refused(leaky: Plan) -> None:
    told = reason("verify", "leaky.plan", "--config", "alice.yaml")
    assert told[0] == 6
    assert "alice's table steps is not its program's" in told[1].replace("\n", " ")
    assert recorded(leaky, Path("alice.state")) is None
    assert reason("inspect", "leaky.plan", "--reveals")[0] == 6


def test_a_page_says_that_a_plan_is_refused(leaky: Plan) -> None:
    assert run_verb("inspect", "leaky.plan", "--html", "leaky.html").exit_code == 0
    assert "NOT VERIFIED. The plan is refused" in Path("leaky.html").read_text()


def test_a_plan_that_leaks_is_not_run(leaky: Plan) -> None:
    """Nobody listens or dials: with a timeout alone the answer would be 5."""
    party = ("--party", "alice", "--config", "alice.yaml")
    ran = ("run", "leaky.plan", *party, "--input", "image=@image.npy", "--timeout", "0.5")
    code, told = reason(*ran)
    assert code == 6
    assert "The plan is refused" in told
    assert reason(*ran, "--trust-author")[0] == 5
    prepared = ("prepare", "leaky.plan", *party, "--store", "alice.store", "--count", "1")
    assert reason(*prepared)[0] == 6


def test_a_plan_without_its_text_is_refused(copied: Compiled) -> None:
    plan, _ = copied.without_text("party")
    code, told = reason("verify", plan)
    assert code == 6
    assert "carries no text of its program" in told

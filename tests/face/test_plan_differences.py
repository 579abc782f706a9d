"""`inspect --diff`: what changed from one plan to another, of what was verified."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from small_plans_to_verify import bare, plan_of, retold
from verbs import json_of, reason, run_verb


@pytest.fixture
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of one small model in the current folder, a file a way."""
    monkeypatch.chdir(tmp_path)
    for way in ("rep3", "rep3, two receivers", "rep3, mixed rings", "additive"):
        plan_of(way).save(f"{way.rpartition(' ')[2]}.plan")


def changed(old: str, new: str, *options: str) -> dict[str, tuple[str, str]]:
    found = json_of("inspect", "--diff", old, new, *options)["changed"]
    return {each["what"]: (each["old"], each["new"]) for each in found}


def test_a_plan_is_the_same_as_itself(plans: None) -> None:
    result = run_verb("inspect", "--diff", "rep3.plan", "rep3.plan")
    assert (result.exit_code, result.stdout) == (0, "Nothing changed: it is the same plan.\n")
    assert changed("rep3.plan", "rep3.plan") == {}


def test_another_receiver_is_shown_with_what_it_costs(plans: None) -> None:
    found = changed("rep3.plan", "receivers.plan")
    of = ", computed from x and weights"
    assert found.pop("output y") == (f"3 numbers to alice{of}", f"3 numbers to alice and carol{of}")
    assert any(what.startswith("bytes, ") for what in found)
    assert not any(what in found for what in ("suite", "parties", "rings, in bits", "owner of x"))
    result = run_verb("inspect", "--diff", "rep3.plan", "receivers.plan")
    assert result.exit_code == 0
    assert "changed" in result.stdout
    assert "3 numbers to alice and carol" in result.stdout


def test_rings_and_the_error_are_shown(plans: None) -> None:
    found = changed("rep3.plan", "rings.plan", "--network", "wan")
    assert found["rings, in bits"] == ("60, 64", "22, 32")
    assert found["error, as the author says"] == ("None", "0.001")
    assert int(found["bytes, online"][0]) > int(found["bytes, online"][1])
    assert "output y" not in found
    assert "predicted seconds, online" in found
    assert "network" not in found


def test_another_suite_is_shown_with_its_parties(plans: None) -> None:
    found = changed("rep3.plan", "additive.plan")
    assert found["suite"][0].startswith("rep3, ")
    assert found["suite"][1].startswith("additive, ")
    assert "dave (dealer)" in found["parties"][1]
    assert found["may collude"] == ("alice; bob; carol", "alice; bob; dave")
    assert found["constants of the plan"][0].endswith("to alice and bob and carol")


def test_words_alone_are_no_change(plans: None) -> None:
    plan = plan_of()
    replace(plan, manifest=replace(plan.manifest, encoding="otherwise")).save("words.plan")
    shown = run_verb("inspect", "--diff", "rep3.plan", "words.plan").stdout
    assert "Nothing changed in what is revealed" in shown
    assert "The digests differ" in shown


def test_a_plan_that_does_not_hold_is_named(plans: None) -> None:
    plan = plan_of()
    retold(plan, bare).save("leaky.plan")
    for arguments in (("leaky.plan", "rep3.plan"), ("rep3.plan", "leaky.plan")):
        code, told = reason("inspect", "--diff", *arguments)
        assert code == 6
        assert "Error: leaky.plan: The plan is refused" in told


def test_differences_stand_alone(plans: None) -> None:
    for options in (("--layers",), ("--reveals",), ("--ir", "party"), ("--html", "x.html")):
        code, told = reason("inspect", "--diff", "rep3.plan", "rep3.plan", *options)
        assert code == 2
        assert "--diff shows what changed, and nothing else." in told

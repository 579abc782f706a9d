"""`compile --protocol` and `--prepared`, and where `inspect` says what was chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from second_comparison import PERCEPTRON, additive_with_two
from verbs import json_of, reason, run_verb

import veilgraph

ADDITIVE = ("--suite", "additive", "--parties", "alice,bob", "--dealer", "dora")


@pytest.fixture
def compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """The start of a command line, where suite additive has two comparisons."""
    additive_with_two(monkeypatch)
    (tmp_path / "model.onnx").write_bytes(PERCEPTRON.SerializeToString())
    return ("compile", tmp_path / "model.onnx", "-o", tmp_path / "model.plan", *ADDITIVE)


def test_the_layers_say_what_was_chosen(compiling: tuple[object, ...], tmp_path: Path) -> None:
    plan = tmp_path / "model.plan"
    done = run_verb(*compiling, "--protocol", "compare=ripple", "--prepared")
    assert done.exit_code == 0, done.stderr
    assert "truncate_relu (compare=ripple)" in run_verb("inspect", plan, "--layers").stdout
    (hidden,) = (
        row for row in json_of("inspect", plan, "--layers")["layers"] if row["name"] == "hidden"
    )
    assert dict(zip(hidden["ops"], hidden["protocols"], strict=True)) == {
        "truncate_relu": "compare=ripple"
    }
    options = veilgraph.Plan.load(plan).manifest.options
    assert (options["protocols"], options["prepared"]) == ({"compare": "ripple"}, True)


def test_by_default_both_phases_count(compiling: tuple[object, ...], tmp_path: Path) -> None:
    assert run_verb(*compiling).exit_code == 0
    options = veilgraph.Plan.load(tmp_path / "model.plan").manifest.options
    assert (options["protocols"], options["prepared"]) == ({}, False)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("compare=ripple", "compare=merges"), "--protocol names `compare` twice."),
        (("compare",), "`compare` should read NAME=..."),
        (("compare=lines",), "Suite additive has no variant `lines` of `compare`."),
        (("gelu=ripple",), "Suite additive has no protocol for `gelu`."),
    ],
)
def test_what_makes_no_sense(
    compiling: tuple[object, ...], more: tuple[str, ...], sentence: str
) -> None:
    code, told = reason(*compiling, *(word for each in more for word in ("--protocol", each)))
    assert (code, sentence in " ".join(told.split())) == (2, True), told


def test_a_variant_is_of_one_suite(compiling: tuple[object, ...]) -> None:
    line = ("compile", compiling[1], "--compare-suites", "--protocol", "compare=ripple")
    code, told = reason(*line)
    assert code == 2
    assert "--protocol makes no sense with --compare-suites." in told

"""What is said on standard error: more or less of it, as text or as JSON."""

from __future__ import annotations

import errno
import io
import json
import logging
import math
import os
import re
from functools import partial
from importlib import import_module
from typing import Any

import pytest
from verbs import Compiled, reason, run_verb

from veilgraph import cli
from veilgraph.compilation import compile as compilation
from veilgraph.ir.errors import UsageError
from veilgraph.passes.encode.aim import Aim
from veilgraph.passes.pipeline import PIPELINE
from veilgraph.passes.program import Program
from veilgraph.reports import log_lines
from veilgraph.reports.tables import remark

SHAPE = ("--shape", "image=1x1x28x28")
STEP = re.compile(r"^(\d+) of (\d+), ([^:]+): \d+\.\d s, \d+\.\d s so far", re.MULTILINE)
QUICK = ("compile", "digits.onnx", "-o", "new.plan", *SHAPE, "--ring", "64")
ALL = ["import", *(stage[0] for stage in PIPELINE), "emit_plan"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No compilation is slow, however busy the machine is."""
    monkeypatch.setattr(cli, "SLOW_SECONDS", math.inf)


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """`doctor` says something on each level."""

    def looks() -> list[Any]:
        logging.getLogger("veilgraph.compile").debug("a detail")
        logging.getLogger("veilgraph.session").info("a fact")
        logging.getLogger("veilgraph").warning("a warning")
        remark("a result", is_result=True)
        return []

    monkeypatch.setattr(import_module("veilgraph.commands.doctor.verb"), "diagnose", looks)


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ("", "a warning, a result"),
        ("-q", "a result"),
        ("-v", "a fact, a warning, a result"),
        ("-vv", "a detail, a fact, a warning, a result"),
        ("-v --verbose", "a detail, a fact, a warning, a result"),
        ("-vvq", "a result"),
    ],
)
def test_as_much_is_said_as_asked_for(looking: None, options: str, lines: str) -> None:
    said = "".join(f"{line}\n" for line in lines.split(", "))
    assert run_verb("doctor", *options.split()).stderr == said
    assert run_verb(*options.split(), "doctor").stderr == said


@pytest.mark.parametrize("behind", [False, True])
def test_a_log_may_be_lines_of_json(looking: None, behind: bool) -> None:
    options = ("-v", "--log-json")
    words = ("doctor", *options) if behind else (*options, "doctor")
    lines = [json.loads(line) for line in run_verb(*words).stderr.splitlines()]
    assert [(line["level"], line["logger"], line["message"]) for line in lines] == [
        ("info", "veilgraph.session", "a fact"),
        ("warning", "veilgraph", "a warning"),
        ("error", "veilgraph", "a result"),
    ]
    assert all(line["time"].endswith("+00:00") for line in lines)


def test_errors_are_lines_of_json_then(monkeypatch: pytest.MonkeyPatch) -> None:
    code, told = reason("--log-json", "inspect", "no.plan")
    (line,) = map(json.loads, told.splitlines())
    assert (line["level"], line["message"]) == ("error", "There is no plan no.plan.")
    assert line["exit_code"] == code == 2
    assert line["hint"]
    assert json.loads(reason("inspect", "--lyers", "--log-json")[1])["exit_code"] == 2

    def fails() -> list[Any]:
        raise UsageError("It is wrong:\n  twice.")

    monkeypatch.setattr(import_module("veilgraph.commands.doctor.verb"), "diagnose", fails)
    assert len(reason("doctor", "--log-json")[1].splitlines()) == 1


def test_quiet_leaves_remarks_out(copied: Compiled) -> None:
    assert run_verb(*QUICK).stderr.startswith("alice owns image")
    assert run_verb(*QUICK, "-q").stderr == ""


@pytest.mark.parametrize("behind", [False, True])
def test_each_step_is_a_line_with_its_seconds(copied: Compiled, behind: bool) -> None:
    words = ("compile", "-v") if behind else ("-v", "compile")
    lines = STEP.findall(run_verb(*words, *QUICK[1:]).stderr)
    assert [int(number) for number, _, _ in lines] == list(range(1, len(lines) + 1))
    assert {int(total) for _, total, _ in lines} == {len(lines)}
    assert [name for _, _, name in lines] == ALL


def test_steps_are_numbers_in_json(copied: Compiled) -> None:
    told = run_verb(*QUICK, "-v", "--log-json").stderr
    lines = [json.loads(line) for line in told.splitlines()]
    steps = [line for line in lines if "seconds_left" in line]
    assert [line["doing"] for line in steps] == ALL
    assert [line["step"] for line in steps] == list(range(1, len(ALL) + 1))
    assert {line["steps"] for line in steps} == {len(ALL)}
    assert steps[-1]["seconds_so_far"] >= sum(line["seconds"] for line in steps) - 1e-6
    assert lines[-1]["message"].startswith("alice owns image")


def test_a_slow_compilation_is_in_a_log_without_asking(
    copied: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its steps, those before it was known to be slow included."""
    assert not STEP.search(run_verb(*QUICK).stderr)
    monkeypatch.setattr(cli, "SLOW_SECONDS", 0.05)
    assert [name for _, _, name in STEP.findall(run_verb(*QUICK).stderr)] == ALL
    assert run_verb(*QUICK, "-q").stderr == ""
    monkeypatch.setattr(log_lines, "is_terminal", lambda stream: True)  # which has shown them
    assert not STEP.search(run_verb(*QUICK).stderr)


def test_a_trial_that_was_not_exact_enough_is_told(
    copied: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aimed at ten times the error allowed, the first program misses it."""
    monkeypatch.setattr(compilation, "Program", partial(Program, aim=Aim(10.0)))
    samples = ("--calibrate", "calibration.npz", "--max-error", "0.001")
    told = run_verb("compile", "digits.onnx", "-o", "new.plan", *SHAPE, *samples, "-vv").stderr
    assert re.search(r"trial 1 of at most \d is off by 0\.\d+%, and 0\.100% is allowed", told)
    assert re.search(r"verify_accuracy: trial 2, encoding", told)
    assert "verify_accuracy: sample 4 of 4 in exact integers" in told
    assert "ranges: sample 64 of 64" in told


def test_a_log_that_is_full_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """benchmarks/serving/faults.py found it: a party ended where its log's disk was full."""

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with log_lines.shown_log(as_json=False, slow=math.inf):
        monkeypatch.setattr("sys.stderr", Full())
        logging.getLogger("veilgraph.service").warning("a link broke")
        monkeypatch.undo()

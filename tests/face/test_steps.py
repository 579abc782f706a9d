"""The steps of a compilation: what watchers and the log are told of them."""

from __future__ import annotations

import logging

import pytest

from veilgraph.compilation.steps import USUAL, Steps
from veilgraph.passes.pipeline import PIPELINE


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_steps_say_seconds_so_far_and_left(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "veilgraph.compile")
    told: list[str] = []
    clock = Clock()
    steps = Steps(["encode_fixed_point", "prune", "choose_protocols"], told.append, clock)
    steps.begin("encode_fixed_point")
    steps.at("sample 1 of 2")
    clock.now += USUAL["encode_fixed_point"]
    steps.tried("trial 1 is off")
    steps.begin("prune")
    clock.now += 5
    steps.begin("choose_protocols")
    clock.now += 8
    steps.at("")
    clock.now += 100
    steps.at("")
    steps.end()
    left = round(USUAL["choose_protocols"])
    assert told == [
        "1 of 3, encode_fixed_point",
        "1 of 3, encode_fixed_point: sample 1 of 2",
        f"2 of 3, prune; about {left} s left",
        f"3 of 3, choose_protocols; about {left} s left",
        f"3 of 3, choose_protocols; about {left - 8} s left",
        "3 of 3, choose_protocols",
    ]
    assert caplog.messages == [
        "1 of 3, encode_fixed_point: trial 1 is off",
        f"1 of 3, encode_fixed_point: 16.9 s, 16.9 s so far, about {left} s left",
        f"2 of 3, prune: 5.0 s, 21.9 s so far, about {left} s left",
        "3 of 3, choose_protocols: 108.0 s, 129.9 s so far",
    ]
    said = vars(caplog.records[1])
    assert (said["step"], said["steps"], said["doing"]) == (1, 3, "encode_fixed_point")
    assert said["seconds"] == pytest.approx(said["seconds_so_far"]) == pytest.approx(16.9)
    assert said["seconds_left"] == pytest.approx(USUAL["choose_protocols"])


def test_nothing_is_foretold_before_a_fifth_is_done(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "veilgraph.compile")
    steps = Steps(["import", "encode_fixed_point"], None, Clock())
    steps.begin("import")
    steps.end()
    assert vars(caplog.records[0])["seconds_left"] is None


def test_what_usually_takes_long_is_a_step_that_there_is() -> None:
    assert set(USUAL) <= {"import", "emit_plan", *(name for name, _, _ in PIPELINE)}

"""What a trial that misses is followed by, and which of several is taken."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from veilgraph.ir.errors import AccuracyError
from veilgraph.passes import trials
from veilgraph.passes.encode.aim import TARGET_SHARE, Aim
from veilgraph.passes.encode.verify_accuracy import Measured
from veilgraph.passes.program import Watch
from veilgraph.passes.trials import LARGEST_CUT, MOST_BETWEEN, Trials

ALLOWED = 0.08


@dataclass(frozen=True)
class Encoded:
    """A program as trials see it."""

    error: float
    bits: float
    predicted_error: float = 0.05
    mask_error: float = 0.0


@dataclass
class Bench:
    """A program whose encodings are given, one after the other."""

    given: list[Encoded]
    updates: dict[str, str] = field(default_factory=lambda: {"w": "u"})
    aims: list[Aim] = field(default_factory=list)

    def run(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        options = SimpleNamespace(
            ring_bits=None, frac_bits=None, max_error=ALLOWED, updates=self.updates
        )
        ranges = SimpleNamespace(without_gains=lambda: ranges)
        program: Any = SimpleNamespace(
            options=options, aim=Aim(), misses=0, watch=Watch(), target=None, ranges=ranges
        )
        each = iter(self.given)
        program.secret = next(each)

        def encode() -> Any:
            self.aims.append(program.aim)
            for encoded in each:
                return encoded
            raise AccuracyError("It does not fit.", "Take a wider ring.")

        verify = SimpleNamespace(
            measure=lambda encoded, most: Measured(encoded, min(encoded.error, 1.01 * most)),
            told=lambda measured, allowed: measured.program,
        )
        monkeypatch.setattr(trials, "verifying", lambda program, samples: verify)
        monkeypatch.setattr(trials.Price, "of", staticmethod(lambda encoded, target: encoded.bits))
        Trials(program, encode, {}).run()
        return program


def test_an_aim_is_halfway_between_two() -> None:
    assert Aim(0.8, 1.0).between(Aim(0.2, 400.0)) == Aim(pytest.approx(0.4), pytest.approx(20.0))


def test_what_is_exact_enough_is_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench([Encoded(0.01, bits=9.0)])
    assert bench.run(monkeypatch).secret == bench.given[0]
    assert bench.aims == []


def test_masks_get_the_weight_with_which_half_of_the_error_is_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Noise s makes c s of the square: what is left of the measured one."""
    missed = Encoded(0.2, bits=9.0, predicted_error=0.05, mask_error=0.03)
    bench = Bench([missed, Encoded(0.06, bits=9.0, predicted_error=0.04, mask_error=0.004)])
    program = bench.run(monkeypatch)
    c = (missed.error**2 - missed.predicted_error**2) / missed.mask_error
    half = (TARGET_SHARE * ALLOWED) ** 2 / 2
    (aim,) = bench.aims
    assert aim.share == TARGET_SHARE
    assert c * math.sqrt(half / aim.mask_weight) == pytest.approx(half)
    assert (program.misses, program.aim) == (1, aim)


def test_where_masks_say_nothing_less_is_aimed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench([Encoded(0.09, bits=9.0), Encoded(0.07, bits=9.0)])
    bench.run(monkeypatch)
    (aim,) = bench.aims
    cut = min(LARGEST_CUT, TARGET_SHARE * ALLOWED / 0.09)
    assert aim == Aim(pytest.approx(TARGET_SHARE * cut))


def test_masks_that_were_not_why_are_followed_by_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise before masks is a tenth, and the error what it was: the weight grows no more."""
    first = Encoded(0.2, bits=9.0, predicted_error=0.19, mask_error=0.03)
    second = Encoded(0.1, bits=9.0, predicted_error=0.1, mask_error=0.003)
    bench = Bench([first, second, Encoded(0.07, bits=9.0)])
    bench.run(monkeypatch)
    assert bench.aims[1].mask_weight == bench.aims[0].mask_weight > 1.0
    assert bench.aims[1].share < bench.aims[0].share


def between(found: list[Encoded], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Aim]]:
    """Of trials between one that missed and one that is too exact."""
    missed = Encoded(0.2, bits=5.0, mask_error=0.03)
    bench = Bench([missed, Encoded(0.01, bits=9.0, mask_error=0.001), *found])
    return bench.run(monkeypatch), bench.aims


def test_a_step_takes_the_cheapest_between(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = [Encoded(0.09, bits=6.0), Encoded(0.03, bits=8.0), Encoded(0.06, bits=7.0)]
    assert len(tried) == MOST_BETWEEN
    program, aims = between(tried, monkeypatch)
    assert program.secret == tried[2]
    assert program.aim == aims[-1]
    weights = [aim.mask_weight for aim in aims]
    assert weights[0] > weights[2] > weights[3] > weights[1] > 1.0, "halved, each time"


def test_what_costs_more_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    program, aims = between([Encoded(0.07, bits=9.5)], monkeypatch)
    assert program.secret.bits == 9.0
    assert program.aim == aims[0]


def test_what_can_not_be_encoded_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    program, aims = between([], monkeypatch)
    assert program.secret.bits == 9.0
    assert program.aim == aims[0]


def test_an_inference_takes_the_first_that_is_exact_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench([Encoded(0.2, bits=5.0), Encoded(0.01, bits=9.0)], updates={})
    assert bench.run(monkeypatch).secret == bench.given[1]
    assert len(bench.aims) == 1

"""What `check` advises: a change of options, and that it does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from verbs import DIGITS

import veilgraph
from veilgraph.checking import check
from veilgraph.remedies import bits_lacking, remedy


@pytest.mark.parametrize(
    ("relative", "tolerance", "bits"),
    [
        (0.01, 0.05, 0),
        (0.05, 0.05, 0),
        (0.06, 0.05, 1),
        (0.4, 0.05, 3),
        (0.41, 0.05, 4),
        (1, 0, 64),
    ],
)
def test_an_error_halves_with_every_bit(relative: float, tolerance: float, bits: int) -> None:
    assert bits_lacking(relative, tolerance) == bits


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"ring": 24}, "--ring 32"),
        ({"ring": 32, "frac_bits": 8}, "--frac-bits 11"),
        ({"ring": 24, "frac_bits": 8}, "--frac-bits 11 --ring 32"),
    ],
)
def test_the_options_say_what_to_change(options: Mapping[str, object], advice: str) -> None:
    ring = options["ring"]
    told = remedy(options, ring if isinstance(ring, int) else 32, 0.4, 0.05)
    assert told == f"About 3 more bits would do: compile with {advice}."


@pytest.mark.parametrize(("given", "advice"), [(None, "0.0001"), (0.01, "0.0003")])
def test_a_smaller_bound_is_an_estimate(given: float | None, advice: str) -> None:
    told = remedy({"ring": "auto", "max_error": given}, 32, 0.4, 0.05)
    wanted = f"Probably --max-error {advice} would do: compile with it, and check again."
    assert told == wanted


@pytest.mark.parametrize("options", [{"ring": 64}, {"ring": "auto", "frac_bits": 40}])
def test_where_bits_alone_do_not_help(options: Mapping[str, object]) -> None:
    told = remedy(options, 64, 0.4, 0.05)
    assert told == "Give more samples to --calibrate: wider rings alone won't do."
    assert remedy({"ring": "auto"}, 32, 0.4, 0.0) == told


@pytest.mark.parametrize("tolerance", [0.005, 0.002])
def test_the_advice_does(tolerance: float) -> None:
    """A plan whose layer drifts, compiled again as its verdict says."""
    with np.load(DIGITS / "calibration.npz", allow_pickle=False) as samples:
        given = {"image": samples["image"][:4]}
    model = DIGITS / "digits.onnx"
    plan, weights = veilgraph.compile(
        model, shapes={"image": (1, 1, 28, 28)}, calibrate=given, max_error=0.02
    )
    found = check(plan, weights, model, given, tolerance=tolerance)
    verdict = found.verdict()
    assert verdict is not None
    allowed = float(verdict.hint.partition("--max-error ")[2].partition(" ")[0])
    again, weights = veilgraph.compile(
        model, shapes={"image": (1, 1, 28, 28)}, calibrate=given, max_error=allowed
    )
    assert check(again, weights, model, given, tolerance=tolerance).verdict() is None

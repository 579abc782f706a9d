"""What `check` advises: a change of options, and that it does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from models import model
from onnx import helper
from verbs import DIGITS

import veilgraph
from veilgraph.checks.checking import check
from veilgraph.checks.suggestions import bits_lacking, suggestion


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
        ({"frac_bits": 8}, "--frac-bits 13"),
        ({"ring": 24, "frac_bits": 8}, "--frac-bits 13 --ring auto"),
    ],
)
def test_the_options_say_what_to_change(options: Mapping[str, object], advice: str) -> None:
    ring = options.get("ring")
    told = suggestion(options, ring if isinstance(ring, int) else 32, 0.4, 0.05, 0.1)
    assert told == f"5 more bits should do: compile with {advice}."


@pytest.mark.parametrize(
    ("options", "measured", "advice"),
    [
        ({"ring": "auto", "max_error": None}, 0.004, "--max-error 0.0002"),
        ({"ring": "auto", "max_error": 0.01}, 0.008, "--max-error 0.0005"),
        ({"ring": "auto", "max_error": 0.01}, 0.0008, "--max-error 5e-05"),
        ({"ring": "auto", "max_error": None}, 0.0, "--max-error 0.0003"),
    ],
)
def test_a_smaller_bound_is_an_estimate(
    options: Mapping[str, object], measured: float, advice: str
) -> None:
    told = suggestion(options, 32, 0.4, 0.05, measured)
    assert told == f"Probably {advice} would do: compile with it, and check again."


def test_a_ring_that_is_given_is_filled_up_to_a_point() -> None:
    told = suggestion({"ring": 24}, 24, 4e-3, 1e-4, 4e-3)
    assert told.startswith("Probably --ring auto --max-error 5e-05 would do")


@pytest.mark.parametrize("options", [{"ring": 64}, {"ring": "auto", "frac_bits": 40}])
def test_where_bits_alone_do_not_help(options: Mapping[str, object]) -> None:
    told = suggestion(options, 64, 0.4, 0.05, 0.1)
    assert told == "Give more samples to --calibrate: wider rings alone won't do."
    assert suggestion({"ring": "auto"}, 32, 0.4, 0.0, 0.1) == told


@pytest.mark.parametrize("tolerance", [0.005, 0.002])
def test_the_advice_does(tolerance: float) -> None:
    """A plan whose layer drifts, compiled again as its status says."""
    with np.load(DIGITS / "calibration.npz", allow_pickle=False) as samples:
        given = {"image": samples["image"][:4]}
    digits = DIGITS / "digits.onnx"
    plan, weights = veilgraph.compile(
        digits, shapes={"image": (1, 1, 28, 28)}, calibrate=given, max_error=0.02
    )
    found = check(plan, weights, digits, given, tolerance=tolerance)
    status = found.status()
    assert status is not None
    allowed = float(status.hint.partition("--max-error ")[2].partition(" ")[0])
    again, weights = veilgraph.compile(
        digits, shapes={"image": (1, 1, 28, 28)}, calibrate=given, max_error=allowed
    )
    assert check(again, weights, digits, given, tolerance=tolerance).status() is None


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({"max_error": 0.05}, 1e-4),
        ({"ring": 24}, 1e-2),
        ({"ring": 24}, 1e-4),
        ({"frac_bits": 6}, 1e-2),
        ({"frac_bits": 5, "ring": 32}, 1e-3),
    ],
)
def test_the_advice_does_whatever_was_given(options: dict[str, Any], tolerance: float) -> None:
    """A layer normalisation, whose numbers are of many sizes."""
    generator = np.random.default_rng(0)
    shapes = {"g": (16,), "b": (16,), "w": (16, 8)}
    nodes = [
        helper.make_node("LayerNormalization", ["x", "g", "b"], ["a"], "norm"),
        helper.make_node("MatMul", ["a", "w"], ["c"], "dense"),
        helper.make_node("Sigmoid", ["c"], ["y"], "sigmoid"),
    ]
    weights = {n: generator.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    proto = model(nodes, {"x": (4, 16)}, ["y"], weights)
    samples = {"x": generator.standard_normal((6, 4, 16)).astype(np.float32)}
    plan, owned = veilgraph.compile(proto, calibrate=samples, **options)
    status = check(plan, owned, proto, samples, tolerance=tolerance).status()
    assert status is not None
    told = re.findall(r"--(\S+) (auto|[\de.-]*\d)", status.hint)
    kinds = {"max-error": float, "frac-bits": int, "ring": str}
    changed = options | {name.replace("-", "_"): kinds[name](value) for name, value in told}
    again, owned = veilgraph.compile(proto, calibrate=samples, **changed)
    assert check(again, owned, proto, samples, tolerance=tolerance).status() is None

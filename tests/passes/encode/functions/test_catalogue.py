"""Real functions as Fourier series: how close, how many, where not; and what they are in a plan."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from models import model, run_onnx
from onnx import helper

import veilgraph
from veilgraph.checks.checking import check
from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.facts import Arithmetic
from veilgraph.ir.meaning.graph import MEANING
from veilgraph.ir.secret.fourier import values
from veilgraph.ir.secret.types import RangeSource, RealRange
from veilgraph.passes.encode.functions.catalogue import clip_of, interval_of
from veilgraph.runtime.simulate import simulate
from veilgraph.targets.functions.catalogue import FUNCTIONS, TURNING
from veilgraph.targets.functions.fourier_series import series_of, turning

INTERVALS = {  # and how many terms they may take, at 12 and 16 fraction bits
    "sigmoid": (-8, 8, 8, 12),
    "tanh": (-4, 4, 8, 12),
    "erf": (-4, 4, 8, 8),
    "atan": (-4, 4, 10, 14),
    "gelu none": (-8, 8, 8, 10),
    "gelu tanh": (-8, 8, 8, 10),
    "silu": (-8, 8, 8, 12),
    "softplus": (-8, 8, 7, 10),
    "exp": (-8, 1, 8, 9),
    "log": (0.5, 4, 9, 14),
    "sqrt": (0.25, 4, 9, 13),
    "rsqrt": (0.25, 4, 13, 17),
    "reciprocal": (-4, -0.5, 10, 13),
    "sin": (-8, 8, 1, 1),
    "cos": (-8, 8, 1, 1),
}

KINDS = {
    kind.OPERATION_NAME.partition(".")[2]: kind
    for kind in ops.OPERATIONS
    if ops.facts_of_kind(kind).arithmetic is Arithmetic.FUNCTION
}


def meaning(name: str) -> Callable[[np.ndarray], np.ndarray]:
    kind, *form = name.split()
    named = {"approximate": form[0]} if form else {}
    return lambda x: MEANING[KINDS[kind]](x.shape, x, **named)


def test_every_function_is_tried() -> None:
    assert set(INTERVALS) == {*FUNCTIONS, *TURNING}
    assert {name.split()[0] for name in INTERVALS} == KINDS.keys()


@pytest.mark.parametrize("bits", [12, 16])
@pytest.mark.parametrize("name", INTERVALS)
def test_under_a_unit_in_the_last_place(name: str, bits: int) -> None:
    """At 4,000 numbers of the interval, its ends included, each under a mask of its own."""
    low, high, *most = INTERVALS[name]
    series = (
        turning(name, 8.0, bits, bits, 64)
        if name in TURNING
        else series_of(name, low, high, bits, bits, 64)
    )
    assert series is not None
    assert len(series.cosines) <= most[bits == 16]
    rng = np.random.default_rng(bits)
    ends = [math.ceil(low * 2**bits), math.floor(high * 2**bits)]
    x = np.array([*ends, *rng.integers(*ends, 4000)])
    r = rng.integers(0, 1 << series.window_bits, x.size)
    found = np.ldexp(values(series, x, r).astype(np.float64), -series.frac_bits)
    error = np.abs(found - meaning(name)(np.ldexp(x.astype(np.float64), -bits)))
    assert error.max() * 2**bits < 0.9


def test_the_same_integers_every_time() -> None:
    """Decimal arithmetic: no machine's libm is asked. A change here changes everybody's plans."""
    series = series_of("erf", -2.0, 2.0, 10, 10, 32)
    assert series is not None
    assert (series.window_bits, series.first, series.step) == (16, 7, 14)
    assert series.sines == series_of.__wrapped__("erf", -2.0, 2.0, 10, 10, 32).sines


def test_a_ring_that_is_narrow_takes_bits_from_the_sum() -> None:
    wide, narrow = (series_of("silu", -4.0, 4.0, 12, 12, k) for k in (64, 32))
    assert wide is not None
    assert narrow is not None
    assert narrow.sum_bits == 32 < wide.sum_bits
    assert series_of("sigmoid", -4.0, 4.0, 12, 12, 32).sum_bits > 32, "without a slope it need not"


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("log", -1.0, 4.0), ("log", 1e-4, 1e4), ("exp", -4.0, math.inf), ("tanh", -1e4, 1e4)],
)
def test_where_there_is_none(name: str, low: float, high: float) -> None:
    assert series_of(name, low, high, 12, 12, 64) is None


def test_windows_are_no_wider_than_masks_can_be() -> None:
    assert series_of("log", 1.0, 4.0, 61, 12, 64) is None
    found = series_of("log", 1.0, 4.0, 58, 12, 64)
    assert found is not None
    assert found.window_bits <= 62


def test_intervals_and_clips() -> None:
    known = RealRange(-1.0, 4.0, RangeSource.CALIBRATED)
    assert interval_of(FUNCTIONS["tanh"], known, 2.0) == (-5.0, 8.0)
    low, high = interval_of(FUNCTIONS["exp"], known, 2.0)
    assert (low, high) == pytest.approx((-1.756, 4.756), abs=1e-3)
    positive, negative = (RealRange(a, b, known.source) for a, b in ((1.0, 4.0), (-4.0, -1.0)))
    assert interval_of(FUNCTIONS["log"], positive, 2.0) == (0.5, 8.0)
    assert interval_of(FUNCTIONS["reciprocal"], negative, 2.0) == (-8.0, -0.5)
    proven = RealRange(1.0, 17.0, RangeSource.PROVEN)
    assert interval_of(FUNCTIONS["sqrt"], proven, 2.0) == (16 / 17, 17 * 17 / 16)
    assert clip_of(FUNCTIONS["tanh"], -5.0, 8.0, 12) == (-math.inf, math.inf)
    assert clip_of(FUNCTIONS["tanh"], -50.0, 8.0, 12) == (-5.25, 5.25)
    assert clip_of(FUNCTIONS["tanh"], -15.0, 8.0, 12) == (-math.inf, math.inf)
    assert clip_of(FUNCTIONS["tanh"], -15.0, 8.0, 16) == (-6.625, 6.625)
    assert clip_of(FUNCTIONS["exp"], -50.0, 8.0, 12) == (-9.75, math.inf)
    assert clip_of(FUNCTIONS["log"], 0.0, 1e9, 12) == (-math.inf, math.inf)


CALLS = [
    ("Tanh", 60.0, 1e-3),
    ("Gelu", 60.0, 1e-2),
    ("Softplus", 60.0, 1e-2),
    ("Erf", 1.0, 1e-3),
    ("Exp", -60.0, 1e-3),
]


def one_node(operator: str) -> object:
    return model([helper.make_node(operator, ["x"], ["y"], name="node")], {"x": (70,)}, ["y"])


@pytest.mark.parametrize(("operator", "reach", "tolerance"), CALLS)
@pytest.mark.parametrize("suite", ["rep3", "additive"])
def test_in_a_plan(suite: str, operator: str, reach: float, tolerance: float) -> None:
    """Wide ranges are clipped, and straight tails put back."""
    proto = one_node(operator)
    x = np.linspace(min(-reach, reach), max(reach, 0.5), 70).astype(np.float32)
    dealer = "dave" if suite == "additive" else None
    plan, weights = veilgraph.compile(
        proto, calibrate={"x": x[None]}, ring=64, suite=suite, dealer=dealer
    )
    found = simulate(plan, weights, {"x": x}).outputs["y"]
    np.testing.assert_allclose(found, run_onnx(proto, {"x": x})["y"], atol=tolerance)


def test_without_samples_what_is_flat_is_clipped() -> None:
    plan, weights = veilgraph.compile(one_node("Sigmoid"))
    x = np.linspace(-300, 300, 70).astype(np.float32)
    found = simulate(plan, weights, {"x": x}).outputs["y"]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-x.astype(float))), atol=1e-3)


def test_without_samples_others_are_refused() -> None:
    with pytest.raises(AccuracyError, match=r"Nothing is known .* whose sqrt 'node' takes") as told:
        veilgraph.compile(one_node("Sqrt"))
    assert "--calibrate" in told.value.hint


def test_a_range_that_is_too_wide_is_refused() -> None:
    x = np.geomspace(1e-2, 1e14, 70).astype(np.float32)
    with pytest.raises(AccuracyError, match=r"takes the log of numbers from .* to .*, margin"):
        veilgraph.compile(one_node("Log"), calibrate={"x": x[None]})


@pytest.mark.parametrize(
    ("operator", "tolerance"), [("Sigmoid", 2e-3), ("Softplus", 0.05), ("Tanh", 2e-3)]
)
def test_what_is_clipped_holds_the_whole_margin(operator: str, tolerance: float) -> None:
    """On both sides: a margin of two lets numbers come far below the least that was seen."""
    proto = one_node(operator)
    seen = np.linspace(-1, 60, 70, dtype=np.float32)
    plan, weights = veilgraph.compile(proto, ring=64, calibrate={"x": seen[None]})
    x = np.linspace(-60, 119, 70, dtype=np.float32)
    found = check(plan, weights, proto, {"x": x[None]})
    assert not found.excursions
    assert found.outputs[0].worst < tolerance


@pytest.mark.parametrize("ends", [(-9, -6), (-12, -8)])
def test_a_function_that_is_nearly_nothing_has_the_bits_that_its_form_has(
    ends: tuple[float, float],
) -> None:
    """More were wanted of numbers so small than the sum of the series has."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["gate"]),
        helper.make_node("Mul", ["x", "gate"], ["y"]),
    ]
    proto = model(nodes, {"x": (2, 8)}, {"y": (2, 8)}, {})
    samples = np.random.default_rng(0).uniform(*ends, (24, 2, 8)).astype(np.float32)
    plan, weights = veilgraph.compile(proto, calibrate={"x": samples})
    found = simulate(plan, weights, {"x": samples[0]}).outputs["y"]
    assert np.abs(found - run_onnx(proto, {"x": samples[0]})["y"]).max() < 1e-4

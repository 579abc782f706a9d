"""Ops that every suite computes exactly: sums, products, layout; any ring, any form of operand."""

from __future__ import annotations

import numpy as np
import pytest
from conformance import BILINEAR_CASES, LINEAR_CASES, SETTINGS, Case, Setting, Trace
from interpreters import plan_of

from veilgraph.ir.meaning.integers import center
from veilgraph.targets.blocks.linear import additive

RINGS = (3, 8, 24, 32, 40, 52, 64)
CASES = (*LINEAR_CASES, *BILINEAR_CASES)

settings = pytest.mark.parametrize("setting", SETTINGS, ids=str)


@settings
@pytest.mark.parametrize("case", CASES, ids=str)
def test_secret_operands(setting: Setting, case: Case) -> None:
    for ring_bits in RINGS:
        case.check(setting, ring_bits, "shared", None)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_additive_and_replicated_operands(case: Case) -> None:
    replicated = next(s for s in SETTINGS if s.suite.name == "rep3")
    for ring_bits in RINGS:
        case.check(replicated, ring_bits, "additive", None)


@settings
@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("case", [c for c in CASES if len(c.operands) == 2], ids=str)
def test_a_public_operand(setting: Setting, case: Case, position: int) -> None:
    for ring_bits in RINGS:
        case.check(setting, ring_bits, "shared", position)


@settings
@pytest.mark.parametrize(("k", "K"), [(8, 3), (40, 32), (64, 24), (64, 40)])
@pytest.mark.parametrize("form", ["shared", "additive"])
def test_reduction_to_a_narrower_ring(setting: Setting, k: int, K: int, form: str) -> None:
    x = center(np.random.default_rng(k).integers(-(1 << 63), (1 << 63) - 1, 70), k)
    trace = Trace(setting)
    shared = trace.share("x", x.shape, k)
    shared = additive(trace.parties, shared) if form == "additive" else shared
    trace.reveal(trace.apply("reduce", x.shape, K, {}, shared))
    np.testing.assert_array_equal(trace.run({"x": x}), center(x, K))


@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.computing > 1], ids=str)
def test_what_a_product_read_is_moved_and_reduced_for_another_without_a_message(
    setting: Setting,
) -> None:
    x, y = center(np.random.default_rng(2).integers(-(1 << 63), (1 << 63) - 1, (2, 6, 7)), 40)
    trace = Trace(setting)
    z = trace.apply("mul", (6, 7), 40, {}, *(trace.share(n, (6, 7), 40) for n in "xy"))
    first = trace.apply("mul", (6, 7), 40, {}, z, z)
    turned = trace.apply("transpose", (7, 6), 40, {"permutation": (1, 0)}, z)
    fewer = trace.apply("reduce", (7, 6), 32, {}, turned)
    second = trace.apply("mul", (7, 6), 32, {}, fewer, fewer)
    row = len(trace.expanded.notes) - 1
    trace.reveal(second)
    trace.reveal(first, "first", 1)
    found = trace.run({"x": x, "y": y})
    wanted = (x.astype(object) * y.astype(object)).T ** 2
    np.testing.assert_array_equal((found - wanted) % (1 << 32), 0)
    assert plan_of(trace.expanded).layers[row].online_bits == 0

"""Exponentials of a masked opening: every secret under many masks in small rings, and real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conformance import SETTINGS, Integers, Masked, Setting, Trace
from interpreters import check_interpreters

from veilgraph.ir.meaning.integers import center
from veilgraph.ir.secret.exponential import Segments, heights, sums, tables, values

settings = pytest.mark.parametrize("setting", SETTINGS, ids=str)
IN_BITS = 3
SMALL = (  # window, segment, multiple; precision of c and r; sum
    Segments(4, 2, 1, 4, 5, 14),
    Segments(5, 4, 1, 3, 3, 9),
    Segments(6, 3, 3, 5, 5, 13),
    Segments(7, 3, 1, 6, 4, 20),
)


def every(segments: Segments) -> Integers:
    """All z that the segments are for."""
    most = (segments.count - 1) << segments.piece_bits
    return np.arange(most // segments.multiple + 1)


def traced(
    setting: Setting, op: str, z: Integers, segments: Segments, in_bits: int, k: int, K: int,
    top: float = 0.0, form: str = "shared", variant: str = "", **attrs: Any,
) -> Trace:  # fmt: skip
    trace = Trace(setting)
    operands = [trace.held(trace.share("x", z.shape, k), form)]
    operands += [trace.public(table, 64) for table in tables(segments, in_bits)]
    shape = (*z.shape[:-1], segments.count)
    if op == "masked_exp":
        operands.append(trace.public(heights(segments, in_bits, top, 0.0), 64))
        shape = z.shape
    attributes = segments.parameters() | attrs
    trace.reveal(trace.apply(op, shape, K, attributes, *operands, variant=variant))
    return trace


@settings
@pytest.mark.parametrize("segments", SMALL, ids=str)
@pytest.mark.parametrize("form", ["shared", "additive"])
def test_sums_of_every_secret(setting: Setting, segments: Segments, form: str) -> None:
    """Exactly what the integers say, for rows of every number under many masks."""
    if form == "additive" and setting.suite.name != "rep3":
        return
    z = np.random.default_rng(1).permutation(np.tile(every(segments), 60)).reshape(-1, 5)
    draws = Masked(setting, segments.window_bits)
    trace = traced(setting, "exp_sums", z, segments, IN_BITS, 8, segments.sum_bits, form=form)
    found = trace.run({"x": z}, draws)
    mask = np.asarray(draws.mask)
    mask = np.broadcast_to(mask, z.size) if mask.ndim == 0 else mask
    expected = sums(segments, z, mask.reshape(z.shape), tables(segments, IN_BITS))
    np.testing.assert_array_equal(found, expected)


@settings
@pytest.mark.parametrize("segments", SMALL, ids=str)
def test_powers_of_every_secret(setting: Setting, segments: Segments) -> None:
    """Rounded down or up, in the ring of the operand or another."""
    z = np.tile(every(segments), 64)
    top = float(z.max()) / 2**IN_BITS
    for bits, K in ((2, 8), (3, segments.sum_bits), (segments.frac_bits - 1, 11)):
        draws = Masked(setting, bits)
        found = traced(setting, "masked_exp", z, segments, IN_BITS, 8, K, top, bits=bits).run(
            {"x": z}, draws
        )
        tall = heights(segments, IN_BITS, top, 0.0)
        expected = values(segments, z, np.asarray(draws.mask), tables(segments, IN_BITS), tall)
        assert set(np.unique(center(found - (expected >> bits), K))) <= {0, 1}


WIDE = Segments(
    20, 17, 7, 20, 20, 54
)  # eight segments of 4.57 nats, of numbers of 12 fraction bits


@settings
@pytest.mark.parametrize("form", ["shared", "pair"])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_real_sums(setting: Setting, form: str, rows: int) -> None:
    """Within what rounding a number of each sum may add, relative to the least of its segment."""
    z = np.random.default_rng(rows).integers(0, 7 * (1 << 17) // 7, (rows, 70))
    trace = traced(setting, "exp_sums", z, WIDE, 12, 32, WIDE.sum_bits, form=form)
    found = np.ldexp(trace.run({"x": z}).astype(np.float64), -40)
    unit = 1 / (7 * 2.0**12)
    ends = (np.arange(8) + 1) * (1 << 17) * unit - unit
    wanted = np.exp(z / 2.0**12).sum(axis=-1)
    np.testing.assert_allclose((found * np.exp(ends)).sum(axis=-1), wanted, rtol=1e-3)


@settings
@pytest.mark.parametrize("form", ["shared", "pair"])
@pytest.mark.parametrize("variant", ["narrow", "wide"])
@pytest.mark.parametrize("size", [1, 65, 577])
def test_real_powers(setting: Setting, variant: str, form: str, size: int) -> None:
    if setting.computing == 1 or (form == "pair" and setting.suite.name != "rep3"):
        return
    segments = Segments(20, 17, 7, 14, 21, 38)
    z = np.random.default_rng(size).integers(0, 7 * (1 << 17) // 7, size)
    z[0] = 1 << 17
    top = 32.0
    how = {"form": form, "variant": variant}
    trace = traced(setting, "masked_exp", z, segments, 12, 32, 32, top, **how, bits=23)
    found = trace.run({"x": z})
    np.testing.assert_allclose(found / 2.0**12, np.exp(z / 2.0**12 - top), atol=3 / 2.0**12)


@settings
@pytest.mark.parametrize("shape", [(3, 5), (2, 40), (7, 64), (5, 130)])
@pytest.mark.parametrize("op", ["exp_sums", "masked_exp"])
def test_on_the_interpreters(setting: Setting, op: str, shape: tuple[int, ...]) -> None:
    """Bit by bit the oracle; two inferences."""
    z = np.random.default_rng(shape[0]).integers(0, 7 * (1 << 17) // 7, shape)
    K, attrs = (40, {"bits": 20}) if op == "masked_exp" else (WIDE.sum_bits, {})
    trace = traced(setting, op, z, WIDE, 12, 32, K, 32.0, **attrs)
    check_interpreters(trace.expanded, [{"x": z}, {"x": z[::-1].copy()}])

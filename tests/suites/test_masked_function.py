"""Fourier series of a masked opening: every secret and mask in small rings, and real ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from conformance import COMPARING, SETTINGS, Integers, Masked, Setting, Trace
from interpreters import check_interpreters

from veilgraph.ir.meaning.integers import center
from veilgraph.ir.meaning.party import uniform_draws
from veilgraph.ir.secret.fourier import FourierSeries, tables, values
from veilgraph.targets.functions.masked_openings import WIDE

VARIANTS = ("", WIDE)
CLEAR = SETTINGS[-1]
NO_END: Mapping[str, int] = {}
settings = pytest.mark.parametrize("setting", SETTINGS, ids=str)


def series(window_bits: int, sum_bits: int, **changed: object) -> FourierSeries:
    """cos + sin / 2 of one multiple, unless told otherwise."""
    given = {
        "window_bits": window_bits,
        "first": 1,
        "step": 2,
        "cosines": (1 << 20,),
        "sines": (1 << 19,),
        "coefficient_bits": 20,
        "constant": 0,
        "slope": 0,
        "cosine_bits": 3,
        "factor_bits": 3,
        "sum_bits": sum_bits,
    }
    return FourierSeries(**(given | changed))  # type: ignore[arg-type]


SMALL = (
    (series(3, 11), 8),
    (series(4, 12, constant=5, cosines=(1 << 20, -(1 << 18)), sines=(0, 1 << 20)), 8),
    (series(5, 13, first=3, step=4, sines=(0, 0), cosines=(1 << 19, 1 << 18)), 5),
    (series(2, 9, cosine_bits=2, factor_bits=3), 9),
    (series(4, 8, slope=3, cosine_bits=2, factor_bits=2), 8),
    (series(1, 10), 4),
)


def traced(
    setting: Setting,
    z: Integers,
    k: int,
    found: FourierSeries,
    bits: int,
    K: int,
    form: str = "shared",
    variant: str = "",
    clip: Mapping[str, int] = NO_END,
) -> Trace:
    trace = Trace(setting)
    x = trace.held(trace.share("x", z.shape, k), form)
    high, low = (trace.public(table, 64) for table in tables(found.window_bits))
    attrs = found.parameters() | {"bits": bits} | clip
    made = trace.apply("masked_function", z.shape, K, attrs, x, high, low, variant=variant)
    trace.reveal(made)
    return trace


def check(
    setting: Setting, z: Integers, k: int, found: FourierSeries, bits: int, K: int, *how: str
) -> None:
    draws = Masked(setting, k + K + bits)
    result = traced(setting, z, k, found, bits, K, *how).run({"x": z}, draws)
    expected = values(found, z, draws.mask)
    error = center(result - (expected >> bits), K)
    assert set(np.unique(error)) <= {0, 1}


@settings
@pytest.mark.parametrize(("found", "k"), SMALL, ids=lambda v: getattr(v, "window_bits", v))
def test_every_secret_under_many_masks(setting: Setting, found: FourierSeries, k: int) -> None:
    """Rounded down or up, in the ring of the operand or another, for every integer of the ring."""
    z = np.tile(np.arange(-(1 << (k - 2)), 1 << (k - 2)), max(1, 2048 >> k))
    if found.slope:
        z = z % 8 - 4  # the slope's line must fit the sum
    for bits in (1, 3):
        for K in (found.sum_bits - bits, found.sum_bits, found.sum_bits + 7):
            for form in ("shared", "additive"):
                if form == "shared" or setting.suite.name == "rep3":
                    for variant in VARIANTS[: len(setting.suite.protocols["masked_function"])]:
                        check(setting, z, k, found, bits, K, form, variant)


@pytest.mark.parametrize("setting", [SETTINGS[0], *COMPARING, CLEAR], ids=str)
@pytest.mark.parametrize("form", ["shared", "additive"])
def test_what_is_below_an_edge(setting: Setting, form: str) -> None:
    """Every secret: the function from the edge on, what lies beyond it below; a few are either."""
    if form != "shared" and setting.suite.name != "rep3":
        return
    found = series(6, 14, constant=9)
    z = np.tile(np.arange(-(1 << 6), (1 << 6) - 8), 12)
    for edge, dropped, variant in ((5, 0, ""), (-7, 2, ""), (8, 3, WIDE)):
        if variant and setting.suite.name == "cleartext":
            continue
        clip = {"edge": edge, "beyond": -11, "compared_bits": 8, "dropped_bits": dropped}
        draws = Masked(setting, 40)
        made = traced(setting, z, 10, found, 2, 14, form, variant, clip)
        result = made.run({"x": z}, draws)
        above = values(found, z, draws.mask) >> 2
        is_above = np.isin(center(result - above, 14), (0, 1))
        is_beyond = center(result, 14) == -11
        assert is_above[z >= edge].all()
        assert is_beyond[z < edge - (1 << dropped) + 1].all()
        assert (is_above | is_beyond).all()


@settings
@pytest.mark.parametrize(("k", "K"), [(32, 32), (40, 32), (64, 64)])
@pytest.mark.parametrize("form", ["shared", "additive", "pair"])
@pytest.mark.parametrize("size", [1, 65, 577])
def test_real_rings(setting: Setting, k: int, K: int, form: str, size: int) -> None:
    """The cosine of an angle of 20 bits, to 13 bits after the point."""
    if form != "shared" and setting.suite.name != "rep3":
        return
    found = series(
        20, 37, cosines=(3 << 22, 1 << 20), sines=(0, -(1 << 21)), coefficient_bits=22,
        constant=1 << 31, cosine_bits=16, factor_bits=17,
    )  # fmt: skip
    z = np.random.default_rng(size).integers(-(1 << 21), 1 << 21, size)
    draws = uniform_draws(np.random.default_rng(size))
    result = traced(setting, z, k, found, 20, K, form).run({"x": z}, draws)
    angle = 2 * np.pi * z / (1 << 20)
    wanted = 0.25 + 3 * np.cos(angle) + np.cos(3 * angle) / 4 - np.sin(3 * angle) / 2
    assert np.abs(result / (1 << 13) - wanted).max() < 2 / (1 << 13)


def test_a_line_of_parts_of_two() -> None:
    """x / 2 + cos x / 4, from what two parties have of x."""
    found = series(
        16, 34, cosines=(1 << 18,), sines=(0,), slope=1 << 15, cosine_bits=14, factor_bits=15,
    )  # fmt: skip
    z = np.random.default_rng(0).integers(-(1 << 13), 1 << 13, 577)
    wanted = z / 2**14 + np.cos(2 * np.pi * z / (1 << 16)) / 4
    for variant, most in (("", 19), (WIDE, 24)):
        made = traced(SETTINGS[0], z, 40, found, 15, most, "pair", variant)
        result = made.run({"x": z}, uniform_draws(np.random.default_rng(1)))
        assert np.abs(result / (1 << 14) - wanted).max() < 2 / (1 << 14)


@settings
@pytest.mark.parametrize("size", [1, 64, 200])
def test_on_the_interpreters(setting: Setting, size: int) -> None:
    """Bit by bit the oracle, lookups included; two inferences."""
    found, bits = SMALL[1][0], 3
    z = np.random.default_rng(size).integers(-30, 30, size)
    trace = traced(setting, z, 32, found, bits, 40)
    check_interpreters(trace.expanded, [{"x": z}, {"x": -z}])
    wide = series(19, 50, cosine_bits=14, factor_bits=16, slope=1 << 20)
    trace = traced(setting, z, 64, wide, 20, 64)
    check_interpreters(trace.expanded, [{"x": z}, {"x": -z}])

"""ReLU, maximum and pools of maxima in every suite: every secret of small windows, both edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conformance import COMPARING, SETTINGS, Integers, Setting, Trace

from veilgraph.ir.meaning import integers
from veilgraph.ir.meaning.integers import Windows
from veilgraph.ir.meaning.party import uniform_draws
from veilgraph.ir.party.node import Shape
from veilgraph.targets.blocks.linear import additive
from veilgraph.targets.blocks.maxima import bits_to_pool

SIZES = (1, 2, 63, 64, 65, 191, 192, 193, 577)
# (ring, window, dropped bits): n = window - dropped - 1 tree bits from 0 up, even and odd.
WINDOWS = (
    *((8, w, 0) for w in range(1, 8)),
    *((8, w, 3) for w in range(4, 8)),
    *((9, w, 1) for w in range(2, 9)),
    *((12, 11, 0), (12, 11, 1), (12, 11, 10), (10, 9, 9 - 1)),
)

settings = pytest.mark.parametrize("setting", SETTINGS, ids=str)
variants = pytest.mark.parametrize("setting", [*SETTINGS, *COMPARING], ids=str)
windows = pytest.mark.parametrize(("k", "w", "t"), WINDOWS)


def inside(w: int, t: int) -> Integers:
    """Every number of the window, the sharp upper bound included."""
    return np.arange(-(1 << (w - 1)), (1 << (w - 1)) - (1 << t) + 1)


def computed(
    setting: Setting,
    op: str,
    k: int,
    operands: list[Integers],
    shape: Shape,
    form: str = "shared",
    turn: int = 0,
    K: int | None = None,
    **attrs: Any,
) -> Integers:
    trace = Trace(setting, turn)
    shared = [trace.share(f"x{j}", x.shape, k) for j, x in enumerate(operands)]
    if form == "additive":
        shared = [additive(trace.parties, x) for x in shared]
    y = trace.apply(op, shape, K or k, attrs, *shared)
    assert y.shape == shape
    trace.reveal(y)
    inputs = {f"x{j}": x for j, x in enumerate(operands)}
    return trace.run(inputs, uniform_draws(np.random.default_rng(k)))


def check_relu(z: Integers, y: Integers, t: int) -> None:
    """max(z, 0), but that z in (-2^t, 0) may have passed for non-negative."""
    passed = (z < 0) & (z > -(1 << t)) & (y == z)
    assert ((y == np.maximum(z, 0)) | passed).all()


@variants
@windows
def test_relu_of_every_secret(setting: Setting, k: int, w: int, t: int) -> None:
    z = np.tile(inside(w, t), max(1, 4096 >> w))
    y = computed(setting, "relu", k, [z], z.shape, window_bits=w, dropped_bits=t)
    check_relu(z, y, t)


@variants
@windows
def test_step_of_every_secret(setting: Setting, k: int, w: int, t: int) -> None:
    z = np.tile(inside(w, t), max(1, 4096 >> w))
    for form in ("shared", "additive"):
        if form == "shared" or setting.suite.name == "rep3":
            s = computed(setting, "step", k, [z], z.shape, form, window_bits=w, dropped_bits=t)
            assert ((s == (z >= 0)) | ((z < 0) & (z > -(1 << t)) & (s == 1))).all()


@variants
@pytest.mark.parametrize(("k", "t"), [(2, 0), (8, 0), (8, 3), (9, 7), (32, 12), (64, 20)])
def test_a_step_that_looks_at_all_of_its_ring(setting: Setting, k: int, t: int) -> None:
    """Beyond the sharp upper bound the largest numbers pass for negative, and only those."""
    least, most = -(1 << (k - 1)), (1 << (k - 1)) - (1 << t)
    z = np.random.default_rng(k).integers(least, most, 4096, endpoint=True)
    z = np.concatenate([z, [least, least + 1, most, most - 1, -1, 0, -(1 << t)]])
    s = computed(setting, "step", k, [z], z.shape, window_bits=k, dropped_bits=t, K=24)
    assert ((s == (z >= 0)) | ((z < 0) & (z > -(1 << t)) & (s == 1))).all()


@variants
@windows
def test_truncate_relu_of_every_secret(setting: Setting, k: int, w: int, t: int) -> None:
    """The ReLU of the truncated value, exactly: never negative."""
    z = inside(w, t)
    z = np.tile(z[(z >= -(1 << (k - 2))) & (z < 1 << (k - 2))], max(1, 4096 >> w))
    for f in {max(t, 1), max(t, k - 2)}:
        for K in {k, k + 3, k - 1, max(2, w - f + 1)}:
            attrs: dict[str, Any] = {"bits": f, "window_bits": w, "dropped_bits": t}
            y = computed(setting, "truncate_relu", k, [z], z.shape, K=K, **attrs)
            floor = z >> f
            assert ((y == np.maximum(floor, 0)) | (y == np.maximum(floor + 1, 0))).all()


@pytest.mark.parametrize("op", ["step", "relu", "truncate_relu"])
@pytest.mark.parametrize("form", ["shared", "additive"])
@pytest.mark.parametrize("turn", [0, 1, 2])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.suite.name == "rep3"], ids=str)
def test_sizes_and_roles(setting: Setting, op: str, size: int, turn: int, form: str) -> None:
    z = np.resize(np.arange(-64, 64) * 5 % 128 - 64, size)
    attrs: dict[str, Any] = {
        "window_bits": 7,
        "dropped_bits": 0,
        **({"bits": 2} if op == "truncate_relu" else {}),
    }
    y = computed(setting, op, 8, [z], z.shape, form, turn, **attrs)
    low = np.maximum(z >> 2, 0) if op == "truncate_relu" else np.maximum(z, 0)
    low = np.asarray(z >= 0, np.int64) if op == "step" else low
    high = np.maximum((z >> 2) + 1, 0) if op == "truncate_relu" else low
    assert ((y == low) | (y == high)).all()


@variants
@pytest.mark.parametrize(
    ("k", "w", "t"),
    [(24, 20, 5), (32, 29, 12), (32, 31, 0), (40, 34, 14), (52, 51, 20), (64, 40, 16), (64, 63, 0)],
)
def test_real_rings_at_the_edges(setting: Setting, k: int, w: int, t: int) -> None:
    least, most = -(1 << (w - 1)), (1 << (w - 1)) - (1 << t)
    edges = [least, least + 1, most, most - 1, 0, 1, -1, 1 - (1 << t), -(1 << t), (1 << t) - 1]
    spread = np.random.default_rng(w).integers(least, most, 1500, endpoint=True)
    z = np.concatenate([np.tile(edges, 20), spread, spread >> np.arange(1500) % w])
    y = computed(setting, "relu", k, [z], z.shape, window_bits=w, dropped_bits=t)
    check_relu(z, y, t)


@settings
@pytest.mark.parametrize("t", [0, 2])
def test_maximum(setting: Setting, t: int) -> None:
    """Of all pairs whose difference is in the window; broadcast, and with a public side."""
    x, y = np.arange(-16, 17 - (1 << t))[:, None], np.arange(-15, 16)[None, :] * 0
    larger = np.maximum(x, y)
    got = computed(setting, "maximum", 10, [x, y], larger.shape, window_bits=6, dropped_bits=t)
    assert ((got == larger) | ((got < larger) & (got > larger - (1 << t)))).all()


@settings
@pytest.mark.parametrize("position", [0, 1])
def test_maximum_with_a_public_operand(setting: Setting, position: int) -> None:
    x, bound = np.arange(-20, 20).reshape(4, 10), np.arange(10) - 5
    trace = Trace(setting)
    operands = [trace.share("x", x.shape, 12), trace.public(bound, 12)]
    ordered = operands if position else operands[::-1]
    trace.reveal(
        trace.apply("maximum", x.shape, 12, {"window_bits": 7, "dropped_bits": 0}, *ordered)
    )
    np.testing.assert_array_equal(trace.run({"x": x}), np.maximum(x, bound))


POOLS = (  # shape, kernel, strides, pads low, pads high, dilations, result
    ((1, 2, 4, 6), (2, 2), (2, 2), (0, 0), (0, 0), (1, 1), (1, 2, 2, 3)),
    ((2, 1, 5, 7), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), (2, 1, 3, 4)),
    ((1, 1, 5, 5), (2, 3), (2, 2), (0, 0), (1, 2), (1, 1), (1, 1, 3, 3)),
    ((1, 1, 6, 5), (1, 2), (2, 1), (0, 1), (0, 0), (1, 1), (1, 1, 3, 5)),
    ((1, 1, 6, 7), (2, 3), (1, 1), (1, 1), (1, 2), (2, 2), (1, 1, 6, 6)),
    ((1, 1, 7, 7), (3, 2), (1, 2), (2, 0), (2, 0), (2, 3), (1, 1, 7, 2)),
    ((1, 3, 5, 5), (5, 5), (1, 1), (0, 0), (0, 0), (1, 1), (1, 3, 1, 1)),
    ((1, 1, 3, 3), (1, 1), (1, 1), (0, 0), (0, 0), (1, 1), (1, 1, 3, 3)),
)


@settings
@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_max_pool(setting: Setting, pool: tuple[Shape, ...]) -> None:
    shape, kernel, strides, low, high, dilations, result = pool
    x = np.random.default_rng(1).permutation(np.prod(shape)).reshape(shape) - 40
    expected = integers.max_pool(x, Windows(kernel, strides, low, high, dilations))
    attrs: dict[str, Any] = {"kernel": kernel, "strides": strides}
    attrs |= {"pads_low": low, "pads_high": high}
    attrs |= {"dilations": dilations, "window_bits": 9, "dropped_bits": 0}
    got = computed(setting, "max_pool", 12, [x], result, **attrs)
    np.testing.assert_array_equal(got, expected)


def check_pooled(z: Integers, y: Integers, f: int, windows: Windows) -> None:
    """That each number was rounded up or down before the largest was taken."""
    low, high = (integers.max_pool(np.maximum((z >> f) + up, 0), windows) for up in (0, 1))
    assert ((low <= y) & (y <= high)).all()


@settings
@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_truncate_relu_pool(setting: Setting, pool: tuple[Shape, ...]) -> None:
    shape, kernel, strides, low, high, dilations, result = pool
    z = np.random.default_rng(2).integers(-(1 << 8), (1 << 8) - 8, shape, endpoint=True)
    attrs: dict[str, Any] = {"kernel": kernel, "strides": strides, "bits": 3}
    attrs |= {"pads_low": low, "pads_high": high, "dilations": dilations}
    attrs |= {"window_bits": 9, "dropped_bits": 3}
    for K in (6, 10, 20):
        y = computed(setting, "truncate_relu_pool", 12, [z], result, K=K, **attrs)
        check_pooled(z, y, 3, Windows(kernel, strides, low, high, dilations))


@settings
@windows
def test_pools_of_every_pair(setting: Setting, k: int, w: int, t: int) -> None:
    """Of all that a window holds, its edges among it, and in the narrowest ring that has room."""
    z = inside(w, t)[:: max(1, (1 << w) >> 6)]
    z = np.unique([*z, inside(w, t)[0], inside(w, t)[-1]])
    pairs = np.stack([np.repeat(z, len(z)), np.tile(z, len(z))], -1)[None, None]
    windows = Windows((1, 2), (1, 2), (0, 0), (0, 0), (1, 1))
    attrs: dict[str, Any] = {"kernel": (1, 2), "strides": (1, 2), "dilations": (1, 1)}
    attrs |= {"pads_low": (0, 0), "pads_high": (0, 0), "window_bits": w, "dropped_bits": t}
    for f in {max(t, 1), t + 2}:
        least = bits_to_pool(w, t, f)
        result = (*pairs.shape[:-1], 1)
        for K in (max(2, w - f + 1), w + 3):
            y = computed(
                setting, "truncate_relu_pool", max(k, least), [pairs], result, K=K, bits=f, **attrs
            )
            check_pooled(pairs, y, f, windows)


@settings
@pytest.mark.parametrize("axes", [(0,), (1,), (-1, 0), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [True, False])
def test_reduce_max(setting: Setting, axes: tuple[int, ...], keepdims: bool) -> None:
    x = np.random.default_rng(1).permutation(2 * 5 * 3).reshape(2, 5, 3) - 15
    expected = x.max(axes, keepdims=keepdims)
    attrs: dict[str, Any] = {
        "axes": axes,
        "keepdims": keepdims,
        "window_bits": 6,
        "dropped_bits": 0,
    }
    got = computed(setting, "reduce_max", 9, [x], expected.shape, **attrs)
    np.testing.assert_array_equal(got, expected)

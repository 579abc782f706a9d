"""Linear and layout kernels against their references: every instruction set, width and view."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from calling import DEVICES, EMULATOR, call
from hypothesis import given, settings
from hypothesis import strategies as st

from veilgraph.kernels.conv2d import declaration as conv2d
from veilgraph.kernels.conv2d.reference import conv2d as conv2d_reference
from veilgraph.kernels.copy.reference import copy as copy_reference
from veilgraph.kernels.fill import declaration as fill
from veilgraph.kernels.fill.reference import fill as fill_reference
from veilgraph.kernels.matmul import declaration as matmul
from veilgraph.kernels.matmul.reference import matmul as matmul_reference
from veilgraph.kernels.native import supported
from veilgraph.kernels.pool_sum import declaration as pool_sum
from veilgraph.kernels.pool_sum.reference import pool_sum as pool_sum_reference
from veilgraph.kernels.reduce_sum.reference import reduce_sum as reduce_sum_reference

Words = npt.NDArray[Any]
WORDS = (np.uint32, np.uint64)

devices = pytest.mark.parametrize("device", DEVICES)
cpus = pytest.mark.parametrize("device", supported())
word_types = pytest.mark.parametrize("word", WORDS)
threads = st.sampled_from([1, 2])
seeds = st.integers(0, 2**32)
few = settings(deadline=None, max_examples=40)


def random_words(rng: np.random.Generator, shape: tuple[int, ...], word: type[Any]) -> Words:
    """Uniform words, some of them extreme."""
    top = (1 << 8 * word().itemsize) - 1
    values = rng.integers(0, top, shape, word, endpoint=True)
    extremes = rng.choice(np.array([0, 1, top, top // 2 + 1], word), shape)
    return np.where(rng.random(shape) < 0.1, extremes, values)


def junk(shape: tuple[int, ...], word: type[Any]) -> Words:
    return np.full(shape, 0xABCDABCD, word)


def assert_equal_in_ring(actual: Words, expected: Words, bits: int) -> None:
    mask = actual.dtype.type((1 << bits) - 1)
    np.testing.assert_array_equal(actual & mask, expected & mask)


@st.composite
def matrix(draw: st.DrawFn, shape: tuple[int, ...], word: type[Any], seed: int) -> Words:
    """A view of random words: plain, turned, sliced, reversed, or one entry for the batch."""
    rng = np.random.default_rng(seed)
    batch, rows, columns = shape
    form = draw(st.sampled_from(["plain", "turned", "sliced", "reversed", "shared"]))
    if form == "turned":
        return random_words(rng, (batch, columns, rows), word).transpose(0, 2, 1)
    if form == "sliced":
        return random_words(rng, (batch, rows * 2, columns + 3), word)[:, ::2, 1 : columns + 1]
    if form == "reversed":
        return random_words(rng, shape, word)[:, ::-1, ::-1]
    if form == "shared":
        return np.broadcast_to(random_words(rng, (1, rows, columns), word), shape)
    return random_words(rng, shape, word)


def words_of(data: st.DataObject, word: type[Any]) -> int:
    most = 8 * word().itemsize
    return data.draw(st.sampled_from([b for b in (1, 24, 32, 40, 52, 53, 64) if b <= most]))


extent = st.one_of(st.integers(0, 5), st.sampled_from([8, 16, 24, 25, 49, 97, 130]))


@devices
@word_types
@few
@given(st.data(), st.integers(0, 3), extent, extent, st.lists(extent, min_size=1, max_size=2))
def test_matmul(
    device: str,
    word: type[Any],
    data: st.DataObject,
    batch: int,
    rows: int,
    columns: int,
    depths: list[int],
) -> None:
    bits, seed = words_of(data, word), data.draw(seeds)
    pairs = [
        (
            data.draw(matrix((batch, rows, depth), word, seed + p)),
            data.draw(matrix((batch, depth, columns), word, seed + p + 99)),
        )
        for p, depth in enumerate(depths)
    ]
    out = junk((batch, rows, columns), word)
    operands = [out, *(m for pair in pairs for m in pair)]
    params = matmul.Params(bits).values()
    call("matmul", operands, params, device=device, threads=data.draw(threads))
    assert_equal_in_ring(out, matmul_reference(pairs), bits)


BLOCKS = (200, 400, 1300)
# Several blocks of CUDA's, for the emulator: 4 x 5 tiles of one kernel, the last ones cut. Their
# six steps go around its three stages twice.
TILES = (200, 170, 300)


@lru_cache(maxsize=2)  # the devices' tests come one after another; the emulator has its own shape
def large_product(
    word: type[Any], bits: int, rows: int, depth: int, columns: int
) -> tuple[Words, Words, Words]:
    """Two factors, and what they make."""
    rng = np.random.default_rng(bits)
    a = random_words(rng, (1, rows, depth), word)
    b = random_words(rng, (1, depth, columns), word)
    expected = (a[0] @ b[0])[None]
    for each in (a, b, expected):
        each.setflags(write=False)
    return a, b, expected


@devices
@word_types
@pytest.mark.parametrize("bits", [16, 24, 32, 40, 48, 52, 56, 64])
@pytest.mark.parametrize("shape", [BLOCKS, (1, 700, 2100), (300, 700, 1), (7, 450, 30)])
def test_large_matmul(device: str, word: type[Any], bits: int, shape: tuple[int, int, int]) -> None:
    """Several blocks in each dimension, cut among two threads."""
    if bits > 8 * word().itemsize:
        pytest.skip("ring exceeds the words")
    rows, depth, columns = TILES if (device, shape) == (EMULATOR, BLOCKS) else shape
    a, b, expected = large_product(word, bits, rows, depth, columns)
    turned = np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1)
    turned_left = np.ascontiguousarray(a.transpose(0, 2, 1)).transpose(0, 2, 1)
    for left, right in ((a, b), (a, turned), (turned_left, b)):
        out = junk((1, rows, columns), word)
        call("matmul", [out, left, right], matmul.Params(bits).values(), device=device, threads=2)
        assert_equal_in_ring(out, expected, bits)


@devices
@word_types
def test_sums_of_the_largest_words(device: str, word: type[Any]) -> None:
    """Limbs of 255 everywhere: what 32-bit sums hold is counted for these."""
    bits, depth = 8 * word().itemsize, 1100
    a, b = (np.full((1, 40, depth), -1, np.int64).astype(word) for _ in range(2))
    out = junk((1, 40, 40), word)
    operands = [out, a, b.transpose(0, 2, 1)]
    call("matmul", operands, matmul.Params(bits).values(), device=device)
    assert (out == depth).all(), "(-1) (-1), summed up"


@devices
@word_types
@pytest.mark.parametrize("count", [4, 5, 9])
def test_many_pairs(device: str, word: type[Any], count: int) -> None:
    """More than a CUDA launch takes; matrices, then images."""
    rng = np.random.default_rng(count)
    bits = 8 * word().itemsize
    matrices = [
        (random_words(rng, (2, 5, 20), word), random_words(rng, (2, 20, 7), word))
        for _ in range(count)
    ]
    out = junk((2, 5, 7), word)
    operands = [out, *(m for pair in matrices for m in pair)]
    call("matmul", operands, matmul.Params(bits).values(), device=device)
    np.testing.assert_array_equal(out, matmul_reference(matrices))
    for groups in (1, 3):
        params = conv2d.Params(bits, groups=groups)
        images = [
            (
                random_words(rng, (1, 3, 6, 5), word),
                random_words(rng, (6, 3 // groups, 2, 2), word),
            )
            for _ in range(count)
        ]
        out = junk((1, 6, 5, 4), word)
        operands = [out, *(m for pair in images for m in pair)]
        call("conv2d", operands, params.values(), device=device)
        np.testing.assert_array_equal(out, conv2d_reference(images, params, 5, 4))


@st.composite
def convolution(draw: st.DrawFn) -> tuple[conv2d.Params, tuple[int, ...], tuple[int, ...]]:
    """Parameters without `bits`, the images' shape and the weights'."""
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    depth, filters = draw(st.integers(0, 4)), draw(st.integers(0, 9))
    small = st.integers(1, 3)
    params = conv2d.Params(
        1, draw(small), draw(small), draw(st.integers(0, 4)), draw(st.integers(0, 4)),
        draw(small), draw(small), groups,
    )  # fmt: skip
    sides = (draw(st.integers(0, 14)), draw(st.integers(0, 14)))
    images = (draw(st.integers(0, 2)), depth * groups, *sides)
    weights = (filters * groups, depth, draw(st.integers(0, 4)), draw(st.integers(0, 4)))
    return params, images, weights


@devices
@word_types
@settings(deadline=None, max_examples=80)
@given(st.data(), convolution(), st.integers(0, 9), st.integers(0, 9))
def test_conv2d(
    device: str,
    word: type[Any],
    data: st.DataObject,
    drawn: tuple[conv2d.Params, tuple[int, ...], tuple[int, ...]],
    height: int,
    width: int,
) -> None:
    """Any output extents: windows may lie beside the image altogether."""
    params, images, weights = drawn
    rng = np.random.default_rng(data.draw(seeds))
    bits = words_of(data, word)
    count = data.draw(st.integers(1, 2))
    pairs = [
        (random_words(rng, images, word), random_words(rng, weights, word)) for _ in range(count)
    ]
    out = junk((images[0], weights[0], height, width), word)
    operands = [out, *(m for pair in pairs for m in pair)]
    values = (bits, *params.values()[1:])
    call("conv2d", operands, values, device=device, threads=data.draw(threads))
    assert_equal_in_ring(out, conv2d_reference(pairs, params, height, width), bits)


side = st.integers(0, 40)


@cpus
@word_types
@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([3, 5]),
    st.sampled_from([1, 2]),
    st.tuples(st.integers(0, 6), st.integers(0, 6)),
    st.tuples(side, side),
    st.tuples(side, side),
    st.integers(1, 3),
    seeds,
)
def test_depthwise(
    device: str,
    word: type[Any],
    size: int,
    stride: int,
    pads: tuple[int, int],
    sides: tuple[int, int],
    extents: tuple[int, int],
    count: int,
    seed: int,
) -> None:
    """Windows that go down strips, and those that miss the image by their padding."""
    bits, rng = 8 * word().itemsize, np.random.default_rng(seed)
    params = conv2d.Params(bits, stride, stride, *pads, groups=2)
    pairs = [
        (random_words(rng, (1, 2, *sides), word), random_words(rng, (4, 1, size, size), word))
        for _ in range(count)
    ]
    out = junk((1, 4, *extents), word)
    operands = [out, *(m for pair in pairs for m in pair)]
    call("conv2d", operands, params.values(), device=device)
    assert_equal_in_ring(out, conv2d_reference(pairs, params, *extents), bits)


LAYERS = [
    # batch, channels, side, filters, kernel, stride, pad, groups
    (1, 3, 40, 64, 7, 2, 3, 1),
    (2, 70, 14, 33, 3, 1, 1, 1),
    (1, 130, 14, 40, 1, 1, 0, 1),
    (3, 64, 7, 128, 1, 2, 0, 1),
    (1, 20, 33, 20, 3, 1, 1, 20),
    (2, 20, 32, 40, 5, 2, 2, 20),
    (1, 24, 20, 48, 3, 1, 1, 4),
    (1, 2, 30, 8, 11, 4, 2, 1),
]


@devices
@word_types
@pytest.mark.parametrize("layer", LAYERS)
def test_conv2d_of_networks(device: str, word: type[Any], layer: tuple[int, ...]) -> None:
    batch, channels, side, filters, kernel, stride, pad, groups = layer
    rng = np.random.default_rng(kernel)
    bits = 8 * word().itemsize
    params = conv2d.Params(bits, stride, stride, pad, pad, groups=groups)
    x = random_words(rng, (batch, channels, side, side), word)
    w = random_words(rng, (filters, channels // groups, kernel, kernel), word)
    extent = (side + 2 * pad - kernel) // stride + 1
    out = junk((batch, filters, extent, extent), word)
    call("conv2d", [out, x, w], params.values(), device=device, threads=2)
    np.testing.assert_array_equal(out, conv2d_reference([(x, w)], params, extent, extent))


@devices
@word_types
@few
@given(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 20), st.integers(0, 20)),
    st.tuples(*[st.integers(1, 9)] * 2, *[st.integers(1, 4)] * 2, *[st.integers(0, 4)] * 2),
    st.integers(0, 12),
    st.integers(0, 12),
    seeds,
)
def test_pool_sum(
    device: str,
    word: type[Any],
    shape: tuple[int, ...],
    window: tuple[int, ...],
    height: int,
    width: int,
    seed: int,
) -> None:
    params = pool_sum.Params(*window)
    x = random_words(np.random.default_rng(seed), shape, word)
    out = junk((*shape[:2], height, width), word)
    call("pool_sum", [out, x], params.values(), device=device)
    np.testing.assert_array_equal(out, pool_sum_reference(x, params, height, width))


@devices
def test_large_pool_sum_on_threads(device: str) -> None:
    params = pool_sum.Params(3, 3, 2, 2, 1, 1)
    x = random_words(np.random.default_rng(0), (2, 65, 28, 28), np.uint64)
    out = junk((2, 65, 14, 14), np.uint64)
    call("pool_sum", [out, x], params.values(), device=device, threads=2)
    np.testing.assert_array_equal(out, pool_sum_reference(x, params, 14, 14))


shapes = st.lists(st.integers(0, 6), max_size=6).map(tuple)


@st.composite
def view(draw: st.DrawFn, shape: tuple[int, ...], word: type[Any], repeats: bool) -> Words:
    """A view of random words: dimensions in any order, steps, reversals, repetition."""
    rank = len(shape)
    order = draw(st.permutations(range(rank)))
    steps = [draw(st.sampled_from([1, 1, 2, -1, -2])) for _ in shape]
    repeated = [repeats and draw(st.integers(0, 4)) == 0 for _ in shape]
    extents = [1 if repeated[d] else shape[d] * abs(steps[d]) for d in order]
    base = random_words(np.random.default_rng(draw(seeds)), tuple(extents), word)
    turned = base.transpose([list(order).index(d) for d in range(rank)])
    index = tuple(
        slice(None) if repeated[d] or shape[d] == 0 else slice(None, None, steps[d])
        for d in range(rank)
    )
    return np.broadcast_to(turned[index], shape)


@devices
@word_types
@settings(deadline=None, max_examples=150)
@given(st.data(), shapes)
def test_copy(device: str, word: type[Any], data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = data.draw(view(shape, word, repeats=True))
    out = data.draw(view(shape, word, repeats=False))
    whole = out
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    expected = whole.copy()
    twin = np.ndarray(out.shape, out.dtype, expected.data, _offset(out, whole), out.strides)
    twin[...] = copy_reference(x)
    call("copy", [out, x], device=device)
    np.testing.assert_array_equal(whole, expected)


def _offset(part: Words, whole: Words) -> int:
    return int(part.__array_interface__["data"][0] - whole.__array_interface__["data"][0])


@devices
@word_types
@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2), (1, 2, 0)])
def test_large_copy_on_threads(device: str, word: type[Any], axes: tuple[int, ...]) -> None:
    x = random_words(np.random.default_rng(1), (67, 35, 90), word).transpose(axes)
    out = junk(x.shape, word)
    call("copy", [out, x], device=device, threads=2)
    np.testing.assert_array_equal(out, x)


@devices
@word_types
@few
@given(st.data(), shapes)
def test_reduce_sum(
    device: str, word: type[Any], data: st.DataObject, shape: tuple[int, ...]
) -> None:
    x = data.draw(view(shape, word, repeats=True))
    reduced = tuple(1 if data.draw(st.booleans()) else e for e in shape)
    out = junk(reduced, word)
    call("reduce_sum", [out, x], device=device)
    np.testing.assert_array_equal(out, reduce_sum_reference(x, reduced))


@devices
@word_types
@few
@given(st.data(), shapes, st.one_of(st.sampled_from([0, -1, 2**64 - 1]), st.integers(0, 2**64)))
def test_fill(
    device: str, word: type[Any], data: st.DataObject, shape: tuple[int, ...], value: int
) -> None:
    out = data.draw(view(shape, word, repeats=False))
    call("fill", [out], fill.Params(value).values(), device=device)
    np.testing.assert_array_equal(out, fill_reference(value, shape, word))

"""Depthwise convolutions by strips of outputs, on the emulator and on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from calling import RUNNERS, call
from hypothesis import given, settings
from hypothesis import strategies as st
from test_linear import assert_equal_in_ring, junk, random_words, seeds

from veilgraph.kernels.conv2d import cuda as conv2d
from veilgraph.kernels.conv2d import depthwise
from veilgraph.kernels.conv2d.declaration import Params
from veilgraph.kernels.conv2d.reference import conv2d as conv2d_reference
from veilgraph.kernels.cuda import Buffer, DeviceShape, Kind, Launch

small = st.tuples(st.integers(1, 17), st.integers(1, 9))


@pytest.mark.parametrize("device", RUNNERS)
@pytest.mark.parametrize(
    ("word", "size", "stride"),
    [(np.uint64, 3, 1), (np.uint32, 3, 2), (np.uint64, 5, 2), (np.uint32, 5, 1)],
)
@settings(deadline=None, max_examples=25)
@given(
    sides=small,
    extents=small,
    pads=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    shape=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 2)),
    count=st.integers(1, 5),
    seed=seeds,
)
def test_strips(
    device: str,
    word: type[Any],
    size: int,
    stride: int,
    sides: tuple[int, int],
    extents: tuple[int, int],
    pads: tuple[int, int],
    shape: tuple[int, int, int],
    count: int,
    seed: int,
) -> None:
    """Strips that end below the outputs, windows beside the image, several filters a channel."""
    batch, channels, multiple = shape
    bits, rng = 8 * word().itemsize, np.random.default_rng(seed)
    params = Params(bits, stride, stride, *pads, groups=channels)
    images, weights = (batch, channels, *sides), (channels * multiple, 1, size, size)
    pairs = [
        (random_words(rng, images, word), random_words(rng, weights, word)) for _ in range(count)
    ]
    out = junk((batch, channels * multiple, *extents), word)
    operands = [out, *(m for pair in pairs for m in pair)]
    call("conv2d", operands, params.values(), device=device, way=conv2d.by_strips)
    assert_equal_in_ring(out, conv2d_reference(pairs, params, *extents), bits)


def chosen(
    out: tuple[int, ...], image: int, kernel: tuple[int, int], params: Params
) -> tuple[Launch, ...]:
    """The launches of a convolution of `out[1]` channels, a filter each."""
    shapes = [out, (*out[:2], image, image), (out[1], 1, *kernel)]
    buffers = []
    for shape in shapes:
        strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(4))
        buffers.append(Buffer(0, 0, Kind.WORDS64, 64, shape, strides))
    return conv2d.launches(buffers, params.values(), DeviceShape(132))


def test_strips_are_for_what_fills_a_gpu() -> None:
    """MobileNetV2 at 112 x 112; too few outputs, other kernels and strides: an output a thread."""
    plain = Params(64, 1, 1, 1, 1, groups=32)
    (launch,) = chosen((1, 32, 112, 112), 112, (3, 3), plain)
    assert launch.source.name == "conv2d_depthwise"
    assert launch.grid[0] * 256 >= 32 * 16 * 112
    for out, kernel, params in (
        ((1, 32, 14, 14), (3, 3), plain),
        ((1, 32, 112, 112), (3, 5), plain),
        ((1, 32, 112, 112), (7, 7), plain),
        ((1, 32, 112, 112), (3, 3), Params(64, 1, 2, 1, 1, groups=32)),
        ((1, 32, 112, 112), (3, 3), Params(64, 1, 1, 1, 1, 2, 2, groups=32)),
    ):
        (launch,) = chosen(out, out[2], kernel, params)
        assert launch.entry == "veil_conv2d64_thin"


@pytest.mark.parametrize(("rows", "strips"), [(1, 1), (7, 1), (8, 2), (112, 16)])
def test_strips_of_rows(rows: int, strips: int) -> None:
    assert depthwise.strips_of(rows) == strips

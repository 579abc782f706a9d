"""Convolutions on tensor cores: every geometry, tile and ring, and the divisions behind them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from calling import EMULATOR, GPU, call, with_fixed
from hypothesis import given, settings
from hypothesis import strategies as st
from test_linear import LAYERS, assert_equal_in_ring, convolution, junk, random_words, seeds

from veilgraph.kernels.conv2d import cuda as conv2d
from veilgraph.kernels.conv2d.convolution import Convolution
from veilgraph.kernels.conv2d.declaration import Params
from veilgraph.kernels.conv2d.divisors import BOUND, divisor
from veilgraph.kernels.conv2d.reference import conv2d as conv2d_reference
from veilgraph.kernels.cuda import Buffer, DeviceShape, Kind
from veilgraph.kernels.gemm import limbs
from veilgraph.kernels.matmul.residues import Shape

devices = pytest.mark.parametrize("device", [EMULATOR, pytest.param(GPU, marks=pytest.mark.gpu)])
rings = pytest.mark.parametrize(
    ("word", "bits"), [(np.uint32, 24), (np.uint32, 32), (np.uint64, 40), (np.uint64, 64)]
)


@devices
@rings
@settings(deadline=None, max_examples=20)
@given(st.data(), convolution(), st.integers(1, 9), st.integers(1, 9))
def test_geometries(
    device: str,
    word: type[Any],
    bits: int,
    data: st.DataObject,
    drawn: tuple[Params, tuple[int, ...], tuple[int, ...]],
    height: int,
    width: int,
) -> None:
    """Windows may lie beside the image altogether; thin groups too."""
    params, images, weights = drawn
    weights = (*weights[:2], max(1, weights[2]), max(1, weights[3]))
    if 0 in (images[0], weights[0]):
        return
    rng = np.random.default_rng(data.draw(seeds))
    pairs = [
        (random_words(rng, images, word), random_words(rng, weights, word))
        for _ in range(data.draw(st.integers(1, 5)))
    ]
    out = junk((images[0], weights[0], height, width), word)
    operands = [out, *(m for pair in pairs for m in pair)]
    values = (bits, *params.values()[1:])
    shape = DeviceShape(data.draw(st.sampled_from([1, 40])))
    way = with_fixed(conv2d.by_limbs, data.draw(st.sampled_from([(), (1,)])))
    call("conv2d", operands, values, device=device, way=way, shape=shape)
    assert_equal_in_ring(out, conv2d_reference(pairs, params, height, width), bits)


@devices
@rings
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("way", [conv2d.by_limbs, conv2d.by_integers, conv2d.by_outputs])
def test_layers(device: str, word: type[Any], bits: int, layer: tuple[int, ...], way: Any) -> None:
    batch, channels, side, filters, kernel, stride, pad, groups = layer
    rng = np.random.default_rng(kernel)
    params = Params(bits, stride, stride, pad, pad, groups=groups)
    x = random_words(rng, (batch, channels, side, side), word)
    w = random_words(rng, (filters, channels // groups, kernel, kernel), word)
    extent = (side + 2 * pad - kernel) // stride + 1
    out = junk((batch, filters, extent, extent), word)
    for sides in ((), (1,)):
        way = with_fixed(way, sides)
        call("conv2d", [out, x, w], params.values(), device=device, way=way)
        assert_equal_in_ring(out, conv2d_reference([(x, w)], params, extent, extent), bits)


@devices
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("tile", list(limbs.NAMES))
def test_tilings_that_are_asked_for(device: str, kernel: int, tile: str) -> None:
    """Each tile, with one stage and the depth cut; a 1 x 1 kernel is a product of matrices."""
    rng = np.random.default_rng(kernel)
    params = Params(32, 1, 1, kernel // 2, kernel // 2)
    x, w = (
        random_words(rng, (2, 40, 8, 8), np.uint32),
        random_words(rng, (20, 40, kernel, kernel), np.uint32),
    )
    out = junk((2, 20, 8, 8), np.uint32)
    extents = (2, 20, 64) if kernel == 1 else (1, 20, 128)
    ring, depth = limbs.Ring(32, 4), 40 * kernel**2
    made = limbs.tiling_of(ring, limbs.NAMES[tile], 1, 2, extents, [depth])
    way = partial(conv2d.by_limbs, made=made)
    call("conv2d", [out, x, w], params.values(), device=device, way=way)
    assert_equal_in_ring(out, conv2d_reference([(x, w)], params, 8, 8), 32)


@given(st.integers(1, BOUND - 1), st.lists(st.integers(0, BOUND - 1)))
def test_divisors(d: int, values: list[int]) -> None:
    """Also around every multiple that a 31-bit dividend can be near."""
    multiplier, shift = divisor(d)
    assert multiplier < 1 << 32
    most = BOUND - 1
    for n in (*values, d - 1, d, min(most, d + 1), most // d * d, max(0, most // d * d - 1), most):
        assert n * multiplier >> shift == n // d


def convolution_of(
    images: tuple[int, ...],
    weights: tuple[int, ...],
    out: tuple[int, ...],
    params: Params,
    word: Kind = Kind.WORDS64,
) -> Convolution:
    def buffer(shape: tuple[int, ...]) -> Buffer:
        strides = tuple(int(np.prod(shape[d + 1 :])) for d in range(4))
        return Buffer(0, 0, word, 64, shape, strides)

    return Convolution.of([buffer(s) for s in (out, images, weights)], params.values())


def test_a_kernel_over_all_of_an_image_is_a_matmul() -> None:
    def is_matmul(side: int, kernel: int = 1, **params: int) -> bool:
        shapes = ((8, 4, side, side), (6, 4, kernel, kernel), (8, 6, side, side))
        return convolution_of(*shapes, Params(64, **params)).is_matmul

    assert is_matmul(56)
    assert is_matmul(8)
    assert not is_matmul(5)  # tiles of 64 pixels would be half empty
    assert not is_matmul(56, kernel=3, pad_top=1, pad_left=1)
    assert not is_matmul(56, stride_h=2)
    assert not is_matmul(56, pad_left=1)


@devices
def test_a_kernel_over_all_of_an_image_by_residues(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images are entries of a batch, with the same weights in each."""
    monkeypatch.setattr(Shape, "is_worth", lambda *_: True)
    monkeypatch.setattr(limbs, "is_worth", lambda *_: True)
    rng = np.random.default_rng(1)
    x, w = random_words(rng, (2, 70, 8, 8), np.uint64), random_words(rng, (5, 70, 1, 1), np.uint64)
    out = junk((2, 5, 8, 8), np.uint64)
    for sides in ((), (1,)):
        way = with_fixed(conv2d.launches, sides)
        call("conv2d", [out, x, w], Params(64).values(), device=device, way=way)
        assert_equal_in_ring(out, conv2d_reference([(x, w)], Params(64), 8, 8), 64)


def test_when_a_kernel_over_all_of_an_image_goes_by_residues() -> None:
    def entries(batch: int, channels: int, side: int, filters: int, fixed: bool) -> list[str]:
        shapes = (batch, filters, side, side), (batch, channels, side, side)
        c = convolution_of(shapes[1], (filters, channels, 1, 1), shapes[0], Params(64))
        factors = [c.images, replace(c.weights, is_fixed=fixed)]
        made = conv2d.launches([c.out, *factors], c.params.values(), DeviceShape(132, "sm_80"))
        return [launch.entry.removeprefix("veil_").split("_")[0] for launch in made]

    assert entries(1, 2048, 64, 1024, False) == ["reduce", "reduce", "multiply", "combine"]
    assert entries(1, 2048, 64, 1024, True) == ["reduce", "multiply", "combine"]
    assert entries(2, 2048, 64, 1024, True) == ["reduce", "multiply", "combine"]
    assert entries(1, 256, 56, 64, True) == ["matmul"]


def test_what_is_no_small_convolution() -> None:
    """Places or coordinates beyond 31 bits take the way that counts in 64."""
    fits = ((1, 1, 8, 8), (1, 1, 3, 3), (1, 1, 6, 6))
    assert convolution_of(*fits, Params(64)).is_small
    assert not convolution_of(*fits, Params(64, stride_h=1 << 30)).is_small
    assert not convolution_of(*fits, Params(64, dilation_w=1 << 30)).is_small
    assert not convolution_of((1, 1, 8, 8), (1, 1, 0, 3), (1, 1, 6, 6), Params(64)).is_small
    large = ((1 << 20, 1, 64, 64), (1, 1, 1, 1), (1 << 20, 1, 64, 64))
    assert not convolution_of(*large, Params(64)).is_small

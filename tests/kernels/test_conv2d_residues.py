"""Convolutions by residues: where images lie for them, every geometry, and values at the bounds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from calling import GPU, call, with_fixed
from gpus import first_gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from test_conv2d_limbs import convolution_of, devices, rings
from test_limbs import all_least, all_most
from test_linear import LAYERS, assert_equal_in_ring, convolution, junk, random_words, seeds
from test_residues import engines

from veilgraph.kernels.conv2d import costs
from veilgraph.kernels.conv2d import cuda as conv2d
from veilgraph.kernels.conv2d.declaration import Params
from veilgraph.kernels.conv2d.reference import conv2d as conv2d_reference
from veilgraph.kernels.conv2d.residues.image_planes import PIECE, Axis, ImagePlanes
from veilgraph.kernels.conv2d.residues.residues import MOST_TAPS, Shape, by_residues
from veilgraph.kernels.cuda import DeviceShape
from veilgraph.kernels.cuda.launch import Packed
from veilgraph.kernels.gemm.residues.residues import MAX_DEPTH, moduli_count
from veilgraph.kernels.matmul.residues import MAX_SCRATCH

Words = npt.NDArray[Any]
SM90 = DeviceShape(132, "sm_90")
small = st.integers(1, 3)


# Where images lie


@given(
    st.integers(1, 3),
    st.tuples(*2 * [st.integers(1, 12)]),
    st.tuples(*2 * [st.integers(1, 12)]),
    st.tuples(*2 * [st.integers(1, 4)]),
    st.tuples(*2 * [small], *2 * [st.integers(0, 4)], *2 * [small]),
)
@settings(max_examples=200)
def test_taps_of_all_windows_are_where_the_first_ones_are(
    images: int,
    sizes: tuple[int, ...],
    outs: tuple[int, ...],
    kernel: tuple[int, ...],
    others: tuple[int, ...],
) -> None:
    """A plane of line numbers, filled as the kernel does: every output finds its own elements, and
    nothing beside the image."""
    rows, columns = (
        Axis(size, out, taps, *others[side::2])
        for side, (size, out, taps) in enumerate(zip(sizes, outs, kernel, strict=True))
    )
    if min(rows.used, columns.used) < 1:
        return
    planes = ImagePlanes(images, 1, 1, rows, columns)
    lines = planes.piece_bytes // PIECE
    found = np.zeros((rows.phases, columns.phases, lines), np.int64)
    x = np.arange(1, images * sizes[0] * sizes[1] + 1).reshape(images, 1, *sizes)
    image = rows.pitch * columns.pitch
    for line in range(planes.filled):
        number, rest = divmod(line - planes.front, image)
        row, column = divmod(rest, columns.pitch)
        for i in range(rows.phases):
            for j in range(columns.phases):
                y = row * rows.stride + (rows.first + i * rows.dilation) % rows.stride
                z = column * columns.stride
                z += (columns.first + j * columns.dilation) % columns.stride
                is_used = row < rows.used and column < columns.used
                if 0 <= number < images and is_used and y < sizes[0] and z < sizes[1]:
                    found[i, j, line] = x[number, 0, y, z]
    lines_of = found.reshape(-1, 1, lines).repeat(4, axis=1).reshape(-1)  # 64 channels alike
    params = Params(64, *others)
    for tap, place in enumerate(planes.tap_places()):
        weights = np.zeros((1, 1, *kernel), np.int64)
        weights.reshape(-1)[tap] = 1
        expected = conv2d_reference([(x, weights)], params, *outs)
        for number in range(images):
            for row in range(outs[0]):
                first = place // PIECE + number * image + row * columns.pitch
                np.testing.assert_array_equal(
                    lines_of[first : first + outs[1]], expected[number, 0, row]
                )


# The kernels


def by_kernels(
    pairs: Sequence[tuple[Words, Words]],
    params: Params,
    extents: tuple[int, int],
    device: str,
    shape: DeviceShape,
    sides: Collection[int] = (),
) -> None:
    """With weights packed where 1 is among the sides."""
    if device == GPU and shape.arch != "sm_80" and shape.arch != first_gpu().gpu.arch:
        pytest.skip(f"the GPU is of {first_gpu().gpu.arch}")
    x, w = pairs[0]
    out = junk((x.shape[0], w.shape[0], *extents), x.dtype.type)
    operands = [out, *(each for pair in pairs for each in pair)]
    way = with_fixed(by_residues, sides)
    call("conv2d", operands, params.values(), device=device, way=way, shape=shape)
    assert_equal_in_ring(out, conv2d_reference(pairs, params, *extents), params.bits)


@devices
@engines
@rings
@settings(deadline=None, max_examples=6)
@given(st.data(), convolution(), st.integers(1, 9), st.integers(1, 9))
def test_geometries(
    device: str,
    arch: str,
    word: type[Any],
    bits: int,
    data: st.DataObject,
    drawn: tuple[Params, tuple[int, ...], tuple[int, ...]],
    height: int,
    width: int,
) -> None:
    """Strides, dilations, padding on either side, groups, images, and pairs."""
    params, images, weights = drawn
    images = (max(1, images[0]), max(1, images[1]), *(max(1, side) for side in images[2:]))
    channels = max(1, images[1] // params.groups)
    images = (images[0], channels * params.groups, *images[2:])
    kernel = (max(1, extent) for extent in weights[2:])
    weights = (max(weights[0], params.groups), channels, *kernel)
    made = replace(params, bits=bits)
    c = convolution_of(images, weights, (images[0], weights[0], height, width), made)
    if not Shape.of(c).is_able:
        return
    rng = np.random.default_rng(data.draw(seeds))
    pairs = [
        (random_words(rng, images, word), random_words(rng, weights, word))
        for _ in range(data.draw(st.integers(1, 2)))
    ]
    sides = data.draw(st.sampled_from([(), (1,)]))
    by_kernels(pairs, made, (height, width), device, DeviceShape(2, arch), sides)


@devices
@engines
@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer[4] < 5 and layer[7] < 20])
def test_layers(device: str, arch: str, layer: tuple[int, ...]) -> None:
    batch, channels, side, filters, kernel, stride, pad, groups = layer
    rng = np.random.default_rng(kernel)
    params = Params(32, stride, stride, pad, pad, groups=groups)
    x = random_words(rng, (batch, channels, side, side), np.uint32)
    w = random_words(rng, (filters, channels // groups, kernel, kernel), np.uint32)
    extent = (side + 2 * pad - kernel) // stride + 1
    by_kernels([(x, w)], params, (extent, extent), device, DeviceShape(3, arch), {1})


@devices
@engines
@rings
def test_several_tiles_of_extremes(device: str, arch: str, word: type[Any], bits: int) -> None:
    """Filters and images of the greatest elements among random ones, on edges of tiles; two pairs,
    whose channels fill no step."""
    rng = np.random.default_rng(bits)
    pairs = [
        (random_words(rng, (3, 5, 13, 13), word), random_words(rng, (230, 5, 1, 2), word))
        for _ in range(2)
    ]
    for x, w in pairs:
        x[0], x[2] = all_least(word, x.shape[1:]), all_most(word, x.shape[1:])
        w[127], w[128] = all_least(word, w.shape[1:]), all_most(word, w.shape[1:])
    params = Params(bits, pad_left=1)
    by_kernels(pairs, params, (13, 13), device, DeviceShape(4, arch), {1})


@devices
@engines
@pytest.mark.parametrize(("bits", "depth"), [(64, 61), (56, 109), (48, 182), (40, 261)])
def test_where_another_modulus_is_needed(device: str, arch: str, bits: int, depth: int) -> None:
    """Sums as large as they get, on both sides of a depth that the moduli are just enough for."""
    assert moduli_count(bits // 8, depth) + 1 == moduli_count(bits // 8, depth + 1)
    for channels in (depth, depth + 1):
        x = all_least(np.uint64, (1, channels, 2, 2))
        w = np.concatenate([all_least(np.uint64, (1, channels, 1, 1)), -x[:, :, :1, :1]])
        by_kernels([(x, w)], Params(bits), (2, 2), device, DeviceShape(2, arch))


# The choice


def entries(
    images: tuple[int, ...],
    filters: int,
    kernel: int,
    is_fixed: bool,
    device: DeviceShape = SM90,
    stride: int = 1,
) -> list[str]:
    batch, channels, side, _ = images
    params = Params(64, stride, stride, kernel // 2, kernel // 2)
    out = batch, filters, side // stride, side // stride
    c = convolution_of(images, (filters, channels, kernel, kernel), out, params)
    factors = [c.images, replace(c.weights, is_fixed=is_fixed)]
    made = conv2d.launches([c.out, *factors], c.params.values(), device)
    return ["_".join(launch.entry.split("_")[1:3]) for launch in made]


def test_when_residues_are_worth_it() -> None:
    """Large layers; 1 x 1 kernels on several images whose weights are packed, of many channels."""
    around = ["reduce_images", "multiply_18", "combine_images"]
    for device in (SM90, DeviceShape(108, "sm_80")):
        assert entries((8, 512, 28, 28), 512, 3, True, device) == around
        assert entries((8, 1024, 14, 14), 2048, 1, True, device, 2) == around
        assert entries((8, 3, 224, 224), 64, 3, True, device) == ["conv2d_limbs64"]
        assert entries((1, 512, 7, 7), 512, 3, True, device)[0] == "conv2d_limbs64"
    assert entries((8, 256, 56, 56), 256, 3, False) == ["reduce_weights", *around]


def test_what_is_compiled_does_not_depend_on_multiprocessors() -> None:
    for side, channels in ((7, 512), (14, 256), (28, 128), (56, 64)):
        few, many = (
            entries((8, channels, side, side), channels, 3, True, DeviceShape(count, "sm_90"))
            for count in (7, 1000)
        )
        assert few[0] == many[0]


def test_what_is_not_able() -> None:
    """Too many taps, depths or bytes, and windows that all lie beside the image."""

    def shape_of(
        images: tuple[int, ...], weights: tuple[int, ...], out: tuple[int, ...], **params: int
    ) -> Shape:
        return Shape.of(convolution_of(images, weights, out, Params(64, **params)))

    assert shape_of((1, 1, 9, 9), (1, 1, 8, 8), (1, 1, 2, 2)).is_able
    assert MOST_TAPS == 64
    assert not shape_of((1, 1, 9, 9), (1, 1, 5, 13), (1, 1, 2, 2)).is_able
    assert shape_of((1, MAX_DEPTH, 1, 1), (1, MAX_DEPTH, 1, 1), (1, 1, 1, 1)).is_able
    deeper = MAX_DEPTH + 1
    assert not shape_of((1, deeper, 1, 1), (1, deeper, 1, 1), (1, 1, 1, 1)).is_able
    large = shape_of((64, 64, 224, 224), (64, 64, 3, 3), (64, 64, 224, 224), pad_top=1, pad_left=1)
    assert large.places[2] > MAX_SCRATCH
    assert not large.is_able
    assert not shape_of((1, 1, 4, 4), (1, 1, 1, 1), (1, 1, 2, 2), pad_top=4).is_able


def test_weights_that_are_packed_need_no_launch_and_no_scratch_memory() -> None:
    shapes = (2, 20, 9, 9), (33, 20, 3, 3), (2, 33, 7, 7)
    c = convolution_of(*shapes, Params(64))
    fixed = replace(c.weights, is_fixed=True)
    every_time, once = (
        by_residues([c.out, c.images, w], c.params.values(), SM90) for w in (c.weights, fixed)
    )
    assert [launch.entry for launch in every_time[1:]] == [launch.entry for launch in once]
    size = Shape.of(c).weight_bytes
    assert once[0].scratch_bytes == every_time[0].scratch_bytes - size
    left = once[1].arguments[1]
    assert isinstance(left, Packed)
    assert left.bytes == size
    assert [launch.entry for launch in left.launches] == [every_time[0].entry]
    packed = replace(Shape.of(c), is_packed=True)
    assert costs.residues_clocks(packed, "sm_90") < costs.residues_clocks(Shape.of(c), "sm_90")

"""Launches of conv2d: implicit matrix products on tensor cores or on the integer units, or, where
groups are thin, a thread a strip of outputs or an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from veilgraph.kernels.conv2d import costs, depthwise
from veilgraph.kernels.conv2d.convolution import Convolution
from veilgraph.kernels.conv2d.divisors import divisor
from veilgraph.kernels.conv2d.residues.residues import by_residues
from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import (
    THREADS,
    Argument,
    DeviceShape,
    Launch,
    grid_stride,
)
from veilgraph.kernels.cuda.source import Source, file_source
from veilgraph.kernels.gemm import limbs
from veilgraph.kernels.gemm.pack import packed
from veilgraph.kernels.gemm.parts import Parts
from veilgraph.kernels.gemm.tiles import SHAPES, tiling
from veilgraph.kernels.matmul import cuda as matmul
from veilgraph.kernels.matmul.declaration import Params as Product

SOURCE = file_source(
    "kernels/conv2d/cuda.cu",
    *(f"veil_conv2d{bits}_{r}x{c}" for bits, shapes in SHAPES.items() for r, c in shapes),
    *(f"veil_conv2d{bits}_thin" for bits in SHAPES),
)


def launches(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """By the way that is expected to be fastest."""
    if buffers[0].elements == 0:
        return ()
    c = Convolution.of(buffers, params)
    if not c.is_small:
        return by_integers(buffers, params, device)
    if c.is_thin:
        in_strips = c.has_strips and c.strip_threads >= depthwise.LEAST_THREADS
        return (by_strips if in_strips else by_outputs)(buffers, params, device)
    ring = limbs.Ring.of(c.out.word_bits, c.params.bits)
    is_worth = limbs.is_worth(ring, c.extents, c.depths, device, c.kernel)
    is_one_matrix = c.is_matmul and c.images.shape[0] == 1
    if is_worth and not is_one_matrix and costs.is_worth(c, device):
        return by_residues(buffers, params, device)
    if c.is_matmul:
        return by_matrices(buffers, params, device)
    return (by_limbs if is_worth else by_integers)(buffers, params, device)


def by_matrices(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """As a product of matrices an image, by whatever is fastest there."""
    c = Convolution.of(buffers, params)
    return matmul.launches(_as_matrices(c), _matmul_params(c), device)


def by_limbs(
    buffers: Sequence[Buffer],
    params: Sequence[int],
    device: DeviceShape,
    made: limbs.Tiling | None = None,
) -> tuple[Launch, ...]:
    """On tensor cores, as `made` or as fits the shape, for convolutions that are small."""
    c = Convolution.of(buffers, params)
    if c.is_matmul:
        return matmul.by_limbs(_as_matrices(c), _matmul_params(c), device, made)
    ring = limbs.Ring.of(c.out.word_bits, c.params.bits)
    made = made or limbs.tiling(ring, c.extents, c.depths, device, "conv2d")
    source, entry = made.source("conv2d")
    parts = Parts(c.out, made.parts)
    access, weights = _weights(c, made, device)
    head = access, *weights[0][1:], *c.small_shape
    pairs = _in_launches(c, [pointer for pointer, *_ in weights])
    ending = made.ending("conv2d", c.out, c.depths) if len(pairs) == 1 else None
    return (
        *(
            Launch(
                source,
                entry,
                made.grid,
                (THREADS, 1, 1),
                (*head, *each, parts.pointer, parts.pitch, int(number > 0)),
                made.shared_bytes,
                parts.scratch_bytes,
                ending=ending,
            )
            for number, each in enumerate(pairs)
        ),
        *parts.added(device),
    )


def _weights(
    c: Convolution, made: limbs.Tiling, device: DeviceShape
) -> tuple[limbs.Access, list[tuple[Argument, int, int, int]]]:
    """How weights are read, and each pair's as a factor of a product a group: its address, and the
    strides over groups, filters and depths that all share."""
    depth = c.depths[0]
    strides = c.filters * depth, depth, 1
    access = limbs.access((_as_matrix(w, c.weights.shape[0]), depth, 1) for _, w in c.pairs)
    if access is not limbs.Access.PACKED:
        return access, [(w.pointer, *strides) for _, w in c.pairs]
    extents = c.groups, c.filters, depth
    tile = made.tile
    return access, [packed(w, strides, extents, made.ring, tile, 0, device) for _, w in c.pairs]


def by_integers(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """By tiles on the integer units."""
    c = Convolution.of(buffers, params)
    tiles = tiling(c.out.word_bits, c.extents, sum(c.depths), device)
    parts = Parts(c.out, tiles.parts)
    head: list[Argument] = [parts.pointer, parts.count, parts.pitch, *c.shape]
    made = _on_integers(c, tiles.grid, _written(c, tiles.suffix), head, parts.scratch_bytes)
    return (*made, *parts.added(device))


def by_outputs(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """A thread an output, for convolutions that are small."""
    c = Convolution.of(buffers, params)
    grid = grid_stride(c.out.elements, device)
    head: list[Argument] = [c.out.pointer, c.out.elements, *c.small_shape]
    return _on_integers(c, grid, _written(c, "_thin"), head)


def by_strips(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """A thread a strip of a column of outputs, for depthwise convolutions that have strips."""
    c = Convolution.of(buffers, params)
    strips, threads = depthwise.strips_of(c.out.shape[2]), c.strip_threads
    kernel = depthwise.source(c.out.word_bits, c.weights.shape[3], c.params.stride_h)
    head: list[Argument] = [c.out.pointer, threads, strips, *divisor(strips), *c.small_shape]
    return _on_integers(c, grid_stride(threads, device), kernel, head)


def _written(c: Convolution, suffix: str) -> tuple[Source, str]:
    """A kernel of cuda.cu, by the end of its name."""
    return SOURCE, f"veil_conv2d{c.out.word_bits}{suffix}"


def _on_integers(
    c: Convolution,
    grid: tuple[int, int, int],
    kernel: tuple[Source, str],
    head: Sequence[Argument],
    scratch: int = 0,
) -> tuple[Launch, ...]:
    source, entry = kernel
    return tuple(
        Launch(source, entry, grid, (THREADS, 1, 1), (*head, int(number > 0), *each), 0, scratch)
        for number, each in enumerate(_in_launches(c, [weights.pointer for _, weights in c.pairs]))
    )


def _in_launches(c: Convolution, weights: Sequence[Argument]) -> list[list[Argument]]:
    """The struct Pairs of windows.cuh for each launch; all but the first add to what is stored."""
    images = [image.pointer for image, _ in c.pairs]
    return matmul.in_launches(list(zip(images, weights, strict=True)))


def _view(b: Buffer, shape: tuple[int, ...], strides: tuple[int, ...]) -> Buffer:
    return replace(b, shape=shape, strides=strides)


def _as_matrix(weights: Buffer, filters: int) -> Buffer:
    """Weights as [1, filters, depth]."""
    depth = weights.elements // filters
    return _view(weights, (1, filters, depth), (0, depth, 1))


def _matmul_params(c: Convolution) -> tuple[int, ...]:
    return Product(c.params.bits).values()


def _as_matrices(c: Convolution) -> list[Buffer]:
    """The operands of matmul, an entry an image."""
    count, channels = c.images.shape[:2]
    filters, pixels = c.weights.shape[0], c.out.shape[2] * c.out.shape[3]
    found = [_view(c.out, (count, filters, pixels), (filters * pixels, pixels, 1))]
    for images, weights in c.pairs:
        found.append(_view(weights, (count, filters, channels), (0, channels, 1)))
        found.append(_view(images, (count, channels, pixels), (channels * pixels, pixels, 1)))
    return found

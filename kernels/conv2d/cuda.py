"""Launches of conv2d: an implicit matrix product, or a thread an output where groups are thin."""

from __future__ import annotations

from collections.abc import Sequence

from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import THREADS, Argument, DeviceShape, Launch, grid_stride
from veilgraph.kernels.cuda.source import file_source
from veilgraph.kernels.fill import cuda as fill
from veilgraph.kernels.gemm.tiles import SHAPES, tiling

MAX_PAIRS = 4  # of a launch; cuda.cu has it too
_FEW_FILTERS = 8  # of a group, for which a tile would be mostly empty
SOURCE = file_source(
    "kernels/conv2d/cuda.cu",
    *(f"veil_conv2d{bits}_{r}x{c}" for bits, shapes in SHAPES.items() for r, c in shapes),
    *(f"veil_conv2d{bits}_thin" for bits in SHAPES),
)


def launches(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """One launch for each MAX_PAIRS pairs; with more, or parts, zeros first, to which they add."""
    out, *factors = buffers
    if out.elements == 0:
        return ()
    pairs = list(zip(factors[::2], factors[1::2], strict=True))
    images, weights = pairs[0]
    groups = params[7]
    filters, pixels = weights.shape[0] // groups, out.elements // weights.shape[0]
    depth = len(pairs) * weights.elements // weights.shape[0]
    tiles = tiling(out.word_bits, (groups, filters, pixels), depth, device)
    thin = groups > 1 and filters < _FEW_FILTERS
    adds = len(pairs) > MAX_PAIRS or (tiles.parts > 1 and not thin)
    grid, suffix = (grid_stride(out.elements, device), "_thin") if thin else (
        tiles.grid, tiles.suffix
    )  # fmt: skip
    convolution = (*params[1:], *images.shape, *weights.shape[:1], *weights.shape[2:])
    head: list[Argument] = [out.pointer, out.elements if thin else tiles.parts, int(adds)]
    head += [*convolution, *out.shape[2:]]
    steps = list(fill.launches([out], [0], device)) if adds else []
    for first in range(0, len(pairs), MAX_PAIRS):
        arguments = (*head, *_pairs(pairs[first : first + MAX_PAIRS]))
        entry = f"veil_conv2d{out.word_bits}{suffix}"
        steps.append(Launch(SOURCE, entry, grid, (THREADS, 1, 1), arguments))
    return tuple(steps)


def _pairs(pairs: Sequence[tuple[Buffer, Buffer]]) -> list[Argument]:
    """The struct Pairs of cuda.cu."""
    words: list[Argument] = [len(pairs)]
    for image, weights in pairs:
        words += [image.pointer, weights.pointer]
    return words + (MAX_PAIRS - len(pairs)) * 2 * [0]

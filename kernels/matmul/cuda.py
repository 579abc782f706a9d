"""Launches of matmul: tiles, with the depth cut where the output alone keeps no device busy."""

from __future__ import annotations

from collections.abc import Sequence

from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import THREADS, Argument, DeviceShape, Launch
from veilgraph.kernels.cuda.source import file_source
from veilgraph.kernels.fill import cuda as fill
from veilgraph.kernels.gemm.tiles import SHAPES, tiling

MAX_PAIRS = 4  # of a launch; cuda.cu has it too
_PAIR_WORDS = 9
SOURCE = file_source(
    "kernels/matmul/cuda.cu",
    *(f"veil_matmul{bits}_{r}x{c}" for bits, shapes in SHAPES.items() for r, c in shapes),
)


def launches(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """One launch for each MAX_PAIRS pairs; with more, or parts, zeros first, to which they add."""
    out, *factors = buffers
    if out.elements == 0:
        return ()
    batch, rows, columns = out.shape
    pairs = list(zip(factors[::2], factors[1::2], strict=True))
    depth = sum(a.shape[2] for a, _ in pairs)
    tiles = tiling(out.word_bits, (batch, rows, columns), depth, device)
    adds = tiles.parts > 1 or len(pairs) > MAX_PAIRS
    steps = list(fill.launches([out], [0], device)) if adds else []
    entry = f"veil_matmul{out.word_bits}{tiles.suffix}"
    for first in range(0, len(pairs), MAX_PAIRS):
        arguments: list[Argument] = [out.pointer, batch, rows, columns, tiles.parts, int(adds)]
        arguments += _pairs(pairs[first : first + MAX_PAIRS])
        steps.append(Launch(SOURCE, entry, tiles.grid, (THREADS, 1, 1), tuple(arguments)))
    return tuple(steps)


def _pairs(pairs: Sequence[tuple[Buffer, Buffer]]) -> list[Argument]:
    """The struct Pairs of cuda.cu."""
    words: list[Argument] = [len(pairs)]
    for a, b in pairs:
        words += [a.pointer, *a.strides]
        words += [b.pointer, b.strides[0], b.strides[2], b.strides[1], a.shape[2]]
    return words + (MAX_PAIRS - len(pairs)) * _PAIR_WORDS * [0]

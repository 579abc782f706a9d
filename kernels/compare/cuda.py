"""Launches of comparison functions: a thread an element, for words and for parts."""

from __future__ import annotations

from collections.abc import Sequence

from veilgraph.kernels.compare.declaration import WORDS, Params
from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import THREADS, Argument, DeviceShape, Launch, grid_stride
from veilgraph.kernels.cuda.source import file_source

MOST_PAYLOADS = 3  # a launch has room for so many
SOURCE = file_source(
    "kernels/compare/cuda.cu",
    "veil_compare_words32",
    "veil_compare_words64",
    "veil_compare_parts32",
    "veil_compare_parts64",
)


def launches(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """One launch; none where there is no element."""
    given = Params.of(params)
    out, key, first, fourth, fifth, *rows = buffers
    makes_words = given.party == WORDS
    known = fifth if makes_words else fourth
    count = known.elements
    if count == 0:
        return ()
    rings = given.first_ring, given.second_ring, given.third_ring
    sizes = given.party, given.index_bits, given.payloads, given.levels, given.rows, count
    each = [each for row in rows for each in (row.pointer, row.word_bits)]
    each += [0, 0] * (MOST_PAYLOADS - len(rows))
    number: tuple[Argument, ...] = (known.pointer, known.word_bits)
    second = (fourth.pointer, *number) if makes_words else (*number, fifth.pointer)
    entry = f"veil_compare_{'words' if makes_words else 'parts'}{out.word_bits}"
    arguments = (out.pointer, key.pointer, first.pointer, *second, *each, *sizes, *rings)
    return (Launch(SOURCE, entry, grid_stride(count, device), (THREADS, 1, 1), arguments),)

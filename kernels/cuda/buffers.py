"""A row of a plan's buffer table, as kernels see it; kernels/cpu/abi.h has the layout of each
kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.kernels.cuda.launch import Pointer


class Kind(IntEnum):
    """How a buffer's elements lie in memory; the numbers are those of plans."""

    WORDS32 = 0
    WORDS64 = 1
    PACKED = 2
    PLANES = 3


@dataclass(frozen=True)
class Buffer:
    """Elements in memory: `bits` is the ring's width, of planes their number; strides in elements.

    Packed elements and planes have rank 1. One that `is_fixed` is the same at each inference: setup
    made it, and nothing writes it later. One with an `addend` is the sum of what lies in it and of
    what lies in the same strides at that address; only products take such, and as factors.
    """

    region: int
    offset: int
    kind: Kind
    bits: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_fixed: bool = False
    addend: Pointer | None = None

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def word_bits(self) -> int:
        """Of a buffer of words: 32 or 64."""
        assert self.kind in (Kind.WORDS32, Kind.WORDS64)
        return 64 if self.kind is Kind.WORDS64 else 32

    @property
    def plane_words(self) -> int:
        """64-bit words from the start of one plane to the start of the next."""
        assert self.kind is Kind.PLANES
        return -(-self.shape[0] // 64)

    @property
    def bytes(self) -> int:
        """Of a buffer without gaps."""
        if self.kind is Kind.PLANES:
            return 8 * self.bits * self.plane_words
        if self.kind is Kind.PACKED:
            return -(-self.elements * self.bits // 64) * 8
        return self.elements * self.word_bits // 8

    @property
    def pointer(self) -> Pointer:
        return Pointer(self.region, self.offset)


def buffers_of(rows: npt.NDArray[Any]) -> tuple[Buffer, ...]:
    """The buffers of BUFFER rows (veilgraph.ir.plan.tables), which an interpreter has checked."""

    def extents(values: npt.NDArray[np.int64], rank: int) -> tuple[int, ...]:
        return tuple(int(v) for v in values[:rank])

    return tuple(
        Buffer(
            int(row["region"]),
            int(row["offset"]),
            Kind(int(row["kind"])),
            int(row["bits"]),
            extents(row["shape"], int(row["rank"])),
            extents(row["strides"], int(row["rank"])),
        )
        for row in rows
    )

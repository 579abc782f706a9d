"""One kernel over random memory, timed in the native machine: no protocol, no message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from veilgraph.ir.plan import BUFFER, STEP, BufferKind
from veilgraph.kernels import KERNELS
from veilgraph.kernels.fused.declaration import instruction, program
from veilgraph.kernels.native import library
from veilgraph.runtime._native import Machine

KEY = bytes(range(16))
ALIGNMENT = 64


@dataclass(frozen=True)
class Words:
    """A contiguous buffer of 32- or 64-bit words."""

    shape: tuple[int, ...]
    bits: int

    @property
    def size_bytes(self) -> int:
        return int(np.prod(self.shape)) * self.bits // 8


class Call:
    """A kernel on buffers that lie one after another in an arena of random bytes."""

    def __init__(
        self, kernel: str, buffers: Sequence[Words], params: Sequence[int] | npt.NDArray[np.int64]
    ) -> None:
        table, end = np.zeros(len(buffers), BUFFER), 0
        for row, buffer in zip(table, buffers, strict=True):
            rank = len(buffer.shape)
            row["offset"], row["bits"], row["rank"] = end, buffer.bits, rank
            row["kind"] = BufferKind.WORDS64 if buffer.bits == 64 else BufferKind.WORDS32
            row["shape"][:rank] = buffer.shape
            row["strides"][:rank] = [int(np.prod(buffer.shape[axis + 1 :])) for axis in range(rank)]
            end += -(-buffer.size_bytes // ALIGNMENT) * ALIGNMENT
        step = np.zeros(1, STEP)
        step["kernel"], step["buffer_count"] = KERNELS.index(kernel), len(buffers)
        step["param_count"] = len(params)
        values = np.asarray(params, np.int64)
        self._machine = Machine(str(library()), step, table, values, b"", end, KEY)
        arena = self._machine.arena
        arena[:] = np.random.default_rng(0).integers(0, 256, arena.size, np.uint8)
        self._kernel, self._number = kernel, 0

    def seconds(self) -> float:
        """Of one call."""
        self._machine.reset_profile()
        self._number += 1
        self._machine.run(0, 1, self._number)
        nanoseconds: int = self._machine.profile[self._kernel][1]
        return nanoseconds / 1e9

    def median_seconds(self, runs: int) -> float:
        """Of `runs` calls after one that isn't counted."""
        self.seconds()
        return median(self.seconds() for _ in range(runs))


def fused(
    elements: int, words: int, bits: int, instructions: Sequence[dict[str, int]]
) -> npt.NDArray[np.int64]:
    """Parameters of a fused program; fields that an instruction leaves out are 0."""
    return program(elements, words, bits, [instruction(**each) for each in instructions])

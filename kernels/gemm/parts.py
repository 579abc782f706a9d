"""Where the sums of a product go whose depth is cut among blocks: kernels/gemm/added.cuh.

Each part stores its own in scratch memory, and a last launch adds them up, or the program that
follows (`Launch.sums`). So nothing is added atomically, and no output has to be zero before. A cut
is made where tiles alone keep no GPU busy: parts of all tiles are about one a multiprocessor, or
132 x 64 x 128 words of 5 limbs at most by count, 9 MB that an L2 cache holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import (
    SCRATCH,
    THREADS,
    DeviceShape,
    Launch,
    Pointer,
    Sums,
    grid_stride,
)
from veilgraph.kernels.cuda.source import file_source

SOURCE = file_source("kernels/gemm/parts.cu", "veil_add_parts32", "veil_add_parts64")
_ALIGNED = 32  # words; parts begin with a line of 128 bytes
_EACH = 4  # elements of a thread; kernels/fused/words.cuh has it too


@dataclass(frozen=True)
class Parts:
    """`count` parts of every sum of `out`; a single one goes there itself."""

    out: Buffer
    count: int

    @property
    def pitch(self) -> int:
        """Words from part to part."""
        return -(-self.out.elements // _ALIGNED) * _ALIGNED if self.count > 1 else 0

    @property
    def pointer(self) -> Pointer:
        """Where part 0 is stored."""
        return Pointer(SCRATCH, 0) if self.count > 1 else self.out.pointer

    @property
    def scratch_bytes(self) -> int:
        return self.count * self.pitch * self.out.word_bits // 8

    def added(self, device: DeviceShape) -> tuple[Launch, ...]:
        """What adds them up, where there are several."""
        if self.count == 1:
            return ()
        out = self.out
        return (
            Launch(
                SOURCE,
                f"veil_add_parts{out.word_bits}",
                grid_stride(-(-out.elements // _EACH), device),
                (THREADS, 1, 1),
                (out.pointer, out.elements, self.pointer, self.count, self.pitch),
                scratch_bytes=self.scratch_bytes,
                sums=self._sums,
            ),
        )

    @property
    def _sums(self) -> Sums:
        return Sums(
            self.out.pointer,
            self.out.word_bits,
            self.out.elements,
            '#include "kernels/gemm/added.cuh"\n\n',
            ("const uint8_t* parts", "uint64_t count", "uint64_t pitch"),
            (self.pointer, self.count, self.pitch),
            f"added<uint{self.out.word_bits}_t>(tile, parts, count, pitch)",
        )

"""Programs of the fused kernel, their streams, and the comparison with the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from calling import Operand, call

from veilgraph.kernels.fused import declaration, reference
from veilgraph.kernels.fused.reference import Packed, Planes, Stream

KEYS = tuple(bytes(range(start, start + 16)) for start in (0, 77, 200))


def program(
    elements: int, words: int, bits: int, instructions: Sequence[dict[str, int]]
) -> npt.NDArray[np.int64]:
    """Parameters of a program; fields of an instruction that are not given are 0."""
    given = [declaration.instruction(**each) for each in instructions]
    return declaration.program(elements, words, bits, given)


@dataclass
class Streams:
    """Buffers of a random program: inputs with random contents, outputs with junk in them."""

    elements: int
    rng: np.random.Generator
    all: list[Stream] = field(default_factory=list)

    def words(self, count: int, bits: int) -> int:
        dtype = np.uint64 if bits == 64 else np.uint32
        return self._add(self.rng.integers(0, 1 << bits, count, dtype, endpoint=False))

    def packed(self, bits: int) -> int:
        values = self.rng.integers(0, (1 << bits) - 1, self.elements, np.uint64, endpoint=True)
        stream = Packed(np.zeros((self.elements * bits + 63) // 64, np.uint64), self.elements, bits)
        stream.store(values)
        return self._add(stream)

    def planes(self, count: int) -> int:
        length = (self.elements + 63) // 64
        data = self.rng.integers(0, (1 << 64) - 1, count * length, np.uint64, endpoint=True)
        return self._add(Planes(data, self.elements, count))

    def _add(self, stream: Stream) -> int:
        self.all.append(stream)
        return len(self.all) - 1

    def copy(self) -> list[Stream]:
        def twin(stream: Stream) -> Stream:
            if isinstance(stream, Packed):
                return Packed(stream.data.copy(), stream.elements, stream.bits)
            if isinstance(stream, Planes):
                return Planes(stream.data.copy(), stream.elements, stream.planes)
            return stream.copy()

        return [twin(stream) for stream in self.all]


def data_of(stream: Operand) -> npt.NDArray[Any]:
    return stream if isinstance(stream, np.ndarray) else stream.data


def check(params: npt.NDArray[np.int64], streams: Streams, device: str, threads: int = 1) -> None:
    """The native interpreter leaves every stream as the reference does."""
    expected, run = streams.copy(), 0xFEDC1234
    reference.run(params, expected, KEYS, run)
    actual = streams.copy()
    call("fused", actual, params, device=device, threads=threads, keys=b"".join(KEYS), run=run)
    for number, (a, e) in enumerate(zip(actual, expected, strict=True)):
        np.testing.assert_array_equal(data_of(a), data_of(e), f"stream {number}")

"""What the fused program computes, in NumPy: the oracle of every device's interpreter.

A stream is a NumPy array: words as uint32 or uint64 of any shape; packed elements and bit planes as
`Packed` and `Planes` over 64-bit words. Bit registers are arrays of 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.kernels.fused.aes import counter_keystream
from veilgraph.kernels.fused.declaration import header_of, instructions_of
from veilgraph.kernels.fused.instructions import Meaning, Op, Operand, Row

Words = npt.NDArray[np.unsignedinteger[Any]]
Bits = npt.NDArray[np.uint8]


def _bits_of(words: npt.NDArray[np.uint64]) -> Bits:
    """Bits of little-endian 64-bit words, the lowest first."""
    return np.unpackbits(words.view(np.uint8), bitorder="little")


@dataclass(frozen=True)
class Packed:
    """`elements` ring elements of `bits` bits in `data`, padded to whole 64-bit words by zeros."""

    data: npt.NDArray[np.uint64]
    elements: int
    bits: int

    def load(self) -> npt.NDArray[np.uint64]:
        bits = _bits_of(self.data)[: self.elements * self.bits].reshape(self.elements, self.bits)
        weights = np.uint64(1) << np.arange(self.bits, dtype=np.uint64)
        values: npt.NDArray[np.uint64] = (bits * weights).sum(axis=1, dtype=np.uint64)
        return values

    def store(self, values: Words) -> None:
        shifts = np.arange(self.bits, dtype=np.uint64)
        bits = (values.astype(np.uint64)[:, None] >> shifts) & np.uint64(1)
        packed = np.packbits(bits.astype(np.uint8).reshape(-1), bitorder="little")
        touched = self.data[: (len(values) * self.bits + 63) // 64].view(np.uint8)
        touched[:] = 0
        touched[: len(packed)] = packed


@dataclass(frozen=True)
class Planes:
    """`planes` bit planes of `elements` bits, each of ceil(elements / 64) words of `data`."""

    data: npt.NDArray[np.uint64]
    elements: int
    planes: int

    def _words(self, plane: int) -> npt.NDArray[np.uint64]:
        length = (self.elements + 63) // 64
        return self.data[plane * length : (plane + 1) * length]

    def load(self, plane: int, count: int) -> Bits:
        return _bits_of(self._words(plane))[:count]

    def store(self, plane: int, bits: Bits) -> None:
        packed = np.packbits(bits, bitorder="little")
        touched = self._words(plane)[: (len(bits) + 63) // 64].view(np.uint8)
        touched[:] = 0
        touched[: len(packed)] = packed


Stream = Words | Packed | Planes


def run(
    params: npt.NDArray[np.int64], streams: Sequence[Stream], keys: Sequence[bytes], run: int
) -> None:
    """Execute a program, laid out as declaration.py says; stores write to `streams`."""
    head, program = header_of(params), instructions_of(params)
    assert len(program) == head.instructions
    machine = _Registers(head.elements, head.word_registers, head.bit_registers, streams, keys, run)
    for instruction in program:
        machine.execute(instruction)


class _Registers:
    """The two register files and the streams, with one method a family of operations."""

    def __init__(
        self,
        elements: int,
        word_registers: int,
        bit_registers: int,
        streams: Sequence[Stream],
        keys: Sequence[bytes],
        run: int,
    ) -> None:
        self.elements = elements
        self.words: list[Words] = [np.zeros(elements, np.uint64) for _ in range(word_registers)]
        self.bits: list[Bits] = [np.zeros(elements, np.uint8) for _ in range(bit_registers)]
        self.streams = streams
        self.keys = keys
        self.run = run

    def execute(self, ins: npt.NDArray[np.void]) -> None:
        op = Op(int(ins["op"]))
        if op.row.meaning is not None:
            of_registers = self._arithmetic if op.row.words else self._gates
            of_registers(op.row, op.row.meaning, ins)
        elif op <= Op.CONST:
            self._words_from_memory(op, ins)
        elif op <= Op.UNPACK:
            self._between_words_and_bits(op, ins)
        else:
            self._bits_from_memory(op, ins)

    def _arithmetic(self, row: Row, meaning: Meaning, ins: npt.NDArray[np.void]) -> None:
        word = _word(ins)
        a = self.words[ins["a"]].astype(word)
        b = self.words[ins["b"]].astype(word) if row.b is Operand.WORD else a
        constant = word(int(ins["immediate"]) % (1 << int(ins["word"])))
        self.words[ins["dst"]] = meaning(a, b, constant).astype(word)

    def _words_from_memory(self, op: Op, ins: npt.NDArray[np.void]) -> None:
        word, dst, a, b = _word(ins), int(ins["dst"]), int(ins["a"]), int(ins["b"])
        if op == Op.LOAD:
            self.words[dst] = self._load(self.streams[a], b, int(ins["c"])).astype(word)
        elif op == Op.STORE:
            self._store(self.streams[a], self.words[b])
        elif op == Op.LOOKUP:
            table = self._values(self.streams[a])
            index = self.words[b].astype(word) & word(len(table) - 1)
            self.words[dst] = table[index.astype(np.int64)]
        elif op == Op.DRAW:
            lane = np.dtype(f"<u{int(ins['count']) // 8}")
            blocks = np.arange((self.elements * lane.itemsize + 15) // 16, dtype=np.uint64)
            self.words[dst] = self._keystream(ins, blocks).view(lane)[: self.elements].astype(word)
        else:
            value = int(ins["immediate"]) % (1 << int(ins["word"]))
            self.words[dst] = np.full(self.elements, value, word)

    def _between_words_and_bits(self, op: Op, ins: npt.NDArray[np.void]) -> None:
        word, low = _word(ins), int(ins["immediate"])
        dst, a, count = int(ins["dst"]), int(ins["a"]), int(ins["count"])
        if op == Op.SELECT:
            b, c = self.words[ins["b"]].astype(word), self.words[ins["c"]].astype(word)
            self.words[dst] = np.where(self.bits[a] == 1, b, c)
        elif op == Op.PACK:
            value = self.words[a].astype(word)
            for j in range(count):
                self.bits[dst + j * int(ins["dst_step"])] = (
                    (value >> word(low + j)) & word(1)
                ).astype(np.uint8)
        else:
            total = np.zeros(self.elements, word)
            for j in range(count):
                total += self.bits[a + j * int(ins["a_step"])].astype(word) << word(low + j)
            self.words[dst] = total

    def _bits_from_memory(self, op: Op, ins: npt.NDArray[np.void]) -> None:
        a, b, immediate = int(ins["a"]), int(ins["b"]), int(ins["immediate"])
        for j in range(int(ins["count"])):
            dst = int(ins["dst"]) + j * int(ins["dst_step"])
            step = j * int(ins["a_step"])
            if op == Op.LOAD_BITS:
                self.bits[dst] = self._planes(a).load(immediate + step, self.elements)
            elif op == Op.STORE_BITS:
                self._planes(a).store(immediate + step, self.bits[b + j * int(ins["b_step"])])
            elif op == Op.DRAW_BITS:
                length = (self.elements + 127) // 128
                blocks = np.arange(length, dtype=np.uint64) + np.uint64((b + step) * length)
                drawn = np.unpackbits(self._keystream(ins, blocks), bitorder="little")
                self.bits[dst] = drawn[: self.elements]
            else:
                self.bits[dst] = np.full(self.elements, immediate, np.uint8)

    def _gates(self, row: Row, meaning: Meaning, ins: npt.NDArray[np.void]) -> None:
        constant = np.uint8(int(ins["immediate"]) & 1)
        for j in range(int(ins["count"])):
            a = self.bits[int(ins["a"]) + j * int(ins["a_step"])]
            number = int(ins["b"]) + j * int(ins["b_step"])
            b = self.bits[number] if row.b is Operand.BITS else a
            self.bits[int(ins["dst"]) + j * int(ins["dst_step"])] = meaning(a, b, constant)

    def _keystream(self, ins: npt.NDArray[np.void], blocks: npt.NDArray[np.uint64]) -> Bits:
        return counter_keystream(self.keys[int(ins["a"])], self.run, int(ins["immediate"]), blocks)

    def _planes(self, number: int) -> Planes:
        stream = self.streams[number]
        assert isinstance(stream, Planes)
        return stream

    def _values(self, stream: Stream) -> Words:
        assert not isinstance(stream, Planes)
        return stream.load() if isinstance(stream, Packed) else stream.reshape(-1)

    def _load(self, stream: Stream, repeat: int, period: int) -> Words:
        values = self._values(stream)
        if period == 0:
            return values[: self.elements]
        return values[np.arange(self.elements) // repeat % period]

    def _store(self, stream: Stream, values: Words) -> None:
        if isinstance(stream, Packed):
            stream.store(values)
        else:
            assert not isinstance(stream, Planes)
            stream.reshape(-1)[: self.elements] = values.astype(stream.dtype)


def _word(ins: npt.NDArray[np.void]) -> type[Any]:
    """The NumPy type of an instruction's words."""
    return np.uint64 if ins["word"] == 64 else np.uint32

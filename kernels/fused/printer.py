"""A fused program printed as one CUDA kernel.

    ADD dst=2 a=0 b=1        ->   const auto w7 = w3 + w5;
    XOR_BITS dst=8 a=0 b=16  ->   const auto b9 = b2 ^ moved(tile, b4, 1, 16);

Each instruction is a line; kernels/fused/words.cuh and planes.cuh say what its functions do. What
programs of one form differ in (elements, numbers of draws and keys, constants that are added or
multiplied by) are parameters of the kernel, so that they share a source; widths, shifts and counts
are part of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.kernels.cuda.buffers import Buffer, Kind
from veilgraph.kernels.cuda.launch import Argument, Keys, Run, Sums
from veilgraph.kernels.cuda.source import Source
from veilgraph.kernels.fused.drawn import Segment, segments
from veilgraph.kernels.fused.instructions import Family, Op, of_family
from veilgraph.kernels.fused.registers import LANES, Plane, lanes_of, moves, pieces

ENTRY = "veil_fused"
_MASK64 = (1 << 64) - 1
_SMALL = 1 << 31  # indices below it are divided as 32-bit numbers

Instruction = Mapping[str, int]
NOTHING: Mapping[int, Sums] = {}


class Printer:
    """Prints one program, and lists the arguments of its kernel in the order of its parameters.

    Args:
        elements: of the program.
        table: its INSTRUCTION records.
        buffers: the streams.
        given: streams that are made by the kernel and not loaded, one at most.
    """

    def __init__(
        self,
        elements: int,
        table: npt.NDArray[np.void],
        buffers: Sequence[Buffer],
        given: Mapping[int, Sums] = NOTHING,
    ) -> None:
        self._elements = elements
        self._buffers = buffers
        self._given = given
        self._lines: list[str] = []
        self._words: dict[int, tuple[str, int]] = {}
        self._bits: dict[int, Plane] = {}
        self._moved: dict[tuple[object, ...], str] = {}
        self._names = 0
        self._strides: dict[int, str] = {}
        self._keys: list[int] = []
        self._numbers: list[Argument] = []
        names = table.dtype.names or ()
        instructions = [dict(zip(names, row.tolist(), strict=True)) for row in table]
        self._segments = segments(instructions)
        self._batches: dict[int, str] = {}
        for number, ins in enumerate(instructions):
            if Op(ins["op"]) is Op.DRAW_BITS:
                self._draw_bits(ins, self._segments[number])
            else:
                self._print(ins)

    # The whole

    @property
    def source(self) -> Source:
        return Source("fused", self._text(), (ENTRY,))

    @property
    def draws(self) -> bool:
        return bool(self._keys)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        randomness: tuple[Argument, ...] = (Keys(), Run(), *self._keys) if self._keys else ()
        pointers = (b.pointer for b in self._buffers)
        made = (argument for sums in self._given.values() for argument in sums.arguments)
        return (self._elements, *randomness, *pointers, *self._numbers, *made)

    def _text(self) -> str:
        parameters = ["int64_t elements"]
        if self._keys:
            parameters += ["const AesSchedule* schedules", "const uint64_t* run"]
            parameters += [f"uint64_t key{k}" for k in range(len(self._keys))]
        alone = "" if self._overlap() else "__restrict__ "
        parameters += [f"uint8_t* {alone}m{i}" for i in range(len(self._buffers))]
        parameters += [f"uint64_t n{i}" for i in range(len(self._numbers))]
        parameters += [each for sums in self._given.values() for each in sums.parameters]
        body = "\n    ".join(self._lines)
        return "".join(sums.header for sums in self._given.values()) + _KERNEL.format(
            parameters=",\n    ".join(parameters),
            randomness=self._randomness(),
            body=body,
        )

    @property
    def ending(self) -> str:
        """A program of words as what ends another kernel, where its given stream is `sums`."""
        fields = [f"uint8_t* m{i};" for i in range(len(self._buffers))]
        fields += [f"uint64_t n{i};" for i in range(len(self._numbers))]
        (given,) = self._given.values()
        return _ENDING.format(
            word=f"uint{given.word_bits}_t",
            fields="\n  ".join(fields),
            body="\n    ".join(self._lines),
        )

    def _randomness(self) -> str:
        """The block's table and key schedules in shared memory."""
        if not self._keys:
            return ""
        lines = [
            "__shared__ AesTable table;",
            f"__shared__ AesSchedule keys[{len(self._keys)}];",
            "fill_aes_table(table);",
            *(
                f"load_draw_schedule(keys[{k}], schedules, key{k}, run);"
                for k in range(len(self._keys))
            ),
            "__syncthreads();",
        ]
        return "".join(f"  {line}\n" for line in lines)

    def _overlap(self) -> bool:
        """Whether two buffers share memory, so that loads and stores must keep their order."""
        used = (b for number, b in enumerate(self._buffers) if number not in self._given)
        ranges = sorted((b.region, b.offset, b.offset + b.bytes) for b in used)
        return any(a[0] == b[0] and a[2] > b[1] for a, b in pairwise(ranges))

    # Lines

    def _print(self, ins: Instruction) -> None:
        op = Op(ins["op"])
        if op.row.family is Family.GATE or op is Op.NOT_BITS:
            self._gate(op, ins)
        elif op in _WORDS:
            self._define_word(ins, _WORDS[op](self, ins))
        else:
            _LINES[op](self, ins)

    def _name(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"

    def _define(self, letter: str, expression: str) -> str:
        name = self._name(letter)
        self._lines.append(f"const auto {name} = {expression};")
        return name

    def _define_word(self, ins: Instruction, expression: str) -> None:
        self._words[ins["dst"]] = self._define("w", expression), ins["word"]

    def _define_planes(
        self, ins: Instruction, first: int, lanes: Sequence[int], expression: str, **kind: bool
    ) -> None:
        """Bit registers number `first` and on of an instruction's results are lanes of one name."""
        name = self._define("b", expression)
        for i, lane in enumerate(lanes):
            self._bits[ins["dst"] + (first + i) * ins["dst_step"]] = Plane(name, lane, **kind)

    def _number(self, value: int) -> str:
        self._numbers.append(value & _MASK64)
        return f"n{len(self._numbers) - 1}"

    def _key(self, number: int) -> int:
        """The place of a key among those that the program uses."""
        if number not in self._keys:
            self._keys.append(number)
        return self._keys.index(number)

    # Words

    def _word(self, register: int, bits: int) -> str:
        """A register as words of so many bits; one that nothing wrote is zero."""
        name, held = self._words.get(register, (f"all_words<uint{bits}_t>(0)", bits))
        return name if held == bits else f"cast_words<uint{bits}_t>({name})"

    def _binary(self, ins: Instruction) -> str:
        a, b = (self._word(ins[name], ins["word"]) for name in ("a", "b"))
        return f"{a} {_sign(ins)} {b}"

    def _unary(self, ins: Instruction) -> str:
        return f"{_sign(ins)}{self._word(ins['a'], ins['word'])}"

    def _all(self, ins: Instruction) -> str:
        return f"all_words<uint{ins['word']}_t>({self._number(ins['immediate'])})"

    def _with_number(self, ins: Instruction) -> str:
        return f"{self._word(ins['a'], ins['word'])} {_sign(ins)} {self._all(ins)}"

    def _and_const(self, ins: Instruction) -> str:
        mask = ins["immediate"] % (1 << ins["word"])
        a = self._word(ins["a"], ins["word"])
        return f"{a} & all_words<uint{ins['word']}_t>({mask:#x}u)"

    def _shift(self, ins: Instruction) -> str:
        return f"{self._word(ins['a'], ins['word'])} {_sign(ins)} {ins['immediate']}"

    def _widen(self, ins: Instruction) -> str:
        return f"cast_words<uint64_t>({self._word(ins['a'], 32)})"

    def _narrow(self, ins: Instruction) -> str:
        return f"cast_words<uint32_t>({self._word(ins['a'], 64)})"

    def _select(self, ins: Instruction) -> str:
        plane = self._plane(ins["a"])
        a, b = (self._word(ins[name], ins["word"]) for name in ("b", "c"))
        return f"select(tile, {plane.name}, {plane.lane}, {a}, {b})"

    def _unpack(self, ins: Instruction) -> str:
        planes = self._planes(ins["a"], ins["a_step"], ins["count"])
        terms = []
        for first in range(0, len(planes), LANES):
            part = planes[first : first + LANES]
            gathered = self._gathered(part, range(len(part)))
            low = ins["immediate"] + first
            terms.append(f"unpack<uint{ins['word']}_t>(tile, {gathered}, {len(part)}, {low})")
        return " | ".join(terms) or f"all_words<uint{ins['word']}_t>(0)"

    # Memory and draws

    def _elements_of(self, ins: Instruction) -> str:
        """A functor over the elements of buffer `a`."""
        buffer, word = self._buffers[ins["a"]], ins["word"]
        if buffer.kind is Kind.PACKED and buffer.bits != word:
            return f"packed_in<uint{word}_t, {buffer.bits}>(m{ins['a']})"
        return f"words_in<uint{word}_t>(m{ins['a']})"

    def _load(self, ins: Instruction) -> str:
        if ins["a"] in self._given:
            return self._given[ins["a"]].expression
        repeat, period = ins["b"], ins["c"]
        elements = self._elements_of(ins)
        if period == 0:
            return f"load<uint{ins['word']}_t>(tile, {elements})"
        last = max(self._elements - 1, 0)
        divides, wraps = repeat > 1, last // repeat >= period
        index = "uint32_t" if last < _SMALL else "uint64_t"
        types = f"uint{ins['word']}_t, {index}, {str(divides).lower()}, {str(wraps).lower()}"
        numbers = f"{self._number(repeat)}, {self._number(period)}"
        return f"load_broadcast<{types}>(tile, {elements}, {numbers})"

    def _lookup(self, ins: Instruction) -> str:
        entries = self._number(self._buffers[ins["a"]].elements)
        return f"lookup(m{ins['a']}, {entries}, {self._word(ins['b'], ins['word'])})"

    def _draw(self, ins: Instruction) -> str:
        types = f"uint{ins['word']}_t, uint{ins['count']}_t"
        aes = f"aes_of(table, keys[{self._key(ins['a'])}], tile.lane)"
        return f"draw_words<{types}>(tile, {aes}, {self._number(ins['immediate'])})"

    def _store(self, ins: Instruction) -> None:
        buffer, value = self._buffers[ins["a"]], self._word(ins["b"], ins["word"])
        if buffer.kind is Kind.PACKED:
            self._lines.append(f"store_packed<{buffer.bits}>(tile, m{ins['a']}, {value});")
        else:
            self._lines.append(f"store(tile, m{ins['a']}, {value});")

    # Bits

    def _plane(self, register: int) -> Plane:
        """What a bit register holds; one that nothing wrote is zero."""
        return self._bits.get(register, Plane("all_planes(false)", 0, uniform=True))

    def _planes(self, register: int, step: int, count: int) -> list[Plane]:
        return [self._plane(register + j * step) for j in range(count)]

    def _gathered(self, planes: Sequence[Plane], wanted: Sequence[int]) -> str:
        """A name whose lanes `wanted` are these planes."""
        key = (tuple(planes), tuple(wanted))
        if key not in self._moved:
            self._moved[key] = self._gather(planes, wanted)
        return self._moved[key]

    def _gather(self, planes: Sequence[Plane], wanted: Sequence[int]) -> str:
        result = ""
        for move in moves(planes, wanted):
            part = move.name
            if not move.stays:
                part = self._define("b", f"moved(tile, {part}, {move.step}, {move.start})")
            if result:
                part = self._define("b", f"merged(tile, {move.mask:#x}u, {part}, {result})")
            result = part
        return result

    def _gate(self, op: Op, ins: Instruction) -> None:
        """Results lie where the first operand does; the second is brought there."""
        a = self._planes(ins["a"], ins["a_step"], ins["count"])
        b = self._planes(ins["b"], ins["b_step"], ins["count"]) if op is not Op.NOT_BITS else a
        done: list[tuple[int, Sequence[int], str]] = []
        for first, part in pieces(a):
            lanes = lanes_of(part)
            left = self._gathered(part, lanes)
            if op is Op.NOT_BITS:
                done.append((first, lanes, f"~{left}"))
            else:
                right = self._gathered(b[first : first + len(part)], lanes)
                done.append((first, lanes, f"{left} {op.row.sign} {right}"))
        for start, places, expression in done:
            self._define_planes(ins, start, places, expression)

    def _pack(self, ins: Instruction) -> None:
        value = self._word(ins["a"], ins["word"])
        for first, count in _parts(ins["count"]):
            low = ins["immediate"] + first
            self._define_planes(ins, first, range(count), f"pack(tile, {value}, {low})")

    def _stride(self, ins: Instruction) -> tuple[str, str]:
        """A buffer of planes, and how far apart they lie in 64-bit words."""
        number = ins["a"]
        if number not in self._strides:
            self._strides[number] = self._number(self._buffers[number].plane_words)
        return f"m{number}", self._strides[number]

    def _load_bits(self, ins: Instruction) -> None:
        place = ", ".join(self._stride(ins)) if ins["count"] else ""
        for first, count in _parts(ins["count"]):
            start = ins["immediate"] + first * ins["a_step"]
            expression = f"load_planes(tile, {place}, {start}, {ins['a_step']}, {count})"
            self._define_planes(ins, first, range(count), expression)

    def _store_bits(self, ins: Instruction) -> None:
        planes = self._planes(ins["b"], ins["b_step"], ins["count"])
        place = ", ".join(self._stride(ins)) if planes else ""
        for first, part in pieces(planes):
            lanes = lanes_of(part)
            from_lane = lanes[0]
            if lanes != tuple(range(from_lane, from_lane + len(lanes))):
                from_lane = 0
            value = self._gathered(part, range(from_lane, from_lane + len(part)))
            start = ins["immediate"] + first * ins["a_step"]
            where = f"{start}, {ins['a_step']}, {from_lane}, {len(part)}"
            self._lines.append(f"store_planes(tile, {place}, {where}, {value});")

    def _draw_bits(self, ins: Instruction, drawn: Sequence[Segment]) -> None:
        first = 0
        for segment in drawn:
            if segment.batch not in self._batches:
                self._batches[segment.batch] = self._draw_batch(segment.batch)
            for i in range(segment.count):
                register = ins["dst"] + (first + i) * ins["dst_step"]
                plane = Plane(self._batches[segment.batch], segment.from_lane + i)
                self._bits[register] = plane
            first += segment.count

    def _draw_batch(self, batch: int) -> str:
        """All planes of a batch, of which each lane knows its own."""
        choice, lanes = "", 0
        for segment in (s for row in self._segments.values() for s in row if s.batch == batch):
            key, number = self._key(segment.key), self._number(segment.draw)
            places = f"{segment.start}, {segment.step}, {segment.from_lane}"
            mine = f"drawn_plane(tile, {key}, {number}, {places})"
            if choice:
                mine = f"from_lane(tile, {segment.from_lane}, {choice}, {mine})"
            choice, lanes = self._define("d", mine), segment.from_lane + segment.count
        return self._define("b", f"draw_planes(tile, table, keys, {choice}, {lanes})")

    def _const_bits(self, ins: Instruction) -> None:
        if ins["count"]:
            value = "true" if ins["immediate"] else "false"
            lanes = ins["count"] * [0]
            self._define_planes(ins, 0, lanes, f"all_planes({value})", uniform=True)


def _sign(ins: Instruction) -> str:
    return Op(ins["op"]).row.sign


def _parts(count: int) -> list[tuple[int, int]]:
    """First and number of planes of each 32, or fewer at the end."""
    return [(first, min(LANES, count - first)) for first in range(0, count, LANES)]


Expression = Callable[[Printer, Any], str]
Lines = Callable[[Printer, Any], None]

_WORDS: Mapping[Op, Expression] = {  # what makes a word register
    Op.LOAD: Printer._load,
    Op.LOOKUP: Printer._lookup,
    Op.DRAW: Printer._draw,
    **dict.fromkeys(of_family(Family.BINARY), Printer._binary),
    **dict.fromkeys(of_family(Family.UNARY), Printer._unary),
    **dict.fromkeys(of_family(Family.WITH_CONSTANT), Printer._with_number),
    Op.AND_CONST: Printer._and_const,
    Op.SHL: Printer._shift,
    Op.SHR: Printer._shift,
    Op.CONST: Printer._all,
    Op.WIDEN: Printer._widen,
    Op.NARROW: Printer._narrow,
    Op.SELECT: Printer._select,
    Op.UNPACK: Printer._unpack,
}
_LINES: Mapping[Op, Lines] = {  # the rest, but for draws of bits and gates
    Op.STORE: Printer._store,
    Op.PACK: Printer._pack,
    Op.LOAD_BITS: Printer._load_bits,
    Op.STORE_BITS: Printer._store_bits,
    Op.CONST_BITS: Printer._const_bits,
}

_ENDING = """\
namespace veil {{

struct Program {{
  using Word = {word};
  int64_t elements;
  {fields}

  template <class Tile_>
  __device__ __forceinline__ void operator()(const Tile_& tile, const Words<Word>& sums) const {{
    {body}
  }}
}};

}}  // namespace veil

"""

_KERNEL = """\
#include "kernels/fused/planes.cuh"

using namespace veil;

extern "C" __global__ void __launch_bounds__(256, 2) veil_fused(
    {parameters}) {{
{randomness}  const int64_t stride = tile_stride();
  for (Tile tile = first_tile(elements); tile.first < elements; tile.first += stride) {{
    {body}
  }}
}}
"""

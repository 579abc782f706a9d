"""The fused program of an action: registers, instructions and streams, from party nodes.

Words above a ring's width are junk until something reads them; what does (a shift right, an
extension) masks first. Stacking planes and taking some of them costs nothing: a value of planes is
a list of bit registers. Registers are freed after their last use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Node, broadcast_pattern
from veilgraph.ir.party.program import Program
from veilgraph.ir.types import Kind
from veilgraph.kernels.fused.declaration import (
    MAX_BIT_REGISTERS,
    MAX_WORD_REGISTERS,
    instruction,
    program,
)
from veilgraph.kernels.fused.instructions import Op
from veilgraph.passes.party.batch_rounds import Position
from veilgraph.passes.plan.fuse_local import Action, LocalSteps, is_inline, through_reshapes
from veilgraph.passes.plan.registers import Held, Registers, common_runs, runs

BINARY = {ops.ADD: Op.ADD, ops.SUB: Op.SUB, ops.MUL: Op.MUL, ops.AND: Op.AND, ops.XOR: Op.XOR}
UNARY = {ops.NEG: Op.NEG, ops.NOT: Op.NOT, ops.SHL: Op.SHL, ops.SHR: Op.SHR}
SHIFTS = (ops.SHL, ops.SHR)
# A difference with a constant is a sum with its negative.
WITH_CONST = {
    ops.ADD: Op.ADD_CONST,
    ops.SUB: Op.ADD_CONST,
    ops.MUL: Op.MUL_CONST,
    ops.AND: Op.AND_CONST,
}
Key = tuple[int, int, int]  # a node, and the repetition and period with which LOAD reads it
ON_BITS = {ops.AND: Op.AND_BITS, ops.XOR: Op.XOR_BITS, ops.NOT: Op.NOT_BITS}


class Operand(NamedTuple):
    """What a node reads: the node behind reshapes, what it is held under, and the number that it is
    where an instruction has it as its own constant."""

    near: Node
    key: Key
    immediate: int | None = None


class Stream(NamedTuple):
    """One buffer of a program: a node's memory, or a send's place in an outgoing message."""

    node: int
    message: bool = False


@dataclass
class Code:
    """A fused program. `draws` are the instructions that draw, each with the node that it makes."""

    elements: int
    streams: list[Stream]
    params: npt.NDArray[np.int64]
    draws: list[tuple[int, int]] = field(default_factory=list)


def _keys(operands: Sequence[Operand]) -> list[Key]:
    """What operands are held under, but for those that are an instruction's own."""
    return [each.key for each in operands if each.immediate is None]


def _immediate(node: Node, near: Node) -> int | None:
    """A second operand as an instruction's constant, where there is a form with one."""
    if node.type.kind is not Kind.WORDS or node.op not in WITH_CONST:
        return None
    value = int(near["value"])
    return _signed(-value if node.op is ops.SUB else value)


class FusedCode:
    """Compiles one action of one party."""

    def __init__(self, steps: LocalSteps, party: int, keys: dict[frozenset[int], int]) -> None:
        self.program: Program = steps.schedule.program
        self.steps = steps
        self.party = party
        self.keys = keys

    def compile(self, action: Action, position: Position) -> Code:
        self.position = position
        self.code: list[tuple[int, ...]] = []
        self.draws: list[tuple[int, int]] = []
        self.temporary: list[Held] = []
        self.streams: dict[Stream, int] = {}
        self.words, self.bits = Registers(MAX_WORD_REGISTERS), Registers(MAX_BIT_REGISTERS)
        self.held: dict[Key, Held] = {}
        nodes = [self.program.nodes[i] for i in action.nodes]
        self.shape, self.elements = nodes[0].shape, nodes[0].elements
        self.operands = {node.id: self._operands(node) for node in nodes}
        self.uses = Counter(key for each in self.operands.values() for key in _keys(each))
        for node in nodes:
            self._emit(node)
            for held in self.temporary:
                self._drop(held)
            self.temporary.clear()
        steps = self.elements * nodes[0].type.per_element
        return Code(steps, list(self.streams), self._params(steps), self.draws)

    def _params(self, elements: int) -> npt.NDArray[np.int64]:
        registers = len(self.words.references), len(self.bits.references)
        return program(elements, *registers, self.code)

    # Operands

    def _operands(self, node: Node) -> list[Operand]:
        if node.op is ops.SEND and node.party == self.party:
            return []
        args = node.args[:1] if node.op is ops.LOOKUP else node.args
        return [self._operand(node, position, arg) for position, arg in enumerate(args)]

    def _operand(self, node: Node, position: int, arg: int) -> Operand:
        """The node behind reshapes; for a broadcast the view itself, and how it is repeated."""
        near = self.program.nodes[arg]
        if near.op is ops.RESHAPE:
            near = through_reshapes(self.program, arg)
        if near.op is ops.CONST:
            immediate = _immediate(node, near) if position == 1 else None
            return Operand(near, (near.id, 0, 0), immediate)
        if near.shape == self.shape or near.elements == self.elements:
            return Operand(near, (near.id, 0, 0))
        pattern = broadcast_pattern(self.program.nodes[arg].shape, node.shape)
        assert pattern is not None, "a broadcast that LOAD cannot express was not made explicit"
        return Operand(near, (arg, *pattern))

    def _fetch(self, node: Node, position: int) -> Held:
        near, key, _ = self.operands[node.id][position]
        if key not in self.held:
            self._keep(key, self._load(near, node, key))
        return self.held[key]

    def _load(self, near: Node, user: Node, key: Key) -> Held:
        if near.op is ops.CONST:
            return self._constant(near)
        if near.op is ops.DRAW and is_inline(near, user, self.position):
            return self._draw(near)
        stream = self._stream(Stream(key[0]))
        if near.type.kind is Kind.PLANES:
            held = self._new_bits(near.type.bits)
            self._bits(Op.LOAD_BITS, held.registers[0], a=stream, a_step=1, count=near.type.bits)
            return held
        held = self._new_word()
        self._word(Op.LOAD, near.type.word_bits, held.registers[0], stream, *key[1:])
        held.clean = near.type.stored.bits in (32, 64) or self._is_packed(near)
        return held

    def _is_packed(self, near: Node) -> bool:
        return near.op is ops.SEND and near.id not in self.steps.unpacked

    def _constant(self, node: Node) -> Held:
        value = int(node["value"])
        if node.type.kind is Kind.PLANES:
            held = self._new_bits(node.type.bits)
            for register in held.registers:
                self._bits(Op.CONST_BITS, register, count=1, immediate=value)
            return held
        held = self._new_word()
        self._word(Op.CONST, node.type.word_bits, held.registers[0], immediate=_signed(value))
        held.clean = True
        return held

    def _draw(self, node: Node) -> Held:
        draw = self.program.draws[node["number"]]
        key = self.keys[draw.holders]
        self.draws.append((len(self.code), node.id))
        if node.type.kind is Kind.PLANES:
            held = self._new_bits(node.type.bits)
            self._bits(
                Op.DRAW_BITS,
                held.registers[0],
                a=key,
                a_step=1,
                count=node.type.bits,
                immediate=draw.number,
            )
            return held
        bits = node.type.stored.bits
        lane = next(width for width in (8, 16, 32, 64) if width >= bits)
        held = self._new_word()
        self._word(
            Op.DRAW,
            node.type.word_bits,
            held.registers[0],
            key,
            count=lane,
            immediate=draw.number,
        )
        held.clean = lane == bits
        return held

    # Nodes

    def _emit(self, node: Node) -> None:
        if node.op is ops.SEND:
            self._emit_send(node)
            return
        if node.op is ops.DRAW:
            held = self._draw(node)
        elif node.type.kind is Kind.PLANES:
            held = self._emit_bits(node)
        else:
            held = self._emit_word(node)
        self._keep((node.id, 0, 0), held)
        if node.id in self.steps.stored:
            self._store(held, Stream(node.id), node)
        self._release(node)

    def _emit_send(self, node: Node) -> None:
        if node.party == self.party:
            word = self._new_word()
            packed = self._stream(Stream(node.id, message=True))
            self._word(Op.LOAD, node.type.word_bits, word.registers[0], packed)
            self._store(word, Stream(node.id), node)
            return
        self._store(self._fetch(node, 0), Stream(node.id, message=True), node)
        self._release(node)

    def _store(self, held: Held, stream: Stream, node: Node) -> None:
        index = self._stream(stream)
        if held.is_word:
            self._word(Op.STORE, node.type.word_bits, 0, index, held.registers[0])
            return
        for start, step, count in runs(held.registers):
            self._bits(
                Op.STORE_BITS,
                0,
                a=index,
                a_step=1,
                b=held.registers[start],
                b_step=step,
                count=count,
                immediate=start,
            )

    def _emit_word(self, node: Node) -> Held:
        if node.op is ops.CAST:
            return self._emit_cast(node)
        width = node.type.word_bits
        if node.op is ops.SELECT:
            bit, one, zero = (self._fetch(node, i).registers[0] for i in range(3))
            result = self._new_word()
            self._word(Op.SELECT, width, result.registers[0], bit, one, zero)
            return result
        if node.op is ops.UNPACK:
            return self._emit_unpack(node)
        if node.op is ops.LOOKUP:
            return self._emit_lookup(node)
        a = self._fetch(node, 0)
        if node.op is ops.SHR:
            a = self._masked(a, node.type.bits, width)
        immediate = self.operands[node.id][1].immediate if len(node.args) > 1 else None
        if immediate is not None:
            result = self._new_word()
            self._word(
                WITH_CONST[node.op], width, result.registers[0], a.registers[0], immediate=immediate
            )
        elif node.op in BINARY:
            b = self._fetch(node, 1).registers[0]
            result = self._new_word()
            self._word(BINARY[node.op], width, result.registers[0], a.registers[0], b)
        else:
            shift = int(node["bits"]) if node.op in SHIFTS else 0
            result = self._new_word()
            self._word(UNARY[node.op], width, result.registers[0], a.registers[0], immediate=shift)
            result.clean = node.op is ops.SHR
        return result

    def _emit_cast(self, node: Node) -> Held:
        source = self.program.nodes[node.args[0]].type
        a = self._fetch(node, 0)
        grows = node.type.bits > source.bits
        if grows:
            a = self._masked(a, source.bits, source.word_bits)
        clean = a.clean if grows else (a.clean and node.type.bits in (32, 64))
        if node.type.word_bits == source.word_bits:
            return Held(a.registers, True, clean)
        result = self._new_word()
        op = Op.WIDEN if node.type.word_bits == 64 else Op.NARROW
        self._word(op, node.type.word_bits, result.registers[0], a.registers[0])
        result.clean = clean
        return result

    def _masked(self, a: Held, bits: int, width: int) -> Held:
        if a.clean or bits in (32, 64):
            return a
        result = self._new_word()
        mask = _signed((1 << bits) - 1)
        self._word(Op.AND_CONST, width, result.registers[0], a.registers[0], immediate=mask)
        result.clean = True
        return result

    def _emit_lookup(self, node: Node) -> Held:
        """The table is a stream of its own; what is above an index's width doesn't matter."""
        index = self._fetch(node, 0).registers[0]
        table = self._stream(Stream(node.args[1]))
        result = self._new_word()
        self._word(Op.LOOKUP, node.type.word_bits, result.registers[0], table, index)
        result.clean = True
        return result

    def _emit_unpack(self, node: Node) -> Held:
        planes = self._fetch(node, 0).registers
        total: Held | None = None
        for start, step, count in runs(planes):
            part = self._new_word()
            self._instruction(
                Op.UNPACK,
                word=node.type.word_bits,
                dst=part.registers[0],
                a=planes[start],
                a_step=step,
                count=count,
                immediate=start,
            )
            if total is not None:
                both = self._new_word()
                registers = (total.registers[0], part.registers[0])
                self._word(Op.ADD, node.type.word_bits, both.registers[0], *registers)
                part = both
            total = part
        assert total is not None
        total.clean = len(planes) <= node.type.bits
        return total

    def _emit_bits(self, node: Node) -> Held:
        if node.op is ops.SOME_PLANES:
            registers = self._fetch(node, 0).registers
            start, step = int(node["start"]), int(node["step"])
            last = start + (node.type.bits - 1) * step + 1
            return Held(registers[start:last:step], False)
        if node.op is ops.STACK:
            parts = [self._fetch(node, i).registers for i in range(len(node.args))]
            return Held(tuple(r for part in parts for r in part), False)
        if node.op is ops.PACK:
            source = self.program.nodes[node.args[0]].type
            word = self._fetch(node, 0)
            result = self._new_bits(node.type.bits)
            self._instruction(
                Op.PACK,
                word=source.word_bits,
                dst=result.registers[0],
                dst_step=1,
                a=word.registers[0],
                count=node.type.bits,
                immediate=int(node["low"]),
            )
            return result
        operands = [self._fetch(node, i).registers for i in range(len(node.args))]
        result = self._new_bits(node.type.bits)
        for start, steps, count in common_runs([result.registers, *operands]):
            a, b = operands[0], operands[-1]
            self._bits(
                ON_BITS[node.op],
                result.registers[start],
                dst_step=steps[0],
                a=a[start],
                a_step=steps[1],
                b=b[start] if len(operands) > 1 else 0,
                b_step=steps[-1] if len(operands) > 1 else 0,
                count=count,
            )
        return result

    # Registers, streams and instructions

    def _file(self, held: Held) -> list[int]:
        return (self.words if held.is_word else self.bits).references

    def _keep(self, key: Key, held: Held) -> None:
        self.held[key] = held
        references = self._file(held)
        for register in held.registers:
            references[register] += 1

    def _release(self, node: Node) -> None:
        for key in _keys(self.operands[node.id]):
            self.uses[key] -= 1
            self._free_if_dead(key)
        if node.op is not ops.SEND:
            self._free_if_dead((node.id, 0, 0))

    def _free_if_dead(self, key: Key) -> None:
        if self.uses[key] <= 0 and key in self.held:
            self._drop(self.held.pop(key))

    def _drop(self, held: Held) -> None:
        references = self._file(held)
        for register in held.registers:
            references[register] -= 1

    def _new_word(self) -> Held:
        held = Held(self.words.take(1), True)
        self.words.references[held.registers[0]] += 1
        self.temporary.append(held)
        return held

    def _new_bits(self, count: int) -> Held:
        held = Held(self.bits.take(count), False)
        for register in held.registers:
            self.bits.references[register] += 1
        self.temporary.append(held)
        return held

    def _stream(self, stream: Stream) -> int:
        return self.streams.setdefault(stream, len(self.streams))

    def _word(
        self,
        op: Op,
        word: int,
        dst: int,
        a: int = 0,
        b: int = 0,
        c: int = 0,
        count: int = 0,
        immediate: int = 0,
    ) -> None:
        self._instruction(op, word=word, dst=dst, a=a, b=b, c=c, count=count, immediate=immediate)

    def _bits(self, op: Op, dst: int, **fields: int) -> None:
        fields.setdefault("dst_step", 1)
        self._instruction(op, dst=dst, **fields)

    def _instruction(self, op: Op, **fields: int) -> None:
        self.code.append(instruction(op=op, **fields))


def _signed(value: int) -> int:
    """value modulo 2^64 as a signed 64-bit integer."""
    value %= 1 << 64
    return value - (1 << 64) if value >> 63 else value

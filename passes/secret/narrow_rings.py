"""narrow_rings: a number is truncated into a ring no wider than what reads it looks at.

A function opens a window of its operand, a comparison too: they read so many low bits, whatever
ring the number is in. Into a ring that is narrow enough a truncation is local: k - f bits of K or
more (docs/protocols.md). So what windows alone read is truncated, or lifted, into the widest of
them. Sums and products of such numbers are in their ring, and so is what is moved; what an output
or a truncation reads stays as it is. What is reduced after it was lifted, padded and added is not
lifted. Nor is what was reduced and summed up: the sum is made in the wide ring, which is free,
where a lift takes two rounds. So is what was reduced by a bit or two too much for its truncation
to be local.

    before:  %1 = truncate %0 : ring 40, from 40    %2 = sub %1 %c : ring 40    row_sums %2, of 17
    after:   %1 = truncate %0 : ring 17, from 40    %2 = sub %1 %d : ring 17    row_sums %2, of 17

    before:  %1 = reduce %0 : ring 40, from 48    %2 = reduce_sum %1    %3 = lift %2 : ring 48
    after:   %3 = reduce_sum %0 : ring 48

    before:  %1 = reduce %0 : ring 40, from 48    %2 = truncate %1 {bits = 10} : ring 32
    after:   %1 = reduce %0 : ring 42, from 48    %2 = truncate %1 {bits = 10} : ring 32
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch_mlir import ir

from veilgraph.ir.graph.program import defining
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.dialect import SecretOp, attributes_of
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import RealRange, Tensor, ring_of
from veilgraph.passes.secret.function_protocols import form_of
from veilgraph.passes.secret.reductions import reduced

MADE = (
    secret_ops.Truncate,
    secret_ops.Lift,
    secret_ops.Reduce,
    secret_ops.Function,
    secret_ops.ClippedFunction,
    secret_ops.Step,
)


class NarrowRings:
    """Gives numbers the narrowest ring that holds them and what is read of them; no options."""

    def run(self, program: SecretProgram) -> SecretProgram:
        """`program` itself, changed in place."""
        given = zip(program.block.arguments, program.arguments, strict=True)
        ranges = {value: argument.range for value, argument in given}
        ranges |= {op.operation.results[0]: RealRange.of(op) for op in program.operations}
        wide = _Reductions(program, ranges)
        for op in program.operations:
            if isinstance(op, secret_ops.Lift):
                _read_before_reduction(op, wide)
            elif type(op) is secret_ops.Truncate:
                _truncate_locally(op, wide)
        rings, reductions = _rings(program, ranges), _Reductions(program, ranges)
        for op in program.operations:
            (result,) = op.operation.results
            if rings[result] < ring_of(result) or isinstance(op, secret_ops.Reduce):
                _narrow(op, rings[result], reductions)
        outputs = program.outputs
        program.reopen()
        program.finish(outputs)
        return program


def _rings(program: SecretProgram, ranges: Mapping[ir.Value, RealRange]) -> dict[ir.Value, int]:
    """Of each op's result, the bits of the ring that it is to be in."""
    held = {value: _held_bits(value, known, program.margin) for value, known in ranges.items()}
    found: dict[ir.Value, int] = {}
    read = {value: ring_of(value) for value in program.outputs.values()}
    for op in reversed(program.operations):
        (result,) = op.operation.results
        found[result] = ring_of(result)
        if not any(True for _ in result.uses):  # what a lift was before it was left out
            continue
        bits, made = ring_of(result), [result, *op.operation.operands]
        if type(op) in MADE:
            bits = min(bits, max(read.get(result, 0), held[result]))
        elif op.facts.keeps_ring:
            needed = max(_said_bits(op), *(held[each] for each in made))
            bits = min(bits, max(read.get(result, 0), needed))
        found[result] = bits
        for operand in op.operation.operands:
            read[operand] = max(read.get(operand, 0), _read_bits(op, operand, bits))
    return found


def _held_bits(value: ir.Value, known: RealRange, margin: float) -> int:
    """Of a ring that has room for a value, twice over."""
    units = math.ldexp(known.magnitude(margin), Tensor.of(value).encoding.frac_bits)
    return math.ceil(units).bit_length() + 2


def _said_bits(op: SecretOp) -> int:
    """Of a ring that has the number which an op says."""
    is_scale = isinstance(op, secret_ops.Scale)
    return int(attributes_of(op)["factor"]).bit_length() + 1 if is_scale else 0


def _read_bits(op: SecretOp, operand: ir.Value, bits: int) -> int:
    """The low bits that an op reads of an operand, for a result in a ring of `bits`."""
    if op.facts.keeps_ring or isinstance(op, secret_ops.Reduce):
        return bits
    if isinstance(op, secret_ops.Step):
        return int(attributes_of(op)["window_bits"])
    form = form_of(op)
    read = ring_of(operand) if form is None else form.read_bits
    is_clipped = isinstance(op, secret_ops.ClippedFunction)
    return max(read, int(attributes_of(op)["window_bits"])) if is_clipped else read


def _read_before_reduction(lift: SecretOp, reductions: _Reductions) -> None:
    """Has what reads a lift read the same number of what its operand was reduced from."""
    (result,), (operand,) = lift.operation.results, lift.operation.operands
    wide = _before_reduction(operand, ring_of(result), lift, reductions)
    if wide is not None:
        result.replace_all_uses_with(wide)


def _truncate_locally(op: SecretOp, reductions: _Reductions) -> None:
    """Has a truncation read its operand reduced by no more than lets it find no overflow."""
    (result,), (operand,) = op.operation.results, op.operation.operands
    K, k = ring_of(result), ring_of(operand)
    local = K + int(attributes_of(op)["bits"])
    # An exchange takes K bits each way; an overflow K and k, of a number in three parts k more.
    if local <= k or k < K:
        return
    wide = _before_reduction(operand, local, op, reductions)
    if wide is not None:
        op.operation.operands[0] = wide


def _before_reduction(
    value: ir.Value, bits: int, reader: SecretOp, reductions: _Reductions
) -> ir.Value | None:
    """A number in a ring of `bits`, for nothing; None where it has to be lifted.

    It is the same for all that a lift may be asked for: numbers that fit the narrower ring. A
    product of secrets is made once, and not in two rings.
    """
    found: dict[ir.Value, ir.Value | None] = {}

    def wide(each: ir.Value) -> ir.Value | None:
        if each not in found:
            found[each] = of(each)
        return found[each]

    def of(each: ir.Value) -> ir.Value | None:
        made = defining(each)
        if isinstance(made, secret_ops.Reduce):
            (source,) = made.operation.operands
            return reductions.of(source, bits, reader) if ring_of(source) >= bits else None
        if made is None or not made.facts.keeps_ring or isinstance(made, secret_ops.Mul):
            return None
        operands = [wide(operand) for operand in made.operation.operands]
        known = [operand for operand in operands if operand is not None]
        return reductions.again(made, known, reader) if len(known) == len(operands) else None

    return wide(value)


def _narrow(op: SecretOp, bits: int, reductions: _Reductions) -> None:
    """Has an op make its result modulo 2^bits."""
    result = op.operation.results[0]
    if op.facts.keeps_ring:
        for number, operand in enumerate(op.operation.operands):
            op.operation.operands[number] = reductions.of(operand, bits, op)
    if isinstance(op, secret_ops.Lift | secret_ops.Reduce):
        (operand,) = op.operation.operands
        if ring_of(operand) == bits or (
            isinstance(op, secret_ops.Lift) and ring_of(operand) > bits
        ):
            result.replace_all_uses_with(reductions.of(operand, bits, op))
            return
    _set_ring(op, bits)


def _set_ring(op: SecretOp, bits: int) -> None:
    (result,) = op.operation.results
    tensor = Tensor.of(result)
    with op.operation.context:
        result.set_type(replace(tensor, encoding=replace(tensor.encoding, ring_bits=bits)).type())


class _Reductions:
    """Values modulo smaller powers of two, and linear maps of them, each once.

    They stand before the first op that reads them: ops come in the program's order.
    """

    def __init__(self, program: SecretProgram, ranges: dict[ir.Value, RealRange]) -> None:
        self._program, self._ranges = program, ranges
        self._made: dict[tuple[ir.Value, int], ir.Value] = {}

    def of(self, value: ir.Value, bits: int, op: SecretOp) -> ir.Value:
        """A value modulo 2^bits, for `op` to read; itself if that is its ring."""
        if ring_of(value) == bits:
            return value
        if (value, bits) not in self._made:
            with self._program.before(op):
                made = reduced(value, bits, self._ranges[value])
            self._made[value, bits] = made
            self._ranges[made] = self._ranges[value]
        return self._made[value, bits]

    def again(self, made: SecretOp, operands: Sequence[ir.Value], op: SecretOp) -> ir.Value:
        """What `made` makes of its operands, of these in another ring, for `op` to read."""
        bits = ring_of(operands[0])
        if (made.result, bits) not in self._made:
            with self._program.before(op):
                copy = made.operation.clone()
            for number, operand in enumerate(operands):
                copy.operands[number] = operand
            _set_ring(copy.opview, bits)
            self._made[made.result, bits] = copy.results[0]
            self._ranges[copy.results[0]] = self._ranges[made.result]
        return self._made[made.result, bits]

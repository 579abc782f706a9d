"""local_truncations: products keep no more fraction bits than lets their truncation be local.

A truncation from k bits by f is local into k - f bits, and finds an overflow where its result has
more (docs/protocols.md). What a function reads has a bit or four more, because its operand's
product was given all the fraction bits that its ring has room for: a weight of 23 bits where 21 are
as good. So these are taken off again, from weights and from what was truncated itself, where that
changes the result by no more than its own rounding may: in the mean, of factors that are spread
evenly over their ranges. Samples judge what comes of all of them (`verify_accuracy`).

What a truncation of a function alone would drop the function drops itself: it rounds once.

So is the sum of a function's terms, whose rounding leaves a fourth of a unit: half of one is enough
where the widest ring then has room for a sum that need not look for an overflow.

    before:  %1 = matmul %x, %w : 12 + 23 bits    %2 = truncate %1 {bits = 26} : ring 16, from 40
    after:   %1 = matmul %x, %w : 12 + 21 bits    %2 = truncate %1 {bits = 24} : ring 16, from 40
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from torch_mlir import ir

from veilgraph.ir.attributes import shape_of, to_attribute
from veilgraph.ir.graph.program import defining
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.fourier import FourierSeries
from veilgraph.ir.secret.function_forms import carried
from veilgraph.ir.secret.ops import SecretOp, Stated, attributes_of
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import RealRange, Tensor, frac_bits_of, ring_of
from veilgraph.ir.types import MAX_RING_BITS
from veilgraph.passes.secret.function_protocols import form_of

Edit = Callable[[], None]
EVENLY = math.sqrt(3.0)  # times its root mean square is the bound of what is spread evenly
MOST_ROUNDED_BITS = 2  # of a sum: each doubles the part of a unit by which its terms are rounded
SUMS = (secret_ops.Add, secret_ops.Sub)
RESTATED = (secret_ops.Scale, secret_ops.Reinterpret)


class LocalTruncations:
    """Takes fraction bits off products whose truncation would find an overflow; no options."""

    def run(self, program: SecretProgram) -> SecretProgram:
        """`program` itself, changed in place."""
        given = zip(program.block.arguments, program.arguments, strict=True)
        arguments, told = dict(given), set(program.outputs.values())
        for op in program.operations:
            is_inner = op.operation.results[0] not in told  # who gets it knows how functions round
            if type(op) is secret_ops.Truncate and is_inner and _is_dropped_before(op):
                continue
            if type(op) is secret_ops.Truncate:
                _make_local(program, op, arguments)
            elif isinstance(op, secret_ops.Function):
                _make_room(op)
        outputs = program.outputs
        program.reopen()
        program.finish(outputs)
        return program


def _make_local(
    program: SecretProgram, op: SecretOp, arguments: Mapping[ir.Value, Argument]
) -> None:
    """Has a truncation drop so many bits less that its result is modulo what it is local into."""
    (result,), (operand,) = op.operation.results, op.operation.operands
    dropped = int(attributes_of(op)["bits"])
    missing = ring_of(result) - (ring_of(operand) - dropped)
    if not 0 < missing < dropped:
        return
    unit = math.ldexp(1.0, -frac_bits_of(result))
    edits = _Coarser(program, arguments).of(operand, missing, op, unit)
    if edits is not None:
        for edit in edits:
            edit()
        _drop(op, dropped - missing)


def _is_dropped_before(op: SecretOp) -> bool:
    """Has a function drop what a truncation of it alone would, which goes; whether it is so."""
    (result,), (value,) = op.operation.results, op.operation.operands
    bits, read = int(attributes_of(op)["bits"]), [value]
    while isinstance(made := defining(read[-1]), secret_ops.Reinterpret):
        read.append(made.operation.operands[0])
    if type(made) is not secret_ops.Function or any(len(list(v.uses)) != 1 for v in read):
        return False
    form = form_of(made)
    if form is None or form.frac_bits - frac_bits_of(read[-1]) + bits > form.sum_bits - 2:
        return False
    for each in read:
        _lower(each, bits, ring_of(result))
    result.replace_all_uses_with(value)
    op.operation.erase()
    return True


def _make_room(op: SecretOp) -> None:
    """Has a series' sum and its result fit the widest ring, where a bit or two are missing."""
    form, result = form_of(op), Tensor.of(op.operation.results[0]).encoding
    if not isinstance(form, FourierSeries) or form.slope:
        return
    missing = result.ring_bits + form.frac_bits - result.frac_bits - MAX_RING_BITS
    if 0 < missing <= MOST_ROUNDED_BITS:
        with op.operation.context:
            op.operation.attributes["form"] = to_attribute(carried(form.coarser(missing)))


@dataclass(frozen=True)
class _Coarser:
    """Looks for how a value may have fewer fraction bits, where one op alone reads it.

    Attributes:
        program: what the value is of.
        arguments: of the program.
    """

    program: SecretProgram
    arguments: Mapping[ir.Value, Argument]

    def of(self, value: ir.Value, bits: int, reader: SecretOp, most: float) -> list[Edit] | None:
        """What gives a value `bits` less for its reader; None where it has to keep them.

        Args:
            most: what the value may change by, in the mean.
        """
        op = defining(value)
        is_close = math.ldexp(1.0, bits - frac_bits_of(value)) <= most
        if isinstance(op, secret_ops.Constant):
            return [partial(self._round, op, bits, reader)] if is_close else None
        if len(list(value.uses)) != 1:
            return None
        own: list[Edit] = [partial(_lower, value, bits)]
        if op is None:
            return own if is_close and self.arguments[value].is_weight else None
        if type(op) is secret_ops.Truncate:
            return [*_more_dropped(op, bits), *own] if is_close and _may_drop(op, bits) else None
        if isinstance(op, secret_ops.Mul):
            found = self._of_product(op, bits, most)
        else:
            found = self._of_operands(op, bits, most)
        return None if found is None else [*found, *own]

    def _of_operands(self, op: SecretOp, bits: int, most: float) -> list[Edit] | None:
        """All of them: of a sum, a sum over elements, or a layout."""
        operands = op.operation.operands
        is_sum = isinstance(op, SUMS)
        if isinstance(op, RESTATED) or not op.facts.keeps_ring or len(operands) != 1 + is_sum:
            return None
        each = most / math.sqrt(_summed(op))
        return _all(self.of(operand, bits, op, each) for operand in operands)

    def _of_product(self, op: SecretOp, bits: int, most: float) -> list[Edit] | None:
        """Shared among the operands, by which the result changes least."""
        x, y = op.operation.operands
        length = math.sqrt(_terms(op))
        gains = length * self._size(y), length * self._size(x)
        units = [math.ldexp(gain, -frac_bits_of(v)) for gain, v in zip(gains, (x, y), strict=True)]
        shares = (
            (math.hypot(*(math.ldexp(u, n) for u, n in zip(units, each, strict=True) if n)), each)
            for each in ((n, bits - n) for n in range(bits + 1))
        )
        for change, each in sorted(shares):
            if change > most:
                break
            given = zip((x, y), each, gains, strict=True)
            found = _all(self.of(v, n, op, most / gain) for v, n, gain in given if n)
            if found is not None:
                return found
        return None

    def _size(self, value: ir.Value) -> float:
        """Its root mean square, were it spread evenly over its range; none of what was zero."""
        op = defining(value)
        known = self.arguments[value].range if op is None else RealRange.of(op)
        return (known.bound or math.inf) / EVENLY

    def _round(self, constant: SecretOp, bits: int, reader: SecretOp) -> None:
        """Has a constant with fewer fraction bits read."""
        (value,) = constant.operation.results
        integers = np.asarray(attributes_of(constant)["value"], np.int64)
        rounded = np.asarray((integers >> bits) + (integers >> (bits - 1) & 1))
        stated = Stated(frac_bits=frac_bits_of(value) - bits, ring_bits=ring_of(value))
        with self.program.before(reader):
            coarse = secret_ops.Constant.build(
                range=RealRange.of(constant), stated=stated, value=rounded
            )
        for number, operand in enumerate(reader.operation.operands):
            if operand == value:
                reader.operation.operands[number] = coarse


def _all(found: Iterable[list[Edit] | None]) -> list[Edit] | None:
    """None where one is."""
    edits: list[Edit] = []
    for each in found:
        if each is None:
            return None
        edits += each
    return edits


def _terms(op: SecretOp) -> int:
    """How many products an element of the result is a sum of."""
    x, y = op.operation.operands
    if isinstance(op, secret_ops.Matmul):
        return int(shape_of(x)[-1])
    return math.prod(shape_of(y)[1:]) if isinstance(op, secret_ops.Conv) else 1


def _summed(op: SecretOp) -> float:
    """How many elements of its operand an element of a result that sums is made of; else 1."""
    (operand, *_), (result,) = op.operation.operands, op.operation.results
    if isinstance(op, secret_ops.SumPool):
        return float(math.prod(attributes_of(op)["kernel"]))
    is_sum = isinstance(op, secret_ops.ReduceSum)
    return math.prod(shape_of(operand)) / math.prod(shape_of(result)) if is_sum else 1.0


def _may_drop(truncation: SecretOp, bits: int) -> bool:
    """Whether a truncation may drop more; one that is local stays so."""
    (result,), (operand,) = truncation.operation.results, truncation.operation.operands
    dropped, k, K = int(attributes_of(truncation)["bits"]), ring_of(operand), ring_of(result)
    return dropped + bits <= k - 2 and not k - dropped - bits < K <= k - dropped


def _more_dropped(truncation: SecretOp, bits: int) -> list[Edit]:
    return [partial(_drop, truncation, int(attributes_of(truncation)["bits"]) + bits)]


def _lower(value: ir.Value, bits: int, ring_bits: int = 0) -> None:
    """Fewer fraction bits, in the same ring unless it is told."""
    tensor = Tensor.of(value)
    lower, ring_bits = tensor.encoding.frac_bits - bits, ring_bits or tensor.encoding.ring_bits
    encoding = replace(tensor.encoding, frac_bits=lower, ring_bits=ring_bits)
    with value.context:
        value.set_type(replace(tensor, encoding=encoding).type())


def _drop(truncation: SecretOp, bits: int) -> None:
    with truncation.operation.context:
        truncation.operation.attributes["bits"] = to_attribute(bits)

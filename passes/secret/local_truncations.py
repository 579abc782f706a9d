"""local_truncations: products keep no more fraction bits than lets their truncation be local.

A truncation from k bits by f is local into k - f bits, and finds an overflow where its result has
more (docs/protocols.md). What a function reads has a bit or four more, because its operand's
product was given all the fraction bits that its ring has room for: a weight of 23 bits where 21 are
as good. So these are taken off again, from weights and from what was truncated itself, where that
changes the result by no more than its own rounding may.

So is the sum of a function's terms, whose rounding leaves a fourth of a unit: half of one is enough
where the widest ring then has room for a sum that need not look for an overflow.

    before:  %1 = matmul %x, %w : 12 + 23 bits    %2 = truncate %1 {bits = 26} : ring 16, from 40
    after:   %1 = matmul %x, %w : 12 + 21 bits    %2 = truncate %1 {bits = 24} : ring 16, from 40
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

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
MOST_ROUNDED_BITS = 2  # of a sum: each doubles the part of a unit by which its terms are rounded
PRODUCTS = (secret_ops.Mul, secret_ops.Matmul, secret_ops.Conv)
SUMS = (secret_ops.Add, secret_ops.Sub)
RESTATED = (secret_ops.Scale, secret_ops.Reinterpret)


class LocalTruncations:
    """Takes fraction bits off products whose truncation would find an overflow; no options."""

    def run(self, program: SecretProgram) -> SecretProgram:
        """`program` itself, changed in place."""
        given = zip(program.block.arguments, program.arguments, strict=True)
        arguments = dict(given)
        for op in program.operations:
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
    coarser = _Coarser(program, arguments, math.ldexp(1.0, -frac_bits_of(result)))
    edits = coarser.of(operand, missing, op)
    if edits is not None:
        for edit in edits:
            edit()
        _drop(op, dropped - missing)


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
        unit: what a result may change by.
    """

    program: SecretProgram
    arguments: Mapping[ir.Value, Argument]
    unit: float

    def of(self, value: ir.Value, bits: int, reader: SecretOp) -> list[Edit] | None:
        """What gives a value `bits` less for its reader; None where it has to keep them."""
        op = defining(value)
        if isinstance(op, secret_ops.Constant):
            return [partial(self._round, op, bits, reader)]
        if len(list(value.uses)) != 1:
            return None
        own: list[Edit] = [partial(_lower, value, bits)]
        if op is None:
            return own if self.arguments[value].is_weight else None
        if type(op) is secret_ops.Truncate:
            return self._of_truncated(op, bits, own)
        if isinstance(op, PRODUCTS):
            return self._of_product(op, bits, own)
        is_sum = isinstance(op, SUMS)
        if isinstance(op, RESTATED) or not (is_sum or len(op.operation.operands) == 1):
            return None
        return self._of_all(op, bits, own) if op.facts.keeps_ring else None

    def _of_all(self, op: SecretOp, bits: int, own: list[Edit]) -> list[Edit] | None:
        found = [self.of(operand, bits, op) for operand in op.operation.operands]
        given = [edits for edits in found if edits is not None]
        return [*chain(*given), *own] if len(given) == len(found) else None

    def _of_truncated(self, op: SecretOp, bits: int, own: list[Edit]) -> list[Edit] | None:
        more, k = int(attributes_of(op)["bits"]) + bits, ring_of(op.operation.operands[0])
        return [partial(_drop, op, more), *own] if more <= k - 2 else None

    def _of_product(self, op: SecretOp, bits: int, own: list[Edit]) -> list[Edit] | None:
        """Shared among the operands, by which the result changes least."""
        x, y = op.operation.operands
        for noise, first in sorted(self._shares(op, bits)):
            if noise > self.unit:
                return None
            found = [self.of(v, n, op) if n else [] for v, n in ((x, first), (y, bits - first))]
            given = [edits for edits in found if edits is not None]
            if len(given) == 2:
                return [*chain(*given), *own]
        return None

    def _shares(self, op: SecretOp, bits: int) -> Iterator[tuple[float, int]]:
        """By how much a result would change, in the mean, and what the first operand gives."""
        x, y = op.operation.operands
        length = math.sqrt(_terms(op))
        for first in range(bits + 1):
            lost = [
                length * self._bound(other) * math.ldexp(1.0, given - frac_bits_of(value))
                for value, other, given in ((x, y, first), (y, x, bits - first))
                if given
            ]
            yield math.hypot(*lost), first

    def _round(self, constant: SecretOp, bits: int, reader: SecretOp) -> None:
        """Has a constant with fewer fraction bits read."""
        (value,) = constant.operation.results
        integers = np.asarray(attributes_of(constant)["value"], np.int64)
        rounded = np.asarray((integers + (1 << (bits - 1))) >> bits)
        stated = Stated(frac_bits=frac_bits_of(value) - bits, ring_bits=ring_of(value))
        with self.program.before(reader):
            coarse = secret_ops.Constant.build(
                range=RealRange.of(constant), stated=stated, value=rounded
            )
        for number, operand in enumerate(reader.operation.operands):
            if operand == value:
                reader.operation.operands[number] = coarse

    def _bound(self, value: ir.Value) -> float:
        op = defining(value)
        known = self.arguments[value].range if op is None else RealRange.of(op)
        return known.bound


def _terms(op: SecretOp) -> int:
    """How many products an element of the result is a sum of."""
    x, y = op.operation.operands
    if isinstance(op, secret_ops.Matmul):
        return int(shape_of(x)[-1])
    return math.prod(shape_of(y)[1:]) if isinstance(op, secret_ops.Conv) else 1


def _lower(value: ir.Value, bits: int) -> None:
    tensor = Tensor.of(value)
    encoding = replace(tensor.encoding, frac_bits=tensor.encoding.frac_bits - bits)
    with value.context:
        value.set_type(replace(tensor, encoding=encoding).type())


def _drop(truncation: SecretOp, bits: int) -> None:
    with truncation.operation.context:
        truncation.operation.attributes["bits"] = to_attribute(bits)

"""Deferred truncation: one truncation after a whole linear chain, none where nothing needs it.

A value that waits for its truncation is deferred: its integers have more fraction bits than it is
stored with, or are in another ring. Sums, sums over windows and changes of layout are done on
deferred integers, a ReLU truncates what it compares, a product's operands are truncated, and an
output isn't. A product with one public number waits too, as a gradient times a rate does. A value
that is needed both ways is truncated once, and read truncated by all. A truncation changes the ring
in passing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch_mlir import ir

from veilgraph.ir.attributes import element_count
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.ops import SecretOp, Stated, attributes_of
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Secrecy, Tensor, ring_of
from veilgraph.passes.secret.padded_sums import CHANGES, takes_truncated
from veilgraph.passes.secret.reductions import constant_of, reduced

Rule = Callable[[SecretOp, list["Deferred"]], "Deferred"]

SAME_NUMBERS = (*CHANGES, secret_ops.Reshape, secret_ops.Transpose)  # as many of them, elsewhere


@dataclass(frozen=True)
class MergeTruncations:
    """Moves truncations down to where they are needed, merges and fuses them; no options.

    Each line is an op of the secret level, with the fraction bits of its result.

    Before::

        %1 = matmul %x, %w : 24
        %2 = truncate %1 {bits = 12} : 12
        %3 = add %2, %r : 12
        %4 = relu %3 : 12

    After::

        %1 = matmul %x, %w : 24
        %2 = scale %r {factor = 4096} : 24
        %3 = add %1, %2 : 24
        %4 = truncate_relu %3 {bits = 12} : 12
    """

    def run(self, program: SecretProgram) -> SecretProgram:
        """The same program with fewer truncations; no value is less exact than before."""
        merged = SecretProgram.create(
            program.module.context,
            program.arguments,
            program.weights,
            program.encoding,
            program.margin,
            program.predicted_error,
            program.mask_error,
            program.trusting,
        )
        merged.finish(_Rewriter(program, merged).rewrite())
        return merged


@dataclass
class Deferred:
    """A value of the old program in the new one.

    Attributes:
        old: the value.
        wide: its integers, with `bits` more fraction bits than the old ones, in any ring.
        range: where it lies.
        name: the layer that a truncation of it belongs to.
        narrow: the same truncated, in the old one's ring, once something needed it.
        origin: the value that this one is in another ring, or at another scale.
        shift: how many fraction bits it has more than that.
    """

    old: ir.Value
    wide: ir.Value
    bits: int
    range: RealRange
    name: str
    narrow: ir.Value | None = None
    origin: Deferred | None = None
    shift: int = 0

    @property
    def is_pending(self) -> bool:
        return self.bits > 0 or ring_of(self.wide) != ring_of(self.old)


class _Rewriter:
    def __init__(self, program: SecretProgram, merged: SecretProgram) -> None:
        self._program, self._merged = program, merged
        given = zip(program.block.arguments, merged.block.arguments, strict=True)
        self._values = {
            old: Deferred(old, new, 0, argument.range, argument.name)
            for (old, new), argument in zip(given, program.arguments, strict=True)
        }

    def rewrite(self) -> dict[str, ir.Value]:
        """Writes the new program; its outputs by name. An output stays deferred."""
        for op in self._program.operations:
            with self._merged.at(op.location.name_str):
                operands = [self._values[value] for value in op.operation.operands]
                self._values[op.operation.results[0]] = self._rule(op)(op, operands)
        return {name: self._values[value].wide for name, value in self._program.outputs.items()}

    def _rule(self, op: SecretOp) -> Rule:
        rules: list[tuple[type[SecretOp] | tuple[type[SecretOp], ...], Rule]] = [
            (secret_ops.Constant, self._narrow_operands),
            (secret_ops.TruncateRelu, self._narrow_operands),
            (secret_ops.Truncate, self._truncate),
            (secret_ops.Step, self._step),
            (secret_ops.Relu, self._relu),
            (CHANGES, self._change_ring),
            (secret_ops.Scale, self._scale),
            ((secret_ops.Add, secret_ops.Sub, secret_ops.Concat), self._join),
        ]
        if _public_factor(op) is not None:
            return self._multiple
        if takes_truncated(op):
            return self._narrow_operands
        return next((rule for kind, rule in rules if isinstance(op, kind)), self._pass_on)

    def _narrow_operands(self, op: SecretOp, operands: list[Deferred]) -> Deferred:
        return self._rebuilt(op, [self._narrow(value) for value in operands], 0)

    def _truncate(self, op: SecretOp, operands: list[Deferred]) -> Deferred:
        (x,) = operands
        bits = x.bits + attributes_of(op)["bits"]
        result = op.operation.results[0]
        return Deferred(result, x.wide, bits, RealRange.of(op), op.location.name_str)

    def _step(self, op: SecretOp, operands: list[Deferred]) -> Deferred:
        """The sign of the deferred integers; its result is no wider."""
        (x,) = operands
        elsewhere = ring_of(x.wide) != ring_of(x.old)
        if not x.bits or elsewhere or self._is_needed_narrow(x):
            return self._narrow_operands(op, operands)
        dropped: int = attributes_of(op)["dropped_bits"]
        return self._rebuilt(op, [x.wide], 0, dropped_bits=dropped + x.bits)

    def _relu(self, op: SecretOp, operands: list[Deferred]) -> Deferred:
        """Fused with the truncation; where only an output follows, without one."""
        (x,) = operands
        if not x.bits or self._is_needed_narrow(x):
            return self._narrow_operands(op, operands)
        window = {"window_bits": ring_of(x.wide) - 1, "dropped_bits": x.bits}
        if all(use.owner.operation.name == "func.return" for use in op.operation.results[0].uses):
            return self._rebuilt(op, [x.wide], x.bits, **window)
        encoding = Tensor.of(op.operation.results[0]).encoding
        fused = secret_ops.TruncateRelu.build(
            x.wide,
            range=self._range(op, encoding),
            stated=Stated(ring_bits=encoding.ring_bits),
            **(window | {"bits": x.bits}),
        )
        return Deferred(op.operation.results[0], fused, 0, RealRange.of(op), op.location.name_str)

    def _change_ring(self, op: SecretOp, operands: list[Deferred]) -> Deferred:
        """What waits for its truncation is truncated into the ring that it is wanted in.

        What is lifted waits too: all that reads it may read it reduced.
        """
        (x,) = operands
        if not x.is_pending and isinstance(op, secret_ops.Reduce):
            return self._narrow_operands(op, operands)
        result = op.operation.results[0]
        return Deferred(result, x.wide, x.bits, RealRange.of(op), x.name, origin=x)

    def _scale(self, op: SecretOp, operands: list[Deferred]) -> Deferred:
        """A shift that only aligns takes back from what is deferred, up to all of it."""
        (x,) = operands
        old, result = Tensor.of(x.old).encoding, op.operation.results[0]
        shift = Tensor.of(result).encoding.frac_bits - old.frac_bits
        aligns = shift > 0 and attributes_of(op)["factor"] == 1 << shift
        if aligns and shift <= x.bits:
            bits = x.bits - shift
            declared, name = RealRange.of(op), op.location.name_str
            return Deferred(result, x.wide, bits, declared, name, origin=x, shift=shift)
        elsewhere = ring_of(x.wide) != ring_of(x.old)
        if aligns and x.bits and not elsewhere and not self._is_needed_narrow(x):
            return self._rebuilt(op, [x.wide], 0, factor=1 << (shift - x.bits))
        return self._pass_on(op, operands)

    def _join(self, op: SecretOp, operands: list[Deferred]) -> Deferred:
        """A sum or a concatenation: at the widest operand's scale, where that is worth it."""
        bits = max(value.bits for value in operands)
        waiting = [value for value in operands if value.bits]
        rings = {ring_of(value.wide) for value in operands}
        ring_bits = min(rings)
        useful = any(not self._is_needed_narrow(value) for value in waiting)
        useful &= len(rings) == 1 or RealRange.of(op).source is not RangeSource.ASSUMED
        if isinstance(op, secret_ops.Concat):
            useful = bool(waiting) and len({value.bits for value in operands}) == 1 and useful
        if not (useful and self._fits(op, ring_bits, bits)):
            return self._narrow_operands(op, operands)
        shifted = [self._shifted(v, ring_bits, bits - v.bits) for v in operands]
        return self._rebuilt(op, shifted, bits)

    def _multiple(self, op: SecretOp, operands: list[Deferred]) -> Deferred:
        """A product with one public number, in the ring of what waits."""
        place = _public_factor(op)
        assert place is not None
        x, factor = operands[1 - place], operands[place]
        ring_bits = ring_of(x.wide)
        waits = x.bits and not self._is_needed_narrow(x) and self._fits(op, ring_bits, x.bits)
        number = _known_in(factor.wide, ring_bits) if waits and not factor.bits else None
        if number is None:
            return self._narrow_operands(op, operands)
        reduced = self._reduced(number, ring_bits, factor.range)
        return self._rebuilt(op, [reduced, x.wide] if place == 0 else [x.wide, reduced], x.bits)

    def _pass_on(self, op: SecretOp, operands: list[Deferred]) -> Deferred:
        """Layout, negation, factors and sums of one operand, which may as well stay deferred."""
        (x,) = operands
        fits = self._fits(op, ring_of(x.wide), x.bits)
        if not x.bits or self._is_needed_narrow(x) or not fits:
            return self._narrow_operands(op, operands)
        return self._rebuilt(op, [x.wide], x.bits)

    def _is_needed_narrow(self, value: Deferred) -> bool:
        """Whether something reads the value truncated in any case, in this ring or another."""
        if value.narrow is not None or _is_read_narrow(value.old):
            return True
        return value.origin is not None and self._is_needed_narrow(value.origin)

    def _fits(self, op: SecretOp, ring_bits: int, bits: int) -> bool:
        """Whether the result, with `bits` more fraction bits, can be truncated from such a ring."""
        declared, encoding = RealRange.of(op), Tensor.of(op.operation.results[0]).encoding
        headroom = 2.0 ** (ring_bits - 2 - encoding.frac_bits - bits)
        assumed = declared.source is RangeSource.ASSUMED
        return assumed or declared.magnitude(self._merged.margin) < headroom

    def _narrow(self, value: Deferred) -> ir.Value:
        """The integers as the old program has them, truncated once.

        Where the same value is read in a wider ring too, it is truncated into that, and reduced;
        where it is read with fewer fraction bits, it is truncated to those, and shifted.
        """
        if value.is_pending and value.narrow is None:
            source = value.wide
            if value.shift and value.origin is not None and self._is_needed_narrow(value.origin):
                value.narrow = self._scaled(self._narrow(value.origin), value.shift, value.range)
                return value.narrow
            is_reduced = not value.bits and ring_of(source) > ring_of(value.old)
            if not is_reduced and value.origin is not None and _serves(value.origin, value):
                source = self._narrow(value.origin)
            with self._merged.at(value.name):
                value.narrow = _converted(source, Tensor.of(value.old).encoding, value.range)
        return value.wide if value.narrow is None else value.narrow

    def _reduced(self, value: ir.Value, ring_bits: int, declared: RealRange) -> ir.Value:
        old = Tensor.of(value).encoding
        return reduced(value, ring_bits, _fitting(declared, replace(old, ring_bits=ring_bits)))

    def _shifted(self, value: Deferred, ring_bits: int, bits: int) -> ir.Value:
        """The deferred integers in such a ring, with still more fraction bits."""
        wide = self._reduced(value.wide, ring_bits, value.range)
        if not bits:
            return wide
        encoding = Tensor.of(wide).encoding
        wider = Encoding(encoding.ring_bits, encoding.frac_bits + bits, encoding.secrecy)
        constant = constant_of(wide)
        if constant is not None:
            return secret_ops.Constant.build(
                range=value.range,
                stated=Stated(frac_bits=wider.frac_bits, ring_bits=wider.ring_bits),
                value=np.asarray(constant << bits),  # NumPy makes a scalar of rank 0
            )
        return self._scaled(wide, bits, value.range)

    def _scaled(self, value: ir.Value, bits: int, declared: RealRange) -> ir.Value:
        """The same real numbers with so many more fraction bits."""
        old = Tensor.of(value).encoding
        wider = Encoding(old.ring_bits, old.frac_bits + bits, old.secrecy)
        stated = Stated(frac_bits=wider.frac_bits)
        declared = _fitting(declared, wider)
        return secret_ops.Scale.build(value, range=declared, stated=stated, factor=1 << bits)

    def _rebuilt(
        self, op: SecretOp, operands: list[ir.Value], bits: int, **changed: int
    ) -> Deferred:
        """The same op on new operands; its result has `bits` more fraction bits."""
        result = op.operation.results[0]
        tensor = Tensor.of(result)
        encoding = tensor.encoding
        # A deferred result is in its operands' ring, and so is any but what changes the ring.
        ring_bits = ring_of(operands[0]) if bits else encoding.ring_bits
        wider = Encoding(ring_bits, encoding.frac_bits + bits, encoding.secrecy)
        wide = type(op).build(
            *operands,
            range=self._range(op, wider),
            stated=Stated(tensor.shape, wider.frac_bits, wider.ring_bits),
            **(attributes_of(op) | changed),
        )
        return Deferred(result, wide, bits, RealRange.of(op), op.location.name_str)

    def _range(self, op: SecretOp, encoding: Encoding) -> RealRange:
        return _fitting(RealRange.of(op), encoding)


def _is_read_narrow(old: ir.Value) -> bool:
    """Whether an operation that takes truncated integers only reads a value, or reads it reduced
    or lifted; where several read it, in another layout too, of which each would be truncated."""
    readers = [use.owner.opview for use in old.uses]
    same = SAME_NUMBERS if len(readers) > 1 else CHANGES
    changed = (r.operation.results[0] for r in readers if isinstance(r, same))
    takes = (takes_truncated(r) and _public_factor(r) is None for r in readers)
    return any(takes) or any(map(_is_read_narrow, changed))


def _public_factor(op: ir.OpView) -> int | None:
    """Which operand of a product is one number that all are told, times a secret tensor.

    By a constant integer parts are made, which have to see what a truncation left.
    """
    if type(op) is not secret_ops.Mul:
        return None
    told = [is_told_number(value) for value in op.operation.operands]
    return told.index(True) if sum(told) == 1 else None


def is_told_number(value: ir.Value) -> bool:
    """Whether a value of the secret level is one number that all are told, and no constant."""
    tensor = Tensor.of(value)
    is_public = tensor.encoding.secrecy is Secrecy.PUBLIC and element_count(tensor.shape) == 1
    return is_public and constant_of(value) is None


def _known_in(value: ir.Value, ring_bits: int) -> ir.Value | None:
    """A public value before it was reduced to less than a ring; None where it never was in that."""
    while ring_of(value) < ring_bits:
        op = None if isinstance(value, ir.BlockArgument) else value.owner.opview
        if not isinstance(op, secret_ops.Reduce):
            return None
        (value,) = op.operation.operands
    return value


def _serves(origin: Deferred, value: Deferred) -> bool:
    """Whether a value is to be had from what it is in another ring, by a reduction alone."""
    narrower = ring_of(value.old) < ring_of(origin.old)
    return narrower and (origin.narrow is not None or sum(1 for _ in origin.old.uses) > 1)


def _converted(value: ir.Value, encoding: Encoding, declared: RealRange) -> ir.Value:
    """Truncated to these fraction bits, in this ring."""
    bits = Tensor.of(value).encoding.frac_bits - encoding.frac_bits
    named: dict[str, int] = {"bits": bits} if bits else {}
    narrower = encoding.ring_bits < ring_of(value)
    change: type[SecretOp] = secret_ops.Reduce if narrower else secret_ops.Lift
    kind = secret_ops.Truncate if bits else change
    stated = Stated(ring_bits=encoding.ring_bits)
    return kind.build(value, range=_fitting(declared, encoding), stated=stated, **named)


def _fitting(declared: RealRange, encoding: Encoding) -> RealRange:
    """A range that is only assumed is what the encoding can hold."""
    assumed = declared.source is RangeSource.ASSUMED
    return RealRange.assumed(encoding) if assumed else declared

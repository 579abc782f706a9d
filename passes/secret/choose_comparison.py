"""How many bits each comparison looks at: the window that its operand's range needs.

A value z must lie in [-2^(w-1), 2^(w-1) - 2^t], w = window_bits, t = dropped_bits; the upper bound
is sharp: beyond it the largest activations would be taken for negative. A maximum compares
differences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from veilgraph.ir.attributes import to_attribute
from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.secret.facts import Compares
from veilgraph.ir.secret.ops import SecretOp, attributes_of
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Tensor


@dataclass(frozen=True)
class ChooseComparison:
    """Sets window_bits of every comparing op; no options.

    Here %x lies in [-3, 5], in a program with a margin of 2: 10 * 2^10 <= 2^14.

    Before::

        %1 = relu %x {dropped_bits = 0, window_bits = 63} : 10

    After::

        %1 = relu %x {dropped_bits = 0, window_bits = 15} : 10
    """

    def run(self, program: SecretProgram) -> SecretProgram:
        """`program` itself, changed in place.

        Raises:
            AccuracyError: a comparison needs more bits than the ring has.
        """
        arguments = zip(program.block.arguments, program.arguments, strict=True)
        ranges = {value: argument.range for value, argument in arguments}
        for op in program.operations:
            ranges[op.operation.results[0]] = RealRange.of(op)
            if op.facts.compares is not Compares.NOTHING:
                operands = list(op.operation.operands)
                compared = _compared(op, [ranges[value] for value in operands], program.margin)
                bits = _window_bits(op, compared, Tensor.of(operands[0]).encoding)
                with program.module.context:
                    op.operation.attributes["window_bits"] = to_attribute(bits)
        return program


def _compared(op: SecretOp, operands: list[RealRange], margin: float) -> tuple[float, float] | None:
    """The real numbers whose sign is taken; None where nothing is known."""
    if any(declared.source is RangeSource.ASSUMED for declared in operands):
        return None
    if op.facts.compares is Compares.EDGE:
        reach: float = attributes_of(op)["reach"]
        return -reach, reach
    low, high = operands[0].widened(margin)
    if op.facts.compares is Compares.SIGN:
        return low, high
    other_low, other_high = operands[-1].widened(margin)
    return low - other_high, high - other_low


def _window_bits(op: SecretOp, compared: tuple[float, float] | None, encoding: Encoding) -> int:
    """The least w with -2^(w-1) <= low and high <= 2^(w-1) - 2^t, in units of the last place."""
    widest = encoding.ring_bits - 1
    if compared is None:
        return widest
    low, high = (math.ldexp(bound, encoding.frac_bits) for bound in compared)
    dropped: int = attributes_of(op)["dropped_bits"]
    magnitude = max(-math.floor(low), math.ceil(high) + (1 << dropped))
    bits = max(1 + (magnitude - 1).bit_length(), dropped + 2)
    if bits > widest:
        reach = max(-compared[0], compared[1])
        raise AccuracyError(
            f"{op.location.name_str!r} compares numbers up to {reach:.4g}, margin included, which "
            f"needs {bits} bits of a ring of {encoding.ring_bits}.",
            "Take a wider ring (--ring 64) or fewer fraction bits.",
        )
    return bits

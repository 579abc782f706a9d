"""Outputs with as many fraction bits as the error allowed leaves: more would tell about weights.

The last bits of an exact output are a linear function of how every value before it was rounded, and
who knows the thresholds of these roundings reads weights off it (docs/protocols.md, "What is
disclosed"). An output that is rounded at random itself hides them under its own last place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch_mlir import ir

from veilgraph.ir.plan.tables import AS_REVEALED
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.ops import Stated
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Secrecy, Tensor

SHARE = (
    1 / 4
)  # of the error allowed, in the mean: with what a target share of 0.75 leads to, 1.29 times
# as much at worst, it adds up to what is allowed, (0.75 * 1.29)^2 + SHARE^2 = 1
MEAN_ERROR = 1 / 3  # of rounding at random, in units of the last place
UNKNOWN_BITS = 16  # where nothing is known of an output's size: as for all values (constraints.py)


def enough_bits(size: float, allowed: float) -> int:
    """The least fraction bits with which rounding takes no more than its share of an error.

    None less than zero: integers stay what they are, whatever they are encoded with.

    Args:
        size: mean magnitude of the output.
        allowed: mean error, relative to `size`.
    """
    if not size:
        return UNKNOWN_BITS
    return max(0, math.ceil(math.log2(MEAN_ERROR / (SHARE * allowed * size))))


def as_revealed(name: str) -> str:
    """What the operation is called that rounds an output: a layer of no node of the model."""
    return f"{name}{AS_REVEALED}"


@dataclass(frozen=True)
class RoundOutputs:
    """Truncates outputs that have more fraction bits than they need.

    Here `bits` says 9 for the output. What waits for a truncation has one alone.

    Before::

        %1 = matmul %x, %w : 26
        return %1

    After::

        %1 = matmul %x, %w : 26
        %2 = truncate %1 {bits = 17} : 9
        return %2

    The result's ring has as many bits less as were cut off: the same numbers fit as before, and no
    overflow is to be corrected. Decisions, integers and what is as coarse already stay.

    Attributes:
        bits: fraction bits by output; others stay as they are.
    """

    bits: Mapping[str, int]

    def run(self, program: SecretProgram) -> SecretProgram:
        """`program` itself, changed in place."""
        outputs, done = program.outputs, dict[tuple[ir.Value, int], ir.Value]()
        excess = {name: _excess(value, self.bits.get(name)) for name, value in outputs.items()}
        if not any(excess.values()):
            return program
        program.reopen()
        for name, value in outputs.items():
            if cut := excess[name]:
                with program.at(as_revealed(name)):
                    rounded = done.setdefault((value, cut), _truncated(value, cut))
                outputs[name] = rounded
        program.finish(outputs)
        return program


def _excess(value: ir.Value, bits: int | None) -> int:
    """Fraction bits of an output that are to go."""
    encoding = Tensor.of(value).encoding
    if bits is None or encoding.secrecy is Secrecy.PUBLIC or encoding.frac_bits <= 0:
        return 0
    return min(max(encoding.frac_bits - bits, 0), encoding.ring_bits - 2)


def _truncated(value: ir.Value, bits: int) -> ir.Value:
    encoding = Tensor.of(value).encoding
    left = Encoding(encoding.ring_bits - bits, encoding.frac_bits - bits, encoding.secrecy)
    return secret_ops.Truncate.build(
        value, range=_widened(_range(value), left), stated=Stated(ring_bits=left.ring_bits),
        bits=bits,
    )  # fmt: skip


def _range(value: ir.Value) -> RealRange | None:
    """Where an operation says that its result lies."""
    return None if isinstance(value, ir.BlockArgument) else RealRange.of(value.owner.opview)


def _widened(known: RealRange | None, encoding: Encoding) -> RealRange:
    """By the one unit in the last place that rounding may add."""
    if known is None or known.source is RangeSource.ASSUMED:
        return RealRange.assumed(encoding)
    unit = math.ldexp(1.0, -encoding.frac_bits)
    return RealRange(known.low - unit, known.high + unit, known.source)

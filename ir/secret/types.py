"""What a value of the secret level is: integers modulo 2^K that stand for real numbers.

    tensor<1x3xi64, {frac_bits = 16 : i64, ring = 64 : i64, secrecy = "secret"}>

The integer z stands for the real number z / 2^frac_bits; a negative one is 2^ring - z.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from torch_mlir import ir

from veilgraph.ir.attributes import Shape
from veilgraph.ir.shapes import require
from veilgraph.ir.types import MAX_RING_BITS

ROUNDING_SLACK = 1 / 16  # of a proven range's bound: room for the rounding of what led there


class Secrecy(Enum):
    """Whether every party may know a value, or only those it is revealed to."""

    PUBLIC = "public"
    SECRET = "secret"


class RangeSource(Enum):
    """How a range was found."""

    PROVEN = "proven"  # follows from the inputs' declared ranges and the weights
    CALIBRATED = "calibrated"  # seen on the user's samples
    ASSUMED = "assumed"  # what the encoding can hold


@dataclass(frozen=True)
class RealRange:
    """The real numbers that a value is declared to lie in, without any margin."""

    low: float
    high: float
    source: RangeSource

    @property
    def bound(self) -> float:
        """The largest magnitude."""
        return max(-self.low, self.high, 0.0)

    def widened(self, margin: float) -> tuple[float, float]:
        """What values must fit: calibrated ranges are widened on both sides so that magnitudes may
        be `margin` times larger, proven ones by what rounding may add.
        """
        slack = {
            RangeSource.CALIBRATED: margin - 1,
            RangeSource.PROVEN: ROUNDING_SLACK,
            RangeSource.ASSUMED: 0.0,
        }[self.source]
        return self.low - slack * self.bound, self.high + slack * self.bound

    def accepted(self, margin: float) -> tuple[float, float]:
        """What the owner of an input may give: the range, with its margin where samples showed it.

        Hosts refuse all else, and value-range analysis begins with it.
        """
        match self.source:
            case RangeSource.ASSUMED:
                return -math.inf, math.inf
            case RangeSource.PROVEN:
                return self.low, self.high
            case RangeSource.CALIBRATED:
                return self.widened(margin)

    def magnitude(self, margin: float) -> float:
        """The largest magnitude of the widened range."""
        low, high = self.widened(margin)
        return max(-low, high, 0.0)

    def rounded(self, encoding: Encoding) -> RealRange:
        """What a plan says: outward to a power of two, with both signs, of one unit at least."""
        largest = max(abs(self.low), abs(self.high), math.ldexp(1.0, -encoding.frac_bits))
        bound = math.ldexp(1.0, math.ceil(math.log2(largest)))
        return RealRange(-bound, bound, self.source)

    def attributes(self) -> dict[str, ir.Attribute]:
        """As an op or an argument carries it."""
        return {
            "range": ir.DenseF64ArrayAttr.get([self.low, self.high]),
            "range_source": ir.StringAttr.get(self.source.value),
        }

    @staticmethod
    def assumed(encoding: Encoding) -> RealRange:
        """What an encoding can hold where a truncation or comparison follows."""
        bound = 2.0 ** (encoding.ring_bits - 2 - encoding.frac_bits)
        return RealRange(-bound, bound, RangeSource.ASSUMED)

    @staticmethod
    def of(op: ir.OpView) -> RealRange:
        """The range that an op declares for its result."""
        attributes = op.operation.attributes
        low, high = attributes["range"]
        return RealRange(low, high, RangeSource(attributes["range_source"].value))


@dataclass(frozen=True)
class Encoding:
    """How a real number x is an integer: z = round(x 2^frac_bits) modulo 2^ring_bits."""

    ring_bits: int
    frac_bits: int
    secrecy: Secrecy = Secrecy.SECRET


@dataclass(frozen=True)
class Tensor:
    """Shape and encoding of a value: what its MLIR type says."""

    shape: Shape
    encoding: Encoding

    def type(self) -> ir.RankedTensorType:
        """The MLIR type, in the current context."""
        i64 = ir.IntegerType.get_signless(64)
        encoding = {
            "ring": ir.IntegerAttr.get(i64, self.encoding.ring_bits),
            "frac_bits": ir.IntegerAttr.get(i64, self.encoding.frac_bits),
            "secrecy": ir.StringAttr.get(self.encoding.secrecy.value),
        }
        where = ir.Location.unknown()
        return ir.RankedTensorType.get(list(self.shape), i64, ir.DictAttr.get(encoding), where)

    @staticmethod
    def of(value: ir.Value) -> Tensor:
        """What the type of `value` says.

        Raises:
            ValueError: the type is none of the secret level.
        """
        kind = value.type
        encoding = kind.encoding if isinstance(kind, ir.RankedTensorType) else None
        if not isinstance(encoding, ir.DictAttr):
            raise ValueError(f"{kind} is no type of the secret level")
        ring_bits, frac_bits = encoding["ring"].value, encoding["frac_bits"].value
        require(1 <= ring_bits <= MAX_RING_BITS, f"a ring has 1 to 64 bits, not {ring_bits}")
        secrecy = Secrecy(encoding["secrecy"].value)
        return Tensor(tuple(kind.shape), Encoding(ring_bits, frac_bits, secrecy))


def ring_of(value: ir.Value) -> int:
    """The bits of the ring that a value is in."""
    return Tensor.of(value).encoding.ring_bits


def frac_bits_of(value: ir.Value) -> int:
    """The fraction bits that a value has."""
    return Tensor.of(value).encoding.frac_bits

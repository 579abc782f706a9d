"""Facts about the operations of the graph level: the questions, and the answers of groups.

Each class of `ops.py` has its answers as `facts`, and passes ask these. No question has a
default: a class without facts cannot be encoded, and `tests/ir/test_op_tables.py` names it. What
takes code is a table of its own, by class, where it is used: meanings (`ir/meaning/graph.py`),
derivatives (`passes/graph/derivatives/`), ranges (`passes/ranges/value_ranges.py`),
encodings (`passes/encode/rules.py`). The same test asks those tables for each class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto


class Arithmetic(Enum):
    """What an operation is to fixed-point arithmetic: how the scale of its result follows."""

    PRODUCT = auto()  # bilinear; fraction bits add up, and the result waits for a truncation
    SUM = auto()  # of operands at one scale, which may all wait for a truncation
    LINEAR = auto()  # of one operand, at its scale
    LAYOUT = auto()  # linear; and of weights alone it is a weight
    COMPARISON = auto()  # chooses among operands: truncated ones, at the result's scale
    INTEGER = auto()  # compares; the result has no fraction bits, whatever the operand has
    FUNCTION = auto()  # a real function of one number, with a scale of its own
    ROW_FUNCTION = auto()  # the same of the numbers along an axis
    MEAN = auto()  # not encoded: `fold_divisors` writes a sum and a factor
    REWRITTEN = auto()  # not encoded: `approximate` or `fold_batch_norm` writes other operations


class Homogeneity(Enum):
    """For which c op(c x) = c op(x), c multiplying all operands: what factors move through."""

    ANY = auto()
    POSITIVE = auto()
    NONE = auto()


class Integers(Enum):
    """Whether the result's elements are integers."""

    ALWAYS = auto()
    KEPT = auto()  # where the operands' are
    NEVER_KNOWN = auto()


class Derivative(Enum):
    """Whether an operation has a derivative, and where it is written."""

    RULE = auto()  # a row in `passes/graph/derivatives/`
    MAXIMA = auto()  # that of the tree of maxima of two that it is
    FLAT = auto()  # it compares: zero, wherever there is one
    NONE = auto()  # refused: no parameter in front of it would learn


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The answers of one operation.

    Attributes:
        arithmetic: how it is encoded.
        homogeneity: which factors move from all its operands to its result.
        integers: whether its result holds integers alone.
        moves: whether each element of its result is one of its only operand's.
        bounds: between which numbers its result lies, whatever its operands are; None for no such.
        derivative: whether it has one.
    """

    arithmetic: Arithmetic
    homogeneity: Homogeneity
    integers: Integers
    moves: bool
    bounds: tuple[float, float] | None
    derivative: Derivative

    def but(self, **answers: object) -> Facts:
        """The same with some other answers."""
        return replace(self, **answers)  # type: ignore[arg-type]

    @property
    def is_encoded(self) -> bool:
        """Whether it may reach `encode_fixed_point`."""
        return self.arithmetic not in (Arithmetic.MEAN, Arithmetic.REWRITTEN)

    @property
    def is_bilinear(self) -> bool:
        return self.arithmetic is Arithmetic.PRODUCT

    @property
    def is_layout(self) -> bool:
        return self.arithmetic is Arithmetic.LAYOUT

    @property
    def is_real_function(self) -> bool:
        """Whether it becomes a function of secrets with a scale of its own."""
        return self.arithmetic in (Arithmetic.FUNCTION, Arithmetic.ROW_FUNCTION)

    @property
    def is_integer_valued(self) -> bool:
        """Whether it is encoded as integers without fraction bits."""
        return self.arithmetic is Arithmetic.INTEGER

    @property
    def selects(self) -> bool:
        """Whether it compares: noise on an operand moves the result by as much, or by a step."""
        return self.arithmetic in (Arithmetic.COMPARISON, Arithmetic.INTEGER)


LAYOUT = Facts(
    arithmetic=Arithmetic.LAYOUT,
    homogeneity=Homogeneity.ANY,
    integers=Integers.KEPT,
    moves=False,
    bounds=None,
    derivative=Derivative.RULE,
)
CONSTANT = LAYOUT.but(
    homogeneity=Homogeneity.NONE, integers=Integers.NEVER_KNOWN, derivative=Derivative.FLAT
)
MOVE = LAYOUT.but(moves=True)
LINEAR = LAYOUT.but(arithmetic=Arithmetic.LINEAR)
SUM = LAYOUT.but(arithmetic=Arithmetic.SUM)
PRODUCT = LAYOUT.but(arithmetic=Arithmetic.PRODUCT, homogeneity=Homogeneity.NONE)
COMPARISON = LAYOUT.but(arithmetic=Arithmetic.COMPARISON, homogeneity=Homogeneity.POSITIVE)
INTEGER = Facts(
    arithmetic=Arithmetic.INTEGER,
    homogeneity=Homogeneity.NONE,
    integers=Integers.ALWAYS,
    moves=False,
    bounds=None,
    derivative=Derivative.FLAT,
)
FUNCTION = LAYOUT.but(
    arithmetic=Arithmetic.FUNCTION,
    homogeneity=Homogeneity.NONE,
    integers=Integers.NEVER_KNOWN,
)
ROW_FUNCTION = FUNCTION.but(arithmetic=Arithmetic.ROW_FUNCTION)
REWRITTEN = FUNCTION.but(arithmetic=Arithmetic.REWRITTEN)
MEAN = REWRITTEN.but(arithmetic=Arithmetic.MEAN, homogeneity=Homogeneity.ANY)

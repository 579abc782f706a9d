"""The operations of the secret level and their facts: one row each, free of MLIR.

The classes of `ops.py` take their rows by name, and cannot be declared without one. Plans
name these operations too, so what reads plans asks here. No question has a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto


class Compares(Enum):
    """What an operation compares; it has a window of bits to look at, if anything."""

    NOTHING = auto()
    SIGN = auto()  # its operand with zero
    EDGE = auto()  # its operand with a number that it says
    DIFFERENCE = auto()  # operands, or elements of one, with each other


class Rounding(Enum):
    """How the last place of a result comes about."""

    NONE = auto()
    AT_RANDOM = auto()  # floor(z + tau), tau drawn
    NEAREST = auto()


@dataclass(frozen=True)
class Facts:
    """The answers of one operation.

    Attributes:
        takes_truncated: whether its operands must be truncated. What may take deferred integers is
            linear, or has a rule of its own in `merge_truncations`.
        compares: what it compares.
        rounding: how it rounds.
        is_function: whether it is a real function, or a part of one.
        keeps_ring: whether its result is in the ring of its operands, and the low bits of the one
            follow from those of the others: so it may be done in a narrower ring.
    """

    takes_truncated: bool
    compares: Compares
    rounding: Rounding
    is_function: bool
    keeps_ring: bool


LINEAR = Facts(False, Compares.NOTHING, Rounding.NONE, False, True)
GROWING = Facts(True, Compares.NOTHING, Rounding.NONE, False, True)  # truncated after it costs more
MAKING = Facts(False, Compares.NOTHING, Rounding.NONE, False, False)  # in any ring
TRUNCATION = Facts(False, Compares.NOTHING, Rounding.AT_RANDOM, False, False)
MAXIMUM = Facts(True, Compares.DIFFERENCE, Rounding.NONE, False, False)
FACTS: Mapping[str, Facts] = {
    "constant": MAKING,
    "add": LINEAR,
    "sub": LINEAR,
    "neg": LINEAR,
    "mul": GROWING,
    "matmul": GROWING,
    "conv": GROWING,
    "scale": LINEAR,
    "reinterpret": LINEAR,
    "reduce": MAKING,
    "lift": MAKING,
    "truncate": TRUNCATION,
    "round_off": Facts(False, Compares.NOTHING, Rounding.NEAREST, False, False),
    "step": Facts(False, Compares.SIGN, Rounding.NONE, False, False),
    "one_hot": Facts(True, Compares.SIGN, Rounding.NONE, False, False),
    "relu": Facts(False, Compares.SIGN, Rounding.NONE, False, False),
    "truncate_relu": Facts(False, Compares.SIGN, Rounding.AT_RANDOM, False, False),
    "truncate_relu_pool": Facts(False, Compares.SIGN, Rounding.AT_RANDOM, False, False),
    "maximum": MAXIMUM,
    "function": Facts(True, Compares.NOTHING, Rounding.AT_RANDOM, True, False),
    "clipped_function": Facts(True, Compares.EDGE, Rounding.AT_RANDOM, True, False),
    "row_sums": Facts(True, Compares.NOTHING, Rounding.NONE, True, False),
    "sum_pool": LINEAR,
    "max_pool": MAXIMUM,
    "reduce_sum": LINEAR,
    "reduce_max": MAXIMUM,
    "reshape": LINEAR,
    "transpose": LINEAR,
    "concat": LINEAR,
    "slice": LINEAR,
    "pad": LINEAR,  # what is no part of a sum takes truncated: passes/secret/padded_sums.py
    "broadcast": GROWING,
}

"""Variants: the ways in which a suite computes one op, or one building block of its protocols.

A variant is a function, what it needs beyond its suite's parties, and what it promises of its
result. Which one a layer takes is chosen by a goal (passes/secret/protocols/choose_protocols.py) or
by hand (`compile --protocol OP=VARIANT`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, TypedDict

STANDARD = "standard"  # what the one variant of an op is called
MAX_RING_BITS = 64

# Of the parties, the op and its operands' sharings it makes the result's. A building block has
# operands of its own: the protocols that call it say which.
Protocol = Callable[..., Any]


class Rounding(IntEnum):
    """What a protocol promises of its result, the strongest promise first.

    A rounded result is floor((z + tau) / 2^f), tau uniform: at most one unit in the last place off.
    """

    EXACT = 0  # a function of the operands alone, whatever is drawn
    SAFE_ROLE = 1  # rounded; one role knows nothing of tau
    KNOWN = 2  # rounded; every computing party may know tau


class Goal(Enum):
    """What is to be least where variants are chosen."""

    AUTO = "auto"  # seconds on the target's network
    LEAST_BYTES = "least-bytes"  # of all parties; then rounds
    FEWEST_ROUNDS = "fewest-rounds"  # online; then bytes of all parties


class Roles(Enum):
    """Whether parties take turns in the roles of protocols, where these are unlike.

    In turns all links carry the same. Fixed, a party whose part of a result is a draw knows its
    part of the next layer ahead, which saves a round a layer.
    """

    AUTO = "auto"  # whatever costs less
    ROTATED = "rotated"
    FIXED = "fixed"


class Choosing(TypedDict, total=False):
    """By what variants are chosen, as keywords: `compile` says what each is."""

    goal: str
    roles: str
    prepared: bool
    most_store: int | None


@dataclass(frozen=True)
class Needs:
    """What a variant asks for beyond its suite's parties; nothing unless stated.

    Attributes:
        computing: the most computing parties.
        ring_bits: of the widest result.
        provider: a party that deals correlated randomness, in a suite that may have none.
    """

    computing: int | None = None
    ring_bits: int = MAX_RING_BITS
    provider: bool = False

    def lacking(self, computing: int, provider: bool) -> str:
        """Why so many parties can't run the variant; empty where they can."""
        if self.computing is not None and computing > self.computing:
            return (
                f"it is for at most {self.computing} computing parties, and {computing} are named"
            )
        if self.provider and not provider:
            return "it needs a party that deals correlated randomness"
        return ""


NOTHING = Needs()


@dataclass(frozen=True)
class Variant:
    """One protocol of an op or of a building block."""

    name: str
    function: Protocol
    needs: Needs = NOTHING
    rounding: Rounding = Rounding.EXACT

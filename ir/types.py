"""Types that every level shares: what a value at a party is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What one element of a party's value is."""

    WORDS = "words"  # an element of the ring Z_2^bits
    PLANES = "planes"  # `bits` single bits, bit-sliced


@dataclass(frozen=True, slots=True)
class Type:
    """Kind and width: words<40> is a tensor over Z_2^40, planes<7> holds seven bits an element."""

    kind: Kind
    bits: int

    def __str__(self) -> str:
        return f"{self.kind.value}<{self.bits}>"

    @staticmethod
    def parse(text: str) -> Type:
        kind, _, bits = text.removesuffix(">").partition("<")
        return Type(Kind(kind), int(bits))

    @property
    def word_bits(self) -> int:
        """Width of the machine word that holds one element of words."""
        return 32 if self.bits <= 32 else 64


def words(bits: int) -> Type:
    if not 1 <= bits <= 64:
        raise ValueError(f"a ring has 1 to 64 bits, not {bits}")
    return Type(Kind.WORDS, bits)


def planes(count: int) -> Type:
    return Type(Kind.PLANES, count)

"""Types that every level shares: what a value at a party is made of, and its bytes.

Whoever needs bytes, on the wire or in memory, asks the type; no pass looks at its kind for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod

from veilgraph.ir.plan.tables import BufferKind

MOST_PLANES = 256
BLOCK_BITS = 128  # one block of AES
MAX_RING_BITS = 64


class Kind(Enum):
    """What one element of a party's value is."""

    WORDS = "words"  # an element of the ring Z_2^bits
    PLANES = "planes"  # `bits` single bits, bit-sliced
    BLOCKS = "blocks"  # a string of `bits` bits in one piece: a seed, a key, a label

    __hash__ = object.__hash__  # Enum's own is Python, and nodes are looked up by their kinds


@dataclass(frozen=True, slots=True)
class Type:
    """Kind and width: words<40> is a tensor over Z_2^40, planes<7> holds seven bits an element,
    blocks<128> a block of 128 bits.
    """

    kind: Kind
    bits: int

    def __str__(self) -> str:
        return f"{self.kind.value}<{self.bits}>"

    @staticmethod
    def parse(text: str) -> Type:
        """The type that a text says.

        Raises:
            ValueError: there is no such kind, or none of that width.
        """
        kind, _, bits = text.removesuffix(">").partition("<")
        found = Type(Kind(kind), int(bits))
        least, most = WIDTHS[found.kind]
        if not least <= found.bits <= most:
            raise ValueError(f"there is no type {found}")
        return found

    @property
    def modulus(self) -> int:
        """Of what a constant is reduced by: numbers of a ring, or single bits."""
        return 1 << (self.bits if self.kind is Kind.WORDS else 1)

    # In memory

    @property
    def stored(self) -> Type:
        """The words or planes that kernels see in its memory: a block is two words of 64 bits."""
        return words(64) if self.kind is Kind.BLOCKS else self

    @property
    def per_element(self) -> int:
        """Elements of `stored` in one of its own."""
        return self.bits // 64 if self.kind is Kind.BLOCKS else 1

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of a tensor's elements of `stored`: blocks are a vector of words, the lower one first."""
        return (prod(shape) * self.per_element,) if self.kind is Kind.BLOCKS else shape

    @property
    def word_bits(self) -> int:
        """Width of the machine words that hold its elements."""
        return 32 if self.bits <= 32 else 64

    @property
    def buffer(self) -> BufferKind:
        """How a value lies in memory."""
        if self.kind is Kind.PLANES:
            return BufferKind.PLANES
        return BufferKind.WORDS32 if self.word_bits == 32 else BufferKind.WORDS64

    def stored_bytes(self, elements: int) -> int:
        """Bytes of a tensor in memory: whole machine words, each plane padded to 8 bytes."""
        if self.kind is Kind.PLANES:
            return self.message_bytes(elements)
        return elements * self.per_element * self.word_bits // 8

    # On the wire

    @property
    def message_buffer(self) -> BufferKind:
        """How a value lies in a message: exact bits, which some words are in memory too."""
        whole_words = self.kind is not Kind.WORDS or self.bits in (32, 64)
        return self.buffer if whole_words else BufferKind.PACKED

    def message_bytes(self, elements: int) -> int:
        """Bytes of a tensor on the wire: exact bits, padded to 8 bytes once (planes: each)."""
        if self.kind is Kind.PLANES:
            return self.bits * -(-elements // 64) * 8
        return -(-elements * self.bits // 64) * 8

    @property
    def in_order(self) -> bool:
        """Whether the first elements' bytes of a message are its first: planes have a part in each
        plane.
        """
        return self.kind is not Kind.PLANES


# Least and most bits of an element.
WIDTHS = {Kind.WORDS: (1, 64), Kind.PLANES: (0, MOST_PLANES), Kind.BLOCKS: (BLOCK_BITS, BLOCK_BITS)}


def words(bits: int) -> Type:
    if not 1 <= bits <= 64:
        raise ValueError(f"a ring has 1 to 64 bits, not {bits}")
    return Type(Kind.WORDS, bits)


def planes(count: int) -> Type:
    return Type(Kind.PLANES, count)


def point_levels(index_bits: int, ring_bits: int) -> int:
    """Levels of a tree of blocks whose leaves hold 2^index_bits elements of a ring."""
    return max(0, index_bits - (2 if ring_bits <= 32 else 1))


@dataclass(frozen=True)
class CompareWords:
    """Where the words of comparison functions are, by kernels/compare/declaration.py.

    Attributes:
        index_bits: of points and thresholds.
        rings: bits of each payload.
    """

    index_bits: int
    rings: tuple[int, ...]

    @property
    def word_bits(self) -> int:
        """Of the numbers that blocks are read as."""
        return 32 if max(self.rings) <= 32 else 64

    @property
    def rows(self) -> int:
        """Of each payload's section: a number an element for each level, and for 4 points."""
        return self.index_bits + 2

    def sections(self, elements: int) -> list[tuple[int, int]]:
        """Start and length of that of seeds, and of each payload's."""
        seeds = (self.index_bits - 2) * (BLOCK_BITS // self.word_bits) * elements
        size = self.rows * elements
        return [(0, seeds), *((seeds + j * size, size) for j in range(len(self.rings)))]

    def size(self, elements: int) -> int:
        """Numbers in all."""
        start, length = self.sections(elements)[-1]
        return start + length


def blocks() -> Type:
    """Strings of 128 bits, each in one piece: seeds, keys, labels. Their group is XOR."""
    return Type(Kind.BLOCKS, BLOCK_BITS)

"""Comparison functions between two parties: their correction words, and a party's part at a point.

Boyle, Chandran, Gilboa, Gupta, Ishai, Kumar, Rathee, EUROCRYPT 2021, figure 1, in rings. The parts
of two parties add up to payloads where a point x is below a threshold that neither knows, and to 0
elsewhere. Two roots are the tops of two trees of blocks of 128 bits. A node's lowest bit is its
control bit t, the 126 highest bits are its seed s. For H(x) = AES(x) XOR x under a key that need
not be secret, its children are H(s) and H(s + 1), each XORed with the word of its level where
t = 1. The numbers of going left are H(s + 2), those of going right H(s + 3); where t = 1 the
numbers of the level's word are added. The tree ends two levels above the points: what is left of a
point, j, has the numbers H(s + j), to which those of the last words are added where t = 1. A
party's part is the sum along the path to x, negated by the second party. Below every seed but those
on the path to the threshold both parties have the same nodes.

Numbers have w bits, 32 or 64 as the widest ring takes, and count modulo their payloads' rings. A
block has 128 / w of them, one a payload. Of payloads beyond these block b is H((s XOR 4b) + j).

For E elements and L = index_bits - 2 levels words are contiguous numbers of w bits in 1 + payloads
sections, level by level: E blocks a level, whose lowest two bits correct the control bits of a left
and of a right child; and of each payload E numbers a level, then E for each of a leaf's 4 points.

- party 2 makes words: out, words [size]; key, a block; roots of the first and of the second party,
  blocks [E]; thresholds, words [E], read modulo 2^index_bits; and payloads, words [E] each.
- party 0 or 1 makes its parts: out, words [payloads E]; key; its roots, blocks [E]; points, words
  [E], read modulo 2^index_bits; and the sections, each in its own buffer, those of payloads in
  words of any width.

No access and no branch depends on roots, thresholds, payloads or words; points are public.

Blocks are two words of 64 bits, the lower one first. Parameters (int64): party, index_bits, and the
rings of payloads, in bits, 0 for none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from veilgraph.kernels import kernel
from veilgraph.kernels.kernel import Kernel, Range

WORDS = 2  # the `party` that makes words
LEAF_BITS = 2  # of a point, below the tree


@dataclass(frozen=True)
class Params(kernel.Params):
    party: Annotated[int, Range(0, WORDS)]
    index_bits: Annotated[int, Range(3, 63)]
    first_ring: Annotated[int, Range(1, 64)]
    second_ring: Annotated[int, Range(0, 64)] = 0
    third_ring: Annotated[int, Range(0, 64)] = 0

    @property
    def rings(self) -> tuple[int, ...]:
        """Bits of each payload."""
        rings = self.first_ring, self.second_ring, self.third_ring
        return rings[: next((i for i, bits in enumerate(rings) if not bits), len(rings))]

    @property
    def payloads(self) -> int:
        return len(self.rings)

    @property
    def lanes(self) -> int:
        """Numbers of a block."""
        return 4 if max(self.rings) <= 32 else 2

    @property
    def levels(self) -> int:
        return self.index_bits - LEAF_BITS

    @property
    def rows(self) -> int:
        """Of a payload's section, each of a number an element."""
        return self.levels + (1 << LEAF_BITS)

    @property
    def size(self) -> int:
        """Numbers of all words of an element."""
        return self.levels * self.lanes + self.payloads * self.rows

    @classmethod
    def of_op(cls, bits: int, attributes: Mapping[str, Any]) -> Self:
        return cls(attributes.get("side", WORDS), attributes["index_bits"], *attributes["rings"])


KERNEL = Kernel("compare", Params)

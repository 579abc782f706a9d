"""Point functions between two parties: their correction words, and all places of a party's share.

Boyle, Gilboa, Ishai, CCS 2016, section 3.2 ("tree-based"), in rings. Two roots are the tops of two
trees of blocks of 128 bits. Of a node the lowest bit is its control bit t, the rest s its seed. Its
children are H(s) and H(s + 1), each XORed with the word of its level where t = 1, for
H(x) = AES(x) XOR x under a key that need not be secret. Below every seed but the one on the path to
the index both parties have the same nodes. A leaf, H(s) of a seed of the last level, is 128 / w
numbers of w bits, to which the last word is added where t = 1; the second party's are negated. The
two parties' numbers add up to 1 at the index and to 0 elsewhere, modulo 2^w.

Buffers are contiguous, blocks as two words of 64 bits, the lower one first. For E indices among
2^index_bits places, and L = index_bits - log2(128 / w) levels, 0 at least, words are L + 2 blocks
each: a word a level, whose lowest bit corrects a left child's control bit; the bits of right
children, bit l of level l; and the word of the leaves.

- party 2 makes words: out, blocks [E (L + 2)]; key, a block; roots of the first and of the second
  party, blocks [E]; indices, words [E], read modulo 2^index_bits.
- party 0 or 1 makes its rows: out, words [E, places] of w bits; key; its roots, blocks [E]; words,
  blocks [E (L + 2)]; and, if there is a fifth buffer, words c [E]: row e has at place j the number
  of place c[e] - j, modulo 2^index_bits.

No access and no branch depends on roots, words or indices; c is public.

Parameters (int64): party, index_bits, lane_bits (2 for w = 32, 1 for w = 64).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from veilgraph.kernels import kernel
from veilgraph.kernels.kernel import Kernel, Range

WORDS = 2  # the `party` that makes words


@dataclass(frozen=True)
class Params(kernel.Params):
    party: Annotated[int, Range(0, WORDS)]
    index_bits: Annotated[int, Range(1, 31)]
    lane_bits: Annotated[int, Range(1, 2)]

    @property
    def lanes(self) -> int:
        """Numbers of a leaf."""
        return 1 << self.lane_bits

    @property
    def levels(self) -> int:
        return max(0, self.index_bits - self.lane_bits)

    @classmethod
    def of_op(cls, bits: int, attributes: Mapping[str, Any]) -> Self:
        ring_bits = attributes.get("ring_bits", bits)
        party = attributes.get("side", WORDS)
        return cls(party, attributes["index_bits"], 2 if ring_bits <= 32 else 1)


KERNEL = Kernel("point", Params)

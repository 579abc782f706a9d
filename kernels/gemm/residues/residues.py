"""Matrix products on 8-bit tensor cores, by residues: kernels/gemm/residues/residues.cuh.

An element x of Z_2^k stands for the integer with its L = ceil(k / 8) balanced limbs
(kernels/gemm/limbs.py), |x| <= B = 128 (256^L - 1) / 255. A sum of K products is an integer P,
|P| <= K B^2, and the ring's result is P modulo 2^k. With moduli m_1 .. m_N of at most 256, no two
with a common factor, and M their product:

    x_i = x mod m_i, in [-m_i / 2, m_i / 2]          a byte; one dot product of limbs with 256^j
                                                     mod m_i, and a division by a constant
    r_i = sum of a_i b_i                             N products of bytes, exact in 32 bits as long
                                                     as K 2^14 < 2^31
    t_i = r_i (M / m_i)^-1 mod m_i, in [0, m_i)
    P   = sum of t_i (M / m_i) - q M,  q = round(sum of t_i / m_i)

**Why.** The sum S of t_i (M / m_i) is r_i modulo each m_i, thus P modulo M: S = P + q M for an
integer q, and S / M = sum of t_i / m_i. If 2 |P| < M, then |S / M - q| < 1/2, so q is the nearest
integer. With f_i = round(2^56 / m_i), F = sum of t_i f_i misses 2^56 S / M by at most
sum of t_i / 2 < 2^12, or 2^-44 of the distance from one integer to the next: (F + 2^55) >> 56 is q
if 2 |P| (1 + 2^-40) <= M. Only then P is reduced: sum of t_i (M / m_i mod 2^64) - q (M mod 2^64) is
right modulo 2^64, and S and M are never written down.

So N products of bytes do what L (L + 1) / 2 do by limbs: for K = 8192, 18 instead of 36 modulo
2^64, 12 instead of 15 modulo 2^40, 10 instead of 10 modulo 2^32. In exchange the residues of both
factors pass through memory, and t_i of each output. Known for floating point as scheme II of
K. Ozaki, Y. Uchino and T. Imamura ("Ozaki Scheme II", 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from math import gcd, prod

from veilgraph.kernels.cuda.source import Source
from veilgraph.kernels.gemm.limbs import Ring

MAX_DEPTH = (1 << 17) - 64  # of all pairs, each filled up to whole steps: |r_i| <= 2^31 - 2^20
FRACTION_BITS = 56  # of a sum of t_i / m_i


def _pairwise_coprime(most: int, count: int) -> tuple[int, ...]:
    found: list[int] = []
    for m in range(most, 1, -1):
        if all(gcd(m, other) == 1 for other in found):
            found.append(m)
    return tuple(found[:count])


MODULI = _pairwise_coprime(256, 24)  # 256, 255, 253, 251, 247, ...


def largest(limbs: int) -> int:
    """The largest |x| with so many balanced limbs."""
    return int(128 * (256**limbs - 1) // 255)


def moduli_count(limbs: int, depth: int) -> int:
    """How many moduli sums of so many products need."""
    most = 2 * depth * largest(limbs) ** 2
    for count in range(1, len(MODULI) + 1):
        if most + (most >> 40) + 1 <= prod(MODULI[:count]):
            return count
    raise AssertionError("depth is more than MAX_DEPTH")


def _symmetric(value: int, m: int) -> int:
    """The residue nearest to zero, as a signed byte."""
    r = value % m
    return r - m if r >= (m + 1) // 2 else r


@dataclass(frozen=True)
class Basis:
    """The constants of the first `count` moduli, for elements of so many limbs."""

    limbs: int
    count: int

    @staticmethod
    def of(ring: Ring, depth: int) -> Basis:
        assert depth <= MAX_DEPTH
        return Basis(ring.limbs, moduli_count(ring.limbs, max(depth, 1)))

    def name(self, word_bits: int) -> str:
        """Of kernels of words of so many bits."""
        return f"{word_bits}_{self.limbs}_{self.count}"

    @property
    def moduli(self) -> tuple[int, ...]:
        return MODULI[: self.count]

    @cached_property
    def product(self) -> int:
        return prod(self.moduli)

    @property
    def inverses(self) -> tuple[int, ...]:
        """(M / m_i)^-1 mod m_i."""
        return tuple(pow(self.product // m, -1, m) for m in self.moduli)

    @property
    def weights(self) -> tuple[int, ...]:
        """M / m_i modulo 2^64."""
        return tuple(self.product // m % (1 << 64) for m in self.moduli)

    @property
    def fractions(self) -> tuple[int, ...]:
        """2^56 / m_i, rounded."""
        return tuple(((1 << FRACTION_BITS + 1) // m + 1) // 2 for m in self.moduli)

    @property
    def powers(self) -> tuple[tuple[int, ...], ...]:
        """256^j mod m_i as signed bytes, for the limbs there are; zeros up to eight."""
        return tuple(
            tuple(_symmetric(256**j, m) if j < self.limbs else 0 for j in range(8))
            for m in self.moduli
        )


@cache
def source(word_bits: int, basis: Basis) -> Source:
    """The kernels around the products: to residues, and back."""
    name = basis.name(word_bits)
    text = f"""#include "kernels/gemm/residues/residues.cuh"

{constants(basis)}
VEIL_RESIDUES({name}, uint{word_bits}_t)
"""
    return Source("residues", text, entries(word_bits, basis))


@cache
def constants(basis: Basis) -> str:
    """What kernels know of a basis."""
    packed = [
        sum(value % 256 << 8 * j for j, value in enumerate(powers)) for powers in basis.powers
    ]
    return f"""namespace veil {{
struct Basis {{
  static constexpr int kCount = {basis.count}, kLimbs = {basis.limbs};
  static constexpr uint64_t kProduct = {basis.product % (1 << 64)}u;
}};
__device__ const Modulus kModuli[Basis::kCount] = {{
{_rows(basis, packed)}
}};
}}  // namespace veil
"""


def _rows(basis: Basis, packed: list[int]) -> str:
    """The struct Modulus of each."""
    columns = zip(basis.moduli, packed, basis.weights, basis.fractions, strict=True)
    return "\n".join(
        f"    {{{m}.0f, 1.0f / {m}.0f, {powers & 0xFFFFFFFF}u, {powers >> 32}u, {weight}u, "
        f"{fraction}u}},"
        for m, powers, weight, fraction in columns
    )


def entries(word_bits: int, basis: Basis) -> tuple[str, str]:
    """Of residues, and of sums put together."""
    name = basis.name(word_bits)
    return f"veil_reduce_{name}", f"veil_combine_{name}"

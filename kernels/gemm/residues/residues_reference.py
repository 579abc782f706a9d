"""What kernels/gemm/residues/residues.cuh computes, step by step in NumPy; residues.py says why it
is right.

Not the reference of matmul, which is NumPy's own product: this one is held against it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.kernels.gemm.residues.residues import FRACTION_BITS, Basis

Words = npt.NDArray[np.unsignedinteger[Any]]
Bytes = npt.NDArray[np.int8]


def limbs_of(x: Words, limbs: int) -> Bytes:
    """Balanced limbs, as [..., limbs]."""
    halves = x.dtype.type(int("80" * x.itemsize, 16))
    return ((x + halves) ^ halves)[..., None].view(np.int8)[..., :limbs]


def residues_of(x: Words, basis: Basis) -> Bytes:
    """x mod m_i in [-m_i / 2, m_i / 2), as [moduli, ...]."""
    digits = limbs_of(x, basis.limbs).astype(np.int64)
    powers = np.array(basis.powers, np.int64)[:, : basis.limbs]
    found = []
    for m, row in zip(basis.moduli, powers, strict=True):
        r = digits @ row
        found.append((r + m // 2) % m - m // 2)
    return np.array(found).astype(np.int8)


def combined(r: npt.NDArray[np.int64], basis: Basis) -> npt.NDArray[np.uint64]:
    """The integers modulo 2^64 that have these residues [moduli, ...]."""
    total = np.zeros(r.shape[1:], np.uint64)
    fraction = np.zeros_like(total)
    constants = zip(basis.moduli, basis.inverses, basis.weights, basis.fractions, r, strict=True)
    for m, inverse, weight, of_one, residue in constants:
        t = (residue * inverse % m).astype(np.uint64)
        total += t * np.uint64(weight)
        fraction += t * np.uint64(of_one)
    half, bits = np.uint64(1 << FRACTION_BITS - 1), np.uint64(FRACTION_BITS)
    q = (fraction + half) >> bits
    out: npt.NDArray[np.uint64] = total - q * np.uint64(basis.product % (1 << 64))
    return out


def product(a: Words, b: Words, basis: Basis) -> npt.NDArray[np.uint64]:
    """a [M, K] times b [K, N], right modulo 256^limbs."""
    sums = []
    for left, right in zip(residues_of(a, basis), residues_of(b, basis), strict=True):
        r = left.astype(np.int64) @ right.astype(np.int64)
        assert np.abs(r, out=np.zeros_like(r)).max(initial=0) < 1 << 31, "not exact in 32 bits"
        sums.append(r)
    return combined(np.array(sums), basis)

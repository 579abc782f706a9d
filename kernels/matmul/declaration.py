"""Sums of matrix products, modulo 2^bits.

    out[b, i, j] = sum over pairs p and k of a_p[b, i, k] b_p[b, k, j]

Buffers: out [B, M, N], contiguous, then pairs a_p [B, M, K_p], b_p [B, K_p, N] of any strides: a
transposition is a swap of strides, a batch that shares a matrix has stride 0. All hold words of one
width. The output shares no memory with the others.

Parameters (int64): `bits`, the ring's width, at most the words'. Bits of the operands above it are
ignored, bits of the output above it are junk: on 64-bit words, rings of up to 52 bits take a
cheaper product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from veilgraph.kernels import kernel
from veilgraph.kernels.kernel import Bits, Kernel, Shape


@dataclass(frozen=True)
class Params(kernel.Params):
    bits: Bits

    @classmethod
    def of_op(cls, bits: int, attributes: Mapping[str, Any]) -> Self:
        return cls(bits)


def multiply_adds(shapes: Sequence[Shape]) -> int:
    """Products of ring elements in one call whose buffers have these shapes."""
    batch, rows, columns = shapes[0]
    return sum(batch * rows * columns * a[2] for a in shapes[1::2])


KERNEL = Kernel("matmul", Params, multiply_adds, takes_sums=True)

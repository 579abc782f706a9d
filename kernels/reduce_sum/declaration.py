"""Sums over whole dimensions, modulo 2^32 or 2^64 by the words' width.

Buffers of words of one width and of one rank, of any strides: out, x. Where out has extent 1 and x
has not, x is summed over that dimension; the other extents are equal. Out names no element twice.

Parameters: none.
"""

from __future__ import annotations

from veilgraph.kernels.kernel import Kernel, NoParams

KERNEL = Kernel("reduce_sum", NoParams)

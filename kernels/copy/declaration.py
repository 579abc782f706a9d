"""A strided copy: out[i] = x[i] for every index of their common shape.

Buffers of words of one width, of the same shape and of any strides, negative ones included: out, x.
A stride of 0 in x repeats its elements; out names no element twice. The two share no memory.

With views, this is transpose, slice, concatenation (one call a part), expansion and reversal.

Parameters: none.
"""

from __future__ import annotations

from veilgraph.kernels.kernel import Kernel, NoParams

KERNEL = Kernel("copy", NoParams)

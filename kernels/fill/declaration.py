"""One value everywhere: out[i] = value modulo 2^32 or 2^64, the words' width.

Buffers: out, words of any strides. Parameters (int64): value.
"""

from __future__ import annotations

from dataclasses import dataclass

from veilgraph.kernels import kernel
from veilgraph.kernels.kernel import Kernel


@dataclass(frozen=True)
class Params(kernel.Params):
    value: int

    def values(self) -> tuple[int, ...]:
        """The value as a signed 64-bit number, whichever way it was written."""
        return (((self.value + (1 << 63)) % (1 << 64)) - (1 << 63),)


KERNEL = Kernel("fill", Params)

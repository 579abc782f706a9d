"""Ring elements in the forms that they have in a party's memory: words, and packed bits.

Packed, element i is bits [i * bits, (i + 1) * bits), from the lowest up, and the whole is filled to
64-bit words (kernels/cpu/packed.h).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.plan.tables import BufferKind
from veilgraph.runtime.encoding import Words, word_dtype

Bytes = npt.NDArray[np.uint8]
_WORD_BYTES = 8


def stored_bytes(kind: BufferKind, bits: int, elements: int) -> int:
    """How many bytes `elements` elements take."""
    if kind == BufferKind.PACKED:
        return -(-elements * bits // 64) * _WORD_BYTES
    return elements * (4 if kind == BufferKind.WORDS32 else _WORD_BYTES)


def load(content: Bytes, kind: BufferKind, bits: int, elements: int) -> Words:
    """The elements as words of their ring, flat; bits above the ring are zero."""
    dtype = word_dtype(bits)
    if kind != BufferKind.PACKED:
        whole = content.view("<u4" if kind == BufferKind.WORDS32 else "<u8").astype(dtype)
        masked: Words = whole & low(bits)
        return masked
    each = np.unpackbits(content, count=elements * bits, bitorder="little")
    padded = np.zeros((elements, 8 * dtype.itemsize), np.uint8)
    padded[:, :bits] = each.reshape(elements, bits)
    words: Words = np.packbits(padded, axis=1, bitorder="little").reshape(-1).view(dtype)
    return words


def store(words: Words, kind: BufferKind, bits: int) -> Bytes:
    """What `load` reads."""
    if kind != BufferKind.PACKED:
        return words.astype("<u4" if kind == BufferKind.WORDS32 else "<u8").view(np.uint8)
    wide = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), bitorder="little")
    each = wide.reshape(len(words), -1)[:, :bits]
    content = np.zeros(stored_bytes(kind, bits, len(words)), np.uint8)
    packed = np.packbits(each.reshape(-1), bitorder="little")
    content[: len(packed)] = packed
    return content


def low(bits: int) -> Any:
    """A word of a ring with all its bits set."""
    return word_dtype(bits).type((1 << bits) - 1)

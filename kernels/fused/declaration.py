"""The fused program: a straight-line list of ring operations over named streams, run block by
block in cache.

A program works on `elements` elements. It has two register files: **word** registers (one ring
word an element, 32 or 64 bits by instruction) and **bit** registers (one bit an element; a value
of m planes is m registers, `step` apart, so that taking every second plane of a value costs
nothing). Elements never meet each other in a program: every operation is element-wise, so blocks
may run in any order on any thread.

Parameters of the kernel (int64): elements, word registers, bit registers, instruction count, then
the instructions (INSTRUCTION records, 5 int64 each). Buffers of the call are the program's streams.

Limits that `check` holds: MAX_ELEMENTS, MAX_WORD_REGISTERS, MAX_BIT_REGISTERS; a program of any
elements stores something, which bounds the time it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

NAME = "fused"
MAX_ELEMENTS = 1 << 40
MAX_WORD_REGISTERS = 1024
MAX_BIT_REGISTERS = 16384

INSTRUCTION = np.dtype(
    [
        ("op", "<u2"),
        ("word", "<u2"),  # 32 or 64: width of the word registers it works on; 0 for bit operations
        ("dst", "<i4"),
        ("a", "<i4"),
        ("b", "<i4"),
        ("c", "<i4"),
        ("dst_step", "<i2"),
        ("a_step", "<i2"),
        ("b_step", "<i2"),
        ("count", "<u2"),
        ("reserved", "<i4"),
        ("immediate", "<i8"),
    ]
)
assert INSTRUCTION.itemsize == 40
HEADER = 4  # parameters before the instructions


class Op(IntEnum):
    """Opcodes. `dst`, `a`, `b`, `c` are registers unless a line says buffer or key."""

    # words <- memory.  index of element i: i, or (i // b) % c where c > 0 (broadcast along outer
    # or inner dimensions)
    LOAD = 1  # dst <- buffer a (words of the same width, contiguous; or packed, zero-extended)
    STORE = 2  # buffer a <- b (words; or packed to the buffer's bits, last word's tail zero)
    LOOKUP = 3  # dst <- buffer a at index b modulo its 2^j entries (words)
    DRAW = 4  # dst <- lanes of `count` bits (8, 16, 32, 64) of key a, draw `immediate`
    CONST = 5  # dst <- immediate
    # words <- words, modulo 2^word
    ADD = 10
    SUB = 11
    MUL = 12
    AND = 13
    OR = 14
    XOR = 15
    NEG = 16  # dst <- -a
    NOT = 17
    ADD_CONST = 20  # dst <- a + immediate
    MUL_CONST = 21
    AND_CONST = 22
    SHL = 23  # dst <- a << immediate, 0 <= immediate < word
    SHR = 24  # dst <- a >> immediate, logical
    WIDEN = 25  # 64-bit dst <- 32-bit a, zero-extended (word = 64)
    NARROW = 26  # 32-bit dst <- low half of 64-bit a (word = 32)
    # words <-> bits
    SELECT = 30  # dst <- b where bit register a is 1, else c
    PACK = 31  # bit registers dst + j dst_step <- bit (immediate + j) of word register a, j < count
    UNPACK = 32  # word dst <- sum over j < count of bit register (a + j a_step) << (immediate + j)
    # bits <- memory; `count` planes each
    LOAD_BITS = 40  # dst + j dst_step <- plane immediate + j a_step of buffer a
    STORE_BITS = 41  # plane immediate + j a_step of buffer a <- b + j b_step; tail bits zero
    DRAW_BITS = 42  # dst + j dst_step <- plane b + j a_step of key a, draw `immediate`
    CONST_BITS = 43  # dst + j dst_step <- immediate (0 or 1)
    # bits <- bits, for j < count: registers dst + j dst_step, a + j a_step, b + j b_step
    XOR_BITS = 50
    AND_BITS = 51
    NOT_BITS = 52


def instruction(
    *,
    op: int,
    word: int = 0,
    dst: int = 0,
    a: int = 0,
    b: int = 0,
    c: int = 0,
    dst_step: int = 0,
    a_step: int = 0,
    b_step: int = 0,
    count: int = 0,
    immediate: int = 0,
) -> tuple[int, ...]:
    """One instruction, in the order of INSTRUCTION."""
    return op, word, dst, a, b, c, dst_step, a_step, b_step, count, 0, immediate


def program(
    elements: int,
    word_registers: int,
    bit_registers: int,
    instructions: Sequence[tuple[int, ...]],
) -> npt.NDArray[np.int64]:
    """The parameters of a call."""
    table = np.array(instructions, INSTRUCTION)
    header = np.array([elements, word_registers, bit_registers, len(table)], np.int64)
    return np.concatenate([header, table.view(np.int64)])

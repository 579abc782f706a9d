"""The fused program: a straight-line list of ring operations over named streams, run block by
block in cache.

A program works on `elements` elements. It has two register files: **word** registers (one ring
word an element, 32 or 64 bits by instruction) and **bit** registers (one bit an element; a value
of m planes is m registers, `step` apart, so that taking every second plane of a value costs
nothing). Elements never meet each other in a program: every operation is element-wise, so blocks
may run in any order on any thread.

Parameters of the kernel (int64): elements, word registers, bit registers, instruction count, then
the instructions (INSTRUCTION records, 5 int64 each; instructions.py has what there are). Buffers of
the call are the program's streams.

Limits that `check` holds: MAX_ELEMENTS, MAX_WORD_REGISTERS, MAX_BIT_REGISTERS; a program of any
elements stores something, which bounds the time it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veilgraph.kernels import kernel
from veilgraph.kernels.kernel import Kernel

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


@dataclass(frozen=True)
class Params(kernel.Params):
    """What comes before the instructions."""

    elements: int
    word_registers: int
    bit_registers: int
    instructions: int


HEADER = len(Params.ranges())
KERNEL = Kernel("fused", Params, has_tail=True)


def header_of(params: Sequence[int] | npt.NDArray[np.int64]) -> Params:
    """Of a call's parameters."""
    return Params(*(int(each) for each in params[:HEADER]))


def instructions_of(params: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    """The INSTRUCTION records of a call's parameters."""
    return np.asarray(params[HEADER:], np.int64).view(INSTRUCTION)


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
    header = Params(elements, word_registers, bit_registers, len(table))
    return np.concatenate([np.array(header.values(), np.int64), table.view(np.int64)])

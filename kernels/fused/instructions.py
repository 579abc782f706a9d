"""The instructions of a fused program: a row each, which everything else asks.

    ADD = 10, _binary("+", lambda a, b, constant: a + b)

C++ has opcodes, operands and signs from a header that kernels/cpp.py makes of this table: a row of
a family needs no code for processors or GPUs. Any other row needs a case in cpu.cpp, printer.py
and reference.py; tests/kernels/test_instructions.py runs every row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Self

import numpy as np
import numpy.typing as npt

# The result from a, b and the immediate, as arrays of one word or of bits (0 and 1).
Meaning = Callable[[npt.NDArray[Any], npt.NDArray[Any], Any], npt.NDArray[Any]]


class Operand(Enum):
    """What a field of an instruction names; the values are C++'s names."""

    NONE = "kNone"
    WORD = "kWord"  # a word register
    BIT = "kBit"  # a bit register
    BITS = "kBits"  # `count` bit registers, a step apart
    BUFFER = "kBuffer"  # a buffer of the call
    KEY = "kKey"  # a key of the context


class Family(Enum):
    """Instructions that differ in a C operator alone."""

    BINARY = "words: dst <- a sign b"
    WITH_CONSTANT = "words: dst <- a sign immediate"
    UNARY = "words: dst <- sign a"
    GATE = "bits: dst <- a sign b"


_NONE, _WORD, _BIT, _BITS = Operand.NONE, Operand.WORD, Operand.BIT, Operand.BITS
_BUFFER, _KEY = Operand.BUFFER, Operand.KEY
_ANY = (32, 64)


@dataclass(frozen=True)
class Row:
    """What is to know of an instruction.

    Attributes:
        words: widths of the word registers that it works on; none if it works on bits.
        dst, a, b, c: what these fields name.
        family: of instructions that differ from this one in `sign` alone.
        sign: the operator in C.
        meaning: the result in NumPy, of registers and the immediate; None where memory, draws or
            both kinds of registers take part, which reference.py has.
    """

    words: tuple[int, ...]
    dst: Operand = _NONE
    a: Operand = _NONE
    b: Operand = _NONE
    c: Operand = _NONE
    family: Family | None = None
    sign: str = ""
    meaning: Meaning | None = None


def _binary(sign: str, meaning: Meaning) -> Row:
    return Row(_ANY, _WORD, _WORD, _WORD, family=Family.BINARY, sign=sign, meaning=meaning)


def _with_constant(sign: str, meaning: Meaning) -> Row:
    return Row(_ANY, _WORD, _WORD, family=Family.WITH_CONSTANT, sign=sign, meaning=meaning)


def _unary(sign: str, meaning: Meaning) -> Row:
    return Row(_ANY, _WORD, _WORD, family=Family.UNARY, sign=sign, meaning=meaning)


def _converted(word: int) -> Row:
    return Row((word,), _WORD, _WORD, meaning=lambda a, b, constant: a)


def _gate(sign: str, meaning: Meaning) -> Row:
    return Row((), _BITS, _BITS, _BITS, family=Family.GATE, sign=sign, meaning=meaning)


class Op(IntEnum):
    """Opcodes. Plans hold the numbers: none changes, and none is given twice (14 was one)."""

    row: Row

    def __new__(cls, number: int, row: Row | None = None) -> Self:
        assert row is not None, "an opcode without a row"  # Op(10) looks up, and never comes here
        self = int.__new__(cls, number)
        self._value_, self.row = number, row
        return self

    @property
    def reads_stream(self) -> bool:
        return self.row.a is _BUFFER and self.row.dst is not _NONE

    @property
    def draws(self) -> bool:
        return self.row.a is _KEY

    @property
    def is_elementwise(self) -> bool:
        """Whether it needs no other element's thread: it has words alone, and none is drawn."""
        fields = {self.row.dst, self.row.a, self.row.b, self.row.c}
        return bool(self.row.words) and not fields & {_BIT, _BITS, _KEY}

    # words <- memory.  index of element i: i, or (i // b) % c where c > 0 (broadcast along outer
    # or inner dimensions)
    # dst <- buffer a (words of the same width, contiguous; or packed, zero-extended)
    LOAD = 1, Row(_ANY, _WORD, _BUFFER)
    # buffer a <- b (words; or packed to the buffer's bits, last word's tail zero)
    STORE = 2, Row(_ANY, _NONE, _BUFFER, _WORD)
    # dst <- buffer a at index b modulo its 2^j entries (words)
    LOOKUP = 3, Row(_ANY, _WORD, _BUFFER, _WORD)
    # dst <- lanes of `count` bits (8, 16, 32, 64) of key a, draw `immediate`
    DRAW = 4, Row(_ANY, _WORD, _KEY)
    # dst <- immediate
    CONST = 5, Row(_ANY, _WORD)
    # words <- words, modulo 2^word
    ADD = 10, _binary("+", lambda a, b, constant: a + b)
    SUB = 11, _binary("-", lambda a, b, constant: a - b)
    MUL = 12, _binary("*", lambda a, b, constant: a * b)
    AND = 13, _binary("&", lambda a, b, constant: a & b)
    XOR = 15, _binary("^", lambda a, b, constant: a ^ b)
    NEG = 16, _unary("-", lambda a, b, constant: np.negative(a))
    NOT = 17, _unary("~", lambda a, b, constant: ~a)
    ADD_CONST = 20, _with_constant("+", lambda a, b, constant: a + constant)
    MUL_CONST = 21, _with_constant("*", lambda a, b, constant: a * constant)
    AND_CONST = 22, _with_constant("&", lambda a, b, constant: a & constant)
    # 0 <= immediate < word; to the right it is logical
    SHL = 23, _with_constant("<<", lambda a, b, constant: a << constant)
    SHR = 24, _with_constant(">>", lambda a, b, constant: a >> constant)
    # 64-bit dst <- 32-bit a, zero-extended; 32-bit dst <- low half of 64-bit a
    WIDEN = 25, _converted(64)
    NARROW = 26, _converted(32)
    # words <-> bits
    # dst <- b where bit register a is 1, else c
    SELECT = 30, Row(_ANY, _WORD, _BIT, _WORD, _WORD)
    # bit registers dst + j dst_step <- bit (immediate + j) of word register a, j < count
    PACK = 31, Row(_ANY, _BITS, _WORD)
    # word dst <- sum over j < count of bit register (a + j a_step) << (immediate + j)
    UNPACK = 32, Row(_ANY, _WORD, _BITS)
    # bits <- memory; `count` planes each
    # dst + j dst_step <- plane immediate + j a_step of buffer a
    LOAD_BITS = 40, Row((), _BITS, _BUFFER)
    # plane immediate + j a_step of buffer a <- b + j b_step; tail bits zero
    STORE_BITS = 41, Row((), _NONE, _BUFFER, _BITS)
    # dst + j dst_step <- plane b + j a_step of key a, draw `immediate`
    DRAW_BITS = 42, Row((), _BITS, _KEY)
    # dst + j dst_step <- immediate (0 or 1)
    CONST_BITS = 43, Row((), _BITS)
    # bits <- bits, for j < count: registers dst + j dst_step, a + j a_step, b + j b_step
    XOR_BITS = 50, _gate("^", lambda a, b, constant: a ^ b)
    AND_BITS = 51, _gate("&", lambda a, b, constant: a & b)
    NOT_BITS = 52, Row((), _BITS, _BITS, meaning=lambda a, b, constant: a ^ np.uint8(1))


def of_family(family: Family) -> list[Op]:
    """The family's instructions, in the order of their numbers."""
    return [op for op in Op if op.row.family is family]

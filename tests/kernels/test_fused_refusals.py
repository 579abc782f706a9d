"""Programs that would leave their registers, streams or keys are refused."""

from __future__ import annotations

import numpy as np
import pytest
from calling import Call
from programs import KEYS, program

from veilgraph.kernels.fused.declaration import MAX_BIT_REGISTERS, MAX_ELEMENTS, MAX_WORD_REGISTERS
from veilgraph.kernels.fused.instructions import Op
from veilgraph.kernels.fused.reference import Packed, Planes, Stream

LOAD = {"op": Op.LOAD, "word": 64, "a": 0}
BAD_INSTRUCTIONS = {
    "unknown operation": {"op": 99, "word": 64},
    "wrong word width": {**LOAD, "word": 16},
    "wrong word width of bits": {"op": Op.XOR_BITS, "word": 64},
    "word register out of range": {**LOAD, "dst": 4},
    "negative word register": {**LOAD, "dst": -1},
    "bit register out of range": {"op": Op.SELECT, "word": 64, "a": 8},
    "bit registers out of range": {"op": Op.NOT_BITS, "count": 9, "a_step": 1},
    "bit registers below zero": {"op": Op.NOT_BITS, "count": 2, "dst_step": -1},
    "buffer number out of range": {**LOAD, "a": 6},
    "key number out of range": {"op": Op.DRAW, "word": 64, "a": 1, "count": 64},
    "negative key number": {"op": Op.DRAW, "word": 64, "a": -1, "count": 64},
    "buffer of another word width": {**LOAD, "word": 32},
    "buffer is not contiguous": {**LOAD, "a": 4},
    "fewer elements than are loaded": {**LOAD, "a": 3},
    "fewer elements than are stored": {"op": Op.STORE, "word": 64, "a": 3},
    "broadcast out of range": {**LOAD, "c": 3},
    "broadcast by a negative repeat": {**LOAD, "b": -1, "c": 3},
    "negative period": {**LOAD, "b": 1, "c": -3},
    "period beyond the buffer": {**LOAD, "b": 1, "c": 101},
    "packed elements exceed the word": {**LOAD, "word": 32, "a": 1},
    "lookup in packed elements": {"op": Op.LOOKUP, "word": 64, "a": 1},
    "entries are no power of two": {"op": Op.LOOKUP, "word": 64, "a": 0},
    "lookup in nothing": {"op": Op.LOOKUP, "word": 64, "a": 5},
    "planes where words are wanted": {**LOAD, "a": 2},
    "words where planes are wanted": {"op": Op.LOAD_BITS, "a": 0, "count": 1},
    "plane out of range": {"op": Op.LOAD_BITS, "a": 2, "count": 4, "a_step": 1},
    "negative plane": {"op": Op.LOAD_BITS, "a": 2, "count": 1, "immediate": -1},
    "far plane": {"op": Op.LOAD_BITS, "a": 2, "count": 1, "immediate": 2**63 - 1},
    "draw number out of range": {"op": Op.DRAW, "word": 64, "count": 64, "immediate": 2**32},
    "negative plane of a draw": {"op": Op.DRAW_BITS, "count": 2, "b": 1, "a_step": -2},
    "lanes of 24 bits": {"op": Op.DRAW, "word": 64, "count": 24},
    "lanes exceed the word": {"op": Op.DRAW, "word": 32, "count": 64},
    "shift out of range": {"op": Op.SHL, "word": 32, "immediate": 32},
    "negative shift": {"op": Op.SHR, "word": 64, "immediate": -1},
    "widens to 32": {"op": Op.WIDEN, "word": 32},
    "narrows to 64": {"op": Op.NARROW, "word": 64},
    "bits exceed the word": {"op": Op.PACK, "word": 32, "count": 8, "immediate": 25},
    "bits below zero": {"op": Op.UNPACK, "word": 32, "count": 8, "immediate": -1},
    "a bit is 0 or 1": {"op": Op.CONST_BITS, "count": 1, "immediate": 2},
}


def streams_for_bad_programs() -> list[Stream]:
    words = np.zeros(100, np.uint64)
    return [
        words,
        Packed(np.zeros(63, np.uint64), 100, 40),
        Planes(np.zeros(6, np.uint64), 100, 3),
        np.zeros(99, np.uint64),
        np.zeros((100, 2), np.uint64)[:, 0],
        np.zeros(0, np.uint64),
    ]


@pytest.mark.parametrize("name", BAD_INSTRUCTIONS)
def test_bad_instruction_is_refused(name: str) -> None:
    params = program(100, 4, 8, [BAD_INSTRUCTIONS[name]])
    with pytest.raises(ValueError, match=r"step 0 \(fused\): .* \(at 0\)"):
        Call("fused", streams_for_bad_programs(), params, keys=KEYS[0])


def test_program_that_stores_nothing_is_refused() -> None:
    """It could keep a party busy for as long as it likes."""
    constant = {"op": Op.CONST, "word": 64}
    with pytest.raises(ValueError, match="program stores nothing"):
        Call("fused", [], program(MAX_ELEMENTS, 1, 0, [constant]))


@pytest.mark.parametrize(
    "header",
    [
        [],
        [1, 0, 0],
        [-1, 0, 0, 0],
        [MAX_ELEMENTS + 1, 0, 0, 0],
        [1, -1, 0, 0],
        [1, MAX_WORD_REGISTERS + 1, 0, 0],
        [1, 0, MAX_BIT_REGISTERS + 1, 0],
        [1, 0, 0, -1],
        [1, 0, 0, 1],
        [1, 0, 0, 0, 0],
        [1, 0, 0, 2**62],
    ],
)
def test_bad_header_is_refused(header: list[int]) -> None:
    with pytest.raises(ValueError, match=r"step 0 \(fused\)"):
        Call("fused", [], header)

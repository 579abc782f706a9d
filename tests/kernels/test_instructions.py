"""Every instruction of the table, on every instruction set and on the emulator of a GPU."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from calling import DEVICES
from programs import KEYS, Streams, check, data_of, program

from veilgraph.kernels.cpp import header
from veilgraph.kernels.fused import reference
from veilgraph.kernels.fused.instructions import Family, Op, Operand, of_family

ELEMENTS = 700
COUNT = 5  # of bit registers
REGISTERS = {"dst": 2, "a": 0, "b": 1, "c": 3}  # where a field names one; bits: so often COUNT
WORDS, BITS = 4, 4 * COUNT
EVERY = [(op, word) for op in Op for word in op.row.words or (0,)]
each_row = pytest.mark.parametrize(
    ("op", "word"), EVERY, ids=[f"{op.name}-{word}" for op, word in EVERY]
)


def instruction(op: Op, word: int, buffer: int) -> dict[str, int]:
    """One that is right: its fields name what the row says."""
    made: dict[str, int] = {"op": op, "word": word, "count": 32 if op is Op.DRAW else COUNT}
    made["immediate"] = 1 if op is Op.CONST_BITS else 3
    for field, register in REGISTERS.items():
        operand = getattr(op.row, field)
        if operand is Operand.BITS:
            made |= {field: register * COUNT, f"{field}_step": 1}
        elif operand is Operand.BUFFER:
            made |= {field: buffer, f"{field}_step": 1, "immediate": 0}
        elif operand is not Operand.NONE:
            made[field] = register
    return made


def whole(op: Op, word: int, *, left_out: bool = False) -> tuple[npt.NDArray[np.int64], Streams]:
    """A program of the instruction between loads and stores of all registers, or without it."""
    streams = Streams(ELEMENTS, np.random.default_rng(op))
    before = {Op.WIDEN: 32, Op.NARROW: 64}.get(op, word or 64)
    after = word or 64
    lines: list[dict[str, int]] = [
        {"op": Op.LOAD, "word": before, "dst": r, "a": streams.words(ELEMENTS, before)}
        for r in range(WORDS)
    ]
    planes = {"a_step": 1, "count": BITS}
    lines.append({"op": Op.LOAD_BITS, "a": streams.planes(BITS), "dst_step": 1, **planes})
    entries = 512 if op is Op.LOOKUP else ELEMENTS
    buffer = streams.words(entries, word) if word else streams.planes(COUNT)
    lines += [] if left_out else [instruction(op, word, buffer)]
    for r in range(WORDS):
        width = after if r == REGISTERS["dst"] else before
        lines.append({"op": Op.STORE, "word": width, "a": streams.words(ELEMENTS, width), "b": r})
    lines.append({"op": Op.STORE_BITS, "a": streams.planes(BITS), "b_step": 1, **planes})
    return program(ELEMENTS, WORDS, BITS, lines), streams


@pytest.mark.parametrize("device", DEVICES)
@each_row
def test_a_row_computes_what_it_means(op: Op, word: int, device: str) -> None:
    check(*whole(op, word), device)


@each_row
def test_a_row_that_is_left_out_is_seen(op: Op, word: int) -> None:
    """So a device without a case for it fails above."""
    found = []
    for left_out in (False, True):
        params, streams = whole(op, word, left_out=left_out)
        reference.run(params, streams.all, KEYS, 0xFEDC1234)
        found.append(streams.all)
    pairs = zip(*found, strict=True)
    assert any(not np.array_equal(data_of(one), data_of(other)) for one, other in pairs)


def test_the_header_has_every_row() -> None:
    lines = dict(line.split("(each) ") for line in header().splitlines() if "(each) " in line)
    rows = lines["#define VEIL_FOR_EACH_INSTRUCTION"]
    assert rows.count("each(") == len(Op)
    assert "each(LOAD, 1, true, true, kWord, kBuffer, kNone, kNone)" in rows
    assert "each(NARROW, 26, true, false, kWord, kWord, kNone, kNone)" in rows
    assert "each(AND_BITS, 51, false, false, kBits, kBits, kBits, kNone)" in rows
    for family in Family:
        signs = " ".join(f"each({op.name}, {op.row.sign})" for op in of_family(family))
        assert lines[f"#define VEIL_FOR_EACH_{family.name}"] == signs


def test_numbers_are_those_of_plans() -> None:
    """One that was given, and is none any more, stays free."""
    taken = [*range(1, 6), *range(10, 14), 15, 16, 17, *range(20, 27), 30, 31, 32]
    assert [int(op) for op in Op] == [*taken, *range(40, 44), 50, 51, 52]


def test_what_rows_say_of_streams_and_threads() -> None:
    assert [op for op in Op if op.reads_stream] == [Op.LOAD, Op.LOOKUP, Op.LOAD_BITS]
    assert [op for op in Op if op.draws] == [Op.DRAW, Op.DRAW_BITS]
    apart = {Op.DRAW, Op.SELECT, Op.PACK, Op.UNPACK}
    assert {op for op in Op if not op.is_elementwise} == apart | {op for op in Op if op >= 40}

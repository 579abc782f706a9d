"""The fused program's interpreter against its reference: random programs, every width and tail."""

from __future__ import annotations

import numpy as np
import pytest
from calling import DEVICES, EMULATOR, call
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from programs import Streams, check, program

from veilgraph.kernels.fused import aes
from veilgraph.kernels.fused.declaration import MAX_BIT_REGISTERS, MAX_WORD_REGISTERS
from veilgraph.kernels.fused.instructions import Op
from veilgraph.kernels.native import supported

WIDE, NARROW = range(4), range(4, 7)  # word registers that hold 64 and 32 bits
BIT_REGISTERS = 40
ELEMENTS = st.sampled_from([0, 1, 63, 64, 65, 511, 512, 513, 1000, 4095, 4097, 9000])

devices = pytest.mark.parametrize("device", DEVICES)
cpus = pytest.mark.parametrize("device", supported())


def file_of(word: int) -> st.SearchStrategy[int]:
    return st.sampled_from(WIDE if word == 64 else NARROW)


bit_register = st.integers(0, BIT_REGISTERS - 1)
signed64 = st.one_of(
    st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]), st.integers(-(2**63), 2**63 - 1)
)


@st.composite
def bit_range(draw: st.DrawFn, count: int) -> tuple[int, int]:
    """First register and step of `count` registers that exist."""
    most = (BIT_REGISTERS - 1) // (count - 1) if count > 1 else 3
    step = draw(st.integers(-most, most))
    reach = (count - 1) * step
    first = draw(st.integers(max(0, -reach), BIT_REGISTERS - 1 - max(0, reach)))
    return first, step


@st.composite
def arithmetic(draw: st.DrawFn) -> dict[str, int]:
    word = draw(st.sampled_from([32, 64]))
    op = draw(st.sampled_from([o for o in Op if Op.ADD <= o <= Op.SHR]))
    immediate = draw(st.integers(0, word - 1) if op in (Op.SHL, Op.SHR) else signed64)
    registers = {name: draw(file_of(word)) for name in ("dst", "a", "b")}
    return {"op": op, "word": word, "immediate": immediate, **registers}


@st.composite
def conversion(draw: st.DrawFn) -> dict[str, int]:
    op = draw(st.sampled_from([Op.SELECT, Op.PACK, Op.UNPACK]))
    word = draw(st.sampled_from([32, 64]))
    if op == Op.SELECT:
        names = {name: draw(file_of(word)) for name in ("dst", "b", "c")}
        return {"op": op, "word": word, "a": draw(bit_register), **names}
    count = draw(st.integers(0, min(word, BIT_REGISTERS)))
    first, step = draw(bit_range(count))
    low = draw(st.integers(0, word - count))
    shared = {"op": op, "word": word, "count": count, "immediate": low}
    register = draw(file_of(word))
    if op == Op.PACK:
        return {**shared, "dst": first, "dst_step": step, "a": register}
    return {**shared, "dst": register, "a": first, "a_step": step}


@st.composite
def gates(draw: st.DrawFn) -> dict[str, int]:
    op = draw(st.sampled_from([Op.XOR_BITS, Op.AND_BITS, Op.NOT_BITS, Op.CONST_BITS]))
    out: dict[str, int] = {"op": op, "count": draw(st.integers(0, 20))}
    for name in ("dst", "a", "b"):
        out[name], out[f"{name}_step"] = draw(bit_range(out["count"]))
    out["immediate"] = draw(st.integers(0, 1)) if op == Op.CONST_BITS else 0
    return out


@st.composite
def randomness(draw: st.DrawFn) -> dict[str, int]:
    shared = {"a": draw(st.integers(0, 2)), "immediate": draw(st.integers(0, 2**32 - 1))}
    if draw(st.booleans()):
        count = draw(st.integers(0, 20))
        dst, dst_step = draw(bit_range(count))
        planes = {
            "b": draw(st.integers(40, 99)),
            "a_step": draw(st.integers(-2, 5)),
            "count": count,
        }
        return {"op": Op.DRAW_BITS, **shared, **planes, "dst": dst, "dst_step": dst_step}
    word = draw(st.sampled_from([32, 64]))
    lane = draw(st.sampled_from([b for b in (8, 16, 32, 64) if b <= word]))
    return {"op": Op.DRAW, "word": word, "dst": draw(file_of(word)), "count": lane, **shared}


width_change = st.one_of(
    st.fixed_dictionaries(
        {"op": st.just(Op.WIDEN), "word": st.just(64), "dst": file_of(64), "a": file_of(32)}
    ),
    st.fixed_dictionaries(
        {"op": st.just(Op.NARROW), "word": st.just(32), "dst": file_of(32), "a": file_of(64)}
    ),
)
operation = st.one_of(arithmetic(), conversion(), gates(), randomness(), width_change)


def beginning(streams: Streams) -> list[dict[str, int]]:
    """Random contents for every register."""
    out: list[dict[str, int]] = []
    for r in (*WIDE, *NARROW):
        word = 64 if r in WIDE else 32
        a = streams.words(streams.elements, word)
        out.append({"op": Op.LOAD, "word": word, "dst": r, "a": a})
    planes = {"a": streams.planes(BIT_REGISTERS), "a_step": 1, "count": BIT_REGISTERS}
    return [*out, {"op": Op.LOAD_BITS, "dst_step": 1, **planes}]


def ending(streams: Streams) -> list[dict[str, int]]:
    """Every register to a stream of its own."""
    out: list[dict[str, int]] = []
    for r in (*WIDE, *NARROW):
        word = 64 if r in WIDE else 32
        a = streams.words(streams.elements, word)
        out.append({"op": Op.STORE, "word": word, "a": a, "b": r})
    planes = {"a": streams.planes(BIT_REGISTERS), "a_step": 1, "count": BIT_REGISTERS}
    return [*out, {"op": Op.STORE_BITS, "b_step": 1, **planes}]


programs = given(
    ELEMENTS, st.lists(operation, max_size=12), st.integers(0, 2**32), st.sampled_from([1, 2])
)


def check_random(
    device: str, elements: int, operations: list[dict[str, int]], seed: int, threads: int
) -> None:
    streams = Streams(elements, np.random.default_rng(seed))
    body = [*beginning(streams), *operations, *ending(streams)]
    params = program(elements, len(WIDE) + len(NARROW), BIT_REGISTERS, body)
    check(params, streams, device, threads)


@cpus
@settings(deadline=None, max_examples=40)
@programs
def test_random_program(
    device: str, elements: int, operations: list[dict[str, int]], seed: int, threads: int
) -> None:
    check_random(device, elements, operations, seed, threads)


@settings(deadline=None, max_examples=12, phases=[Phase.generate])  # each is compiled
@programs
def test_random_program_in_cuda(
    elements: int, operations: list[dict[str, int]], seed: int, threads: int
) -> None:
    check_random(EMULATOR, elements, operations, seed, threads)


def check_packed(
    device: str, word: int, elements: int, bits_in: int, bits_out: int, seed: int
) -> None:
    streams = Streams(elements, np.random.default_rng(seed))
    a, b = streams.packed(min(bits_in, word)), streams.packed(min(bits_out, word))
    body = [
        {"op": Op.LOAD, "word": word, "a": a},
        {"op": Op.ADD_CONST, "word": word, "immediate": -1},
        {"op": Op.STORE, "word": word, "a": b},
    ]
    check(program(elements, 1, 0, body), streams, device)


@cpus
@pytest.mark.parametrize("word", [32, 64])
@settings(deadline=None, max_examples=40)
@given(ELEMENTS, st.integers(1, 64), st.integers(1, 64), st.integers(0, 2**32))
def test_packed(
    device: str, word: int, elements: int, bits_in: int, bits_out: int, seed: int
) -> None:
    check_packed(device, word, elements, bits_in, bits_out, seed)


@pytest.mark.parametrize("word", [32, 64])
@pytest.mark.parametrize("bits", [(64, 32), (1, 64), (40, 40), (7, 24), (33, 13)])
def test_packed_in_cuda(word: int, bits: tuple[int, int]) -> None:
    """Each pair of widths is compiled once, for tiles and rings of every remainder."""
    for elements in (1, 63, 65, 127, 129, 1000, 4095, 9001):
        check_packed(EMULATOR, word, elements, *bits, seed=elements)


def check_broadcast(
    device: str,
    word: int,
    packed: bool,
    elements: int,
    repeat: int,
    period: int,
    bits: int,
    seed: int,
) -> None:
    streams = Streams(elements, np.random.default_rng(seed))
    source = streams.packed(min(bits, word)) if packed else streams.words(period, word)
    out = streams.words(elements, word)
    period = min(period, max(elements, 1)) if packed else period
    body = [
        {"op": Op.LOAD, "word": word, "a": source, "b": repeat, "c": period},
        {"op": Op.STORE, "word": word, "a": out},
    ]
    check(program(elements, 1, 0, body), streams, device)


@cpus
@pytest.mark.parametrize("word", [32, 64])
@pytest.mark.parametrize("packed", [False, True])
@settings(deadline=None, max_examples=40)
@given(ELEMENTS, st.integers(1, 700), st.integers(1, 700), st.integers(1, 64), st.integers(0, 99))
def test_broadcast(
    device: str,
    word: int,
    packed: bool,
    elements: int,
    repeat: int,
    period: int,
    bits: int,
    seed: int,
) -> None:
    check_broadcast(device, word, packed, elements, repeat, period, bits, seed)


@pytest.mark.parametrize("word", [32, 64])
@pytest.mark.parametrize("packed", [False, True])
@settings(deadline=None, max_examples=30, phases=[Phase.generate])
@given(ELEMENTS, st.integers(1, 700), st.integers(1, 700), st.integers(0, 99))
def test_broadcast_in_cuda(
    word: int, packed: bool, elements: int, repeat: int, period: int, seed: int
) -> None:
    """Four sources a width: with a division or without, with a remainder or without."""
    check_broadcast(EMULATOR, word, packed, elements, repeat, period, 24, seed)


@devices
@pytest.mark.parametrize("word", [32, 64])
@pytest.mark.parametrize("entries", [1, 2, 256])
def test_lookup(device: str, word: int, entries: int) -> None:
    streams = Streams(700, np.random.default_rng(entries))
    table, index = streams.words(entries, word), streams.words(700, word)
    body = [
        {"op": Op.LOAD, "word": word, "a": index},
        {"op": Op.LOOKUP, "word": word, "dst": 1, "a": table, "b": 0},
        {"op": Op.CONST, "word": word, "dst": 0, "immediate": 1},
        {"op": Op.ADD, "word": word, "dst": 1, "a": 1, "b": 0},
        {"op": Op.STORE, "word": word, "a": index, "b": 1},
    ]
    check(program(700, 2, 0, body), streams, device)


@devices
def test_store_leaves_the_rest_alone(device: str) -> None:
    """Streams may be longer than the program: words and planes behind its elements stay."""
    streams = Streams(1000, np.random.default_rng(3))
    out, planes = streams.words(1000, 64), streams.planes(3)
    body = [
        {"op": Op.CONST_BITS, "dst": 0, "immediate": 1, "count": 1},
        {"op": Op.CONST, "word": 64, "immediate": 5},
        {"op": Op.STORE, "word": 64, "a": out},
        {"op": Op.STORE_BITS, "a": planes, "immediate": 2, "a_step": -2, "b": 0, "count": 2},
    ]
    check(program(70, 1, 1, body), streams, device)


@devices
@pytest.mark.parametrize(
    "registers",
    [(MAX_WORD_REGISTERS, 0), (3, MAX_BIT_REGISTERS), (MAX_WORD_REGISTERS, MAX_BIT_REGISTERS)],
)
def test_largest_register_files(device: str, registers: tuple[int, int]) -> None:
    words, bits = registers
    streams = Streams(1300, np.random.default_rng(4))
    source, out = streams.words(1300, 64), streams.words(1300, 64)
    body = [
        {"op": Op.LOAD, "word": 64, "a": source, "dst": words - 1},
        {"op": Op.STORE, "word": 64, "a": out, "b": words - 1},
    ]
    if bits:
        planes = {"a": streams.planes(1), "count": 1}
        body.append({"op": Op.CONST_BITS, "dst": bits - 1, "immediate": 1, "count": 1})
        body.append({"op": Op.STORE_BITS, "b": bits - 1, **planes})
    check(program(1300, words, bits, body), streams, device)


def test_aes_vectors() -> None:
    """FIPS 197, appendices B and C.1."""
    cases = [
        ("2b7e151628aed2a6abf7158809cf4f3c", "3243f6a8885a308d313198a2e0370734"),
        ("000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff"),
    ]
    expected = ["3925841d02dc09fbdc118597196a0b32", "69c4e0d86a7b0430d8cdb78070b4c55a"]
    for (key, block), cipher in zip(cases, expected, strict=True):
        state = np.frombuffer(bytes.fromhex(block), np.uint8)[None]
        out = aes.encrypt(aes.expand_key(bytes.fromhex(key)), state)
        assert out.tobytes().hex() == cipher


@devices
def test_draw_is_aes_of_the_counter(device: str) -> None:
    """The first block of a draw is AES of run | draw | 0, the run's lowest byte first."""
    run, draw_number = 0x33221100, 0x77665544
    out = np.zeros(2, np.uint64)
    body = [
        {"op": Op.DRAW, "word": 64, "a": 0, "immediate": draw_number, "count": 64},
        {"op": Op.STORE, "word": 64, "a": 0},
    ]
    call("fused", [out], program(2, 1, 0, body), device=device, keys=bytes(range(16)), run=run)
    counter = bytes.fromhex("0011223344556677") + bytes(8)
    blocks = np.frombuffer(counter, np.uint8)[None]
    assert out.tobytes() == aes.encrypt(aes.expand_key(bytes(range(16))), blocks).tobytes()

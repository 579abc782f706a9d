"""The streams are AES-128 in counter mode with our counter block."""

from __future__ import annotations

import numpy as np
import pytest

from veilgraph.ir.errors import SecurityAbort
from veilgraph.runtime.randomness import (
    bits,
    block,
    elements,
    fresh_nonce,
    fresh_seed,
)

KEY = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")


def place(counter: bytes) -> tuple[int, int, int]:
    """Run, draw and block whose counter block is these 16 bytes."""
    return (
        int.from_bytes(counter[:4], "little"),
        int.from_bytes(counter[4:8], "little"),
        int.from_bytes(counter[8:], "little"),
    )


@pytest.mark.parametrize(
    ("key", "plain", "cipher"),
    [
        # FIPS 197, appendix C.1
        (
            "000102030405060708090a0b0c0d0e0f",
            "00112233445566778899aabbccddeeff",
            "69c4e0d86a7b0430d8cdb78070b4c55a",
        ),
        # NIST SP 800-38A, F.5.1: counter blocks and the key stream they give ("output block")
        (
            "2b7e151628aed2a6abf7158809cf4f3c",
            "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
            "ec8cdf7398607cb0f2d21675ea9ea1e4",
        ),
        (
            "2b7e151628aed2a6abf7158809cf4f3c",
            "f0f1f2f3f4f5f6f7f8f9fafbfcfdff00",
            "362b7c3c6773516318a077d7fc5073ae",
        ),
        # NIST SP 800-38A, F.1.1
        (
            "2b7e151628aed2a6abf7158809cf4f3c",
            "6bc1bee22e409f96e93d7e117393172a",
            "3ad77bb40d7a3660a89ecaf32466ef97",
        ),
    ],
)
def test_block_is_aes_of_the_counter_block(key: str, plain: str, cipher: str) -> None:
    run, draw, index = place(bytes.fromhex(plain))
    assert block(bytes.fromhex(key), run, draw, index).tobytes().hex() == cipher


def test_blocks_count_up_in_the_last_eight_bytes() -> None:
    run, draw, last = 7, 1 << 31, (1 << 64) - 1
    stream = block(KEY, run, draw, 255, 3)
    assert stream.shape == (3, 16)
    for i in range(3):
        assert (stream[i] == block(KEY, run, draw, 255 + i)[0]).all()
    counter = run.to_bytes(4, "little") + draw.to_bytes(4, "little") + last.to_bytes(8, "little")
    assert place(counter) == (run, draw, last)
    assert block(KEY, run, draw, last).tobytes() != stream[0].tobytes()
    assert block(KEY, run, draw, 0, 0).shape == (0, 16)


def test_runs_and_draws_have_streams_of_their_own() -> None:
    streams = {block(KEY, run, draw, 0, 4).tobytes() for run in (0, 1, 256) for draw in (0, 1, 256)}
    assert len(streams) == 9


@pytest.mark.parametrize("lane_bits", [8, 16, 32, 64])
@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 1000])
def test_elements_are_little_endian_lanes(lane_bits: int, count: int) -> None:
    drawn = elements(KEY, 3, 5, count, lane_bits)
    size = lane_bits // 8
    stream = block(KEY, 3, 5, 0, -(-count * size // 16)).tobytes()
    assert drawn.shape == (count,)
    assert drawn.dtype.itemsize == size
    expected = [int.from_bytes(stream[i * size : (i + 1) * size], "little") for i in range(count)]
    assert drawn.tolist() == expected


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 128, 129, 300])
def test_bits_start_each_plane_on_a_block(count: int) -> None:
    words = bits(KEY, 1, 2, 5, count)
    assert words.shape == (5, -(-count // 64))
    for plane in range(5):
        stream = block(KEY, 1, 2, plane * -(-count // 128), -(-count // 128)).reshape(-1)
        unpacked = np.unpackbits(stream, bitorder="little")[:count]
        mine = [int(words[plane, e // 64]) >> (e % 64) & 1 for e in range(count)]
        assert mine == unpacked.tolist()


def test_streams_look_uniform() -> None:
    ones = int(np.bitwise_count(elements(KEY, 0, 0, 1 << 16, 64)).sum())
    assert abs(ones - (1 << 21)) < 5 * (1 << 10)  # five standard deviations of 2^22 fair coins


def test_fresh_seeds_differ() -> None:
    assert len({fresh_seed() for _ in range(100)}) == 100
    assert len(fresh_seed()) == 16
    assert len({fresh_nonce() for _ in range(100)}) == 100
    assert len(fresh_nonce()) == 32


@pytest.mark.parametrize(
    ("run", "draw", "index"), [(1 << 32, 0, 0), (-1, 0, 0), (0, 1 << 32, 0), (0, 0, 1 << 64)]
)
def test_numbers_that_would_wrap_are_refused(run: int, draw: int, index: int) -> None:
    """Not by an assertion: `python -O` has none."""
    with pytest.raises(SecurityAbort, match="would repeat the randomness of another"):
        block(KEY, run, draw, index)


def test_keys_of_a_wrong_size_are_a_bug() -> None:
    with pytest.raises(AssertionError):
        block(bytes(8), 0, 0, 0)

"""AES-128 in counter mode in NumPy (FIPS 197, SP 800-38A): the draws of the fused reference."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.intp]


def _times_x(a: int) -> int:
    """The product with x in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1."""
    return ((a << 1) ^ (0x11B if a & 0x80 else 0)) & 0xFF


@cache
def _doubled() -> Bytes:
    return np.array([_times_x(a) for a in range(256)], np.uint8)


@cache
def _sbox() -> Bytes:
    """SubBytes: the inverse in GF(2^8), then an affine map (FIPS 197, section 5.1.1)."""
    power, log = [1], {1: 0}
    for i in range(1, 255):
        power.append(power[-1] ^ _times_x(power[-1]))  # 3 generates the field's units
        log[power[-1]] = i
    box = np.zeros(256, np.uint8)
    for value in range(256):
        inverse = power[-log[value] % 255] if value else 0
        rotated = (inverse << k | inverse >> (8 - k) for k in range(5))
        result = 0x63
        for r in rotated:
            result ^= r & 0xFF
        box[value] = result
    return box


def expand_key(key: bytes) -> Bytes:
    """The 11 round keys, as [11, 16] (FIPS 197, section 5.2)."""
    words = [np.frombuffer(key, np.uint8)[4 * i : 4 * i + 4] for i in range(4)]
    constant = 1
    for i in range(4, 44):
        word = words[i - 1]
        if i % 4 == 0:
            word = _sbox()[word[[1, 2, 3, 0]]]
            word[0] ^= constant
            constant = _times_x(constant)
        words.append(words[i - 4] ^ word)
    return np.concatenate(words).reshape(11, 16)


@cache
def _shifted_rows() -> Places:
    """ShiftRows: the byte of a state that goes to each place (FIPS 197, section 5.1.2)."""
    return np.array([(r + 4 * ((c + r) % 4)) for c in range(4) for r in range(4)])


@cache
def _turned(by: int) -> Places:
    """For each place the byte of its column `by` rows below, in a circle."""
    return np.array([4 * c + (r + by) % 4 for c in range(4) for r in range(4)])


def encrypt(round_keys: Bytes, blocks: Bytes) -> Bytes:
    """AES-128 of `blocks` [n, 16] (FIPS 197, section 5.1)."""
    state: Bytes = blocks ^ round_keys[0]
    for number in range(1, 11):
        state = _sbox()[state][:, _shifted_rows()]
        if number < 10:
            b, c, d = (state[:, _turned(by)] for by in (1, 2, 3))
            state = _doubled()[state ^ b] ^ b ^ c ^ d
        state ^= round_keys[number]
    return state


def counter_keystream(key: bytes, run: int, draw: int, blocks: npt.NDArray[np.uint64]) -> Bytes:
    """Keystream bytes of the given block numbers.

    A counter block is, little endian, run (32 bits) | draw (32) | block (64).
    """
    counters = np.empty((len(blocks), 2), np.uint64)
    counters[:, 0] = run | draw << 32
    counters[:, 1] = blocks
    return encrypt(expand_key(key), counters.view(np.uint8).reshape(-1, 16)).reshape(-1)

"""All randomness of the protocols: what is fresh, and the stream that a key opens.

What is fresh comes from the operating system; nothing in production can set it. The keys of
protocols are derived from it (keys.py). (The keys of TLS and of certificates are OpenSSL's.)

The stream of a key is AES-128 in counter mode (NIST SP 800-38A, section 6.5). The counter block is
16 bytes, little endian field by field:

    bytes  0 ..  3   run: the inference's number in the session
    bytes  4 ..  7   draw: the draw's number in the plan
    bytes  8 .. 15   block: counts the 16-byte blocks of one draw

Setup and each inference have keys of their own, and every (run, draw) is used once, so no block of
a key's stream is ever used twice. The functions here are the reference; the kernels produce the
same bytes.
"""

from __future__ import annotations

import hashlib
import os

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from veilgraph.ir.errors import SecurityAbort

SEED_BYTES = 16
NONCE_BYTES = 32
BLOCK_BYTES = 16
_BLOCK_BITS = 8 * BLOCK_BYTES
_LANES: dict[int, str] = {8: "u1", 16: "<u2", 32: "<u4", 64: "<u8"}
_COUNTER = np.dtype([("run", "<u4"), ("draw", "<u4"), ("block", "<u8")])


def fresh_seed() -> bytes:
    """128 bits from the operating system: a key that nobody else has."""
    return os.urandom(SEED_BYTES)


def fresh_nonce() -> bytes:
    """256 bits from the operating system: what a party adds to a session's id, or to its keys."""
    return os.urandom(NONCE_BYTES)


def public_key(public: bytes, use: str) -> bytes:
    """A key that is no secret, of bytes that all parties have: a session's id, and what it is for.

    Its draws hide nothing. No key of a protocol is made so: those take secret contributions.
    """
    return hashlib.sha256(b"veilgraph public draws\0" + use.encode() + b"\0" + public).digest()[
        :SEED_BYTES
    ]


def require_number(number: int, end: int) -> None:
    """That a number fits its field of the counter: one cut short would repeat another's stream.

    Raises:
        SecurityAbort: it is not in [0, end).
    """
    if not 0 <= number < end:
        raise SecurityAbort(
            f"Number {number} of a run, draw or block would repeat the randomness of another.",
            "Begin another session.",
        )


def block(key: bytes, run: int, draw: int, index: int, count: int = 1) -> npt.NDArray[np.uint8]:
    """Blocks `index` .. `index + count - 1` of one draw's stream, as bytes of shape (count, 16).

    `run` and `draw` are below 2^32, `index + count` at most 2^64.
    """
    assert len(key) == SEED_BYTES
    require_number(run, 1 << 32)
    require_number(draw, 1 << 32)
    require_number(index + count, (1 << 64) + 1)
    counters = np.empty(count, _COUNTER)
    counters["run"] = run
    counters["draw"] = draw
    counters["block"] = np.arange(count, dtype=np.uint64) + np.uint64(index)
    # A counter of little-endian fields is not the big-endian one of the library's CTR mode, so the
    # counter blocks are made here and enciphered one by one: ECB over them is the same stream.
    encryptor = Cipher(algorithms.AES128(key), modes.ECB()).encryptor()
    stream = encryptor.update(counters.tobytes()) + encryptor.finalize()
    return np.frombuffer(stream, np.uint8).reshape(count, BLOCK_BYTES)


def elements(
    key: bytes, run: int, draw: int, count: int, lane_bits: int
) -> npt.NDArray[np.unsignedinteger]:
    """`count` uniform numbers of 8, 16, 32 or 64 bits: the stream cut in little-endian lanes.

    Element i is bits [i * lane_bits, (i + 1) * lane_bits) of the stream, from the lowest up.
    """
    stream = block(key, run, draw, 0, -(-count * lane_bits // _BLOCK_BITS))
    return stream.reshape(-1).view(_LANES[lane_bits])[:count]


def bits(key: bytes, run: int, draw: int, planes: int, count: int) -> npt.NDArray[np.uint64]:
    """`planes` uniform bits of each of `count` elements, as words of shape (planes, ceil(n / 64)).

    Plane p starts at block p * ceil(count / 128) of the draw, so a part of the planes can be drawn
    alone. In a plane, element e is bit e % 64, from the lowest up, of word e // 64; bits of the
    last word above `count` are the stream's too, not zero.
    """
    blocks_per_plane = -(-count // _BLOCK_BITS)
    stream = block(key, run, draw, 0, planes * blocks_per_plane)
    words: npt.NDArray[np.uint64] = stream.reshape(planes, BLOCK_BYTES * blocks_per_plane).view(
        _LANES[64]
    )
    return words[:, : -(-count // 64)]

"""All randomness of the protocols: fresh seeds, who shares which, and the stream that a seed opens.

Seeds come from the operating system, one a pair of parties and one of each party's own, fresh each
session; nothing in production can set them. (The keys of TLS and of certificates are OpenSSL's.)

The stream of a seed is AES-128 in counter mode (NIST SP 800-38A, section 6.5), with the seed as the
key. The counter block is 16 bytes, little endian field by field:

    bytes  0 ..  3   run: the inference's number in the session
    bytes  4 ..  7   draw: the draw's number in the plan
    bytes  8 .. 15   block: counts the 16-byte blocks of one draw

Every (run, draw) is used once, so no block of a key's stream is ever used twice. The functions here
are the reference; the kernels produce the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

SEED_BYTES = 16
NONCE_BYTES = 32
BLOCK_BYTES = 16
_BLOCK_BITS = 8 * BLOCK_BYTES
_LANES: dict[int, str] = {8: "u1", 16: "<u2", 32: "<u4", 64: "<u8"}
_COUNTER = np.dtype([("run", "<u4"), ("draw", "<u4"), ("block", "<u8")])


def fresh_seed() -> bytes:
    """128 bits from the operating system, for one pair of parties or one party, for one session."""
    return os.urandom(SEED_BYTES)


def fresh_nonce() -> bytes:
    """256 bits from the operating system: what a party adds to the session's id."""
    return os.urandom(NONCE_BYTES)


class SessionKeys(Mapping[frozenset[int], bytes]):
    """The keys that one party holds in one session, by the set of parties that know each.

    `keys[frozenset({0, 2})]` is the pair's key, `keys[frozenset({0})]` party 0's own. The order is
    the party's own key first, then by peer. Immutable; never printed, never written.

    Args:
        party: whose keys they are, by index.
        own_seed: 16 bytes that no other party knows.
        pair_seeds: for each peer, the 16 bytes shared with it alone.
    """

    __slots__ = ("_keys", "party")

    def __init__(self, party: int, own_seed: bytes, pair_seeds: Mapping[int, bytes]) -> None:
        assert party not in pair_seeds
        self.party = party
        self._keys = {frozenset({party}): own_seed}
        for peer in sorted(pair_seeds):
            self._keys[frozenset({party, peer})] = pair_seeds[peer]
        assert all(len(key) == SEED_BYTES for key in self._keys.values())

    def __getitem__(self, holders: frozenset[int]) -> bytes:
        return self._keys[holders]

    def __iter__(self) -> Iterator[frozenset[int]]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"SessionKeys(party={self.party}, holders={[sorted(holders) for holders in self]})"

    def table(self, holders: Iterable[Iterable[int]]) -> bytes:
        """The keys of a plan, in the plan's order, 16 bytes each: what the kernels take.

        Raises:
            KeyError: a set of holders that this party is not in, or that no key is made for.
        """
        return b"".join(self._keys[frozenset(each)] for each in holders)


def block(key: bytes, run: int, draw: int, index: int, count: int = 1) -> npt.NDArray[np.uint8]:
    """Blocks `index` .. `index + count - 1` of one draw's stream, as bytes of shape (count, 16).

    `run` and `draw` are below 2^32, `index + count` at most 2^64.
    """
    assert len(key) == SEED_BYTES
    assert 0 <= run < 1 << 32
    assert 0 <= draw < 1 << 32
    assert 0 <= index <= index + count <= 1 << 64
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

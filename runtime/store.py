"""Offline phases ahead of time: a party's store of prepared inferences, encrypted, each used once.

A store is a folder of one party, made by one session together with all other parties:

    store.session     the session's keys, its id, and what setup left in memory
    store.00000001    what the offline phase of inference 1 left for its online phase; and so on

Files are AES-256-GCM under a key derived (HKDF-SHA256) from the party's private key and the store's
salt. An inference is spent before it is read: its number is recorded for good in the party's
`state_dir`, so that neither a crash at any instant nor a restored copy of the folder uses it twice.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from veilgraph.ir.errors import ResourceLimitError, SecurityAbort, UsageError
from veilgraph.runtime.links import Links
from veilgraph.runtime.randomness import SEED_BYTES, SessionKeys, fresh_nonce
from veilgraph.runtime.session_ids import SpentSessions, sync_folder

MAGIC = b"veilstore1"
SALT_BYTES = 16
CHUNK_BYTES = 64 << 20  # of one encryption
_NONCE_BYTES = 12
_HEADER = struct.Struct(f"<{len(MAGIC)}s{SALT_BYTES}s")
_CHUNK = struct.Struct(f"<{_NONCE_BYTES}sQ")  # nonce, bytes of ciphertext
_OFFER = struct.Struct("<32sQQ")  # store id, next number, last number
_ASIDE = ".taken"  # of a file whose inference is about to be spent
_SESSION = "store.session"


@dataclass(frozen=True)
class StoredSession:
    """What one session of preparing left: the plan's digest, the store's id, keys, and memory."""

    plan_digest: bytes
    id: bytes
    keys: SessionKeys
    memory: bytes


class Store:
    """One party's folder of prepared inferences.

    Args:
        folder: where it is.
        private_key: bytes of the party's private key, from which the store's is derived.
        spent: the party's record of what was used.
    """

    def __init__(self, folder: Path, private_key: bytes, spent: SpentSessions) -> None:
        self.folder = folder
        self._private_key = private_key
        self._spent = spent

    # Making one

    def create(self, session: StoredSession) -> None:
        """Begins an empty store.

        Raises:
            UsageError: the folder holds a store already, or can't be written.
        """
        if (self.folder / _SESSION).exists():
            raise UsageError(
                f"{self.folder} holds a store already.",
                "Name another folder with --store, or remove this one.",
            )
        party = session.keys.party
        seeds = [session.keys[holders] for holders in session.keys]
        peers = [min(holders - {party}, default=party) for holders in session.keys]
        head = struct.pack("<HH", party, len(peers)) + struct.pack(f"<{len(peers)}H", *peers)
        content = session.plan_digest + session.id + head + b"".join(seeds) + session.memory
        self._write(_SESSION, content)

    def add(self, number: int, memory: bytes) -> None:
        """Stores what the offline phase of inference `number` left."""
        self._write(_name(number), memory)

    # Using one

    def session(self) -> StoredSession:
        """What the inferences have in common.

        Raises:
            UsageError: no store, or one of another party.
            SecurityAbort: a file that was changed.
        """
        content = self._read(_SESSION)
        digest, store_id, rest = content[:32], content[32:64], content[64:]
        party, count = struct.unpack_from("<HH", rest)
        peers = struct.unpack_from(f"<{count}H", rest, 4)
        first = 4 + 2 * count
        seeds = [rest[first + SEED_BYTES * i :][:SEED_BYTES] for i in range(count)]
        by_peer = dict(zip(peers, seeds, strict=True))
        keys = SessionKeys(party, by_peer.pop(party), by_peer)
        return StoredSession(digest, store_id, keys, rest[first + SEED_BYTES * count :])

    def numbers(self) -> list[int]:
        """Inferences that are left, in order."""
        found = (path.name.removeprefix("store.") for path in self.folder.glob("store.*"))
        return sorted(int(name) for name in found if name.isdigit())

    def agree(self, links: Links, store_id: bytes) -> int:
        """The next inference that every party still has.

        Raises:
            SecurityAbort: parties whose stores were not made together.
            ResourceLimitError: a store that is used up.
        """
        left = self.numbers()
        mine = (store_id, left[0] if left else 1 << 62, left[-1] if left else 0)
        offers = [mine]
        received = {peer: bytearray(_OFFER.size) for peer in links.sent_bytes}
        links.exchange(
            {peer: _OFFER.pack(*mine) for peer in received}, received, "agreeing on the store"
        )
        for peer, content in received.items():
            offer = _OFFER.unpack(content)
            if offer[0] != store_id:
                raise SecurityAbort(
                    f"The store of {links.names[peer]} was made in another session.",
                    "All parties must use stores that one `prepare` made together.",
                )
            offers.append(offer)
        number = max(offer[1] for offer in offers)
        if number > min(offer[2] for offer in offers):
            raise ResourceLimitError(
                "The store is used up: no inference is left that every party has.",
                "Run `prepare` again, into a new folder.",
            )
        return number

    def take(self, number: int, store_id: bytes) -> bytes:
        """What was prepared for inference `number`, spent from now on.

        Its file is set aside first: a process that dies in here loses this inference alone, and the
        next run, which sees no file of it, goes on with the one after.

        Raises:
            SecurityAbort: it was used before, or its file was changed.
        """
        name = _name(number)
        aside = self._set_aside(name)
        use = hashlib.sha256(store_id + struct.pack("<Q", number)).digest()
        if not self._spent.spend(use):
            raise SecurityAbort(
                f"Inference {number} of the store {self.folder} was used before.",
                "A store must not be copied or restored; run `prepare` again.",
            )
        memory = self._read(name, aside)
        for used in self.numbers():
            if used <= number:
                (self.folder / _name(used)).unlink(missing_ok=True)
        for path in self.folder.glob(f"*{_ASIDE}"):
            path.unlink()
        return memory

    def _set_aside(self, name: str) -> Path:
        path = self.folder / name
        aside = path.with_name(name + _ASIDE)
        try:
            path.replace(aside)
            sync_folder(self.folder)
        except OSError as error:
            raise _missing(path, error) from error
        return aside

    # Files

    def _key(self, salt: bytes) -> AESGCM:
        derive = HKDF(hashes.SHA256(), 32, salt, b"veilgraph store")
        return AESGCM(derive.derive(self._private_key))

    def _write(self, name: str, content: bytes) -> None:
        path, partial = self.folder / name, self.folder / f"{name}.partial"
        salt = fresh_nonce()[:SALT_BYTES]
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(_HEADER.pack(MAGIC, salt))
                file.writelines(_sealed(self._key(salt), name, content))
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except OSError as error:
            with suppress(OSError):
                partial.unlink()
            raise ResourceLimitError(
                f"The store {self.folder} can't be written: {error.strerror}.",
                "What was stored before is whole; give it more room, or prepare fewer inferences.",
            ) from error

    def _read(self, name: str, path: Path | None = None) -> bytes:
        """What was written as `name`, which may lie elsewhere by now."""
        path = path or self.folder / name
        try:
            content = path.read_bytes()
        except OSError as error:
            raise _missing(path, error) from error
        try:
            magic, salt = _HEADER.unpack_from(content)
            if magic != MAGIC:
                raise ValueError("no store")
            return b"".join(_opened(self._key(salt), name, memoryview(content)[_HEADER.size :]))
        except (InvalidTag, ValueError, struct.error) as error:
            raise SecurityAbort(
                f"{path} was changed, or belongs to another party's key.",
                "Run `prepare` again, into a new folder.",
            ) from error


def _missing(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"The store {path.parent} has no {path.name}: {error.strerror}.", "Run `prepare` first."
    )


def _name(number: int) -> str:
    return f"store.{number:08}"


def _bound(name: str, index: int, last: bool) -> bytes:
    """What a chunk's tag covers besides it: its place, so that none can be moved or left out."""
    return f"{name}:{index}:{'last' if last else 'more'}".encode()


def _sealed(key: AESGCM, name: str, content: bytes) -> Iterator[bytes]:
    starts = range(0, max(len(content), 1), CHUNK_BYTES)
    for index, start in enumerate(starts):
        nonce = fresh_nonce()[:_NONCE_BYTES]
        bound = _bound(name, index, index == len(starts) - 1)
        sealed = key.encrypt(nonce, content[start : start + CHUNK_BYTES], bound)
        yield _CHUNK.pack(nonce, len(sealed)) + sealed


def _opened(key: AESGCM, name: str, content: memoryview) -> Iterable[bytes]:
    index = 0
    while content or index == 0:
        nonce, size = _CHUNK.unpack_from(content)
        sealed, content = content[_CHUNK.size :][:size], content[_CHUNK.size :][size:]
        yield key.decrypt(nonce, sealed, _bound(name, index, not content))
        index += 1

"""Offline phases ahead of time: a party's store of prepared inferences, encrypted, each used once.

A store is a folder of one party, made by one session together with all other parties:

    store.session     what it is for, the store's id, and what setup left in memory
    store.00000001    what the offline phase of inference 1 left for its online phase; and so on

and a file in the party's `state_dir` says where the store stands (position.py): the ratchet that
the keys of its inferences come from (keys.py). `store.session` is encrypted under the party's
private key, and bound to the plan and the entry that were prepared: another entry's online phase
would draw the same numbers for other secrets. What is kept of an inference is encrypted under the
ratchet and the private key, so it is bound to its store and its number, and the write that spends
the inference leaves nothing that opens it: neither a crash at any instant nor a restored copy of
the folder uses it twice.
"""

from __future__ import annotations

import hashlib
import os
import struct
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from veilgraph.ir.errors import ResourceLimitError, SecurityAbort, UsageError, VeilgraphError
from veilgraph.ir.files.whole_files import placed_whole, sync_folder
from veilgraph.runtime.links.links import Links
from veilgraph.runtime.session.keys import DrawKeys, Ratchet
from veilgraph.runtime.store.at_rest import (
    AtRest,
    at_rest_key,
    header_of,
    read_at_rest,
    whole,
    write_to,
)
from veilgraph.runtime.store.position import StoreState

_OFFER = struct.Struct("<32sQQ")  # store id, next number, last number
_END = 1 << 62
ANY, NONE_LEFT = (0, _END), (_END, 0)  # of all inferences the first and the last, and of none
_ASIDE = ".taken"  # of a file whose inference is about to be spent
_SESSION = "store.session"


@dataclass(frozen=True)
class StoredSession:
    """What one session of preparing left: its `purpose`, the store's id, and memory."""

    purpose: bytes
    id: bytes
    memory: bytes


@dataclass(frozen=True)
class Taken:
    """An inference that is spent: its keys, and what its offline phase left in memory."""

    keys: DrawKeys
    memory: bytes


def store_id(session_id: bytes, first: int) -> bytes:
    """The id, 32 bytes, of the store that a session began with inference `first`."""
    return hashlib.sha256(b"veilgraph store\0" + session_id + struct.pack("<Q", first)).digest()


def purpose(plan_digest: bytes, entry: str) -> bytes:
    """What a store is for, 32 bytes: runs of one entry of a plan."""
    return hashlib.sha256(b"veilgraph store of\0" + plan_digest + entry.encode()).digest()


def common_to_all(links: Links, store_id: bytes, own: tuple[int, int]) -> tuple[int, int]:
    """The next inference that every party still has, and how many there are from it on.

    Args:
        own: what this party has left; `ANY` where it keeps nothing, and goes along with the others.

    Raises:
        SecurityAbort: parties whose stores were not made together, or a copied store.
    """
    mine = (store_id, *own)
    offers = [mine]
    received = {peer: bytearray(_OFFER.size) for peer in links.sent_bytes}
    links.exchange(
        {peer: _OFFER.pack(*mine) for peer in received}, received, "agreeing on the store"
    )
    for peer, content in received.items():
        offer = _OFFER.unpack(content)
        if offer[0] != store_id:
            raise made_elsewhere(links.names[peer])
        offers.append(offer)
    number = max(offer[1] for offer in offers)
    return number, max(0, min(offer[2] for offer in offers) - number + 1)


def made_elsewhere(peer: str) -> SecurityAbort:
    """Of a peer's store."""
    return SecurityAbort(
        f"The store of {peer} was made in another session.",
        "All parties must use stores that one `prepare` made together.",
    )


class Store:
    """One party's folder of prepared inferences.

    Args:
        folder: where it is.
        secret: 32 bytes that this party alone knows.
        state: of the party's stores.
    """

    def __init__(self, folder: Path, secret: bytes, state: StoreState) -> None:
        self.folder = folder
        self._secret = secret
        self._key = at_rest_key(secret, "store")
        self._state = state

    # Making one

    def claim(self) -> None:
        """Takes the folder for a new store, before any work for it is done; `create` comes next.

        Raises:
            UsageError: the folder holds a store already, or another `prepare` is making one there.
            ResourceLimitError: it can't be written.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.folder / _SESSION, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError as error:
            if not os.path.lexists(self.folder / _SESSION):  # a file is where the folder goes
                raise self._unwritable(error) from error
            raise UsageError(
                f"{self.folder} holds a store already.",
                "Name another folder with --store, or remove this one.",
            ) from error
        except OSError as error:
            raise self._unwritable(error) from error

    def create(self, session: StoredSession, ratchet: Ratchet) -> None:
        """Begins an empty store in the folder claimed, whose first inference is the ratchet's.

        Raises:
            ResourceLimitError: it can't be written.
        """
        self._state.begin(session.id, ratchet)
        header = AtRest("store", self._state.party, session.purpose, session.id, ratchet.number)
        self._write(_SESSION, header, self._key, session.memory)

    def discard(self, store_id: bytes, first: int) -> None:
        """Gives the folder back where not even the first inference, of this number, was stored."""
        self._state.forget(store_id)
        for name in (_name(first), _SESSION):
            with suppress(OSError):
                (self.folder / name).unlink()

    def add(self, ratchet: Ratchet, store_id: bytes, memory: bytes) -> None:
        """Stores what the offline phase of the ratchet's inference left."""
        header = self._inference(store_id, ratchet.number)
        self._write(_name(ratchet.number), header, ratchet.seal(self._secret, store_id), memory)

    # Using one

    def session(self) -> StoredSession:
        """What the inferences have in common.

        Raises:
            UsageError: no store, or one of another party.
            SecurityAbort: a file that was changed.
        """
        path, party = self.folder / _SESSION, self._state.party
        try:
            header = replace(header_of(path), kind="store", party=party)
        except UsageError as error:
            raise _unreadable(path, error) from error
        return StoredSession(header.binding, header.session, self._read(path, header, self._key))

    def numbers(self) -> list[int]:
        """Inferences that are left, in order."""
        found = (path.name.removeprefix("store.") for path in self.folder.glob("store.*"))
        return sorted(int(name) for name in found if _is_number(name))

    def require(self, store_id: bytes, wanted: int) -> None:
        """ResourceLimitError where this party has fewer than `wanted` inferences left.

        Asked before a link opens; whether all parties have as many is what `agree` finds.
        """
        with self._state.held(store_id) as ratchet:
            left = self._left(ratchet)
        if len(left) < wanted:
            raise _short(len(left), wanted)

    def agree(self, links: Links, store_id: bytes, wanted: int = 1) -> int:
        """The next inference that every party still has, and `wanted` - 1 more after it.

        Raises:
            SecurityAbort: parties whose stores were not made together, or a copied store.
            ResourceLimitError: a store with fewer left; none of them is spent.
        """
        number, common = common_to_all(links, store_id, self.offer(store_id))
        if common < wanted:
            raise _short(common, wanted)
        return number

    def offer(self, store_id: bytes) -> tuple[int, int]:
        """The first and the last inference that this party has left, for `common_to_all`."""
        with self._state.held(store_id) as ratchet:
            left = self._left(ratchet)
        return (left[0], left[-1]) if left else NONE_LEFT

    def take(self, number: int, store_id: bytes) -> Taken:
        """What was prepared for inference `number`, spent from now on, and all before it.

        Files are set aside first, so that one which lies in its place and is spent was copied. A
        process that dies before the state is written has used nothing, one that dies later loses
        this inference alone.

        Raises:
            SecurityAbort: it was used before, or its file was changed, or is another store's.
            ResourceLimitError: the state can't be written; nothing was used.
        """
        name = _name(number)
        with self._state.held(store_id) as ratchet:
            if number < ratchet.number:
                raise _used(self.folder, number)
            self._set_aside([*self._left(ratchet), number], number)
            ratchet = ratchet.at(number)
            self._state.advance(store_id, ratchet.next())
            aside = self.folder / (name + _ASIDE)
            key = ratchet.seal(self._secret, store_id)
            memory = self._read(aside, self._inference(store_id, number), key)
            for path in self.folder.glob(f"*{_ASIDE}"):
                path.unlink()
        return Taken(ratchet.keys(), memory)

    def _left(self, ratchet: Ratchet) -> list[int]:
        """Inferences that are left, once files set aside in vain are back in their places."""
        for path in self.folder.glob(f"store.*{_ASIDE}"):
            name = path.name.removesuffix(_ASIDE)
            number = name.removeprefix("store.")
            if _is_number(number) and int(number) >= ratchet.number:
                path.replace(self.folder / name)
        left = self.numbers()
        if left and left[0] < ratchet.number:
            raise _used(self.folder, left[0])
        return left

    def _set_aside(self, numbers: list[int], last: int) -> None:
        for number in {each for each in numbers if each <= last}:
            path = self.folder / _name(number)
            try:
                path.replace(path.with_name(path.name + _ASIDE))
            except OSError as error:
                raise _missing(path, error) from error
        sync_folder(self.folder)

    # Files

    def _inference(self, store_id: bytes, number: int) -> AtRest:
        return AtRest("inference", self._state.party, store_id, store_id, number)

    def _write(self, name: str, header: AtRest, key: bytes, memory: bytes) -> None:
        try:
            with placed_whole(self.folder / name) as file:
                write_to(file, header, [whole("memory", memory)], key)
        except OSError as error:
            raise self._unwritable(error) from error

    def _read(self, path: Path, header: AtRest, key: bytes) -> bytes:
        try:
            (memory,) = read_at_rest(path, header, key)
        except (UsageError, SecurityAbort) as error:
            raise _unreadable(path, error) from error
        return memory.array.tobytes()

    def _unwritable(self, error: OSError) -> ResourceLimitError:
        return ResourceLimitError(
            f"The store {self.folder} can't be written: {error.strerror}.",
            "What was stored before is whole; give it more room, or prepare fewer inferences.",
        )


def _unreadable(path: Path, error: VeilgraphError) -> VeilgraphError:
    if isinstance(error.__cause__, OSError):
        return _missing(path, error.__cause__)
    return SecurityAbort(
        f"{path} was changed, or belongs to another store or another party's key.",
        "Run `prepare` again, into a new folder.",
    )


def _missing(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"The store {path.parent} has no {path.name}: {error.strerror}.", "Run `prepare` first."
    )


def _short(left: int, wanted: int) -> ResourceLimitError:
    if left == 0:
        return used_up()
    return ResourceLimitError(
        f"The store has {left} of the {wanted} inferences that this session is for; none is spent.",
        f"Give --iterations {left} at every party, or run `prepare` again, into a new folder.",
    )


def used_up() -> ResourceLimitError:
    """Of a store without a single inference that all parties have left."""
    return ResourceLimitError(
        "The store is used up: no inference is left that every party has.",
        "Run `prepare` again, into a new folder.",
    )


def _used(folder: Path, number: int) -> SecurityAbort:
    return SecurityAbort(
        f"Inference {number} of the store {folder} was used before.",
        "Let one run at a time use a store, and never copy or restore one: `prepare` again.",
    )


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _name(number: int) -> str:
    return f"store.{number:08}"

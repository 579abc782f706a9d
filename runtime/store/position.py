"""Where a store stands: the ratchet at its next inference, in the party's `state_dir`.

The file `store-PARTY-ID` is written anew with each use, at once: the write that spends an inference
is the one that erases its keys. What is erased is as gone as the disk makes it, so `state_dir` must
be in no backup and no snapshot.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from veilgraph.ir.errors import ResourceLimitError, SecurityAbort, UsageError
from veilgraph.ir.files.whole_files import placed_whole
from veilgraph.runtime.session.keys import SECRET_BYTES, Ratchet
from veilgraph.runtime.store.at_rest import (
    AtRest,
    at_rest_key,
    header_of,
    read_at_rest,
    whole,
    write_to,
)

_HEAD = struct.Struct("<QH")  # next inference, number of keys
_HELD_SECONDS = 30.0  # a run holds the state while it reads one inference, far less
_RETRY_SECONDS = 0.02
_COUNT = struct.Struct("<B")  # holders of a key, whose indices follow, a byte each; then S_i


class StoreState:
    """The state of one store.

    Args:
        folder: the party's `state_dir`; made (mode 0700) if not there.
        party: the party's name; parties of one host may share a folder.
        secret: 32 bytes that this party alone knows.
    """

    def __init__(self, folder: Path, party: str, secret: bytes) -> None:
        self.party = party
        self._folder, self._key = folder, at_rest_key(secret, "ratchet")

    def path(self, store_id: bytes) -> Path:
        return self._folder / f"store-{self.party}-{store_id.hex()[:32]}"

    def begin(self, store_id: bytes, ratchet: Ratchet) -> None:
        """Writes the state of a new store.

        Raises:
            ResourceLimitError: it can't be written.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error
        self._write(store_id, ratchet)

    @contextmanager
    def held(self, store_id: bytes) -> Iterator[Ratchet]:
        """The store's state, which nobody else sees or changes meanwhile.

        Raises:
            SecurityAbort: none is there, or it was changed.
            ResourceLimitError: another run of this party holds it for too long.
        """
        path = self.path(store_id)
        try:
            descriptor = self._locked()
        except OSError as error:
            raise _unreadable(path, error) from error
        try:
            yield self._read(path, store_id)
        finally:
            os.close(descriptor)

    def advance(self, store_id: bytes, ratchet: Ratchet) -> None:
        """Puts a later state in place of the one that is held; that one is gone then.

        Raises:
            ResourceLimitError: it can't be written; the one held is there still.
        """
        self._write(store_id, ratchet)

    def forget(self, store_id: bytes) -> None:
        """Removes the state of a store that came to nothing, if it is there."""
        with suppress(OSError):
            self.path(store_id).unlink()

    def _locked(self) -> int:
        """A descriptor that all stores of this party wait for until it is closed.

        Raises:
            ResourceLimitError: they have waited long enough.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        path = self._folder / f"stores-{self.party}.lock"
        descriptor = os.open(path, flags, 0o600)
        try:
            end = time.monotonic() + _HELD_SECONDS
            while not _lock(descriptor):
                if time.monotonic() > end:
                    raise ResourceLimitError(
                        f"Another run of {self.party} holds {path} for over {_HELD_SECONDS:g} "
                        "seconds.",
                        "End that run if it is stopped; nothing was used by this one.",
                    )
                time.sleep(_RETRY_SECONDS)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _write(self, store_id: bytes, ratchet: Ratchet) -> None:
        head = _HEAD.pack(ratchet.number, len(ratchet.states))
        rows = (
            _COUNT.pack(len(holders)) + bytes(sorted(holders)) + state
            for holders, state in ratchet.states.items()
        )
        content = head + b"".join(rows)
        header = self._header(store_id, ratchet.number)
        try:
            with placed_whole(self.path(store_id)) as file:
                write_to(file, header, [whole("states", content)], self._key)
        except OSError as error:
            raise self._unwritable(error) from error

    def _header(self, store_id: bytes, number: int) -> AtRest:
        return AtRest("ratchet", self.party, store_id, store_id, number)

    def _read(self, path: Path, store_id: bytes) -> Ratchet:
        try:
            header = self._header(store_id, header_of(path).number)
            (states,) = read_at_rest(path, header, self._key)
        except (UsageError, SecurityAbort) as error:
            if isinstance(error.__cause__, OSError):
                raise _unreadable(path, error.__cause__) from error
            raise SecurityAbort(
                f"{path} was changed, or belongs to another party's key.",
                "Run `prepare` again, into a new folder.",
            ) from error
        return _unpacked(states.array.tobytes())

    def _unwritable(self, error: OSError) -> ResourceLimitError:
        return ResourceLimitError(
            f"Where a store stands can't be written in {self._folder}: {error.strerror}.",
            "Nothing was used; give this party's `state_dir` room.",
        )


def _unpacked(content: bytes) -> Ratchet:
    number, count = _HEAD.unpack_from(content)
    states, start = {}, _HEAD.size
    for _ in range(count):
        (held,) = _COUNT.unpack_from(content, start)
        first = start + _COUNT.size + held
        states[frozenset(content[start + _COUNT.size : first])] = content[first:][:SECRET_BYTES]
        start = first + SECRET_BYTES
    return Ratchet(number, states)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unreadable(path: Path, error: OSError) -> SecurityAbort:
    return SecurityAbort(
        f"Nothing says where this party's store stands: {path} can't be read ({error.strerror}).",
        "A store goes with the `state_dir` that it was made with; run `prepare` again.",
    )

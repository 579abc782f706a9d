"""The ids of all sessions that a party has taken part in, on disk: none is used twice.

An id already holds a fresh nonce of this party, so it can only come again when a host's randomness
does, for instance in a copied virtual machine; then its masks would come again too.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from veilgraph.ir.errors import UsageError

_ID_BYTES = 32
_LINE_BYTES = 2 * _ID_BYTES + 1


def sync_folder(folder: Path) -> None:
    """Lets the names of its files outlive a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class SpentSessions:
    """The file `spent-sessions-PARTY` in a party's `state_dir`: one id a line, in hex, append-only.

    Args:
        state_dir: the party's folder for what outlives a session; made (mode 0700) if not there.
        party: the party's name; parties of one host may share a folder.
    """

    def __init__(self, state_dir: Path, party: str) -> None:
        self.path = state_dir / f"spent-sessions-{party}"

    def spend(self, session_id: bytes) -> bool:
        """Records an id (32 bytes) for good; False if it was there already.

        The id is on disk when this returns, and two processes can't both spend it.

        Raises:
            UsageError: a folder or file that can't be used, or a file that something else wrote to.
        """
        assert len(session_id) == _ID_BYTES
        try:
            with os.fdopen(self._open(), "rb+", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                return self._append(file.fileno(), session_id.hex().encode() + b"\n")
        except OSError as error:
            raise UsageError(
                f"{self.path} can't be used: {error.strerror}.",
                "Give this party a `state_dir` that it may write to.",
            ) from error

    def _open(self) -> int:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o600)
        sync_folder(self.path.parent)
        return descriptor

    def _append(self, descriptor: int, line: bytes) -> bool:
        size = os.fstat(descriptor).st_size
        whole = size - size % _LINE_BYTES  # a line cut short by a crash was never reported as spent
        lines = os.pread(descriptor, whole, 0)
        if len(lines) != whole or any(end != 0x0A for end in lines[_LINE_BYTES - 1 :: _LINE_BYTES]):
            raise UsageError(
                f"{self.path} holds something else than spent session ids.",
                "Restore it, or move it away if nothing was ever copied from this host.",
            )
        if line in lines:
            return False
        os.ftruncate(descriptor, whole)
        os.pwrite(descriptor, line, whole)
        os.fsync(descriptor)
        return True

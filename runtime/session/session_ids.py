"""The sessions that a party has taken part in, and its peers' nonces in them, on disk.

A host's randomness may come again: in a copied virtual machine, or one that went back to a
snapshot. Its own records went back with it, so those that notice are the others: no nonce of a peer
is accepted twice, nor a session's id, which is of all nonces.

The file grows by one line of 65 bytes a party and session: 20 MB after 100,000 sessions of three.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from pathlib import Path

import numpy as np

from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.whole_files import sync_folder

_ID_BYTES = 32
_LINE_BYTES = 2 * _ID_BYTES + 1
# A line by its first eight digits, which hardly two have in common, and its end.
_LINE = np.dtype(
    {
        "names": ["head", "end"],
        "formats": ["<u8", "u1"],
        "offsets": [0, _LINE_BYTES - 1],
        "itemsize": _LINE_BYTES,
    }
)


def record_of(nonce: bytes) -> bytes:
    """What stands for a nonce in the file, 32 bytes; no session's id is ever the same."""
    return hashlib.sha256(b"veilgraph nonce\0" + nonce).digest()


class SpentSessions:
    """The file `spent-sessions-PARTY` in a party's `state_dir`: append-only.

    Each line is an id or what stands for a nonce, 32 bytes in hex.

    Args:
        state_dir: the party's folder for what outlives a session; made (mode 0700) if not there.
        party: the party's name; parties of one host may share a folder.
    """

    def __init__(self, state_dir: Path, party: str) -> None:
        self.path = state_dir / f"spent-sessions-{party}"

    def spend(self, *values: bytes, together: bool = False) -> list[bool]:
        """Records values of 32 bytes for good; for each whether it was new.

        All are on disk when this returns, and of two processes one alone finds a value new.

        Args:
            together: records none of them unless all are new.

        Raises:
            UsageError: a folder or file that can't be used, or a file that something else wrote to.
        """
        assert all(len(value) == _ID_BYTES for value in values)
        try:
            with os.fdopen(self._open(), "rb+", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                lines = [value.hex().encode() + b"\n" for value in values]
                return self._append(file.fileno(), lines, together)
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

    def _append(self, descriptor: int, added: list[bytes], together: bool) -> list[bool]:
        size = os.fstat(descriptor).st_size
        whole = size - size % _LINE_BYTES  # a line cut short by a crash was never reported as spent
        content = os.pread(descriptor, whole, 0)
        lines = np.frombuffer(content, _LINE)
        if len(content) != whole or (lines["end"] != 0x0A).any():
            raise UsageError(
                f"{self.path} holds something else than spent session ids.",
                "Restore it, or move it away if nothing was ever copied from this host.",
            )
        heads = np.frombuffer(b"".join(added), _LINE)["head"]
        new = [
            not any(
                content.startswith(line, _LINE_BYTES * i)
                for i in np.flatnonzero(lines["head"] == head).tolist()
            )
            for head, line in zip(heads, added, strict=True)
        ]
        if together and not all(new):
            return new
        os.ftruncate(descriptor, whole)
        rest = b"".join(line for line, is_new in zip(added, new, strict=True) if is_new)
        if os.pwrite(descriptor, rest, whole) != len(rest):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
        return new

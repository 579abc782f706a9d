"""Files that are put in place whole, or not at all: the one writer of all that Veilgraph keeps.

A file is written under a fresh name beside its place, flushed to the disk, and renamed. Readers see
the old content or the new, at every instant and after a crash; of two writers the last one wins.
Neither a file of another's making nor a link that lies in the way is written through. A device, a
pipe or a socket in the way is left alone: a rename would put a file in its place.
"""

from __future__ import annotations

import errno
import glob
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

PRIVATE = 0o600  # for the owner alone
PUBLIC = 0o666  # for whom the process's umask says
DEVICES = Path("/dev")

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL
if sys.platform == "win32":  # a client's, where files are not inherited and links are rare
    _CREATE |= os.O_BINARY
else:
    _CREATE |= os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def placed_whole(
    path: Path, mode: int = PRIVATE, before: Path | None = None
) -> Iterator[IO[bytes]]:
    """A new file to write to, which takes its place at `path` once the block has ended well.

    A block that raises, or is interrupted, leaves what was there before and nothing else; a process
    that is killed may leave a file `.NAME.DIGITS`. What is in place outlives a crash of the host.

    Args:
        mode: permissions, less those that the process's umask takes away.
        before: where the file that was there goes, once the new one is on the disk. A process that
            is killed between leaves it there, and none at `path`.

    Raises:
        OSError: no such folder, no room, no permission, or something other than a file in the way.
    """
    if is_special(path):
        raise OSError(errno.EEXIST, "Is no file, but a device, a pipe or a socket", str(path))
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(partial, _CREATE, mode), "w+b") as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if before is not None and path.exists():
                os.replace(path, before)
            os.replace(partial, path)
        except BaseException:
            with suppress(OSError):
                partial.unlink()
            raise
    sync_folder(path.parent)


def remove_partials(path: Path) -> None:
    """Removes what processes that were killed left of files on their way to `path`."""
    for partial in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}"):
        with suppress(OSError):
            partial.unlink()


def is_special(path: Path) -> bool:
    """Whether a device, a pipe or a socket has this name, or a name of the system's in /dev."""
    if path.parent.resolve() == DEVICES:  # /dev/stdout is a link, and may lead to a file
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def sync_folder(folder: Path) -> None:
    """Lets the names of its files outlive a crash."""
    if sys.platform == "win32":  # which keeps names itself, and opens no folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

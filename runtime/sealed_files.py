"""Files that one party alone can read, and that are whole or not there: AES-256-GCM in chunks.

Each file is encrypted under a key of its own, which is derived from a secret, the file's salt and
what the file is for. So what is written for another purpose, or into another store, does not open.
The salt is of fresh bytes and of the content, so that two contents have two keys even where this
host's randomness repeats.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from veilgraph.runtime.keys import derive
from veilgraph.runtime.randomness import fresh_nonce
from veilgraph.runtime.session_ids import sync_folder

MAGIC = b"veilstore2"
SALT_BYTES = 32
CHUNK_BYTES = 64 << 20  # of one encryption
_HEADER = struct.Struct(f"<{len(MAGIC)}s{SALT_BYTES}s")
_SIZE = struct.Struct("<Q")  # bytes of a chunk's ciphertext


def write_sealed(path: Path, secret: bytes, purpose: bytes, content: bytes) -> None:
    """Puts a file in place at once, mode 0600; it outlives a crash when this returns.

    Args:
        purpose: what the file is.

    Raises:
        OSError: no such folder, or no room; what was there before is whole.
    """
    context = fresh_nonce() + hashlib.sha256(content).digest()
    salt = derive(secret, "salt", context, purpose)
    # A fresh file under a name of its own: never one that lay there, a link, or another process's.
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_HEADER.pack(MAGIC, salt))
            file.writelines(_sealed(_key(secret, purpose, salt), content))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise


def read_sealed(content: bytes, secret: bytes, purpose: bytes) -> bytes:
    """What was written for this purpose under this secret.

    Raises:
        ValueError: it was not, or was changed since.
    """
    try:
        magic, salt = _HEADER.unpack_from(content)
        if magic != MAGIC:
            raise ValueError("no sealed file")
        chunks = memoryview(content)[_HEADER.size :]
        return b"".join(_opened(_key(secret, purpose, salt), chunks))
    except (InvalidTag, struct.error) as error:
        raise ValueError("sealed otherwise") from error


def _key(secret: bytes, purpose: bytes, salt: bytes) -> AESGCM:
    return AESGCM(derive(secret, "file", purpose, salt))


def _nonce(index: int) -> bytes:
    """A chunk's nonce: no two chunks of a file have one, and no two files have one key."""
    return struct.pack("<4xQ", index)


def _bound(index: int, last: bool) -> bytes:
    """What a chunk's tag covers besides it: its place, so that none can be moved or left out."""
    return f"{index}:{'last' if last else 'more'}".encode()


def _sealed(key: AESGCM, content: bytes) -> Iterator[bytes]:
    starts = range(0, max(len(content), 1), CHUNK_BYTES)
    for index, start in enumerate(starts):
        bound = _bound(index, index == len(starts) - 1)
        sealed = key.encrypt(_nonce(index), content[start : start + CHUNK_BYTES], bound)
        yield _SIZE.pack(len(sealed)) + sealed


def _opened(key: AESGCM, content: memoryview) -> Iterable[bytes]:
    index = 0
    while content or index == 0:
        (size,) = _SIZE.unpack_from(content)
        sealed, content = content[_SIZE.size :][:size], content[_SIZE.size :][size:]
        if len(sealed) != size:
            raise ValueError("a sealed file cut short")
        yield key.decrypt(_nonce(index), sealed, _bound(index, not content))
        index += 1

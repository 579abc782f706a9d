"""A party's shares at rest: one file format for state, checkpoints, weights, data sets and shares.

A file says what it is, and holds named arrays of ring elements, encrypted. Whoever lacks the key
learns the head and the file's length. The layout, little endian, of format 1:

    offset  bytes
    0       8      "veilrest"
    8       4      format: 1
    12      4      lock: how the key is found; see `Lock`
    16      16     kind: "state", "checkpoint", "weights", "data", "share", ...; ASCII, zeros behind
    32      32     party: its name; ASCII, zeros behind
    64      32     binding: what the arrays belong to, a digest of the plan or of a layout
    96      32     session: the id of the session or dealing that wrote them
    128     8      number: of the run or iteration after which they were written
    136     32     ephemeral: a public key, where the lock is a public key; else zeros
    168     32     salt: fresh
    200     32     check: says whether a key is the file's, and fits one key alone
    232            chunks: nonce (12), ciphertext, tag (16), of 1 MiB of the content each; the last
                   one has the rest

The content is a part after another: name bytes (2), part (2), of how many (2), ring bits (2), bytes
a word (1), axes (1), the name in UTF-8, the extents (8 each), the words.

Chunks are encrypted as sealed_chunks.py says, under keys that come by HKDF from the file's key and
the whole head. So no part of a head can be exchanged, and no chunk comes from another file.

An older file of the same party and session, put back whole, opens: nothing in a file can tell. The
number tells it, to whoever knows which one was last. A record in `state_dir` knows, unless it was
put back as well; the other parties know, unless theirs were.
"""

from __future__ import annotations

import errno
import hmac
import math
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import ResourceLimitError, SecurityAbort, UsageError
from veilgraph.ir.files.whole_files import placed_whole
from veilgraph.runtime.randomness import fresh_nonce
from veilgraph.runtime.session.keys import SECRET_BYTES, derive
from veilgraph.runtime.store.sealed_chunks import ChunkKeys, ChunkReader, ChunkWriter

MAGIC = b"veilrest"
FORMAT = 1
ID_BYTES = 32

_HEAD = struct.Struct("<8sII16s32s32s32sQ32s32s32s")
_PART = struct.Struct("<HHHHBB")
_MOST_AXES = 32
_HINT = "Give the file that this party wrote there, with the key that it had."
_HINT_WHOLE = "Go back to a file that was kept whole, at all parties, or begin anew."
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

OWN, PUBLIC_KEY, NONE = range(3)  # locks


@dataclass(frozen=True)
class AtRest:
    """What a file is.

    Attributes:
        kind: "state", "checkpoint", "weights", "data", "share", "store", "inference", "ratchet",
            ...: at most 16 ASCII letters.
        party: whose it is.
        binding: what the arrays belong to: the plan's digest, or that of their layout (names,
            shapes, rings, scales); 32 bytes.
        session: the id of the session or dealing that wrote them, 32 bytes.
        number: of the run or iteration after which they were written.
    """

    kind: str
    party: str
    binding: bytes
    session: bytes
    number: int = 0


@dataclass(frozen=True)
class Part:
    """A named array of ring elements, or one part of a sharing of it.

    Attributes:
        part: which one it is, of how many; (0, 1) for an array that is whole.
        bits: of the ring.
        array: unsigned words of 1, 2, 4 or 8 bytes that hold the ring, of any shape.
    """

    name: str
    part: tuple[int, int]
    bits: int
    array: npt.NDArray[Any]


@dataclass(frozen=True)
class Lock:
    """A file's key, 32 bytes, and how who reads the file finds it.

    Attributes:
        how: OWN, from the party's private key (`at_rest_key`); PUBLIC_KEY, agreed between its
            public key and `ephemeral`; NONE, a key that everybody knows: tags tell accidents, and
            nothing is hidden.
    """

    how: int
    key: bytes
    ephemeral: bytes = bytes(ID_BYTES)

    def __repr__(self) -> str:
        return f"Lock(how={self.how})"


def at_rest_key(secret: bytes, purpose: str) -> bytes:
    """The key, 32 bytes, of a party's files for one purpose.

    Args:
        secret: of the party's private key (`certificates.secret_of`).
    """
    return derive(secret, "at rest", purpose.encode())


def whole(name: str, content: bytes) -> Part:
    """Bytes as an array of one part."""
    return Part(name, (0, 1), 8, np.frombuffer(content, np.uint8))


# Writing


def write_at_rest(
    path: Path,
    header: AtRest,
    arrays: Iterable[Part],
    key: bytes | Lock,
    before: Path | None = None,
) -> None:
    """Puts a file in place whole, mode 0600, an array after another; no two of one name and part.

    Args:
        before: where the file that was there goes; None lets it go.

    Raises:
        ResourceLimitError: no room; what was there before is whole.
        UsageError: a place that can't be written to.
    """
    try:
        with placed_whole(path, before=before) as file:
            write_to(file, header, arrays, key)
    except OSError as error:
        raise _unwritable(path, error) from error


def write_to(file: IO[bytes], header: AtRest, arrays: Iterable[Part], key: bytes | Lock) -> None:
    """The same, into a file that is open and empty."""
    lock = key if isinstance(key, Lock) else Lock(OWN, key)
    head = _head(header, lock)
    file.write(head)
    chunks = ChunkWriter(file, ChunkKeys.of(lock.key, head))
    seen = set()
    for each in arrays:
        assert (each.name, each.part) not in seen, each.name
        seen.add((each.name, each.part))
        words = np.asarray(each.array, order="C")
        words = words.astype(words.dtype.newbyteorder("<"), copy=False)
        chunks.write(memoryview(_part_head(each, words)))
        chunks.write(words.reshape(-1).view(np.uint8).data)
    chunks.finish()


def _head(header: AtRest, lock: Lock) -> bytes:
    kind, party = header.kind.encode("ascii"), header.party.encode("ascii")
    assert 0 < len(kind) <= 16
    assert 0 < len(party) <= 32
    ids = (header.binding, header.session, lock.ephemeral)
    assert all(len(each) == ID_BYTES for each in ids)
    salt = fresh_nonce()
    return _HEAD.pack(
        *(MAGIC, FORMAT, lock.how, kind, party, header.binding, header.session, header.number),
        *(lock.ephemeral, salt, _check(lock.key, salt)),
    )


def _check(key: bytes, salt: bytes) -> bytes:
    assert len(key) == SECRET_BYTES
    return derive(key, "check of a file at rest", salt=salt)


def _part_head(part: Part, words: npt.NDArray[Any]) -> bytes:
    name = part.name.encode()
    item = words.dtype.itemsize
    assert words.dtype.kind == "u", words.dtype
    assert 0 < part.bits <= 8 * item, part.bits
    assert 0 <= part.part[0] < part.part[1]
    head = _PART.pack(len(name), *part.part, part.bits, item, words.ndim)
    return head + name + struct.pack(f"<{words.ndim}Q", *words.shape)


def _unwritable(path: Path, error: OSError) -> ResourceLimitError | UsageError:
    told = f"{path} can't be written: {error.strerror}."
    if error.errno in _FULL:
        return ResourceLimitError(told, "What was there before is whole; make room.")
    return UsageError(told, "Choose a place that is yours.")


# Reading


def read_at_rest(path: Path, expected: AtRest, key: bytes | Lock) -> Iterator[Part]:
    """The parts of a file, in order, each read and authenticated when it is asked for.

    The head, the key and the end are checked before this returns; a changed byte in the middle is
    told when it is reached. So use nothing of a file before all of it was read.

    Args:
        expected: what the file must be, its number included; `header_of` says what it claims.

    Raises:
        UsageError: no such file, none of this format, or one of another version.
        SecurityAbort: a file of another kind, party, binding, session, number or key; an older one;
            one that was changed or cut short.
    """
    lock = key if isinstance(key, Lock) else Lock(OWN, key)
    file = _opened(path)
    try:
        head = _read_head(file, path)
        _require(path, head, expected, lock)
        reader = ChunkReader(file, path, ChunkKeys.of(lock.key, head.raw))
        reader.require_end()
    except BaseException:
        file.close()
        raise
    return _parts(reader)


def header_of(path: Path) -> AtRest:
    """What a file claims to be; nothing holds it before `read_at_rest` has opened the file.

    Raises:
        UsageError: as `read_at_rest`.
    """
    with _opened(path) as file:
        return _read_head(file, path).header


def is_at_rest(path: Path) -> bool:
    """Whether a file is of this format, as far as its first bytes say."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def lock_of(path: Path) -> tuple[int, bytes]:
    """How the key of a file is found, and its ephemeral public key; see `Lock`.

    Raises:
        UsageError: as `read_at_rest`.
    """
    with _opened(path) as file:
        head = _read_head(file, path)
    return head.how, head.ephemeral


@dataclass(frozen=True)
class _Head:
    raw: bytes
    how: int
    header: AtRest
    ephemeral: bytes
    salt: bytes
    check: bytes


def _opened(path: Path) -> IO[bytes]:
    """The file, if it is one: neither a folder nor a pipe, which would be waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.", _HINT) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(f"{path} is no file.", _HINT)
    return os.fdopen(descriptor, "rb")


def _read_head(file: IO[bytes], path: Path) -> _Head:
    raw = file.read(_HEAD.size)
    if len(raw) < _HEAD.size and MAGIC.startswith(raw[: len(MAGIC)]):
        raise UsageError(f"{path} is {'cut short' if raw else 'empty'}.", _HINT_WHOLE)
    if len(raw) != _HEAD.size or not raw.startswith(MAGIC):
        raise UsageError(f"{path} holds no shares at rest.", _HINT)
    _, version, how, *rest = _HEAD.unpack(raw)
    if version != FORMAT:
        raise UsageError(
            f"{path} is of format {version}, and this Veilgraph reads format {FORMAT}.",
            "Use the version of Veilgraph that wrote it.",
        )
    kind, party, binding, session, number, *keys = rest
    header = AtRest(_text(kind), _text(party), binding, session, number)
    return _Head(raw, how, header, *keys)


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode("ascii", "replace")


def _require(path: Path, head: _Head, expected: AtRest, lock: Lock) -> None:
    """That a file claims to be what is expected, and that the key is the file's."""
    for differs, told, hint in _differences(head.header, expected):
        if differs:
            raise SecurityAbort(f"{path} {told}.", hint)
    is_key = hmac.compare_digest(head.check, _check(lock.key, head.salt))
    if head.how != lock.how or not is_key:
        raise SecurityAbort(
            f"{path} doesn't open with {expected.party}'s private key.",
            "It was written with another key, or its head was changed.",
        )


def _differences(found: AtRest, expected: AtRest) -> tuple[tuple[bool, str, str], ...]:
    """Whether a file is another than expected, what is said of it then, and a hint."""
    number, last = found.number, expected.number
    return (
        (
            found.kind != expected.kind,
            f"holds {found.kind}, and {expected.kind} is expected",
            "Give the file for this purpose.",
        ),
        (
            found.party != expected.party,
            f"is {found.party}'s, and this is {expected.party}",
            "Each party reads its own file alone.",
        ),
        (
            found.binding != expected.binding,
            "belongs to another plan, or to arrays of another layout",
            "Give the file that was written for this plan.",
        ),
        (
            found.session != expected.session,
            "was written in another session",
            "All parties must give files of one session.",
        ),
        (
            number < last,
            f"is of run {number}, older than run {last}, which is known",
            "An older copy was put back; give the newest one.",
        ),
        (
            number > last,
            f"is of run {number}, and run {last} is expected",
            "All parties must give files of one run.",
        ),
    )


def _parts(reader: ChunkReader) -> Iterator[Part]:
    seen = set()
    with reader.file:
        while reader.left:
            try:
                part = _part(reader)
            except OSError as error:
                raise UsageError(
                    f"{reader.path} can't be read: {error.strerror}.", _HINT
                ) from error
            except ValueError as error:  # a name or a shape that none can have
                raise reader.changed() from error
            if (part.name, part.part) in seen:
                raise reader.changed()
            seen.add((part.name, part.part))
            yield part


def _part(reader: ChunkReader) -> Part:
    size, part, parts, bits, item, axes = _PART.unpack(reader.read(_PART.size))
    if item not in (1, 2, 4, 8) or not 0 < bits <= 8 * item or part >= parts or axes > _MOST_AXES:
        raise reader.changed()
    name = reader.read(size).decode()
    shape = struct.unpack(f"<{axes}Q", reader.read(8 * axes))
    reader.bounded(math.prod(shape) * item)
    words = np.empty(shape, f"<u{item}")
    reader.read_into(words.reshape(-1).view(np.uint8).data)
    return Part(name, (part, parts), bits, words)

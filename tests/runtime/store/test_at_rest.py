"""Shares at rest: what is written is read; every other file is refused."""

from __future__ import annotations

import errno
import os
import resource
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veilgraph.ir.errors import ResourceLimitError, SecurityAbort, UsageError, VeilgraphError
from veilgraph.runtime.store import at_rest, sealed_chunks
from veilgraph.runtime.store.at_rest import (
    NONE,
    PUBLIC_KEY,
    AtRest,
    Lock,
    Part,
    at_rest_key,
    header_of,
    lock_of,
    read_at_rest,
    write_at_rest,
)

KEY = at_rest_key(bytes(range(32)), "state")
HEADER = AtRest("state", "alice", b"p" * 32, b"s" * 32, 5)
HEAD = 232
CHUNK = 64
SEALED = CHUNK + 28


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_chunks, "CHUNK_BYTES", CHUNK)


def parts(count: int = 3) -> Iterator[Part]:
    draw = np.random.default_rng(7)
    for i in range(count):
        yield Part("w/ü", (i, count), 40, draw.integers(0, 1 << 40, (i + 1, 3), np.uint64))


def written(folder: Path, header: AtRest = HEADER, key: bytes | Lock = KEY) -> Path:
    write_at_rest(folder / "file", header, parts(), key)
    return folder / "file"


def assert_same(found: Part, expected: Part) -> None:
    assert (found.name, found.part, found.bits) == (expected.name, expected.part, expected.bits)
    assert (found.array.shape, found.array.dtype) == (expected.array.shape, expected.array.dtype)
    np.testing.assert_array_equal(found.array, expected.array)


# What is written is read


def test_round_trip(tmp_path: Path) -> None:
    path = written(tmp_path)
    for found, expected in zip(read_at_rest(path, HEADER, KEY), parts(), strict=True):
        assert_same(found, expected)
    assert path.stat().st_mode & 0o777 == 0o600
    assert header_of(path) == HEADER
    assert lock_of(path) == (at_rest.OWN, bytes(32))


@pytest.mark.parametrize("size", [0, 1, 2, 35, 36, 37, 38, 52, 53, 54, 99, 100, 101, 102, 640])
def test_content_of_any_length(tmp_path: Path, size: int) -> None:
    """Around the ends of chunks: a part of `size` bytes has a head of 19."""
    content = np.arange(size).astype(np.uint8)
    write_at_rest(tmp_path / "file", HEADER, [Part("m", (0, 1), 8, content)], KEY)
    (found,) = read_at_rest(tmp_path / "file", HEADER, KEY)
    np.testing.assert_array_equal(found.array, content)


def test_no_parts_at_all(tmp_path: Path) -> None:
    write_at_rest(tmp_path / "file", HEADER, [], KEY)
    assert list(read_at_rest(tmp_path / "file", HEADER, KEY)) == []
    assert (tmp_path / "file").stat().st_size == HEAD + 28


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((), np.uint32),
        np.zeros((0, 3), np.uint64),
        np.arange(24, dtype=np.uint16).reshape(4, 6).T[1:, ::2],
        np.arange(5, dtype=">u4"),
        np.arange(100, dtype=np.uint8),
    ],
)
def test_arrays_of_any_layout(tmp_path: Path, array: np.ndarray) -> None:
    write_at_rest(tmp_path / "file", HEADER, [Part("x", (1, 2), 7, array)], KEY)
    (found,) = read_at_rest(tmp_path / "file", HEADER, KEY)
    assert found.array.shape == array.shape
    assert found.array.dtype == array.dtype.newbyteorder("<")
    np.testing.assert_array_equal(found.array, array)


@pytest.mark.parametrize(
    "part",
    [
        Part("x", (0, 1), 64, np.zeros(3, np.uint32)),
        Part("x", (0, 1), 32, np.zeros(3, np.float32)),
        Part("x", (2, 2), 32, np.zeros(3, np.uint32)),
    ],
)
def test_parts_that_are_none_are_not_written(tmp_path: Path, part: Part) -> None:
    with pytest.raises(AssertionError):
        write_at_rest(tmp_path / "file", HEADER, [part], KEY)
    assert list(tmp_path.iterdir()) == []


def test_two_parts_of_one_name_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        write_at_rest(tmp_path / "file", HEADER, [*parts(), *parts()], KEY)
    assert list(tmp_path.iterdir()) == []


# What is refused

Differing = tuple[AtRest, str, str]
OTHERS: tuple[Differing, ...] = (
    (replace(HEADER, kind="checkpoint"), "holds state, and checkpoint is expected", "purpose"),
    (replace(HEADER, party="bob"), "is alice's, and this is bob", "its own file alone"),
    (replace(HEADER, binding=b"q" * 32), "belongs to another plan", "for this plan"),
    (replace(HEADER, session=b"t" * 32), "was written in another session", "of one session"),
    (replace(HEADER, number=6), "is of run 5, older than run 6", "older copy was put back"),
    (replace(HEADER, number=4), "is of run 5, and run 4 is expected", "files of one run"),
)


@pytest.mark.parametrize(("expected", "sentence", "hint"), OTHERS)
def test_files_of_something_else(
    tmp_path: Path, expected: AtRest, sentence: str, hint: str
) -> None:
    with pytest.raises(SecurityAbort, match=sentence) as caught:
        read_at_rest(written(tmp_path), expected, KEY)
    assert hint in caught.value.hint
    assert caught.value.exit_code == 6


@pytest.mark.parametrize(("claimed", "_sentence", "_hint"), OTHERS)
def test_a_head_that_was_changed_to_what_is_expected(
    tmp_path: Path, claimed: AtRest, _sentence: str, _hint: str
) -> None:
    """Its claims are plain, and the file's keys are of all of it."""
    path = written(tmp_path)
    other = written(tmp_path / ".." / tmp_path.name, claimed).read_bytes()[:136]
    content = written(tmp_path).read_bytes()
    path.write_bytes(other + content[136:])
    assert header_of(path) == claimed
    with pytest.raises(SecurityAbort, match="was changed, or is cut short"):
        read_at_rest(path, claimed, KEY)


def test_another_key(tmp_path: Path) -> None:
    for secret, purpose in ((bytes(32), "state"), (bytes(range(32)), "data")):
        with pytest.raises(SecurityAbort, match="doesn't open with alice's private key") as caught:
            read_at_rest(written(tmp_path), HEADER, at_rest_key(secret, purpose))
        assert "another key" in caught.value.hint


def test_another_lock(tmp_path: Path) -> None:
    """Under no key a file is anybody's: it doesn't pass for one of the party's own."""
    for mine, theirs in ((Lock(NONE, KEY), KEY), (KEY, Lock(NONE, KEY))):
        with pytest.raises(SecurityAbort, match="doesn't open with"):
            read_at_rest(written(tmp_path, key=theirs), HEADER, mine)
    path = written(tmp_path, key=Lock(PUBLIC_KEY, KEY, b"e" * 32))
    assert lock_of(path) == (PUBLIC_KEY, b"e" * 32)
    assert len(list(read_at_rest(path, HEADER, Lock(PUBLIC_KEY, KEY, b"e" * 32)))) == 3


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(UsageError, match="can't be read: No such file") as caught:
        read_at_rest(path, HEADER, KEY)
    assert caught.value.exit_code == 2
    with pytest.raises(UsageError, match="is no file"):
        read_at_rest(tmp_path, HEADER, KEY)
    told = {b"": "is empty", b"veilrest": "is cut short", bytes(500): "holds no shares at rest"}
    for content, said in told.items():
        path.write_bytes(content)
        with pytest.raises(UsageError, match=said):
            read_at_rest(path, HEADER, KEY)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsageError, match="is no file"):
        header_of(path)


def test_another_format(tmp_path: Path) -> None:
    path = written(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:8] + struct.pack("<I", 2) + content[12:])
    with pytest.raises(
        UsageError, match="is of format 2, and this Veilgraph reads format 1"
    ) as caught:
        read_at_rest(path, HEADER, KEY)
    assert "version" in caught.value.hint


def refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(VeilgraphError) as caught:
        list(read_at_rest(path, HEADER, KEY))
    assert caught.value.exit_code in (2, 6)
    assert caught.value.hint


def test_files_cut_short_at_any_byte(tmp_path: Path) -> None:
    """Before any part is handed out, wherever the cut is."""
    path = written(tmp_path)
    whole = path.read_bytes()
    assert len(whole) > HEAD + 3 * SEALED
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(VeilgraphError):
            read_at_rest(path, HEADER, KEY)


def test_any_flipped_bit(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    for i in range(len(whole)):
        refused(path, whole[:i] + bytes([whole[i] ^ (1 << i % 8)]) + whole[i + 1 :])


def test_chunks_in_another_place(tmp_path: Path) -> None:
    path = written(tmp_path)
    head, *body = whole_chunks(path.read_bytes())
    a, b, c, last = body
    other = whole_chunks(written(tmp_path).read_bytes())  # the same content, written again
    for changed in (
        [b, a, c, last],
        [a, c, last],
        [a, b, c],
        [a, b, b, c, last],
        [a, b, c, last, last],
        [a, b, c, c],
        [a, other[2], c, last],
        [a, b, c, other[4]],
        [a, b, c, last[:-1]],
        [a, b, c, last, b"\0"],
        [last],
        [],
    ):
        refused(path, b"".join((head, *changed)))
    refused(path, b"".join((other[0], *body)))


def whole_chunks(content: bytes) -> list[bytes]:
    starts = range(HEAD, len(content), SEALED)
    return [content[:HEAD], *(content[i : i + SEALED] for i in starts)]


# Other ways in


def test_a_length_that_is_a_lie_takes_no_memory(tmp_path: Path) -> None:
    """A sparse file of a terabyte, and ones whose end was pushed away by zeros."""
    path = written(tmp_path)
    size = path.stat().st_size
    for length in (size + 1, size + SEALED, 1 << 40):
        os.truncate(path, length)
        with pytest.raises(SecurityAbort, match="is cut short"):
            read_at_rest(path, HEADER, KEY)


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    path = written(tmp_path)
    content = path.read_bytes()
    for damage in (
        lambda: os.truncate(path, HEAD + SEALED + 9),
        lambda: path.write_bytes(bytes(9)),
    ):
        path.write_bytes(content)
        found = read_at_rest(path, HEADER, KEY)
        damage()
        with pytest.raises(SecurityAbort, match="is cut short"):
            list(found)


def test_a_head_steers_no_terminal(tmp_path: Path) -> None:
    path = written(tmp_path)
    content = path.read_bytes()
    for at in (16, 32):
        path.write_bytes(content[:at] + b"\x1b[2J\x9b\xff" + content[at + 6 :])
        with pytest.raises(SecurityAbort) as caught:
            read_at_rest(path, HEADER, KEY)
        assert caught.value.message.isprintable()
        assert "\\x1b" in caught.value.message


def test_what_follows_the_zeros_of_a_name_is_not_ignored(tmp_path: Path) -> None:
    path = written(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:40] + b"x" + content[41:])
    with pytest.raises(SecurityAbort, match="and this is alice"):
        read_at_rest(path, HEADER, KEY)


def test_no_file_opens_with_two_keys(tmp_path: Path) -> None:
    """AES-GCM alone lets one ciphertext have two keys; what checks the key has one."""
    path = written(tmp_path)
    other = at_rest_key(bytes(32), "state")
    content, salt = path.read_bytes(), written(tmp_path, key=other).read_bytes()[168:232]
    path.write_bytes(content[:168] + salt + content[232:])
    for key in (KEY, other):
        with pytest.raises(SecurityAbort):
            read_at_rest(path, HEADER, key)


# Content that somebody who has the key made up


def crafted(folder: Path, content: bytes) -> Path:
    with (folder / "file").open("wb") as file:
        lock = Lock(NONE, bytes(32))
        head = at_rest._head(HEADER, lock)
        file.write(head)
        chunks = sealed_chunks.ChunkWriter(file, sealed_chunks.ChunkKeys.of(lock.key, head))
        chunks.write(memoryview(content))
        chunks.finish()
    return folder / "file"


def part_head(
    name: bytes = b"w",
    part: int = 0,
    parts: int = 1,
    bits: int = 8,
    item: int = 1,
    shape: tuple[int, ...] = (2,),
) -> bytes:
    head = struct.pack("<HHHHBB", len(name), part, parts, bits, item, len(shape))
    return head + name + struct.pack(f"<{len(shape)}Q", *shape)


def test_a_crafted_file_is_one_where_it_holds_what_it_says(tmp_path: Path) -> None:
    path = crafted(tmp_path, part_head() + b"ab")
    (found,) = read_at_rest(path, HEADER, Lock(NONE, bytes(32)))
    assert found.array.tolist() == [97, 98]


@pytest.mark.parametrize(
    "content",
    [
        part_head(shape=(1 << 40,)) + b"ab",
        part_head(shape=(1 << 63, 2)) + b"ab",
        part_head(shape=(1 << 63, 0)) + b"ab",
        part_head(shape=(3,)) + b"ab",
        part_head(shape=(1,) * 33) + b"ab",
        part_head(part=1) + b"ab",
        part_head(parts=0) + b"ab",
        part_head(bits=0) + b"ab",
        part_head(bits=9) + b"ab",
        part_head(item=3, shape=()) + b"abc",
        part_head(name=b"\xff") + b"ab",
        2 * (part_head() + b"ab"),
        part_head() + b"abc",
        part_head()[:9],
        b"\xff" * 300,
    ],
)
def test_lengths_and_names_are_checked_before_memory_is_taken(
    tmp_path: Path, content: bytes
) -> None:
    path = crafted(tmp_path, content)
    with pytest.raises(SecurityAbort, match="was changed"):
        list(read_at_rest(path, HEADER, Lock(NONE, bytes(32))))


# Writing


def test_two_writes_of_one_content_have_nothing_in_common(tmp_path: Path) -> None:
    one, two = (written(tmp_path).read_bytes() for _ in range(2))
    assert one[:136] == two[:136]
    same = sum(a == b for a, b in zip(one[168:], two[168:], strict=True))
    assert same < len(one) // 16


def test_randomness_that_repeats_encrypts_no_two_contents_under_one_nonce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_rest, "fresh_nonce", lambda: bytes(32))

    def chunks(content: bytes) -> list[bytes]:
        part = Part("x", (0, 1), 8, np.frombuffer(content, np.uint8))
        write_at_rest(tmp_path / "file", HEADER, [part], KEY)
        return whole_chunks((tmp_path / "file").read_bytes())[1:]

    one, two, again = chunks(bytes(300)), chunks(bytes(299) + b"\1"), chunks(bytes(300))
    assert one == again
    assert one[-1][:12] != two[-1][:12]
    assert one[:-1] == two[:-1]  # that equal chunks are equal is all that shows
    assert len({each[:12] for each in one}) == len(one)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = written(tmp_path).read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceLimitError, match="can't be written: No space left") as caught:
        written(tmp_path)
    assert caught.value.exit_code == 7
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == before


def test_a_place_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be written: No such file"):
        written(tmp_path / "nowhere")
    (tmp_path / "file").mkdir()
    with pytest.raises(UsageError, match="can't be written: Is a directory"):
        written(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_parts_that_fail_leave_the_old_file(tmp_path: Path) -> None:
    before = written(tmp_path).read_bytes()

    def fails() -> Iterator[Part]:
        yield from parts()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_at_rest(tmp_path / "file", HEADER, fails(), KEY)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == before


def test_files_are_closed(tmp_path: Path) -> None:
    path = written(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    calls: tuple[Callable[[], object], ...] = (
        lambda: header_of(path),
        lambda: list(read_at_rest(path, HEADER, KEY)),
        lambda: next(read_at_rest(path, HEADER, KEY)),
        lambda: read_at_rest(path, HEADER, KEY),
    )
    for call in calls:
        call()
        assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(SecurityAbort):
        read_at_rest(path, HEADER, bytes(32))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_key_is_never_printed() -> None:
    assert KEY.hex() not in repr(Lock(NONE, KEY))
    assert repr(KEY) not in repr(Lock(NONE, KEY))


@pytest.mark.slow
def test_a_file_is_neither_written_nor_read_whole(tmp_path: Path) -> None:
    """400 MB in parts of 4, in a process that may take 100 MiB more than it begins with."""
    code = f"""
import resource, sys
from pathlib import Path
import numpy as np
from veilgraph.runtime.store.at_rest import AtRest, Part, read_at_rest, write_at_rest
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * {resource.getpagesize()} + (100 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
header, path = AtRest("weights", "alice", bytes(32), bytes(32)), Path(sys.argv[1])
parts = (Part("w", (i, 100), 64, np.full(500_000, i, np.uint64)) for i in range(100))
write_at_rest(path, header, parts, bytes(32))
total = sum(int(part.array.sum()) for part in read_at_rest(path, header, bytes(32)))
assert total == 500_000 * 4950
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "file"], capture_output=True)
    assert done.returncode == 0, done.stderr

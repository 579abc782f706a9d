"""Sealed files: whole or not there, opened by who has the secret, for what they are."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from veilgraph.runtime import sealed_files
from veilgraph.runtime.sealed_files import MAGIC, SALT_BYTES, read_sealed, write_sealed

SECRET = bytes(range(32))
HEAD = len(MAGIC) + SALT_BYTES


def written(folder: Path, content: bytes, purpose: bytes = b"test") -> bytes:
    write_sealed(folder / "file", SECRET, purpose, content)
    return (folder / "file").read_bytes()


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 31, 32, 33])
def test_files_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(sealed_files, "CHUNK_BYTES", 16)
    content = os.urandom(size)
    assert read_sealed(written(tmp_path, content), SECRET, b"test") == content
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_what_does_not_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_files, "CHUNK_BYTES", 16)
    sealed = written(tmp_path, bytes(48))
    chunk = 8 + 16 + 16  # its length, content, tag
    one, two, three = (sealed[HEAD + chunk * i :][:chunk] for i in range(3))
    head = sealed[:HEAD]
    assert read_sealed(head + one + two + three, SECRET, b"test") == bytes(48)
    changed = [sealed[:i] + bytes([sealed[i] ^ 1]) + sealed[i + 1 :] for i in range(len(sealed))]
    moved = [head + two + one + three, head + one + two, head + one, head, head[:5], b""]
    other = [head + struct.pack("<Q", 1 << 62) + one[8:]]
    for content in (*changed, *moved, *other):
        with pytest.raises(ValueError, match="sealed"):
            read_sealed(content, SECRET, b"test")
    for secret, purpose in ((SECRET, b"tests"), (bytes(32), b"test")):
        with pytest.raises(ValueError, match="sealed otherwise"):
            read_sealed(sealed, secret, purpose)


def test_randomness_that_repeats_encrypts_no_two_contents_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One key and nonce for two contents would give their difference away."""
    monkeypatch.setattr(sealed_files, "fresh_nonce", lambda: bytes(32))
    one, two = written(tmp_path, bytes(64)), written(tmp_path, bytes(63) + b"\1")
    assert one[len(MAGIC) : HEAD] != two[len(MAGIC) : HEAD]
    assert one[HEAD + 8 :][:32] != two[HEAD + 8 :][:32]
    assert one == written(tmp_path, bytes(64))


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = written(tmp_path, b"before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        written(tmp_path, b"after")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == before


def test_what_lies_beside_it_is_neither_followed_nor_taken_over(tmp_path: Path) -> None:
    """A file of another's making, or a link out of the folder, in the place of any fixed name."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("file", "file.partial"):
        (folder / name).symlink_to(victim)
    written(folder, b"content")
    assert victim.read_text() == "precious"
    assert not (folder / "file").is_symlink()
    (folder / "file").chmod(0o666)
    written(folder, b"content")
    assert (folder / "file").stat().st_mode & 0o777 == 0o600


def test_two_writers_at_once_leave_one_content_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, contents = os.fsync, [b"one" * 1000, b"another" * 500]

    def meanwhile(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        written(tmp_path, contents[1])
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", meanwhile)
    assert read_sealed(written(tmp_path, contents[0]), SECRET, b"test") == contents[0]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

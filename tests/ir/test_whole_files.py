"""Files are put in place whole: at each failure the old content stays, and nothing else."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from veilgraph.ir.files.whole_files import PUBLIC, placed_whole


def put(path: Path, content: bytes) -> None:
    with placed_whole(path) as file:
        file.write(content)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    put(tmp_path / "file", b"before")
    return tmp_path / "file"


def test_what_was_written_is_there(path: Path) -> None:
    put(path, b"after")
    assert path.read_bytes() == b"after"
    assert names(path.parent) == ["file"]


def test_a_pipe_or_a_device_is_not_replaced(tmp_path: Path) -> None:
    place = tmp_path / "pipe"
    os.mkfifo(place)
    with pytest.raises(OSError, match="no file"), placed_whole(place):
        pass
    assert place.is_fifo()
    assert names(tmp_path) == ["pipe"]


def test_modes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.chmod(0o644)
    put(path, b"after")
    assert path.stat().st_mode & 0o777 == 0o600
    before = os.umask(0o027)
    try:
        with placed_whole(path, PUBLIC):
            pass
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_nobody_reads_a_private_file_while_it_is_written(path: Path) -> None:
    with placed_whole(path) as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600
        assert path.read_bytes() == b"before"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        put(path, b"after")
    assert names(path.parent) == ["file"]
    assert path.read_bytes() == b"before"


def test_a_limit_of_the_system(path: Path) -> None:
    """A real one, of file sizes: writing fails in the middle."""
    code = """
import resource, signal, sys
from pathlib import Path
from veilgraph.ir.files.whole_files import placed_whole
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
with placed_whole(Path(sys.argv[1])) as file:
    file.write(bytes(1 << 20))
"""
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert "File too large" in done.stderr
    assert names(path.parent) == ["file"]
    assert path.read_bytes() == b"before"


def test_a_folder_that_is_not_there_or_not_ours(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError):
        put(path.parent / "nowhere" / "file", b"after")

    def refused(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refused)  # root may write anywhere
    with pytest.raises(PermissionError):
        put(path, b"after")
    assert names(path.parent) == ["file"]


def test_a_folder_in_the_way(path: Path) -> None:
    folder = path.parent / "taken"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        put(folder, b"after")
    assert sorted(names(path.parent)) == ["file", "taken"]


def test_an_interrupt_in_the_middle(path: Path) -> None:
    """A real one: the block waits, half written, for SIGINT."""
    code = """
import sys, time
from pathlib import Path
from veilgraph.ir.files.whole_files import placed_whole
with placed_whole(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("half", flush=True)
    time.sleep(60)
"""
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        assert len(names(path.parent)) == 2
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != 0
    assert names(path.parent) == ["file"]
    assert path.read_bytes() == b"before"


def test_two_writers_at_once(path: Path) -> None:
    with placed_whole(path) as one:
        one.write(b"one" * 1000)
        with placed_whole(path) as another:
            another.write(b"another" * 500)
        assert path.read_bytes() == b"another" * 500
    assert path.read_bytes() == b"one" * 1000
    assert names(path.parent) == ["file"]


def test_a_writer_that_fails_takes_nothing_from_another(path: Path) -> None:
    with suppress(KeyboardInterrupt), placed_whole(path) as one:
        one.write(b"one")
        put(path, b"another")
        raise KeyboardInterrupt
    assert names(path.parent) == ["file"]
    assert path.read_bytes() == b"another"


def test_links_in_the_way_are_not_followed(path: Path) -> None:
    folder = path.parent / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(path)
    (folder / "link.partial").symlink_to(path)
    put(folder / "link", b"after")
    assert path.read_bytes() == b"before"
    assert not (folder / "link").is_symlink()

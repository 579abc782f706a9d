"""A session id is spent once, whatever happens to the process."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from veilgraph.ir.errors import UsageError
from veilgraph.runtime.session.session_ids import SpentSessions

IDS = [bytes([i]) * 32 for i in range(3)]


def test_an_id_is_spent_once(tmp_path: Path) -> None:
    spent = SpentSessions(tmp_path / "state", "alice")
    assert [spent.spend(each) for each in IDS] == [[True]] * 3
    again = SpentSessions(tmp_path / "state", "alice")
    assert [again.spend(each) for each in IDS] == [[False]] * 3


def test_several_at_once(tmp_path: Path) -> None:
    spent = SpentSessions(tmp_path, "alice")
    assert spent.spend(IDS[0]) == [True]
    assert spent.spend(IDS[1], IDS[0], IDS[2]) == [True, False, True]
    assert spent.path.read_text().splitlines() == [IDS[i].hex() for i in (0, 1, 2)]


def test_a_look_up_after_many_sessions_takes_no_time(tmp_path: Path) -> None:
    """100,000 sessions of three parties; lines that begin alike are told apart."""
    spent, like_the_first = SpentSessions(tmp_path, "alice"), IDS[0][:31] + b"\7"
    lines = [IDS[0].hex(), *(f"{i * 14_000:08x}{0:056x}" for i in range(1, 300_001))]
    spent.path.write_text("\n".join(lines) + "\n")
    start = time.process_time()
    assert spent.spend(IDS[0], like_the_first, IDS[1]) == [False, True, True]
    assert time.process_time() - start < 1
    assert spent.path.stat().st_size == 65 * 300_003


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = SpentSessions(tmp_path, "alice")
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, content, at: write(file, content[:10], at))
    with pytest.raises(UsageError, match="can't be used"):
        spent.spend(IDS[0])
    monkeypatch.undo()
    assert spent.spend(IDS[0]) == [True]


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    spent = SpentSessions(tmp_path / "state", "alice")
    spent.spend(IDS[0])
    assert spent.path.stat().st_mode & 0o777 == 0o600
    assert spent.path.parent.stat().st_mode & 0o777 == 0o700


def test_parties_of_one_host_share_a_folder(tmp_path: Path) -> None:
    assert SpentSessions(tmp_path, "alice").spend(IDS[0]) == [True]
    assert SpentSessions(tmp_path, "bob").spend(IDS[0]) == [True]


def test_a_line_cut_short_by_a_crash_is_dropped(tmp_path: Path) -> None:
    spent = SpentSessions(tmp_path, "alice")
    spent.spend(IDS[0])
    with spent.path.open("ab") as file:
        file.write(IDS[1].hex().encode()[:40])
    assert spent.spend(IDS[1], IDS[0]) == [True, False]
    assert spent.path.read_text().splitlines() == [IDS[0].hex(), IDS[1].hex()]


def test_a_file_that_something_else_wrote_to(tmp_path: Path) -> None:
    spent = SpentSessions(tmp_path, "alice")
    spent.path.write_text("not a list of ids\n" * 10)
    with pytest.raises(UsageError, match="holds something else than spent session ids"):
        spent.spend(IDS[0])


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(UsageError, match="can't be used") as caught:
        SpentSessions(tmp_path / "state", "alice").spend(IDS[0])
    assert "state_dir" in caught.value.hint


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    spent = SpentSessions(tmp_path, "alice")
    os.symlink(tmp_path / "elsewhere", spent.path)
    with pytest.raises(UsageError, match="can't be used"):
        spent.spend(IDS[0])
    assert not (tmp_path / "elsewhere").exists()


def _spend(folder: Path, session_id: bytes) -> bool:
    return SpentSessions(folder, "alice").spend(session_id) == [True]


def test_of_processes_at_once_one_wins(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        won = pool.starmap(_spend, [(tmp_path, each) for each in IDS for _ in range(4)])
    assert sum(won) == len(IDS)

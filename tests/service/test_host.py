"""How soon a party looks for the others again."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from serving import Hospital

from veilgraph.ir.errors import PeerError
from veilgraph.runtime.links.tls import Channel
from veilgraph.runtime.service.host import Host
from veilgraph.runtime.session.config import Config

SPELL = 1.5  # seconds


def attempts(folder: Path) -> int:
    """How often in SPELL seconds, where every attempt fails at once."""
    hospital = Hospital(folder, ["alice", "bob", "carol"])
    count = 0

    def connect() -> Mapping[int, Channel]:
        nonlocal count
        count += 1
        raise PeerError("No link to carol.", "")

    config = Config.load(hospital.folder / "alice.yaml")
    host = Host(lambda: config, connect, b"", [], list)
    thread = threading.Thread(target=host.run)
    thread.start()
    time.sleep(SPELL)
    host.leave()
    thread.join(10)
    return count


def test_what_fails_at_once_is_tried_less_and_less_often(tmp_path: Path) -> None:
    assert 2 <= attempts(tmp_path) <= 5


def test_who_waited_for_others_looks_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two parties that pause as long as they look, one while the other does, never meet."""
    monkeypatch.setattr("veilgraph.runtime.service.host._SOON_SECONDS", -1.0)
    assert attempts(tmp_path) > 5

"""How long certificates are good for, and who is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from three_parties import dated, write_parties

from veilgraph.runtime.session.certificates import issue
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.peer_status import ends
from veilgraph.runtime.session.setup import config_of


def test_an_end_that_is_near_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write_parties(tmp_path)["alice"]
    config_of(file, "alice")
    assert not caplog.text
    dated(tmp_path, "bob", datetime.now(UTC), 12)
    config_of(file, "alice")
    assert "The certificate of bob ends at " in caplog.text
    assert "in 11 days: `veilgraph cert issue bob --beside`" in caplog.text
    caplog.clear()
    issue(tmp_path, "bob", beside=True)
    config_of(file, "alice")
    assert not caplog.text


def test_a_party_is_warned_of_the_certificate_that_it_shows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own next one helps the others alone, until it is the one shown."""
    file = write_parties(tmp_path)["alice"]
    dated(tmp_path, "alice", datetime.now(UTC), 12)
    issue(tmp_path, "alice", beside=True)
    config_of(file, "alice")
    assert "The certificate of alice ends at " in caplog.text
    left = ends(Config.load(file))
    assert left["alice"] - datetime.now(UTC) < timedelta(days=12)
    assert left["carol"] - datetime.now(UTC) > timedelta(days=800)

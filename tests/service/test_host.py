"""A party's links: how soon it looks for the others again, and that all plans go over the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml
from serving import SAMPLES, Hospital, W, answer_to, compiled, members, until

from veilgraph.ir.errors import PeerError
from veilgraph.runtime.links.tls import Channel
from veilgraph.runtime.service.host import Host
from veilgraph.runtime.session.config import Config
from veilgraph.serving.client import Client

SPELL = 1.5  # seconds
TCP, ESTABLISHED = Path("/proc/net/tcp"), "01"


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


def connections(hospital: Hospital) -> set[str]:
    """Those that are up at the parties' ports, by both ends' addresses."""
    listed = yaml.safe_load((hospital.folder / "alice.yaml").read_text())["parties"]
    ports = {each["port"] for each in listed}
    rows = [line.split() for line in TCP.read_text().splitlines()[1:]]
    return {
        f"{row[1]} {row[2]}"
        for row in rows
        if row[3] == ESTABLISHED and int(row[1].partition(":")[2], 16) in ports
    }


@pytest.mark.skipif(not TCP.exists(), reason="the system does not list connections in /proc")
def test_a_request_of_another_plan_opens_no_link(tmp_path: Path) -> None:
    """Nor does a reload with which the plan comes: the client's own connections alone are new."""
    plan, weights = compiled("rep3")
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        links = connections(hospital)
        assert len(links) == 3
        hospital.put("other/1", *compiled("rep3", -W))
        for each in services.values():
            each.reload()
        until(lambda: all(len(each.served) == 2 for each in services.values()))
        for name, w in (("small", W), ("other", -W)):
            with Client(name, hospital.client) as client:
                y = client.run({"x": SAMPLES[0]})["y"]
                np.testing.assert_allclose(y, answer_to(SAMPLES[0], w), atol=0.01)
                own = {link.getsockname()[1] for link in client._links.values()}
                new = connections(hospital) - links
                assert {int(each.rpartition(":")[2], 16) for each in new} == own
            until(lambda: connections(hospital) == links)
        assert [each._host.counts.sessions for each in services.values()] == [1] * 3

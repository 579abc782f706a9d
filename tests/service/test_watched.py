"""What a party tells who watches it."""

from __future__ import annotations

import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from serving import SAMPLES, Hospital, compiled, members, until

from veilgraph.ir.errors import UsageError
from veilgraph.measuring.processes import free_ports
from veilgraph.runtime.service.watched import Watched
from veilgraph.serving.client import Client


def page(port: int, name: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def hospital(tmp_path: Path) -> Hospital:
    plan, weights = compiled("rep3")
    found = Hospital(tmp_path, members(plan))
    found.put("small/1", plan, weights)
    return found


def test_counts_health_and_readiness(hospital: Hospital) -> None:
    with free_ports(1) as (port,):
        pass
    watched = hospital.service("alice", watch_port=port)
    assert page(port, "health") == (200, "alive\n")
    assert page(port, "ready") == (503, "not ready\n")
    assert page(port, "secrets")[0] == 404
    watched.close()
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        services["alice"]._watched = Watched(services["alice"]._host, port)
        until(lambda: page(port, "ready") == (200, "ready\n"))
        with Client("small", hospital.client) as client:
            for _ in range(3):
                client.run({"x": SAMPLES[0]})
        until(lambda: 'requests_answered_total{model="small/1"} 3.0' in page(port, "metrics")[1])
        text = page(port, "metrics")[1]
        assert 'veilgraph_inferences_ahead{model="small/1"}' in text
        assert "veilgraph_sessions_total 1.0" in text
        assert "veilgraph_models 1.0" in text
        assert 'veilgraph_certificate_end_seconds{party="bob"} 1.8' in text  # after 2027


def test_a_port_that_is_taken(hospital: Hospital) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match="can't be had"):
            hospital.service("alice", watch_port=port)


def test_without_the_package(hospital: Hospital, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError, match="prometheus_client, and it is not here"):
        hospital.service("alice", watch_port=1)

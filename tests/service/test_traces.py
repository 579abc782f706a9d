"""`serve --trace`: when each step of the latest inferences ran, at all parties on one time line."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from serving import SAMPLES, Hospital, answer_to, compiled, members, until

from veilgraph.cli import main
from veilgraph.ir.errors import UsageError
from veilgraph.reports.tracing import FACTS
from veilgraph.serving import traces as traces_module
from veilgraph.serving.client import Client
from veilgraph.serving.service import Service

NAMES = ["alice", "bob", "carol"]


class Traced(Hospital):
    """Every party keeps traces in a folder of its own."""

    def service(self, party: str, **options: Any) -> Service:
        return super().service(party, traces=self.traces(party), **options)

    def traces(self, party: str) -> Path:
        return self.folder / f"{party}.traces"

    def files(self, party: str) -> list[str]:
        return sorted(file.name for file in self.traces(party).iterdir())

    @contextmanager
    def asking(self, ahead: int = 0) -> Iterator[Client]:
        with self.served(ahead=ahead) as services:
            until(lambda: all(each.served for each in services.values()))
            models = [each._host.served["small"] for each in services.values()]
            until(lambda: all(len(each.ahead) == ahead for each in models))
            with Client("small", self.client) as client:
                yield client


@pytest.fixture
def hospital(tmp_path: Path) -> Traced:
    plan, weights = compiled("rep3")
    found = Traced(tmp_path, members(plan))
    found.put("small/1", plan, weights)
    return found


def ask(client: Client, count: int) -> None:
    for x in SAMPLES[:count]:
        np.testing.assert_allclose(client.run({"x": x})["y"], answer_to(x), atol=0.01)


def steps(trace: Any, phase: str) -> list[int]:
    found = [each["args"] for each in trace["traceEvents"] if each["ph"] == "X"]
    return [args["step"] for args in found if args["phase"] == phase]


@pytest.mark.parametrize("ahead", [0, 2])
def test_traces_of_all_parties_on_one_time_line(
    hospital: Traced, tmp_path: Path, ahead: int
) -> None:
    """An offline phase is in a trace where the request waited for it."""
    with hospital.asking(ahead=ahead) as client:
        ask(client, 1)
        until(lambda: all(hospital.files(party) for party in NAMES))
    (name,) = hospital.files("alice")
    assert name.startswith("trace-small-1-")
    read = {p: json.loads((hospital.traces(p) / name).read_text()) for p in NAMES}
    log = (hospital.folder / "alice.state" / "asked-alice.jsonl").read_text()
    for trace in read.values():
        (request,) = trace[FACTS]["requests"]
        assert request in log
        online = steps(trace, "online")
        assert online == sorted(set(online))
        assert online
    assert all(bool(steps(trace, "offline")) == (ahead == 0) for trace in read.values())
    files = [str(hospital.traces(party) / name) for party in NAMES]
    done = CliRunner().invoke(main, ["trace", *files, "-o", str(tmp_path / "all.json"), "--json"])
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.stdout)["moved_seconds"]) == set(NAMES)
    events = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {1, 2, 3}
    assert 0 < max(event.get("ts", 0) for event in events) < 30e6


def test_a_folder_that_does_not_grow(hospital: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces_module, "MOST_TRACES", 3)
    hospital.traces("bob").mkdir()
    for own in ("notes.json", "trace-of-mine.json"):
        (hospital.traces("bob") / own).write_text("{}")
    (hospital.traces("bob") / "trace-small-1-00112233-1.json").symlink_to("nowhere")
    with hospital.asking() as client:
        ask(client, 5)
        until(lambda: all(f.endswith("-5.json") for f in hospital.files("alice")[-1:]))
        until(lambda: len(hospital.files("alice")) == 3)
        until(lambda: len(hospital.files("bob")) == 6)
        assert {"notes.json", "trace-of-mine.json"} <= set(hospital.files("bob"))
        monkeypatch.setattr(traces_module, "MOST_BYTES", 1)
        ask(client, 1)
        until(lambda: all(not hospital.files(party) for party in ("alice", "carol")))


def test_a_disk_that_is_full(
    hospital: Traced, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No request is held up by a trace."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with hospital.asking() as client:
        monkeypatch.setattr(traces_module, "placed_whole", full)
        ask(client, 2)
        until(lambda: "a trace can't be written to" in caplog.text)


def test_no_folder(hospital: Traced) -> None:
    hospital.traces("alice").write_text("")
    with pytest.raises(UsageError, match=r"alice.traces is no folder for traces: File exists"):
        hospital.service("alice")

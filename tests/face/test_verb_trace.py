"""`run --trace` at each party, and `trace`, which puts the files on one time line."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from test_cli import at_once
from verbs import Compiled, json_of, reason, run_verb

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.measuring.processes import write_configs
from veilgraph.reports.merged_traces import merged
from veilgraph.reports.tracing import FACTS

NAMES = ("alice", "bob", "carol")


def made(offsets: Mapping[str, float], rounds: int = 20, seed: int = 1) -> list[dict[str, Any]]:
    """Traces of parties in a ring whose messages take 50 to 400 microseconds, by their clocks."""
    draws, now = random.Random(seed), dict.fromkeys(offsets, 0.0)
    names = list(offsets)
    events: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(rounds):
        begin = {name: now[name] + draws.uniform(1, 500) for name in names}
        for i, name in enumerate(names):
            before = names[i - 1]
            end = max(begin[name], begin[before] + draws.uniform(50, 400))
            sent, received = {names[(i + 1) % len(names)]: 8}, {before: 8}
            events[name].append({
                "ph": "X", "pid": 1, "tid": 2, "cat": "round", "name": f"online round {number + 1}",
                "ts": begin[name] - offsets[name], "dur": end - begin[name],
                "args": {"sent_bytes": sent, "received_bytes": received},
            })  # fmt: skip
            now[name] = end
    facts = {"plan": "ab" * 32, "session": "cd" * 32, "inference": 1}
    return [
        {"displayTimeUnit": "ms", "traceEvents": events[n], FACTS: {"party": n, **facts}}
        for n in names
    ]


def require_order(trace: Mapping[str, Any]) -> int:
    """How many messages there are, none of which is received before it is sent."""
    rounds = [e for e in trace["traceEvents"] if e.get("cat") == "round"]
    names = {
        e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"
    }
    names = names or dict(enumerate(NAMES, 1))
    begun = {
        (e["name"], names[e["pid"]], p): e["ts"] for e in rounds for p in e["args"]["sent_bytes"]
    }
    count = 0
    for event in rounds:
        for peer in event["args"]["received_bytes"]:
            count += 1
            sent = begun[event["name"], peer, names[event["pid"]]]
            assert event["ts"] + event["dur"] >= sent - 1e-3
    return count


@pytest.mark.parametrize("seed", range(5))
def test_clocks_are_found_again(seed: int) -> None:
    offsets = {"alice": 0.0, "bob": 7e6, "carol": -3.6e9}
    found = merged(made(offsets, seed=seed))
    assert require_order(found.trace) == 60
    for party, by in found.moved.items():
        assert abs(by - offsets[party]) <= found.uncertain[party] + 1e-3 < 1000
    assert min(e["ts"] for e in found.trace["traceEvents"]) == 0


def test_messages_that_go_one_way_alone() -> None:
    """A dealer's clock is placed as late as it can be."""
    traces = made({"alice": 0.0, "bob": 1e6})
    for event in traces[1]["traceEvents"]:
        event["args"]["received_bytes"] = {}
    for event in traces[0]["traceEvents"]:
        event["args"]["sent_bytes"] = {}
    found = merged(traces)
    assert found.in_seconds()["uncertain_seconds"]["bob"] is None
    assert found.moved["bob"] > 0.9e6


def test_each_party_writes_one_and_they_are_put_together(copied: Compiled) -> None:
    plan = copied.plan
    write_configs(copied.folder, plan.manifest.parties)
    own = {"alice": ["--input", "image=@image.npy"], "bob": ["--weights", "digits.weights"]}
    ended = at_once([
        ["run", "digits.plan", "--party", name, "--config", f"{name}.yaml", "--iterations", "2",
         "--trace", f"{name}.json", *own.get(name, [])]
        for name in NAMES
    ])  # fmt: skip
    assert [code for _, _, code in ended] == [0, 0, 0], ended
    late = json.loads(Path("carol.json").read_text())
    for event in late["traceEvents"]:
        if "ts" in event:
            event["ts"] += 5e6
    Path("carol.json").write_text(json.dumps(late))
    files = [f"{name}.json" for name in NAMES]
    found = json_of("trace", *files, "-o", "all.json")
    assert -5.5 < found["moved_seconds"]["carol"] < -4.5
    trace = json.loads(Path("all.json").read_text())
    assert require_order(trace) > 10
    assert trace[FACTS]["plan"] == plan.digest
    assert "to within" in run_verb("trace", *files, "-o", "all.json").stdout
    code, told = reason("trace", *files, "-o", "alice.json")
    assert (code, "would be overwritten" in told) == (2, True)


def test_what_is_refused(tmp_path: Path) -> None:
    traces = made(dict.fromkeys(NAMES, 0.0))
    for odd in (traces[:1], [traces[0], traces[0]]):
        with pytest.raises(UsageError, match="Traces of two or more parties"):
            merged(odd)
    for fact, value in (("session", "ef"), ("plan", "ef"), ("inference", 2)):
        other = {**traces[1], FACTS: {**traces[1][FACTS], fact: value}}
        with pytest.raises(SecurityAbort, match=f"of different {fact}s"):
            merged([traces[0], other, traces[2]])
    for broken in ([], {}, {**traces[1], FACTS: {}}, {**traces[1], "traceEvents": [{}]}):
        with pytest.raises(UsageError, match="is no trace of a party"):
            merged([traces[0], broken])
    early = json.loads(json.dumps(traces))
    for event in early[1]["traceEvents"][:10]:
        event["ts"] -= 1e9
    with pytest.raises(SecurityAbort, match="received before it was sent"):
        merged(early)
    (tmp_path / "t.json").write_text("{")
    code, told = reason("trace", tmp_path / "t.json", "-o", tmp_path / "all.json")
    assert (code, "t.json is no trace" in told) == (2, True)
    code, told = reason("trace", tmp_path / "none.json", "-o", tmp_path / "all.json")
    assert (code, "can't be read" in told) == (2, True)

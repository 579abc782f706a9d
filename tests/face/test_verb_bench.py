"""`veilgraph bench`: figures, where the time went, and traces."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from verbs import Compiled, json_of, reason, run_verb

from veilgraph.ir.plan.tables import ROUND, Phase
from veilgraph.measuring.measure import random_inputs, random_weights
from veilgraph.measuring.spread import Spread
from veilgraph.reports.time_split import TimeSplit, table
from veilgraph.runtime.transcript import PhaseRecord, Transcript

FILES = ("digits.plan", "--weights", "digits.weights", "--input", "image=@image.npy")
PARTIES = ("alice", "bob", "carol")
LINKS = {f"{a}->{b}" for a in PARTIES for b in PARTIES}


def test_figures_of_processes(copied: Compiled) -> None:
    content = json_of("bench", *FILES, "--processes", "--iterations", "3")
    assert content["runs"] == 3
    assert content["processes"] is True
    assert content["random"] == []
    for name in ("setup", "offline", "online", "total"):
        spread = content[f"{name}_seconds"]
        assert 0 < spread["min"] <= spread["median"] <= spread["max"]
    assert set(content["sent_bytes"]["online"]) <= LINKS
    assert set(content["peak_memory_bytes"]) == set(PARTIES)
    assert min(content["peak_memory_bytes"].values()) > 1 << 20
    assert content["network_seconds"]["carol"]["median"] > 0
    for party in PARTIES:
        assert content["kernel_seconds"][party]["fused"] > 0
        assert content["waiting_seconds"][party] > 0
        assert content["encryption_seconds"][party] is None or (
            0 < content["encryption_seconds"][party] < content["total_seconds"]["median"]
        )


def test_inputs_and_weights_that_are_not_given_are_drawn(copied: Compiled) -> None:
    content = json_of("bench", "digits.plan", "--iterations", "2")
    assert content["random"] == ["image", "weights"]
    assert content["encryption_seconds"] == dict.fromkeys(PARTIES)
    shown = run_verb("bench", "digits.plan", "--iterations", "1").stdout
    assert "1 inference after one to warm up" in shown
    assert "random image, weights" in shown
    assert "median" in shown


def test_the_table_says_where_the_time_went(copied: Compiled) -> None:
    shown = run_verb("bench", *FILES, "--iterations", "1", "--processes").stdout
    split = shown[shown.index("time in, median run") :].split("\n\n")[0]
    rows = [line.split()[0] for line in split.splitlines()[1:]]
    assert {"fused", "conv2d", "matmul"} < set(rows)
    assert rows[-2:] == ["waiting", "other"]
    assert "processes over TLS on loopback" in shown


def test_parts_of_the_time_add_up() -> None:
    offline = PhaseRecord(0.5, 0.2, None, kernels={"fused": (3, 100_000_000)})
    online = PhaseRecord(1.0, 0.4, 0.1, kernels={"fused": (1, 50_000_000), "copy": (1, 10**8)})
    split = TimeSplit.of(Transcript({Phase.OFFLINE: offline, Phase.ONLINE: online}))
    expected = {"fused": 0.15, "copy": 0.1, "encryption": 0.1, "waiting": 0.5, "other": 0.65}
    assert split.rows() == pytest.approx(expected)
    assert sum(split.rows().values()) == pytest.approx(split.seconds)
    shown = table({"alice": split, "bob": TimeSplit(1.0, {"copy": 0.25}, None, 0.5)}).rows
    assert [row[0] for row in shown] == ["copy", "fused", "encryption", "waiting", "other"]
    assert shown[0] == ("copy", "100 ms", "250 ms", "14.0%")


@pytest.mark.parametrize("processes", [(), ("--processes",)])
def test_a_trace_has_every_step_of_every_party(
    copied: Compiled, processes: tuple[str, ...]
) -> None:
    result = run_verb("bench", *FILES, "--iterations", "2", "--trace", "t.json", *processes)
    assert result.exit_code == 0, result.stderr
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert set(named.values()) == set(PARTIES)
    plan = copied.plan
    for pid, party in named.items():
        spans = [e for e in events if e["ph"] == "X" and e["pid"] == pid]
        steps = plan.party(party).steps
        assert [e["args"]["step"] for e in spans] == list(
            np.flatnonzero(steps["phase"] != Phase.SETUP)
        )
        assert all(b["ts"] >= a["ts"] + a["dur"] - 1e-3 for a, b in pairwise(spans))
        assert {"conv1", "relu1"} < {e["name"] for e in spans}
        rounds = [e for e in spans if e["cat"] == "round"]
        assert len(rounds) == sum(steps["kernel"][steps["phase"] != Phase.SETUP] == ROUND)
        sent = sum(size for e in rounds for size in e["args"]["sent_bytes"].values())
        counted = (plan.sent_bytes(phase) for phase in (Phase.OFFLINE, Phase.ONLINE))
        own = [n for links in counted for link, n in links.items() if link.startswith(party)]
        assert sent == sum(own)


def test_links_can_be_those_of_a_network(copied: Compiled) -> None:
    content = json_of("bench", *FILES, "--iterations", "1", "--netem", "20,1000")
    assert content["processes"] is True
    assert content["netem"] == {"round_trip_seconds": 0.02, "bytes_per_second": 125e6}
    assert content["online_seconds"]["min"] > 0.9 * content["rounds"] * 0.01
    shown = run_verb("bench", *FILES, "--iterations", "1", "--netem", "0.2,10000").stdout
    assert "processes over TLS on loopback shaped to 200 us and 1.25 GB/s" in shown


@pytest.mark.parametrize("text", ["40", "40,100,1", "a,b", "-1,100", "40,0", "1e9,100", "nan,1"])
def test_refuses_a_network_that_is_none(copied: Compiled, text: str) -> None:
    code, told = reason("bench", *FILES, f"--netem={text}")
    assert code == 2
    assert f"`{text}`" in told


def test_no_run_can_be_shaped(copied: Compiled) -> None:
    for verb in ("run", "prepare", "simulate"):
        assert "--netem" not in run_verb(verb, "--help").stdout


def test_refuses_a_trace_that_can_not_be_written(copied: Compiled) -> None:
    code, told = reason("bench", *FILES, "--trace", "no/t.json")
    assert (code, "There is no directory no." in told) == (2, True)


def test_random_inputs_fill_their_range_and_are_never_the_same(digits: Compiled) -> None:
    plan = digits.plan
    image = random_inputs(plan)["image"]
    (tensor,) = plan.party("alice").inputs
    assert image.shape == tensor.shape
    assert tensor.low <= image.min() < 0.9 * tensor.low
    assert 0.9 * tensor.high < image.max() <= tensor.high
    assert not np.array_equal(image, random_inputs(plan)["image"])
    weights = random_weights(plan)
    assert set(weights) == {tensor.name for tensor in plan.party("bob").weights}
    assert max(np.abs(w).max() for w in weights.values()) <= 1


def test_spread_of_several_values() -> None:
    assert Spread.of([3.0, 1.0, 2.0, 10.0]) == Spread(2.5, 1.0, 10.0)

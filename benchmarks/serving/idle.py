"""A service that nobody asks for a day, and peers that are cut off without a word.

    python -m benchmarks.serving.idle [--quick] [--json] [--write] [--hours H]

Three processes of `veilgraph serve` on loopback. First their clocks and timers are moved by 24
hours, a few seconds at a time, and by the next step once all of their threads wait: what is due in
a day becomes due. Then a new client asks; the session is to be the one from before. After that, by
clocks of their own, a party is stopped, or its links carry nothing: how long until the others name
it, a client is told, and clients are answered again once it is over.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.harness.reporting import ROOT, Findings, parser, report, spread
from benchmarks.serving.asking import Question, back
from benchmarks.serving.requests import digits, samples_of_digits
from benchmarks.serving.ward import PARTIES, Ward
from veilgraph.ir.errors import VeilgraphError
from veilgraph.measuring.spread import Spread
from veilgraph.reports.tables import Table
from veilgraph.serving.client import Client

HOURS, STEP_SECONDS, START_SECONDS = 24.0, 4.0, 120.0
NAMED_SECONDS, CUTS = 15.0, 5
LOOK_SECONDS, LOOKS = 0.008, 2  # moved_clock.c looks at its clock every 3 ms


def question() -> Question:
    model = str(ROOT / "examples" / "digits" / "digits.onnx")
    return Question.of("digits", model, samples_of_digits(), 1)


# A day


def day(folder: Path, hours: float) -> dict[str, Any]:
    """What a client finds after so many hours, and how long they took."""
    asked = question()
    with Ward(folder, {"digits/1": digits()}, 1, 2, moves_timers=True) as ward:
        (own,) = ward.clients
        assert back(own, asked, START_SECONDS) <= START_SECONDS, "the service did not begin"
        before, lines = session(own), logged(ward)
        start, moved = time.monotonic(), 0.0
        while moved < 3600 * hours:
            moved += STEP_SECONDS
            for clock in ward.clocks.values():
                clock.move(moved, moved)
            settle(process.pid for process in ward.processes.values())
        spent = time.monotonic() - start
        answered = back(own, asked, START_SECONDS)
        assert written(ward) - time.time() > 3600 * hours - 60, "the parties' clocks did not move"
        return {
            "hours": hours, "moved_in_seconds": spent, "answered_seconds": answered,
            "same_session": session(own) == before,
            "logged": [line for line in logged(ward) if line not in lines],
        }  # fmt: skip


def session(config: Path) -> str:
    with Client("digits", config) as client:
        return client._session


def written(ward: Ward) -> float:
    """When a party's last line about a request was written, by its own clock."""
    line = (ward.folder / "alice.state" / "asked-alice.jsonl").read_bytes().splitlines()[-1]
    told: str = json.loads(line.partition(b"\t")[0])["time"]
    return datetime.fromisoformat(told).timestamp()


def logged(ward: Ward) -> list[str]:
    return [
        f"{party}: {line}"
        for party in PARTIES
        for line in (ward.folder / f"{party}.log").read_text().splitlines()
    ]


def settle(processes: Iterable[int]) -> None:
    """Until all threads of processes wait, in several looks."""
    pids, calm = list(processes), 0
    while calm < LOOKS:
        time.sleep(LOOK_SECONDS / LOOKS)
        calm = 0 if any(map(is_busy, pids)) else calm + 1


def is_busy(pid: int) -> bool:
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # it ended
            continue
        if state != "S":
            return True
    return False


# Peers that are cut off


def cut_off(folder: Path, count: int) -> dict[str, Any]:
    """By kind: seconds until each other party names it, a client is told, and all is well again."""
    asked = question()
    found: dict[str, Any] = {}
    with Ward(folder, {"digits/1": digits()}, 1, 2, has_proxies=True) as ward:
        (own,) = ward.clients
        carol, links = ward.processes["carol"], ward.links["alice"]
        kinds: dict[str, tuple[str, Callable[[], None], Callable[[], None]]] = {
            "stopped": (
                "carol",
                lambda: carol.send_signal(signal.SIGSTOP),
                lambda: carol.send_signal(signal.SIGCONT),
            ),
            "links that carry nothing": ("alice", links.hold, links.mend),
        }
        for kind, (party, begin, end) in kinds.items():
            found[kind] = {"named": [], "told": [], "back": []}
            for number in range(count):
                assert back(own, asked, START_SECONDS) <= START_SECONDS, "no answer before a cut"
                time.sleep(2.0)  # idle, and turns a second apart
                named, told = naming(ward, party, begin)
                end()
                found[kind]["named"] += named
                found[kind]["told"].append(told)
                found[kind]["back"].append(back(own, asked, START_SECONDS))
                print(f"{kind}, {number + 1} of {count}: {named}, {told:.2f} s", file=sys.stderr)
    return found


def naming(ward: Ward, party: str, begin: Callable[[], None]) -> tuple[list[float], float]:
    """Seconds until the log of each other party names it, and until who asks then is refused."""
    others = [name for name in PARTIES if name != party]
    logs = {name: ward.folder / f"{name}.log" for name in others}
    begun = {name: log.stat().st_size for name, log in logs.items()}
    named: dict[str, float] = {}
    with Client("digits", ward.clients[0]) as client, ThreadPoolExecutor(1) as pool:
        begin()
        start = time.monotonic()
        asked = pool.submit(refused_after, client)
        while len(named) < len(others) and time.monotonic() - start < 4 * NAMED_SECONDS:
            for name in others:
                with logs[name].open("rb") as log:
                    log.seek(begun[name])
                    if name not in named and party.encode() in log.read():
                        named[name] = time.monotonic() - start
            time.sleep(0.02)
        return [named.get(name, float("inf")) for name in others], asked.result()


def refused_after(client: Client) -> float:
    """Seconds until a request ends in an error."""
    start = time.monotonic()
    try:
        client.run({client.inputs[0].name: samples_of_digits()[:1]})
    except VeilgraphError:
        return time.monotonic() - start
    raise SystemExit("a request was answered without a party")


# Figures


def measure(options: argparse.Namespace) -> Findings:
    hours, cuts = (0.05, 1) if options.quick else (options.hours, CUTS)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "day").mkdir()
        (Path(folder) / "cuts").mkdir()
        found = {"day": day(Path(folder) / "day", hours),
                 "cut_off": cut_off(Path(folder) / "cuts", cuts), "load": load}  # fmt: skip
    return findings(found)


def findings(found: dict[str, Any]) -> Findings:
    rows = [
        [kind, str(len(times["back"])), *(spread(Spread.of(times[name])) for name in times)]
        for kind, times in found["cut_off"].items()
    ]
    headings = (
        "party|#how often|#named by each other|#who asks is refused|#then a client is answered"
    )
    its = found["day"]
    kept = "the session from before" if its["same_session"] else "another session"
    note = (
        f"After {its['hours']:g} hours without a request, moved in {its['moved_in_seconds']:.0f} s "
        f"by steps of {STEP_SECONDS:g} s: an answer in "
        f"{1000 * its['answered_seconds']:.0f} ms, of {kept}; "
        f"{len(its['logged'])} lines logged meanwhile. Load before: {found['load']:.1f}."
    )
    title = "Parties that are cut off without a word"
    return Findings([Table.of(headings, rows, title)], found, [note])


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--hours", type=float, default=HOURS, help="without a request")
    options = made.parse_args()
    report("serving.idle", options, lambda: measure(options))


if __name__ == "__main__":
    main()

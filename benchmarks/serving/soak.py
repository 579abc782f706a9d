"""Many requests of many clients over three plans, which are read again in between.

    python -m benchmarks.serving.soak [--quick] [--json] [--write] [--requests N] [--seed N]

Three processes of `veilgraph serve` on loopback; 16 clients, each on a thread, ask about one to
four rows of a model each time. Every answer is held against ONNX Runtime's. Each party's memory,
descriptors and threads are looked at after the first requests and at the end. Meanwhile a version
of a model is put there and taken away again, and each party reads its models again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.reporting import ROOT, Findings, parser, report
from benchmarks.harness.sessions import Ours
from benchmarks.harness.workloads import lenet
from benchmarks.serving.asking import Asking, Question, back
from benchmarks.serving.requests import digits, samples_of_digits, small_lenet
from benchmarks.serving.ward import PARTIES, Ward
from veilgraph.reports import units
from veilgraph.reports.tables import Table

REQUESTS, CLIENTS, SETTLED, RELOAD_SECONDS = 10_000, 16, 500, 10.0
START_SECONDS, MOST_SECONDS = 180.0, 70.0
BATCH = 16


def questions() -> tuple[dict[str, Ours], list[Question]]:
    """What is served, and what is asked about it."""
    served = {"digits/1": digits(), "lenet/1": small_lenet(), "lenet16/1": small_lenet(BATCH)}
    model = str(ROOT / "examples" / "digits" / "digits.onnx")
    asked = [Question.of("digits", model, samples_of_digits(), 1)]
    for name, rows in (("lenet", 1), ("lenet16", BATCH)):
        network = lenet(rows)
        (given,) = (each for each in network.inputs if network.owners[each] == 0)
        samples = network.samples(2 * BATCH // rows, seed=1)[given]
        whole = samples.reshape(-1, *samples.shape[2:])
        asked.append(Question.of(name, network.onnx().SerializeToString(), whole, rows))
    return served, asked


def usage(pid: int) -> dict[str, int]:
    """A process's memory in bytes, descriptors and threads."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    facts = {
        key: value.split()[0]
        for key, _, value in (x.partition(":") for x in lines)
        if value.strip()
    }
    open_files = len(os.listdir(f"/proc/{pid}/fd"))
    return {
        "memory_bytes": 1024 * int(facts["VmRSS"]), "descriptors": open_files,
        "threads": int(facts["Threads"]),
    }  # fmt: skip


def usages(ward: Ward) -> dict[str, dict[str, int]]:
    return {party: usage(process.pid) for party, process in ward.processes.items()}


def soak(folder: Path, requests: int, clients: int, seed: int) -> dict[str, Any]:
    served, asked = questions()
    settled, reloads = min(SETTLED, requests // 2), 0
    with Ward(folder, served, clients + 1, 8) as ward:
        own, *others = ward.clients
        for question in asked:
            assert back(own, question, START_SECONDS) <= START_SECONDS, "the service did not begin"
        asking = Asking(others, asked, MOST_SECONDS, seed, requests)
        start = time.monotonic()
        with asking.going_on() as found:
            _wait(asking, settled)
            early = usages(ward)
            while not asking.is_over():
                reloads += 1
                _change(ward, served["digits/1"], is_there=reloads % 2 == 1)
                _wait(asking, requests, RELOAD_SECONDS)
                print(f"{asking.count} of {requests}", file=sys.stderr)
            spent = time.monotonic() - start
            asking.wait()
            late = usages(ward)
    return {
        "requests": found.answers.total(), "clients": clients, "seed": seed, "reloads": reloads,
        "seconds": spent, "median_seconds": float(np.median(found.seconds)),
        "answers": dict(found.answers), "errors": dict(found.errors), "wrong": found.wrong,
        "late": found.late, "twice": found.twice, "settled": settled, "early": early, "end": late,
    }  # fmt: skip


def _wait(asking: Asking, count: int, seconds: float = START_SECONDS) -> None:
    end = time.monotonic() + seconds
    while asking.count < count and time.monotonic() < end:
        time.sleep(0.1)


def _change(ward: Ward, ours: Ours, *, is_there: bool) -> None:
    """Puts another version of a model at all parties, or takes it away; and they read again."""
    for party in PARTIES:
        if is_there:
            ward.put(party, "digits/2", ours)
        else:
            shutil.rmtree(ward.place(party, "digits/2"))
    ward.reload()


def _rows(found: dict[str, Any]) -> Sequence[Sequence[str]]:
    shown: dict[str, Callable[[dict[str, Any]], str]] = {
        "memory": lambda each: units.size(each["memory_bytes"]),
        "descriptors": lambda each: str(each["descriptors"]),
        "threads": lambda each: str(each["threads"]),
    }
    return [
        [party, name, show(found["early"][party]), show(found["end"][party])]
        for party in PARTIES
        for name, show in shown.items()
    ]


def measure(options: argparse.Namespace) -> Findings:
    requests, clients = (60, 4) if options.quick else (options.requests, CLIENTS)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        found = {**soak(Path(folder), requests, clients, options.seed), "load": load}
    return findings(found)


def findings(found: dict[str, Any]) -> Findings:
    """What `soak` found, in words and a table."""
    headings = f"party|what|#after {found['settled']:,} requests|#at the end"
    title = f"{found['requests']:,} requests of {found['clients']} clients over three plans"
    answers = ", ".join(f"{count:,} of {name}" for name, count in found["answers"].items())
    errors = ", ".join(f"{count} {kind}" for kind, count in found["errors"].items()) or "none"
    note = (
        f"Right answers: {answers}; {len(found['wrong'])} wrong. Errors: {errors}. "
        f"{found['requests'] / found['seconds']:.0f} requests a second, median "
        f"{units.seconds(found['median_seconds'])}; models read again {found['reloads']} times; "
        f"{found['twice']} inferences used twice; {len(found['late'])} requests later than "
        f"{MOST_SECONDS:g} s. Load of the machine before: {found['load']:.1f}."
    )
    return Findings([Table.of(headings, _rows(found), title)], found, [note])


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--requests", type=int, default=REQUESTS, help="how many are answered")
    made.add_argument("--seed", type=int, default=1, help="of all that is drawn")
    options = made.parse_args()
    report("serving.soak", options, lambda: measure(options))


if __name__ == "__main__":
    main()

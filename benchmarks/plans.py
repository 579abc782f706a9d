"""What a plan of ResNet-50 takes to compile, to verify and to open, and a party's memory.

    python -m benchmarks.plans [--quick] [--json] [--write]
    python -m benchmarks.plans --files PLAN ... [--json]

Compiled in under 20 s, verified in under 10 s, opened by a party in under 0.5 s, under 2 GiB a
party. Average pools, 224x224, suite rep3, calibrated on two random samples. Each figure is of a
fresh process: compiling is `veilgraph.compile` alone; verifying is reading the plan's file, and
what `veilgraph verify` does with it; opening is reading it, proving each step and opening the
device, the least of three parties' and the most; memory is the largest party's over one inference,
three processes over TLS. Imports are apart. --quick takes a LeNet.

--files measures a party's first opening of plans that are there already: reading one and verifying
it, in seconds of processor, and both by the clock, where two processors share the work. Each figure
is of the process, of five, that was done first. Two checkouts are compared by running this file in
both of their environments, one after the other.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness.reporting import Findings, apart, parser, report
from benchmarks.harness.sessions import compiled
from benchmarks.harness.workloads import Network, lenet, resnet50
from veilgraph.measuring.processes import simulate_processes
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.store.weights import load_weights, save_weights
from veilgraph.verification.verify import verify

RINGS: tuple[int | str, ...] = (32, 64, "auto")
MOST_SECONDS = {"compiled": 20.0, "verified": 10.0, "opened": 0.5}
MOST_BYTES = 2 << 30
OPENINGS = 5
HEADINGS = (
    "network|ring|#compiled in|#at most|#verified in|#at most|#opened in|#at most|"
    "#memory, a party|#at most"
)


def compile_seconds(network: Network, ring: int | str, folder: Path) -> float:
    """Of compiling; the plan and its weights are then in the folder."""
    start = time.perf_counter()
    ours = compiled(network, "rep3", ring)
    seconds = time.perf_counter() - start
    ours.plan.save(folder / "model.plan")
    save_weights(ours.weights, folder / "model.weights", ours.plan.digest)
    return seconds


def verify_seconds(file: Path) -> float:
    """Of reading a plan, and of holding it to its program."""
    start = time.perf_counter()
    verify(Plan.load(file))
    return time.perf_counter() - start


def open_seconds(file: Path, party: str) -> float:
    start = time.perf_counter()
    plan = Plan.load(file)
    device = ready("cpu", plan, party).open(bytes(16 * len(plan.party(party).keys)))
    seconds = time.perf_counter() - start
    device.close()
    return seconds


def peak_bytes(network: Network, folder: Path) -> int:
    """Of the largest party's process."""
    plan = Plan.load(folder / "model.plan")
    weights = load_weights(folder / "model.weights", plan.digest)
    inputs = {name: array[0] for name, array in network.samples(1, seed=1).items()}
    _, parties = simulate_processes(plan, weights, [inputs])
    return max(party.peak_bytes for party in parties.values())


def figures(network: Network, ring: int | str) -> dict[str, Any]:
    with TemporaryDirectory(prefix="veilgraph-plans-") as name:
        folder = Path(name)
        compiling = apart(compile_seconds, network, ring, folder)
        parties = Plan.load(folder / "model.plan").manifest.parties
        opening = [apart(open_seconds, folder / "model.plan", party) for party in parties]
        return {
            "network": network.name,
            "ring": ring,
            "compile_seconds": compiling,
            "verify_seconds": apart(verify_seconds, folder / "model.plan"),
            "open_seconds": opening,
            "peak_bytes": apart(peak_bytes, network, folder),
        }


def _row(found: dict[str, Any]) -> list[str]:
    opened = found["open_seconds"]
    return [
        found["network"],
        str(found["ring"]),
        units.seconds(found["compile_seconds"]),
        units.seconds(MOST_SECONDS["compiled"]),
        units.seconds(found["verify_seconds"]),
        units.seconds(MOST_SECONDS["verified"]),
        f"{units.seconds(min(opened))} to {units.seconds(max(opened))}",
        units.seconds(MOST_SECONDS["opened"]),
        units.size(found["peak_bytes"]),
        units.size(MOST_BYTES),
    ]


def opening_seconds(file: Path) -> tuple[float, float, float, int]:
    """Of reading a plan and verifying it by the clock; of processor of each; and the nodes of its
    program.
    """
    begin, start = time.perf_counter(), time.process_time()
    plan = Plan.load(file)
    read = time.process_time()
    nodes = verify(plan).nodes
    whole, end = time.perf_counter() - begin, time.process_time()
    return whole, read - start, end - read, nodes


def openings(files: list[Path]) -> Findings:
    """A party's first opening of each plan."""
    figures: list[dict[str, Any]] = [
        {
            "plan": file.name,
            "read_seconds": read,
            "verify_seconds": verified,
            "whole_seconds": whole,
            "nodes": nodes,
        }
        for file in files
        for whole, read, verified, nodes in [
            min(apart(opening_seconds, file) for _ in range(OPENINGS))
        ]
    ]
    times = ("read_seconds", "verify_seconds", "whole_seconds")
    rows = [[f["plan"], str(f["nodes"]), *(units.seconds(f[k]) for k in times)] for f in figures]
    headings = "plan|#nodes|#read, of processor|#verified, of processor|#both, by the clock"
    table = Table.of(headings, rows, "Plans opened for the first time")
    return Findings([table], {"plans": figures})


def measure(options: argparse.Namespace) -> Findings:
    network, rings = (lenet(1), RINGS[:1]) if options.quick else (resnet50(1), RINGS)
    measured = [figures(network, ring) for ring in rings]
    table = Table.of(HEADINGS, [_row(each) for each in measured], "Plans, and who opens them")
    return Findings([table], {"plans": measured})


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--files", nargs="+", type=Path, metavar="PLAN", help="plans to open")
    options = made.parse_args()
    if options.files and options.write:
        raise SystemExit("RESULTS.md takes the benchmark's own plans: leave out --files or --write")
    work = partial(openings, options.files) if options.files else partial(measure, options)
    report("plans", options, work)


if __name__ == "__main__":
    main()

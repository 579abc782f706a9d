"""What it gains to send large messages while steps still run.

    python -m benchmarks.overlap [--quick] [--json] [--write]

Each plan runs as it is, and with every message whole: sent and received after all steps before its
round. The parties are processes over TLS on loopback, as it is and shaped to networks, in turns, so
that noise hits both. All of them share this machine's cores, so what is measured on loopback is the
price of the threads, and what is measured on a slower network the gain.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from benchmarks.harness.reporting import Findings, parser, ratio, report, spread
from benchmarks.harness.sessions import Ours, compiled
from benchmarks.harness.workloads import Network, lenet, relu, vgg16_cifar
from veilgraph.ir.plan.tables import ROUND, PartyPlan
from veilgraph.measuring.spread import Spread
from veilgraph.reports.tables import Table
from veilgraph.runtime.links.shaping import Shape

NETWORKS: Mapping[str, Shape | None] = {
    "loopback": None,
    "0.2 ms, 10 Gbit/s": Shape(0.2e-3, 1.25e9),
    "0.2 ms, 1 Gbit/s": Shape(0.2e-3, 1.25e8),
}
HEADINGS = "workload|#ring bits|network|#overlapped|#whole messages|#times faster"


def without_overlap(ours: Ours) -> Ours:
    """The same plan, its messages whole and after all steps."""
    programs = {name: _whole(program) for name, program in ours.plan.programs.items()}
    return Ours(replace(ours.plan, programs=programs), ours.weights, ours.inputs)


def _whole(program: PartyPlan) -> PartyPlan:
    steps, messages = program.steps, program.messages
    is_round = steps["kernel"] == ROUND
    rounds = {
        (int(step["phase"]), int(step["round"])): number
        for number, step in zip(np.flatnonzero(is_round), steps[is_round], strict=True)
    }
    found: dict[tuple[int, ...], npt.NDArray[np.void]] = {}
    for row in messages:
        key = tuple(int(row[name]) for name in ("phase", "round", "direction", "peer"))
        whole = found.setdefault(key, row.copy())
        end = max(int(r["offset"]) + int(r["bytes"]) for r in (whole, row))
        whole["offset"] = min(whole["offset"], row["offset"])
        whole["bytes"] = end - int(whole["offset"])
        whole["step"], whole["elements"] = rounds[key[0], key[1]], 0
    return replace(program, messages=np.array(list(found.values()), messages.dtype))


def _row(network: Network, ring: int, name: str, turns: int) -> tuple[list[str], dict[str, object]]:
    overlapped = compiled(network, "rep3", ring)
    whole = without_overlap(overlapped)
    for _ in range(turns):
        for each in (overlapped, whole):
            each.run(2, NETWORKS[name])
    times = f"{ratio(whole.seconds, overlapped.seconds):.2f}"
    shown = (spread(Spread.of(each.seconds)) for each in (overlapped, whole))
    figures = {
        "workload": network.name,
        "ring_bits": ring,
        "network": name,
        "overlapped_seconds": overlapped.seconds,
        "whole_seconds": whole.seconds,
    }
    return [network.name, str(ring), name, *shown, times], figures


def measure(options: argparse.Namespace) -> Findings:
    cases = [(relu(1_000_000), 64), (lenet(128), 64), (vgg16_cifar(1), 32)]
    networks, turns = [*NETWORKS], 5
    if options.quick:
        cases, networks, turns = [(relu(300_000), 64)], ["loopback"], 1
    rows = [_row(*case, name, turns) for case in cases for name in networks]
    found = Findings(figures={"cases": [figures for _, figures in rows]})
    title = "Large messages sent while steps run, beside the same plan with whole messages"
    found.tables.append(Table.of(HEADINGS, [row for row, _ in rows], title))
    return found


def main() -> None:
    options = parser(__doc__).parse_args()
    report("overlap", options, lambda: measure(options))


if __name__ == "__main__":
    main()

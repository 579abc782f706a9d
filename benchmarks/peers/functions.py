"""Softmax, GELU and LayerNorm beside SPU 0.9.5, three processes each on loopback: issue 5.

    python -m benchmarks.peers.functions [--quick] [--json] [--write] [--environments FOLDER]

As `versus_spu.py`, in one run and in turns: ours is timed with TLS, offline phase, sharing of the
input and revealing of the output, SPU (ABY3, FM64, 18 fraction bits) with none of these. SPU takes
GELU by the hyperbolic tangent, its faster form; ours is the exact one. Inputs are standard normal,
ranges calibrated with the usual margin of two. Rounds are those of the online phase, input and
output included; MB is what all parties send, offline and online. The error is the worst difference
from ONNX Runtime.
"""

from __future__ import annotations

import argparse

import numpy as np
import onnxruntime

from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.harness.sessions import Ours
from benchmarks.harness.workloads import gelu, layer_norm, softmax
from benchmarks.peers.comparing import Case, Result, compare_all
from benchmarks.peers.environments import add_option
from benchmarks.peers.versus_spu import SPU
from veilgraph.ir.plan.tables import Phase
from veilgraph.reports.tables import Table
from veilgraph.runtime.simulate import simulate

HEADINGS = (
    "workload|#ring bits|#ours|#SPU 0.9.5|#times faster|#at least|#rounds|#at most|#MB|#at most "
    "|#worst error"
)
LIMITS = {"softmax": (20, 25), "GELU": (5, 60), "LayerNorm": (14, 0)}  # rounds and MB; 0: report


def cases(quick: bool) -> list[Case]:
    if quick:
        small = (softmax(2, 10), gelu(2, 10), layer_norm(2, 10))
        return [Case(network, {64: 0}, turns=1) for network in small]
    return [
        Case(softmax(128, 1000), {40: 8}),
        Case(gelu(128, 3072), {40: 9}),
        Case(layer_norm(128, 768), {64: 0}),
    ]


def error(result: Result, ours: Ours) -> float:
    """The worst difference from ONNX Runtime, on the inputs that were timed."""
    network = result.case.network
    session = onnxruntime.InferenceSession(network.onnx().SerializeToString())
    (expected,) = session.run(None, dict(ours.inputs))
    found = simulate(ours.plan, ours.weights, ours.inputs).outputs[network.output]
    return float(np.abs(found - expected).max())


def rows(result: Result) -> list[list[str]]:
    """Those of the comparison, with what each plan costs and how exact it is."""
    found = []
    for row, ours in zip(result.rows(), result.ours.values(), strict=True):
        rounds, megabytes = LIMITS[row[0].split()[0]]
        found.append(
            [
                *row,
                str(ours.plan.rounds(Phase.ONLINE)),
                str(rounds),
                f"{ours.sent_bytes / 1e6:.1f}",
                str(megabytes) if megabytes else "report",
                f"{error(result, ours):.1e}",
            ]
        )
    return found


def measure(options: argparse.Namespace) -> Findings:
    found = Findings()
    results = compare_all(cases(options.quick), "rep3", SPU, options.environments, found)
    table = [row for result in results for row in rows(result)]
    found.tables.append(Table.of(HEADINGS, table, "functions beside SPU, offline included"))
    return found


def main() -> None:
    made = parser(__doc__)
    add_option(made)
    options = made.parse_args()
    report("peers.functions", options, lambda: measure(options))


if __name__ == "__main__":
    main()

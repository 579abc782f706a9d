"""Our rep3 beside SPU 0.9.5, three processes each on loopback: issue 4's table.

    python -m benchmarks.peers.versus_spu [--quick] [--json] [--write] [--environments FOLDER]

SPU runs ABY3 on FM64 with 18 fraction bits, three processes of an environment of its own (made
under --environments at first use; skipped, with the reason, where it can't be installed). Pools are
sums by reshape, its faster way. `comparing.py` says what is timed: ours has TLS, shares its inputs
and reveals its output inside the measured time, SPU does none of these. Medians, with the least
and the most.
"""

from __future__ import annotations

import argparse

from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.harness.workloads import lenet, matmul, relu, resnet50, vgg16_cifar
from benchmarks.peers.comparing import Case, compare_all
from benchmarks.peers.environments import Peer, add_option
from veilgraph.reports.tables import Table

SPU = Peer("spu", (("spu==0.9.5", "setuptools<81"),), title="SPU", parties=3)
HEADINGS = "workload|#ring bits|#ours|#SPU 0.9.5|#times faster|#at least|#of runs"


def cases(quick: bool) -> list[Case]:
    """Issue 4's rows, cheapest first."""
    if quick:
        return [
            Case(relu(10_000), {64: 0, 32: 0}, turns=1),
            Case(matmul(64), {64: 0}, turns=1),
            Case(lenet(1), {64: 24, 32: 24}, turns=2),
        ]
    return [
        Case(matmul(256), {64: 7}),
        Case(lenet(1), {64: 24, 32: 24}),
        Case(relu(1_000_000), {64: 9, 32: 13}),
        Case(matmul(1024), {64: 5}),
        Case(lenet(128), {64: 18, 32: 18}),
        Case(vgg16_cifar(1), {64: 39, 32: 39}),
        Case(vgg16_cifar(16), {32: 0}, turns=1),
        Case(resnet50(1), {32: 12}, turns=1, runs=3),
    ]


def measure(options: argparse.Namespace) -> Findings:
    found = Findings()
    tried = cases(options.quick)
    results = compare_all(tried, "rep3", SPU, options.environments, found, sum_pools=True)
    rows = [
        [*row, str(result.case.turns * result.case.runs)]
        for result in results
        for row in result.rows()
    ]
    found.tables.append(Table.of(HEADINGS, rows, "rep3 beside SPU, offline included"))
    return found


def main() -> None:
    made = parser(__doc__)
    add_option(made)
    options = made.parse_args()
    report("peers.versus_spu", options, lambda: measure(options))


if __name__ == "__main__":
    main()

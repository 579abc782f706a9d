"""What a party and three parties need on one GPU, by their plans: nothing is run.

    python -m benchmarks.gpu.memory [--quick] [--json] [--write]

Suite rep3, rings chosen, average pools. A party's arena is one allocation, its peak over the whole
session; beside it lie constants, keys and the scratch memory of the hungriest product on an H100 or
H200 (sm_90, 132 multiprocessors). The driver's own context, code and pinned host memory are apart:
only a GPU tells those (`benchmarks.gpu.overview`). Piranha's 7.2 GB are of a training pass of VGG16
at batch 128 among three parties. Compiling, calibration with it, takes the seconds that are told.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from benchmarks.gpu.overview import MOST_BYTES, shared_networks
from benchmarks.harness.reporting import Findings, apart, parser, report
from benchmarks.harness.sessions import compiled
from benchmarks.harness.together import beside_arena, whole_bytes
from benchmarks.harness.workloads import Network
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.runtime.devices.cuda.drivers.gpus import Gpu

HOPPER = Gpu("H100 or H200", "sm_90", multiprocessors=132, memory_bytes=80 << 30)
HEADINGS = "network|#compiled in|#largest arena|#beside it, at most|#largest party|#three parties|"
HEADINGS += "#at most"


def memory(network: Network) -> dict[str, Any]:
    """Seconds of compiling, and bytes by party."""
    start = time.perf_counter()
    plan = compiled(network, "rep3", "auto").plan
    seconds = time.perf_counter() - start
    parties = plan.manifest.parties
    return {
        "compile_seconds": seconds,
        "party_bytes": {party: plan.party(party).arena_bytes for party in parties},
        "beside_bytes": {party: beside_arena(plan, party, HOPPER) for party in parties},
    }


def _row(name: str, found: dict[str, Any]) -> list[str]:
    arenas, rest = found["party_bytes"], found["beside_bytes"]
    asked = MOST_BYTES.get(name)
    return [
        name,
        units.seconds(found["compile_seconds"]),
        units.size(max(arenas.values())),
        units.size(max(rest.values())),
        units.size(max(arenas[party] + rest[party] for party in arenas)),
        units.size(whole_bytes(found)),
        units.size(asked) if asked else "report",
    ]


def measure(options: argparse.Namespace) -> Findings:
    networks = shared_networks(options.quick)
    found = {network.name: apart(memory, network) for network in networks}
    rows = [_row(name, each) for name, each in found.items()]
    return Findings([Table.of(HEADINGS, rows, "Memory on a GPU, by the plan")], {"memory": found})


def main() -> None:
    options = parser(__doc__).parse_args()
    report("gpu.memory", options, lambda: measure(options))


if __name__ == "__main__":
    main()

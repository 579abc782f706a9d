"""What more parties cost, and what a store of prepared inferences holds: issue 8's other figures.

    python -m benchmarks.dealing [--quick] [--json] [--write]

LeNet, one image, in a ring of 32 bits among 2, 3 and 5 parties and a dealer: a process each, over
mutual TLS on loopback. Bytes are what the parties' transcripts counted, of all of them; beside them
stands what the plan predicts. Stores: one inference of ResNet-50 prepared by all parties on threads
of this process, and the size of each party's folder: the largest, and all together.
"""

from __future__ import annotations

import argparse
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.harness.reporting import Findings, parser, report, spread
from benchmarks.harness.sessions import SUITES, Ours, compiled
from benchmarks.harness.workloads import Network, lenet, resnet50
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.roles import DEALER
from veilgraph.measuring.processes import write_configs
from veilgraph.measuring.spread import Spread
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.session import Session

NAMES = ("alice", "bob", "carol", "erin", "frank")
COUNTS = (2, 3, 5)
RING_BITS = 32
TIMEOUT_SECONDS = 120
GROWTH = "parties|#rounds|#offline|#predicted|#online|#predicted|#offline time|#online time"
STORES = "suite|workload|#the largest party's|#all parties'"


def among(count: int, runs: int) -> dict[str, Any]:
    """LeNet among `count` parties and a dealer."""
    ours = compiled(lenet(1), "additive", RING_BITS, parties=list(NAMES[:count]))
    done = ours.run(runs)
    sent = done.sent_bytes()
    phases = {
        phase.name.lower(): {
            "measured_bytes": sum(sent[phase.name.lower()].values()),
            "predicted_bytes": sum(ours.plan.sent_bytes(phase).values()),
            "seconds": vars(Spread.of([run.seconds(phase) for run in done.runs])),
        }
        for phase in (Phase.OFFLINE, Phase.ONLINE)
    }
    return {"parties": count, "rounds": ours.plan.rounds(Phase.ONLINE), **phases}


def store_sizes(ours: Ours) -> dict[str, int]:
    """Bytes of each party's store of one inference; a dealer keeps none, and rep3 has none."""
    parties, dealers = ours.plan.manifest.parties, ours.plan.manifest.named(DEALER)
    with tempfile.TemporaryDirectory(prefix="veilgraph-") as name:
        folder = Path(name)
        write_configs(folder, parties)

        def prepare(party: str) -> int:
            config = folder / f"{party}.yaml"
            store = None if party in dealers else folder / f"{party}.store"
            weights = ours.weights if ours.plan.party(party).weights else None
            with Session(
                ours.plan,
                party,
                config,
                weights=weights,
                timeout_seconds=TIMEOUT_SECONDS,
                trust_author=True,  # compiled here
            ) as session:
                session.prepare(store, 1)
            return sum(file.stat().st_size for file in store.iterdir()) if store else 0

        with ThreadPoolExecutor(len(parties)) as threads:
            sizes = dict(zip(parties, threads.map(prepare, parties), strict=True))
    return {party: size for party, size in sizes.items() if party not in dealers}


def stores(network: Network) -> list[dict[str, Any]]:
    return [
        {
            "suite": suite,
            "workload": network.name,
            "bytes": store_sizes(compiled(network, suite, RING_BITS)),
        }
        for suite in SUITES
    ]


def _growth_row(figures: dict[str, Any]) -> list[str]:
    phases = [figures["offline"], figures["online"]]
    sizes = [units.size(p[k]) for p in phases for k in ("measured_bytes", "predicted_bytes")]
    times = [spread(Spread(**phase["seconds"])) for phase in phases]
    return [str(figures["parties"]), str(figures["rounds"]), *sizes, *times]


def _store_row(figures: dict[str, Any]) -> list[str]:
    sizes = figures["bytes"].values()
    return [figures["suite"], figures["workload"], units.size(max(sizes)), units.size(sum(sizes))]


def measure(options: argparse.Namespace) -> Findings:
    growth = [among(count, runs=2 if options.quick else 20) for count in COUNTS]
    sizes = stores(lenet(1) if options.quick else resnet50(1))
    found = Findings(figures={"growth": growth, "stores": sizes})
    title = "LeNet by number of parties, each inference offline and online"
    found.tables.append(Table.of(GROWTH, [_growth_row(f) for f in growth], title))
    title = "Stores of one prepared inference, ring of 32 bits"
    found.tables.append(Table.of(STORES, [_store_row(f) for f in sizes], title))
    return found


def main() -> None:
    options = parser(__doc__).parse_args()
    report("dealing", options, lambda: measure(options))


if __name__ == "__main__":
    main()

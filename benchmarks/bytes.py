"""Bytes and rounds of plans, by ring and kind of pool, beside what others published.

    python -m benchmarks.bytes [--quick] [--json] [--write]

Counted on the plans' messages, which a run's transcript equals; nothing is run. Suite rep3, all
parties together, setup apart. "auto" takes the least bytes with which the outputs' mean error stays
below 0.15% (VGG) and 0.1% (ResNet) of their mean size; errors are those of other inputs than the
plan was made with, in exact integers. "max" puts a max pool wherever the network has an average
pool, save the last one of ResNet-50, which is an average in torchvision too. Published figures: all
parties, one image, average pools (WORKLOADS: CryptGPU, Falcon, CrypTFlow; issue 4: HPMPC, MP-SPDZ,
SPU).
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.harness.sessions import compiled
from benchmarks.harness.workloads import Network, lenet, resnet50, vgg16_cifar
from veilgraph.checks.checking import check
from veilgraph.ir.plan.tables import Phase
from veilgraph.reports import units
from veilgraph.reports.tables import Table

RINGS: tuple[int | str, ...] = (32, 40, 64, "auto")
HEADINGS = "network|#rings|pools|#error|#online|#offline|#in all|#rounds|#at most"
MAX_ERROR = {"VGG16-CIFAR, batch 1": 0.0015, "ResNet-50, batch 1": 0.001}  # issue 4, for "auto"
UNSEEN = 2  # inputs that errors are measured on
MB = 1e6
LEAST = {  # issue 4, average pools
    ("VGG16-CIFAR, batch 1", 32): 17.5 * MB,
    ("VGG16-CIFAR, batch 1", 64): 31 * MB,
    ("VGG16-CIFAR, batch 1", "auto"): 20 * MB,
    ("ResNet-50, batch 1", 32): 620 * MB,
    ("ResNet-50, batch 1", 64): 1100 * MB,
    ("ResNet-50, batch 1", "auto"): 750 * MB,
}
PUBLISHED = (
    ("VGG16-CIFAR", "CryptGPU (eleven convolutions)", 56.2),
    ("VGG16-CIFAR", "Falcon (eleven convolutions)", 40.5),
    ("VGG16-CIFAR", "HPMPC", 43.0),
    ("VGG16-CIFAR", "MP-SPDZ", 40.0),
    ("VGG16-CIFAR", "SPU", 63.0),
    ("ResNet-50", "CryptGPU", 3080.0),
    ("ResNet-50", "CrypTFlow", 6900.0),
    ("ResNet-50", "HPMPC", 2060.0),
    ("ResNet-50", "MP-SPDZ", 1430.0),
    ("ResNet-50", "SPU", 2250.0),
)


def with_max_pools(network: Network) -> Network:
    """Max pools for average pools, a last pool over the whole image excepted."""
    last = [node.output for node in network.nodes if node.op == "average_pool"][-1]
    kept = {last} if network.name.startswith("ResNet") else set()
    nodes = tuple(
        replace(node, op="max_pool")
        if node.op == "average_pool" and node.output not in kept
        else node
        for node in network.nodes
    )
    return replace(network, nodes=nodes)


def _row(network: Network, ring: int | str, pools: str) -> tuple[list[str], dict[str, object]]:
    options = {"max_error": MAX_ERROR.get(network.name)} if ring == "auto" else {}
    ours = compiled(network, "rep3", ring, **options)
    plan = ours.plan
    online, offline = (sum(plan.sent_bytes(p).values()) for p in (Phase.ONLINE, Phase.OFFLINE))
    least = LEAST.get((network.name, ring), 0.0) if pools == "average" else 0.0
    chosen = sorted({layer.ring_bits for layer in plan.layers if layer.multiply_adds})
    shown = f"auto ({', '.join(map(str, chosen))})" if ring == "auto" else str(ring)
    rounds = plan.rounds(Phase.ONLINE)
    unseen = network.samples(UNSEEN, seed=2)
    error = check(plan, ours.weights, network.onnx(), unseen).outputs[0].mean_relative
    row = [
        network.name,
        shown,
        pools,
        f"{error:.3%}",
        *map(units.size, (online, offline, online + offline)),
    ]
    figures: dict[str, object] = {
        "network": network.name,
        "ring": ring,
        "rings": chosen,
        "mean_relative_error": error,
        "pools": pools,
        "online_bytes": online,
        "offline_bytes": offline,
        "rounds": rounds,
        "most_bytes": least or None,
    }
    return [*row, str(rounds), units.size(least) if least else "report"], figures


def measure(options: argparse.Namespace) -> Findings:
    networks = [lenet(1)] if options.quick else [vgg16_cifar(1), resnet50(1)]
    rings = RINGS[:1] if options.quick else RINGS
    found = Findings(figures={"plans": []})
    rows = []
    for network in networks:
        for pools in ("average", "max"):
            for ring in rings:
                chosen = network if pools == "average" else with_max_pools(network)
                row, figures = _row(chosen, ring, pools)
                rows.append(row)
                found.figures["plans"].append(figures)
    found.tables.append(Table.of(HEADINGS, rows, "Bytes an image, all parties, setup apart"))
    published = [(network, who, units.size(count * MB)) for network, who, count in PUBLISHED]
    found.tables.append(Table.of("network|system|#in all", published, "Published"))
    return found


def main() -> None:
    options = parser(__doc__).parse_args()
    report("bytes", options, lambda: measure(options))


if __name__ == "__main__":
    main()

"""AES blocks of fused programs, and what draws are predicted to take of them on a GPU.

    python -m benchmarks.gpu.draws [--quick] [--json] [--write]

Counted on the plan of a ResNet-50 (rep3, rings chosen), first party: the programs that move most
bytes, then all of an inference's. The prediction is of an H200: draws at the rate of shared memory
(689 GB/s, benchmarks/RESULTS.md), streams at 4.8 TB/s, each hidden behind the other, so that a
share is the most that it can be. Nothing is run.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.gpu.rates import (
    BLOCK_BITS,
    MOST_DRAWS,
    blocks_an_element,
    inference_steps,
    stream_bytes,
    typical_steps,
)
from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.harness.sessions import compiled
from benchmarks.harness.workloads import Network, lenet, resnet50
from veilgraph.ir.plan.tables import PartyPlan
from veilgraph.reports import units
from veilgraph.reports.tables import Table

DRAWS, MEMORY = 689e9, 4.8e12  # bytes a second
HEADINGS = "program|#elements|#bytes an element|#blocks an element|#draws alone|#memory alone|"
HEADINGS += "#draws, at most|#asked"


def counted(party: PartyPlan, steps: list[int]) -> dict[str, float]:
    """Elements, AES blocks and bytes of streams of steps together."""
    found = {"elements": 0.0, "blocks": 0.0, "bytes": 0.0}
    for step in steps:
        params = party.params_of(party.steps[step])
        found["elements"] += float(params[0])
        found["blocks"] += float(params[0]) * blocks_an_element(params)
        found["bytes"] += float(stream_bytes(party, step))
    return found


def share(found: dict[str, float]) -> float:
    """Of draws in the time, if whatever takes longer hides the other."""
    draws, memory = seconds(found)
    return draws / max(draws, memory)


def seconds(found: dict[str, float]) -> tuple[float, float]:
    """Of draws alone and of memory alone."""
    return found["blocks"] * BLOCK_BITS / 8 / DRAWS, found["bytes"] / MEMORY


def _row(name: str, found: dict[str, float]) -> list[str]:
    draws, memory = seconds(found)
    return [
        name,
        f"{found['elements']:,.0f}",
        f"{found['bytes'] / found['elements']:.1f}",
        f"{found['blocks'] / found['elements']:.3f}",
        units.seconds(draws),
        units.seconds(memory),
        units.percent(share(found)),
        units.percent(MOST_DRAWS),
    ]


def figures(network: Network) -> dict[str, Any]:
    plan = compiled(network, "rep3", "auto").plan
    party = plan.party(plan.manifest.parties[0])
    found = {
        f"number {number}": counted(party, [step])
        for number, step in enumerate(typical_steps(party), start=1)
    }
    return found | {f"all of {network.name}": counted(party, inference_steps(party))}


def measure(options: argparse.Namespace) -> Findings:
    found = figures(lenet(1) if options.quick else resnet50(1))
    rows = [_row(name, each) for name, each in found.items()]
    return Findings([Table.of(HEADINGS, rows, "Draws of fused programs, predicted")], found)


def main() -> None:
    options = parser(__doc__).parse_args()
    report("gpu.draws", options, lambda: measure(options))


if __name__ == "__main__":
    main()

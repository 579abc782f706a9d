"""What `veilgraph doctor --config` measures of links whose round trip and rate are known.

    python -m benchmarks.links.measured [--quick] [--json] [--write]

Two processes over mutual TLS on loopback, whose links a shape imitates in user space
(runtime/links/shaping.py). Within 20% of the shape, in either direction; the worse direction is
shown. What imitates a link adds 0.3 to 0.6 ms to a round trip on two cores, and its copies limit
the rate: shapes are no shorter than 5 ms and no faster than a gigabit a second. --quick takes one
shape.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness.reporting import Findings, parser, report
from veilgraph.measuring.processes import write_configs
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.runtime.links.measuring import Found, measure_links
from veilgraph.runtime.links.shaping import Shape
from veilgraph.runtime.session.config import Config

NAMES = ("alice", "bob")
# Milliseconds there and back, megabits a second: metro, wan, another continent.
SHAPES = ((5.0, 1000), (40.0, 100), (200.0, 20))
MOST_WRONG = 0.2
HEADINGS = "shaped round trip|#measured|#shaped rate|#measured|#wrong by|#at most|#took"


def measured(shape: Shape) -> tuple[Found, float]:
    """Every direction of the link, and the seconds that it took, connecting included."""
    spawn = multiprocessing.get_context("spawn")
    with (
        TemporaryDirectory(prefix="veilgraph-links-") as name,
        ProcessPoolExecutor(2, spawn) as pool,
    ):
        write_configs(Path(name), NAMES)
        sides = [pool.submit(_side, Path(name) / f"{party}.yaml", shape) for party in NAMES]
        found, seconds = sides[0].result()
        assert sides[1].result()[0] == found, "the parties have found different figures"
    return found, seconds


def _side(file: Path, shape: Shape) -> tuple[Found, float]:
    start = time.perf_counter()
    return measure_links(Config.load(file), shape), time.perf_counter() - start


def figures(milliseconds: float, megabits: float) -> dict[str, Any]:
    shape = Shape(milliseconds / 1e3, megabits * 1e6 / 8)
    found, seconds = measured(shape)
    round_trip = max(rates.round_trip_seconds for rates in found.values())
    rate = min(rates.bytes_per_second for rates in found.values())
    wrong = [
        abs(each / truth - 1)
        for rates in found.values()
        for each, truth in (
            (rates.round_trip_seconds, shape.round_trip_seconds),
            (rates.bytes_per_second, shape.bytes_per_second),
        )
    ]
    return {
        "shape": vars(shape),
        "round_trip_seconds": round_trip,
        "bytes_per_second": rate,
        "wrong_by": max(wrong),
        "seconds": seconds,
    }


def row(found: dict[str, Any]) -> list[str]:
    return [
        units.seconds(found["shape"]["round_trip_seconds"]),
        units.seconds(found["round_trip_seconds"]),
        f"{units.size(found['shape']['bytes_per_second'])}/s",
        f"{units.size(found['bytes_per_second'])}/s",
        units.percent(found["wrong_by"]),
        units.percent(MOST_WRONG),
        units.seconds(found["seconds"]),
    ]


def measure(quick: bool) -> Findings:
    found = [figures(*shape) for shape in (SHAPES[:1] if quick else SHAPES)]
    table = Table.of(HEADINGS, [row(each) for each in found], "Links that doctor measures")
    return Findings([table], {"links": found})


def main() -> None:
    options: argparse.Namespace = parser(__doc__).parse_args()
    report("links.measured", options, lambda: measure(options.quick))


if __name__ == "__main__":
    main()

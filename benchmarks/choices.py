"""Protocols chosen for a network beside every one of them taken for all layers.

    python -m benchmarks.choices [--quick] [--json] [--write] [--no-runs]

Each network is compiled with `--protocols auto` for each link, and with each comparison in turned
and in fixed roles (suite rep3), offline phase counted. Seconds are those of an inference, both
phases: predicted of each plan on each link, and measured of the smaller networks by three processes
over mutual TLS, whose links are shaped in user space. "best" is the best single variant there. The
link `far` is a user's own file: 20 Mbit/s and 200 ms there and back.

--no-runs measures nothing.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.harness.sessions import Ours, compiled
from benchmarks.harness.workloads import (
    Network,
    alexnet_cifar,
    lenet,
    resnet50,
    softmax,
    vgg16_cifar,
)
from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.pricing import predict
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.runtime.links.shaping import Shape
from veilgraph.targets.networks import network as network_of
from veilgraph.targets.suites import SUITES

LINKS = ("lan", "metro", "wan", "far")
FAR = "bytes_per_second: 2.5e6\nround_trip_seconds: 0.2\n"
MEASURED = ("metro", "wan")  # links whose time hides that of three processes on two cores
RING = 32
RUNS = 3
HEADINGS = "network|link|#rounds|#auto|best single variant|#best|#auto / best|#measured|#/ best"
Single = tuple[str, str]  # a comparison, and whether roles are turned


def _seconds(plan_of: Ours, link: str) -> float:
    return predict(plan_of.plan, link).total_seconds


def _measured(plan_of: Ours, link: str) -> float:
    """The best of a few inferences on links of that shape."""
    network = network_of(link)
    done = plan_of.run(RUNS, Shape(network.round_trip_seconds, network.bytes_per_second))
    return min(run.seconds(Phase.OFFLINE, Phase.ONLINE) for run in done.runs)


def _rows(network: Network, runs: bool, folder: Path) -> list[tuple[list[str], dict[str, object]]]:
    comparisons = [variant.name for variant in SUITES["rep3"].protocols["compare"]]
    singles: dict[Single, Ours] = {
        (name, roles): compiled(network, "rep3", RING, protocols={"compare": name}, roles=roles)
        for name, roles in product(comparisons, ("rotated", "fixed"))
    }
    found = []
    for name in LINKS:
        link = str(folder / "far.yaml") if name == "far" else name
        auto = compiled(network, "rep3", RING, network=link)
        predicted = _seconds(auto, link)
        by_single = {single: _seconds(each, link) for single, each in singles.items()}
        best = min(by_single, key=lambda single: by_single[single])
        rounds = auto.plan.rounds(Phase.ONLINE)
        figures: dict[str, object] = {
            "network": network.name,
            "link": name,
            "rounds": rounds,
            "predicted_seconds": predicted,
            "best": best,
            "best_predicted_seconds": by_single[best],
        }
        row = [network.name, name, str(rounds), units.seconds(predicted), ", ".join(best)]
        row += [units.seconds(by_single[best]), f"{predicted / by_single[best]:.3f}"]
        if runs and name in MEASURED:
            own, other = _measured(auto, link), _measured(singles[best], link)
            figures |= {"measured_seconds": own, "best_measured_seconds": other}
            row += [units.seconds(own), f"{own / other:.3f}"]
        else:
            row += ["-", "-"]
        found.append((row, figures))
    return found


def measure(options: argparse.Namespace) -> Findings:
    small = [lenet(1)]
    large = [alexnet_cifar(1), vgg16_cifar(1), softmax(128, 1000), resnet50(1)]
    found = Findings(figures={"choices": []})
    rows = []
    with TemporaryDirectory(prefix="veilgraph-choices-") as folder:
        (Path(folder) / "far.yaml").write_text(FAR)
        for network in small if options.quick else [*small, *large]:
            runs = options.runs and network.name.startswith(("LeNet", "VGG"))
            for row, figures in _rows(network, runs, Path(folder)):
                rows.append(row)
                found.figures["choices"].append(figures)
    found.tables.append(Table.of(HEADINGS, rows, "Seconds an inference, by protocols chosen"))
    return found


def main() -> None:
    parsing = parser(__doc__)
    parsing.add_argument("--no-runs", dest="runs", action="store_false", help="predictions alone")
    options = parsing.parse_args()
    report("choices", options, lambda: measure(options))


if __name__ == "__main__":
    main()

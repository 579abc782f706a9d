"""Protocols chosen for a network beside every one of them taken for all layers.

    python -m benchmarks.choices [--quick] [--json] [--write] [--no-runs]

Each network is compiled with `--protocols auto` for each link, and with each comparison in turned
and in fixed roles (suite rep3), offline phase counted. Seconds are those of an inference, both
phases: predicted of each plan on each link, and measured of the smaller networks by three processes
over mutual TLS, whose links are shaped in user space. "best" is the best single variant there. The
link `far` is a user's own file: 20 Mbit/s and 200 ms there and back.

Of every network the seconds of `auto` are predicted and measured, on `metro` and `wan`: of both
phases, since who is done offline waits online for who is not.

And the ReLU of a vector by each comparison of each suite: rounds, bytes, and seconds on loopback
and on shaped links, variants in turns, so that noise hits all.

--no-runs measures nothing.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness.reporting import Findings, parser, ratio, report, spread
from benchmarks.harness.sessions import SUITES as MEASURED_SUITES
from benchmarks.harness.sessions import Ours, compiled
from benchmarks.harness.workloads import (
    Network,
    alexnet_cifar,
    lenet,
    relu,
    resnet50,
    softmax,
    vgg16_cifar,
)
from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.pricing import predict
from veilgraph.measuring.spread import Spread
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
PREDICTED_HEADINGS = "network|link|#rounds|#predicted|#measured|#measured / predicted"
RELU_HEADINGS = "suite|#elements|link|compare|#rounds|#online|#offline|#time online|#both|#of first"
Single = tuple[str, str]  # a comparison, and whether roles are turned


def _seconds(plan_of: Ours, link: str) -> float:
    return predict(plan_of.plan, link).total_seconds


def _shape(link: str) -> Shape | None:
    """None of loopback as it is."""
    if link == "loopback":
        return None
    network = network_of(link)
    return Shape(network.round_trip_seconds, network.bytes_per_second)


def _measured(plan_of: Ours, link: str) -> float:
    """The best of a few inferences on links of that shape."""
    done = plan_of.run(RUNS, _shape(link))
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


def _predicted(network: Network, link: str) -> tuple[list[str], dict[str, object]]:
    """Beside the median of a few inferences after one that does not count."""
    auto = compiled(network, "rep3", RING, network=link)
    predicted = _seconds(auto, link)
    own = auto.run(RUNS, _shape(link)).seconds(Phase.OFFLINE, Phase.ONLINE).median
    rounds = auto.plan.rounds(Phase.ONLINE)
    row = [network.name, link, str(rounds), units.seconds(predicted), units.seconds(own)]
    figures: dict[str, object] = {
        "network": network.name,
        "link": link,
        "rounds": rounds,
        "predicted_seconds": predicted,
        "measured_seconds": own,
    }
    return [*row, f"{own / predicted:.2f}"], figures


def _relus(suite: str, elements: int, link: str, turns: int) -> list[dict[str, object]]:
    """A row a comparison; online time also as a multiple of the first one's."""
    plans = {
        variant.name: compiled(relu(elements), suite, RING, protocols={"compare": variant.name})
        for variant in SUITES[suite].protocols["compare"]
    }
    for _ in range(turns):
        for ours in plans.values():
            ours.run(RUNS, _shape(link))
    first = next(iter(plans.values()))
    return [
        {
            "suite": suite,
            "elements": elements,
            "link": link,
            "compare": name,
            "rounds": ours.plan.rounds(Phase.ONLINE),
            "online_bytes": sum(ours.plan.sent_bytes(Phase.ONLINE).values()),
            "offline_bytes": sum(ours.plan.sent_bytes(Phase.OFFLINE).values()),
            "online_seconds": ours.online_seconds,
            "seconds": ours.seconds,
            "of_first": ratio(ours.online_seconds, first.online_seconds),
        }
        for name, ours in plans.items()
    ]


def _relu_row(found: dict[str, Any]) -> list[str]:
    named = [str(found[name]) for name in ("suite", "elements", "link", "compare", "rounds")]
    sizes = [units.size(found[name]) for name in ("online_bytes", "offline_bytes")]
    times = [spread(Spread.of(found[name])) for name in ("online_seconds", "seconds")]
    return [*named, *sizes, *times, f"{found['of_first']:.2f}"]


def _relu_table(quick: bool) -> tuple[Table, list[dict[str, object]]]:
    suites, sizes, links, turns = [*MEASURED_SUITES], [1_000, 100_000], ["loopback", *LINKS[:3]], 3
    if quick:
        suites, sizes, links, turns = suites[:1], sizes[:1], links[:1], 1
    found = [each for case in product(suites, sizes, links) for each in _relus(*case, turns)]
    title = "A vector's ReLU by each comparison"
    return Table.of(RELU_HEADINGS, [_relu_row(each) for each in found], title), found


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
    if options.runs:
        predicted = [
            _predicted(network, link)
            for network in (small if options.quick else [*small, *large])
            for link in MEASURED
        ]
        found.figures["predicted"] = [figures for _, figures in predicted]
        title = "Seconds an inference, predicted and measured"
        found.tables.append(Table.of(PREDICTED_HEADINGS, [row for row, _ in predicted], title))
        table, found.figures["relus"] = _relu_table(options.quick)
        found.tables.append(table)
    return found


def main() -> None:
    parsing = parser(__doc__)
    parsing.add_argument("--no-runs", dest="runs", action="store_false", help="predictions alone")
    options = parsing.parse_args()
    report("choices", options, lambda: measure(options))


if __name__ == "__main__":
    main()

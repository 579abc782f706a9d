"""Our additive suite, two parties and a dealer, beside CrypTen 0.4.1 with two parties: issue 8's
table; with --suite rep3 our three parties beside CrypTen's.

    python -m benchmarks.peers.versus_crypten [--suite additive|rep3] [--quick] [--json] [--write]
        [--environments FOLDER]

CrypTen runs as it comes: 64-bit ring, 16 fraction bits, the dealer inside its first party; in an
environment of its own (made under --environments at first use; skipped, with the reason, where it
can't be installed). Bytes are of all parties, offline and online, of an inference on weights that
are shared already; CrypTen's are what its communicator counts, sent and received, halved; ours
leave out that masked weights are opened, once a session. `comparing.py` says what is timed: ours
has TLS, shares its inputs and reveals its output inside the measured time, CrypTen does none of
these.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.harness.workloads import lenet, relu, vgg16_cifar
from benchmarks.peers.comparing import Case, Result, compare_all
from benchmarks.peers.environments import Peer, add_option
from veilgraph.reports import units
from veilgraph.reports.tables import Table

# Its dependency `sklearn` is a name on PyPI that refuses to be installed: the others by hand.
NEEDS = ("numpy", "scipy", "pandas", "pyyaml", "omegaconf", "onnx", "future", "tensorboard")
CRYPTEN = Peer(
    "crypten",
    (("torch==2.13.0", "torchvision==0.28.0", *NEEDS), ("--no-deps", "crypten==0.4.1")),
    title="CrypTen",
    parties=2,
)
SECONDS = "workload|#ring bits|#ours|#CrypTen 0.4.1|#times faster|#at least"
BYTES = "workload|#ring bits|#ours|#CrypTen 0.4.1|#share of its bytes|#at most"


def cases(suite: str, quick: bool) -> list[Case]:
    """Issue 8's rows, and of issue 4's those that both can run, cheapest first."""
    if suite == "rep3":
        networks = (lenet(1),) if quick else (lenet(1), vgg16_cifar(1), relu(1_000_000))
        return [Case(network, {64: 0, 32: 0}, turns=2) for network in networks]
    if quick:
        return [Case(relu(10_000), {64: 0}, turns=1), Case(lenet(1), {64: 8, 32: 8}, turns=2)]
    return [
        Case(lenet(1), {64: 8, 32: 8}),
        Case(relu(1_000_000), {64: 8, 32: 8}),
        Case(lenet(128), {64: 8, 32: 8}, turns=2),
        Case(vgg16_cifar(1), {64: 8, 32: 8}, turns=3),
    ]


def byte_rows(result: Result) -> list[list[str]]:
    theirs = result.peer_bytes
    return [
        [
            result.case.network.name,
            str(ring),
            units.size(ours.sent_bytes),
            units.size(theirs) if theirs else "skipped",
            units.percent(ours.sent_bytes / theirs) if theirs else "",
            "20%" if result.case.least[ring] else "report",
        ]
        for ring, ours in result.ours.items()
    ]


def measure(options: argparse.Namespace) -> Findings:
    found = Findings()
    tried, peer = cases(options.suite, options.quick), CRYPTEN
    if options.suite == "rep3":
        peer = replace(CRYPTEN, parties=3)
    results = compare_all(tried, options.suite, peer, options.environments, found)
    seconds = [row for result in results for row in result.rows()]
    sizes = [row for result in results for row in byte_rows(result)]
    title = f"{options.suite} beside CrypTen, {peer.parties} parties of it, offline included"
    found.tables.append(Table.of(SECONDS, seconds, title))
    found.tables.append(Table.of(BYTES, sizes, "Bytes of all parties, offline and online"))
    return found


def main() -> None:
    made = parser(__doc__)
    add_option(made)
    made.add_argument("--suite", choices=("additive", "rep3"), default="additive")
    options = made.parse_args()
    name = "peers.versus_crypten"
    name = name if options.suite == "additive" else f"{name}_rep3"
    report(name, options, lambda: measure(options))


if __name__ == "__main__":
    main()

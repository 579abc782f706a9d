"""One network on us and on a peer, in turns, so that noise hits both; the ratio is what counts.

What is timed. Ours: the offline and the online phase, each of its slowest party (a dealer is one:
its seconds count, though it may run ahead of the others); TLS, sharing the inputs and revealing the
output are included, setup (handshake, sharing the weights) is apart. The peer's: one execution on
inputs and weights that are shared already, its output left shared, without TLS. Everyone runs one
execution in each turn that isn't counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.harness.reporting import Findings, ratio, spread
from benchmarks.harness.sessions import Ours, compiled
from benchmarks.harness.workloads import Network
from benchmarks.peers.environments import Parties, Peer, Unavailable
from veilgraph.measuring.processes import free_ports
from veilgraph.measuring.spread import Spread


@dataclass(frozen=True)
class Case:
    """A row group: a network, the rings of ours, how often, and issue 4's or 8's least ratios."""

    network: Network
    least: Mapping[int, float]  # by ring bits; 0: report only
    turns: int = 5
    runs: int = 2


@dataclass
class Result:
    """One network measured: ours by ring, and the peer's."""

    case: Case
    ours: dict[int, Ours]
    peer_seconds: list[float] = field(default_factory=list)
    peer_bytes: int = 0  # of all parties, an execution; 0: the peer doesn't count them
    difference: float = 0.0  # largest, between outputs, relative to the largest output
    skipped: str = ""  # why the peer was left out

    def rows(self) -> list[list[str]]:
        found = []
        for ring, ours in self.ours.items():
            least, theirs = self.case.least[ring], self.peer_seconds
            found.append(
                [
                    self.case.network.name,
                    str(ring),
                    spread(Spread.of(ours.seconds)),
                    spread(Spread.of(theirs)) if theirs else "skipped",
                    f"{ratio(theirs, ours.seconds):.1f}" if theirs else "",
                    f"{least:g}" if least else "report",
                ]
            )
        return found

    def figures(self) -> list[dict[str, object]]:
        return [
            {
                "workload": self.case.network.name,
                "ring_bits": ring,
                "seconds": ours.seconds,
                "online_seconds": ours.online_seconds,
                "sent_bytes": ours.sent_bytes,
                "peer_seconds": self.peer_seconds,
                "peer_bytes": self.peer_bytes,
                "least_ratio": self.case.least[ring],
                "difference": self.difference,
                "skipped": self.skipped,
            }
            for ring, ours in self.ours.items()
        ]


def compare(
    case: Case, suite: str, peer: Peer, environments: Path, *, sum_pools: bool = False
) -> Result:
    """Measures a case; the peer's column is empty, with the reason, where it can't be had."""
    result = Result(case, {ring: compiled(case.network, suite, ring) for ring in case.least})
    inputs = next(iter(result.ours.values())).inputs
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="veilgraph-peer-")))
        theirs = case.network.with_sum_pools() if sum_pools else case.network
        theirs.describe(folder, {name: np.asarray(x) for name, x in inputs.items()})
        with free_ports(peer.parties) as ports:
            addresses = [f"127.0.0.1:{port}" for port in ports]
        parties = None
        try:
            parties = stack.enter_context(Parties(peer, environments, folder, addresses))
            parties.ask(runs=1)
        except Unavailable as reason:
            result.skipped, parties = str(reason), None
        _take_turns(result, parties)
    return result


def compare_all(
    cases: Sequence[Case],
    suite: str,
    peer: Peer,
    environments: Path,
    found: Findings,
    *,
    sum_pools: bool = False,
) -> list[Result]:
    """Measures all cases; figures, and why a peer was left out, go into `found`."""
    found.figures["cases"] = []
    results = []
    for case in cases:
        result = compare(case, suite, peer, environments, sum_pools=sum_pools)
        results.append(result)
        found.figures["cases"] += result.figures()
        if result.skipped:
            found.notes.append(f"{peer.title} left out of {case.network.name}: {result.skipped}")
    return results


def _take_turns(result: Result, parties: Parties | None) -> None:
    expected: Sequence[float] = ()
    for _ in range(result.case.turns):
        for ours in result.ours.values():
            outputs = ours.run(result.case.runs).outputs
            if parties is not None:
                expected = np.ravel(outputs[result.case.network.output])[:10].tolist()
        if parties is None:
            continue
        answers = parties.ask(runs=1 + result.case.runs)
        slowest = zip(*(answer["seconds"][1:] for answer in answers), strict=True)
        result.peer_seconds += [max(run) for run in slowest]
        result.peer_bytes = sum(answer.get("bytes", 0) for answer in answers) // 2
        found = np.array(answers[0]["output"])
        scale = np.abs(expected).max()
        result.difference = float(np.abs(found - expected).max() / scale)

"""A step of LeNet on 128 images: ours in rep3 beside CrypTen's and SPU's, in one run.

    python -m benchmarks.peers.training [--quick] [--json] [--write] [--environments FOLDER]

All take the same images, labels and weights, and the loss that each finds is compared. Ours is a
`Trainer`'s: three processes with TLS, rows shared and the loss revealed in each step, the offline
phase included; in rings that the compiler chooses, and in rings of 64 bits. Theirs are as in
`versus_crypten.py` (two processes, 64 bits, 16 fraction bits, the dealer in the first) and in
`versus_spu.py` (three, ABY3 on FM64, 18 fraction bits), on what is shared already, without TLS;
their descent has no momentum. Peers take turns with ours, so that noise hits all.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import veilgraph
from benchmarks.harness.reporting import Findings, parser, ratio, report, spread
from benchmarks.harness.workloads import Network, lenet
from benchmarks.peers.environments import Parties, Peer, Unavailable, add_option
from benchmarks.peers.versus_crypten import CRYPTEN
from benchmarks.peers.versus_spu import SPU
from benchmarks.training.digits import MOMENTUM, RATE, weights_of
from benchmarks.training.parties import Attempt, Run, ended, written
from benchmarks.training.pictures import Chain
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.training import STEP
from veilgraph.measuring.processes import free_ports
from veilgraph.measuring.spread import Spread
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.training.plan_steps import step_bytes

BATCH, CLASSES = 128, 10
STEPS = 8  # of ours in a turn
RINGS: Mapping[str, int | str] = {"chosen": "auto", "64": 64}
PEERS: Mapping[Peer, tuple[int, int]] = {CRYPTEN: (20, 3), SPU: (60, 1)}  # asked; steps in a turn
HEADINGS = "what|#a step|#sent|#rounds|#ours in chosen rings is faster by|#asked"
Array = npt.NDArray[np.float32]


@dataclass
class Found:
    """What was measured of one system.

    Attributes:
        loss: of the first step.
        sent: bytes of all parties in a step; 0 where nobody counts them.
    """

    seconds: list[float] = field(default_factory=list)
    loss: float = 0.0
    sent: int = 0
    rounds: int = 0
    skipped: str = ""


def rows_of(batch: int) -> dict[str, Array]:
    """Standard normal images, and one-hot labels."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((batch, 1, 28, 28), dtype=np.float32)
    return {"x": images, "labels": np.eye(CLASSES, dtype=np.float32)[rng.integers(0, 10, batch)]}


def compiled(network: Network, rows: Mapping[str, Array], ring: int | str) -> Plan:
    """A plan of ours, rehearsed for as many steps as are taken in a turn."""
    plan, _ = veilgraph.compile_training(
        Chain(network).train(),
        {"input": rows["x"], "labels": rows["labels"]},
        loss="cross_entropy",
        batch=len(rows["x"]),
        optimizer=veilgraph.SGD(momentum=MOMENTUM),
        rate=RATE,
        steps=STEPS,
        ring=ring,
        owners={"labels": "bob"},
        reveal={"parameters": "alice", "loss": "alice"},
    )
    return plan


def take_turn(plan: Plan, network: Network, rows: Mapping[str, Array], found: Found) -> None:
    """As many steps of ours, by three processes."""
    own = {"alice": {"input": rows["x"]}, "bob": {"labels": rows["labels"]}}
    with tempfile.TemporaryDirectory() as folder:
        written(Path(folder), plan, weights_of(Chain(network)), own)
        told = Attempt(Run(Path(folder), STEPS, None, 0)).end()
    _, losses = ended(told)
    took = max(each[1] for every in told.values() for each in every if each[0] == "took")
    found.seconds.append(took / STEPS)
    found.loss = losses[0]


def measure(options: argparse.Namespace) -> Findings:
    load, batch = os.getloadavg()[0], 4 if options.quick else BATCH
    network, rows = lenet(batch), rows_of(batch)
    plans = {name: compiled(network, rows, ring) for name, ring in RINGS.items()}
    ours = {name: Found() for name in plans}
    peers = {peer: Found() for peer in ([] if options.quick else PEERS)}
    for name, plan in plans.items():
        number = plan.manifest.entries.index(STEP)
        ours[name].sent = step_bytes(plan)
        ours[name].rounds = sum(plan.rounds(p, number) for p in (Phase.OFFLINE, Phase.ONLINE))
    with ExitStack() as stack:
        asked = {
            peer: parties
            for peer, found in peers.items()
            if (parties := _parties(stack, peer, network, rows, options, found)) is not None
        }
        for _ in range(1 if options.quick else options.turns):
            for name, plan in plans.items():
                take_turn(plan, network, rows, ours[name])
            for peer, parties in asked.items():
                answers = parties.ask(runs=PEERS[peer][1])
                slowest = zip(*(answer["seconds"] for answer in answers), strict=True)
                peers[peer].seconds += map(max, slowest)
                peers[peer].sent = sum(answer.get("bytes", 0) for answer in answers) // 2
    return _told(ours, peers, load, batch)


def _parties(
    stack: ExitStack,
    peer: Peer,
    network: Network,
    rows: Mapping[str, Array],
    options: argparse.Namespace,
    found: Found,
) -> Parties | None:
    """A peer's processes, which have done a step; None, with the reason, where there are none."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="veilgraph-peer-")))
    theirs = network.with_sum_pools() if peer is SPU else network
    theirs.describe(folder, dict(rows))
    with free_ports(peer.parties) as ports:
        addresses = [f"127.0.0.1:{port}" for port in ports]
    try:
        parties = stack.enter_context(Parties(peer, options.environments, folder, addresses))
        found.loss = float(parties.ask(runs=1)[0]["output"][0])
    except Unavailable as reason:
        found.skipped = str(reason)
        return None
    return parties


def _told(
    ours: Mapping[str, Found], peers: Mapping[Peer, Found], load: float, batch: int
) -> Findings:
    chosen, table = ours["chosen"], list[list[str]]()
    for name, found in ours.items():
        sent, rounds = units.size(found.sent), str(found.rounds)
        seconds = spread(Spread.of(found.seconds))
        table.append([f"ours, {name} rings", seconds, sent, rounds, "", ""])
    for peer, found in peers.items():
        seconds = spread(Spread.of(found.seconds)) if found.seconds else "skipped"
        times = f"{ratio(found.seconds, chosen.seconds):.1f}" if found.seconds else ""
        sent = units.size(found.sent) if found.sent else ""
        table.append([peer.title, seconds, sent, "", times, f"{PEERS[peer][0]}"])
    every: dict[str, Found] = {f"ours, {name}": found for name, found in ours.items()}
    every |= {peer.title: found for peer, found in peers.items()}
    losses = ", ".join(f"{name} {found.loss:.3f}" for name, found in every.items())
    notes = [f"Losses of the first step: {losses}. Load of the machine before: {load:.1f}."]
    notes += [f"{name} left out: {f.skipped}" for name, f in every.items() if f.skipped]
    figures: dict[str, Any] = {name: vars(found) for name, found in every.items()}
    title = f"A step of LeNet on {batch} images"
    return Findings([Table.of(HEADINGS, table, title)], {**figures, "load": load}, notes)


def main() -> None:
    made = parser(__doc__)
    add_option(made)
    made.add_argument("--turns", type=int, default=2)
    options = made.parse_args()
    report("peers.training", options, lambda: measure(options))


if __name__ == "__main__":
    main()

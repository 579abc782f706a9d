"""A card: its kernels beside its own copy, one party's local work, and three parties on it.

    python -m benchmarks.gpu [--device cuda:0] [--quick] [--json] [--write]

Kernels: bytes of streams a second of the fused programs that move most in a ResNet-50 plan, beside
a copy's bytes read and written; and of AES-128-CTR draws. Local work: a party's steps and copies of
one inference, offline and online, with links that end each round at once, so that nothing waits for
a network. Three parties: threads of one process on one card, over queues. Memory is a party's
arena. Issue 6 says how much each has to reach on an H100 or H200. Without a card it says so, and
measures nothing. --quick takes a dense layer in place of the networks.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import TracebackType
from typing import Any, Self

import numpy as np

from benchmarks.kernel_calls import Call, Words, fused
from benchmarks.reporting import Findings, parser, report, spread
from benchmarks.sessions import Ours, compiled
from benchmarks.workloads import Network, dense, lenet, relu, resnet50, vgg16_cifar
from veilgraph import units
from veilgraph.benching import Spread, measure, random_weights
from veilgraph.ir.errors import VeilgraphError
from veilgraph.ir.plan import ROUND, BufferKind, PartyPlan, Phase
from veilgraph.kernels import KERNELS
from veilgraph.kernels.fused.declaration import Op
from veilgraph.runtime.cuda.program import sources
from veilgraph.runtime.cuda.pycuda_driver import list_cards, load_pycuda
from veilgraph.runtime.devices import CPU, CUDA, DeviceName, ready
from veilgraph.runtime.links import Buffer, byte_view
from veilgraph.runtime.party import Party
from veilgraph.runtime.randomness import SessionKeys, fresh_seed
from veilgraph.tables import Table

GIGA = 1e9
COPY_SHARE, DRAW_RATE = 0.8, 250e9  # issue 6, of an H100 or H200
LOCAL_SECONDS = {
    "ReLU 32,000,000": 40e-3,
    "VGG16-CIFAR, batch 1": 15e-3,
    "ResNet-50, batch 1": 0.12,
}
TYPICAL = 3
LEAST_ARCH = "sm_80"  # what kernels are counted for
PHASES = (Phase.OFFLINE, Phase.ONLINE)


# Kernels


@dataclass(frozen=True)
class Rate:
    """Bytes a second of a kernel on the card, and what it has to reach; 0: report only."""

    what: str
    bytes_per_second: float
    least: float = 0.0

    @property
    def row(self) -> list[str]:
        least = f"{self.least / GIGA:.0f} GB/s" if self.least else "report"
        return [self.what, f"{self.bytes_per_second / GIGA:.1f} GB/s", least]


def copy_rate(device: str, words: int, runs: int) -> float:
    """Bytes a second read and written by the kernel `copy`."""
    call = Call("copy", [Words((words,), 64)] * 2, (), device)
    return 2 * 8 * words / call.median_seconds(runs)


def draw_rate(device: str, words: int, runs: int) -> float:
    """Bytes a second of AES-128-CTR draws, written to memory."""
    draw = {"op": Op.DRAW, "word": 64, "dst": 0, "a": 0, "count": 64}
    store = {"op": Op.STORE, "word": 64, "a": 0, "b": 0}
    call = Call("fused", [Words((words,), 64)], fused(words, 1, 0, [draw, store]), device)
    return 8 * words / call.median_seconds(runs)


def stream_bytes(program: PartyPlan, step: int) -> int:
    """Bytes of the buffers of a step, what is repeated (stride 0) counted once."""
    row = program.steps[step]
    first, count = int(row["first_buffer"]), int(row["buffer_count"])
    return sum(_buffer_bytes(each) for each in program.buffers[first : first + count])


def _buffer_bytes(row: np.void) -> int:
    rank, kind = int(row["rank"]), BufferKind(int(row["kind"]))
    shape, strides = row["shape"][:rank], row["strides"][:rank]
    if kind in (BufferKind.WORDS32, BufferKind.WORDS64):
        words = int(np.prod(shape[strides != 0], dtype=np.int64))
        return words * (8 if kind is BufferKind.WORDS64 else 4)
    return int(shape[0]) * int(row["bits"]) // 8


def typical_steps(program: PartyPlan) -> list[int]:
    """Of the fused programs that move most bytes in all, the largest step of each."""
    kernels = program.steps["kernel"]
    steps = [int(i) for i in np.flatnonzero(kernels == KERNELS.index("fused"))]
    by_program: dict[bytes, list[int]] = {}
    for step in steps:
        first, count = (int(program.steps[step][f]) for f in ("first_param", "param_count"))
        code = program.params[first + 1 : first + count]  # without the number of elements
        by_program.setdefault(code.tobytes(), []).append(step)

    def moved(found: Sequence[int]) -> int:
        return sum(stream_bytes(program, step) for step in found)

    largest = sorted(by_program.values(), key=moved, reverse=True)[:TYPICAL]
    return [max(found, key=lambda step: stream_bytes(program, step)) for found in largest]


def fused_rates(ours: Ours, device: str, copy: float, runs: int) -> list[Rate]:
    """The typical fused programs of the first party of a plan."""
    party = ours.plan.manifest.parties[0]
    program = ours.plan.party(party)
    keys = b"".join(fresh_seed() for _ in program.keys)
    opened = ready(device, ours.plan, party).open(keys)
    rates = []
    for number, step in enumerate(typical_steps(program), start=1):
        seconds = []
        for _ in range(runs + 1):
            opened.reset_profile()
            opened.run(step, step + 1, 1)
            seconds.append(sum(spent for _, spent in opened.profile.values()) / 1e9)
        size = stream_bytes(program, step)
        what = f"fused program {number} of a plan, {units.size(size)}"
        rates.append(Rate(what, size / median(seconds[1:]), COPY_SHARE * copy))
    opened.close()
    return rates


# One party alone


class NoNetwork:
    """Links whose rounds end at once: what is sent goes nowhere, what is received is junk."""

    def __init__(self, party: int, names: Sequence[str]) -> None:
        self.party, self.names = party, tuple(names)
        self.reset_counters()

    def reset_counters(self) -> None:
        peers = [i for i in range(len(self.names)) if i != self.party]
        self.sent_bytes, self.received_bytes = dict.fromkeys(peers, 0), dict.fromkeys(peers, 0)

    def exchange(
        self, sends: Mapping[int, Buffer], receives: Mapping[int, Buffer], step: str
    ) -> None:
        for counted, messages in ((self.sent_bytes, sends), (self.received_bytes, receives)):
            for peer, content in messages.items():
                counted[peer] += len(byte_view(content))

    def close(self) -> None:
        """Nothing to end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def local_work(ours: Ours, device: str, runs: int) -> dict[str, Any]:
    """The slowest party's seconds and steps of an inference without waiting for anybody."""
    return max(
        (_local(ours, name, device, runs) for name in ours.plan.manifest.parties),
        key=lambda found: float(found["seconds"]["median"]),
    )


def _local(ours: Ours, name: str, device: str, runs: int) -> dict[str, Any]:
    parties, program = ours.plan.manifest.parties, ours.plan.party(name)
    index = parties.index(name)
    peers = {i: fresh_seed() for i in range(len(parties)) if i != index}
    links, keys = NoNetwork(index, parties), SessionKeys(index, fresh_seed(), peers)
    own = {tensor.name: ours.inputs[tensor.name] for tensor in program.inputs}
    with Party(ours.plan, name, links, keys, ready(device, ours.plan, name)) as party:
        party.share_weights(ours.weights or random_weights(ours.plan))
        found = [party.infer(own)[1] for _ in range(runs + 1)][1:]
    seconds = [sum(t.phases[phase].seconds for phase in PHASES) for t in found]
    rounds = sum(found[-1].phases[phase].rounds for phase in PHASES)
    return {
        "party": name,
        "seconds": vars(Spread.of(seconds)),
        "steps": int((program.steps["kernel"] != ROUND).sum()),
        "rounds": rounds,
        "memory_bytes": program.arena_bytes,
        "kernels": len(sources(program, len(ours.plan.constants), LEAST_ARCH)),
    }


def local_row(name: str, found: Mapping[str, Any]) -> list[str]:
    asked = LOCAL_SECONDS.get(name)
    return [
        name,
        spread(Spread(**found["seconds"])),
        units.seconds(asked) if asked else "report",
        str(found["steps"]),
        str(found["rounds"]),
        units.seconds(found["seconds"]["median"] / max(1, found["rounds"])),
        str(found["kernels"]),
        units.size(found["memory_bytes"]),
    ]


# Three parties


def together(ours: Ours, device: str, runs: int) -> dict[str, Any]:
    """All parties as threads of this process, on one device."""
    found = measure(ours.plan, ours.weights, ours.inputs, iterations=runs, warm_up=1, device=device)
    return {
        "seconds": vars(found.seconds(*PHASES)),
        "online_seconds": vars(found.seconds(Phase.ONLINE)),
        "rounds": sum(ours.plan.rounds(phase) for phase in PHASES),
        "sent_bytes": ours.sent_bytes,
        "memory_bytes": max(found.peak_memory_bytes.values()),
        "split": {party: dict(split.rows()) for party, split in found.splits().items()},
    }


def together_row(name: str, found: Mapping[str, Any]) -> list[str]:
    return [
        name,
        spread(Spread(**found["seconds"])),
        spread(Spread(**found["online_seconds"])),
        str(found["rounds"]),
        units.size(found["sent_bytes"]),
        units.size(found["memory_bytes"]),
    ]


# All


def alone_networks(quick: bool) -> list[Network]:
    if quick:
        return [dense(6, 4)]
    return [relu(32_000_000), relu(1), vgg16_cifar(1), resnet50(1)]


def shared_networks(quick: bool) -> list[Network]:
    if quick:
        return [dense(6, 4)]
    return [lenet(128), vgg16_cifar(1), vgg16_cifar(64), vgg16_cifar(128), resnet50(1), resnet50(8)]


def card_of(device: str) -> str:
    """The product's name of a card; of another device, its own."""
    name = DeviceName.parse(device)
    return list_cards(load_pycuda())[name.index].name if name.kind == CUDA else device


def figures(device: str, quick: bool, runs: int) -> Findings:
    found = Findings()
    words = 1 << (12 if quick else 28)
    copy = copy_rate(device, words, runs)
    rates = [Rate("copy", copy), Rate("AES draws", draw_rate(device, words, runs), DRAW_RATE)]
    alone, shared = {}, {}
    for network in alone_networks(quick):
        ours = compiled(network, "rep3", "auto")
        alone[network.name] = local_work(ours, device, runs)
    rates += fused_rates(ours, device, copy, runs)  # of the last, which is the largest
    for network in shared_networks(quick):
        shared[network.name] = together(compiled(network, "rep3", "auto"), device, runs)
    found.tables = [
        Table.of("kernel|#rate|#at least", [rate.row for rate in rates]),
        Table.of(
            "one party, no network|#seconds|#at most|#steps|#rounds|#a round|#kernels|#memory",
            [local_row(*each) for each in alone.items()],
        ),
        Table.of(
            "three parties, one device|#offline and online|#online|#rounds|#bytes|#memory, a party",
            [together_row(*each) for each in shared.items()],
        ),
    ]
    found.notes = [f"On: {card_of(device)}."]
    found.figures = {
        "card": card_of(device),
        "rates": [vars(r) for r in rates],
        "alone": alone,
        "together": shared,
    }
    return found


def measured(options: argparse.Namespace) -> Findings:
    """The figures; a note in their place where the device can't be had."""
    try:
        assert DeviceName.parse(options.device).kind != CPU, "benchmarks.kernels is for the CPU"
        return figures(options.device, options.quick, 3 if options.quick else 9)
    except VeilgraphError as error:
        if options.write:
            raise SystemExit(error.message) from error
        return Findings(notes=[f"Nothing measured: {error.message}"])


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--device", default="cuda:0", help="a card, or host-shim to try the script")
    options = made.parse_args()
    report("gpu", options, lambda: measured(options))


if __name__ == "__main__":
    main()

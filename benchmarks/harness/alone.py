"""One party's local work: its steps and copies of an inference, with nobody to wait for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

from benchmarks.harness.sessions import Ours, compiled
from benchmarks.harness.workloads import Network
from veilgraph.ir.plan.tables import ROUND
from veilgraph.measuring.measure import COUNTED, random_weights
from veilgraph.measuring.spread import Spread
from veilgraph.reports.time_split import TimeSplit
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.cuda.program import sources
from veilgraph.runtime.links.links import Buffer, byte_view
from veilgraph.runtime.party import Party
from veilgraph.runtime.randomness import fresh_nonce
from veilgraph.runtime.session.keys import SessionKeys, holders_of

LEAST_ARCH = "sm_80"  # what kernels are counted for


class NoNetwork:
    """Links whose rounds end at once: what is sent goes nowhere, what is received is junk."""

    def __init__(self, party: int, names: Sequence[str]) -> None:
        self.party, self.names = party, tuple(names)
        self.timeout_seconds = math.inf  # nobody is waited for
        self.reset_counters()

    @property
    def native(self) -> None:
        """None: there are no rounds."""

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

    def __exit__(self, *exception: object) -> None:
        self.close()


def local_work(network: Network, device: str, runs: int) -> dict[str, Any]:
    """The slowest party's seconds and steps of an inference without waiting for anybody.

    Encoding its inputs and decoding its outputs, on the host, is among them, and so are copies;
    `steps_seconds` are the device's own.
    """
    ours = compiled(network, "rep3", "auto")
    return max(
        (_local(ours, name, device, runs) for name in ours.plan.manifest.parties),
        key=lambda found: float(found["seconds"]["median"]),
    )


def _local(ours: Ours, name: str, device: str, runs: int) -> dict[str, Any]:
    parties, program = ours.plan.manifest.parties, ours.plan.party(name)
    index = parties.index(name)
    held = [holders for holders in holders_of(ours.plan) if index in holders]
    links, keys = NoNetwork(index, parties), SessionKeys({each: fresh_nonce() for each in held})
    own = {tensor.name: ours.inputs[tensor.name] for tensor in program.inputs}
    with Party(ours.plan, name, links, keys, ready(device, ours.plan, name)) as party:
        party.share_weights(ours.weights or random_weights(ours.plan))
        found = [party.infer(own)[1] for _ in range(runs + 1)][1:]
    seconds = [sum(t.phases[phase].seconds for phase in COUNTED) for t in found]
    in_steps = [sum(TimeSplit.of(t).kernels.values()) for t in found]
    rounds = sum(found[-1].phases[phase].rounds for phase in COUNTED)
    return {
        "party": name,
        "seconds": vars(Spread.of(seconds)),
        "steps_seconds": vars(Spread.of(in_steps)),
        "steps": int((program.steps["kernel"] != ROUND).sum()),
        "rounds": rounds,
        "memory_bytes": program.arena_bytes,
        "kernels": len(sources(program, len(ours.plan.constants), LEAST_ARCH)),
    }

"""Our side of a comparison: a plan's parties as processes over mutual TLS on loopback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import veilgraph
from benchmarks.harness.workloads import Network
from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.measure import Measurement, measure
from veilgraph.plans import Plan
from veilgraph.runtime.links.shaping import Shape

SUITES: dict[str, dict[str, Any]] = {
    "rep3": {"suite": "rep3"},
    "additive": {"suite": "additive", "parties": ["alice", "bob"], "dealer": "dave"},
}
SAMPLES = 2  # that ranges are calibrated on; random inputs are all alike
Arrays = Mapping[str, npt.NDArray[np.float32]]


@dataclass
class Ours:
    """A compiled network, its inputs, and the seconds of all its inferences so far."""

    plan: Plan
    weights: Arrays
    inputs: Arrays
    seconds: list[float] = field(default_factory=list)
    online_seconds: list[float] = field(default_factory=list)

    def run(self, runs: int, shape: Shape | None = None) -> Measurement:
        """A session with one inference to warm up and `runs` that count, setup apart.

        Seconds are offline and online together, of the slowest party, the dealer included.

        Args:
            shape: of the network that links are to be like.
        """
        found = measure(
            self.plan,
            self.weights,
            self.inputs,
            iterations=runs,
            warm_up=1,
            processes=True,
            shape=shape,
        )
        for done in found.runs:
            self.online_seconds.append(done.seconds(Phase.ONLINE))
            self.seconds.append(done.seconds(Phase.OFFLINE, Phase.ONLINE))
        return found

    @property
    def sent_bytes(self) -> int:
        """Of all parties, offline and online."""
        phases = (Phase.OFFLINE, Phase.ONLINE)
        return sum(sum(self.plan.sent_bytes(phase).values()) for phase in phases)


def compiled(network: Network, suite: str, ring: int | str, /, **options: Any) -> Ours:
    """The network under a suite of SUITES, calibrated on its own random samples."""
    samples = network.samples(SAMPLES, seed=1)
    names = ("alice", "bob")
    owners = {name: names[owner] for name, owner in network.owners.items()}
    plan, weights = veilgraph.compile(
        network.onnx(),
        ring=ring,
        calibrate=samples,
        owners=owners,
        **(SUITES[suite] | options),
    )
    return Ours(plan, weights, {name: array[0] for name, array in samples.items()})

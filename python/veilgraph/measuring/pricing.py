"""What a plan is predicted to take: seconds by phase and by layer, on a named network.

Rounds, bytes and multiply-adds are counted on the plan; seconds follow from the network's figures
and from those of a machine, which are measured and named with every prediction that uses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from veilgraph.ir.plan.tables import Layer, Phase
from veilgraph.measuring.timeline import finished
from veilgraph.measuring.work import step_seconds
from veilgraph.plans import Cost, Plan
from veilgraph.reports.markup import tag
from veilgraph.reports.units import counted, seconds
from veilgraph.targets.machines import MACHINE, Machine
from veilgraph.targets.networks import Network, network

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LayerPrice:
    """The layers of one name, joined: what they are, what they cost, and their share of the time.

    Attributes:
        ops: of the secret level, in order.
        protocols: of each op what there was a choice of, as `compare=merges`.
        next_best: of each op what would have been chosen else, on the network compiled for.
        next_best_seconds: how much longer the program would then have taken.
        last: the layer whose ring, fraction bits and range are the result's.
        seconds: predicted, offline and online together.
        share: of the seconds of all layers.
    """

    name: str
    ops: tuple[str, ...]
    protocols: tuple[str, ...]
    next_best: tuple[str, ...]
    next_best_seconds: tuple[float, ...]
    last: Layer
    rounds: int
    online_bytes: int
    offline_bytes: int
    multiply_adds: int
    seconds: float
    share: float = 0.0


Cell: TypeAlias = str | int | float


@dataclass(frozen=True, repr=False)
class Prediction:
    """A plan's cost on a network, in seconds too.

    Attributes:
        setup_seconds, offline_seconds, online_seconds: messages and computation.
        entry: the number of the entry whose runs are priced.
    """

    network: Network
    cost: Cost
    setup_seconds: float
    offline_seconds: float
    online_seconds: float
    layers: tuple[LayerPrice, ...]
    entry: int = 0

    @property
    def total_seconds(self) -> float:
        """Of one inference: offline and online."""
        return self.offline_seconds + self.online_seconds

    def rows(self) -> list[dict[str, Cell]]:
        """A row a layer, each cell a number or a text: `pandas.DataFrame(prediction.rows())`."""
        return [
            {
                "layer": price.name,
                "ops": "+".join(price.ops),
                "protocols": ", ".join(price.protocols),
                "ring_bits": price.last.ring_bits,
                "frac_bits": price.last.frac_bits,
                "range_low": price.last.range_low,
                "range_high": price.last.range_high,
                "range_source": price.last.range_source,
                "rounds": price.rounds,
                "online_bytes": price.online_bytes,
                "offline_bytes": price.offline_bytes,
                "multiply_adds": price.multiply_adds,
                "seconds": price.seconds,
                "share_of_seconds": price.share,
            }
            for price in self.layers
        ]

    def __repr__(self) -> str:
        return (
            f"<Prediction on {self.network.name}: {counted(len(self.layers), 'layer')}, "
            f"{seconds(self.online_seconds)} online, {seconds(self.offline_seconds)} offline>"
        )

    def _repr_html_(self) -> str:
        """The table that a notebook shows: what each layer costs."""
        rows = self.rows()
        head = tag("tr", [tag("th", name) for name in (rows[0] if rows else ())])
        lines = [tag("tr", [tag("td", str(cell)) for cell in row.values()]) for row in rows]
        return f"{tag('p', repr(self))}{tag('table', head, lines)}"


def predict(
    plan: Plan, network_name: str | None = None, machine: Machine = MACHINE, entry: int = 0
) -> Prediction:
    """Predicts what a plan takes.

    Args:
        network_name: `lan`, `wan` or a YAML file; the plan's own if None.
        entry: the number of the entry whose runs are priced.

    Raises:
        UsageError: no such network.
    """
    chosen = _network(plan, network_name)
    seconds = {name: step_seconds(program, machine) for name, program in plan.programs.items()}
    setup, offline, online = (
        finished(plan, phase, chosen, machine.round_seconds, seconds, entry) for phase in Phase
    )
    return Prediction(
        network=chosen,
        cost=plan.cost(network_name, entry),
        setup_seconds=setup,
        offline_seconds=offline,
        online_seconds=online,
        layers=_priced(plan, chosen, _by_layer(plan, seconds, entry), entry),
        entry=entry,
    )


def _by_layer(plan: Plan, seconds: Mapping[str, Floats], entry: int) -> Floats:
    """Seconds of each layer's steps, offline and online, at the party that takes longest."""
    found = np.zeros(len(plan.layers))
    for name, program in plan.programs.items():
        steps = program.steps
        is_own = (steps["phase"] != Phase.SETUP) & (steps["entry"] == entry)
        is_own &= steps["layer"] < len(found)
        own = np.bincount(steps["layer"][is_own], seconds[name][is_own], minlength=len(found))
        found = np.maximum(found, own)
    return found


def _network(plan: Plan, name: str | None) -> Network:
    """The network of this name, or the one that the plan was compiled for."""
    return network(name) if name else plan.network


def computing_parties(plan: Plan) -> int:
    """How many parties compute online."""
    return len(plan.manifest.computing)


def _priced(plan: Plan, chosen: Network, computing: Floats, entry: int) -> tuple[LayerPrice, ...]:
    """Each layer's price as if it ran alone, and its share of their sum."""
    groups: dict[tuple[str, bool], list[Layer]] = {}
    spent: dict[tuple[str, bool], float] = {}
    known = plan.known_layers
    for number in plan.layer_numbers(entry):
        layer = known[number]
        if layer.name and layer.op != "weight":
            # An output may have the name of the layer that computes it, and an input any name.
            key = (layer.name, layer.op in ("input", "reveal"))
            groups.setdefault(key, []).append(layer)
            spent[key] = spent.get(key, 0.0) + float(computing[number])
    parties = computing_parties(plan)
    prices = [_price(group, parties, chosen, spent[key]) for key, group in groups.items()]
    total = sum(each.seconds for each in prices) or 1.0
    return tuple(replace(each, share=each.seconds / total) for each in prices)


def _price(group: Sequence[Layer], parties: int, chosen: Network, computing: float) -> LayerPrice:
    online = sum(layer.online_bits for layer in group) // 8
    offline = sum(layer.offline_bits for layer in group) // 8
    rounds = sum(layer.rounds for layer in group)
    links = max(parties * (parties - 1), 1)
    return LayerPrice(
        name=group[0].name,
        ops=tuple(layer.op for layer in group),
        protocols=tuple(layer.protocol for layer in group),
        next_best=tuple(layer.next_best for layer in group),
        next_best_seconds=tuple(layer.next_best_seconds for layer in group),
        last=group[-1],
        rounds=rounds,
        online_bytes=online,
        offline_bytes=offline,
        multiply_adds=sum(layer.multiply_adds for layer in group),
        seconds=chosen.seconds(rounds, (online + offline) // links) + computing,
    )

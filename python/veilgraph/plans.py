"""A plan as users hold it: saved, loaded, and priced on a network."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from veilgraph.ir.plan import file as plan_file
from veilgraph.ir.plan import plan as ir_plan
from veilgraph.ir.plan.tables import WEIGHTS, Phase
from veilgraph.passes.collection import paused_collection
from veilgraph.reports.markup import tag
from veilgraph.reports.units import counted, seconds, size
from veilgraph.targets.networks import Network
from veilgraph.targets.networks import network as named_network


@dataclass(frozen=True)
class PhaseCost:
    """One phase on a network.

    Attributes:
        rounds: of messages.
        sent_bytes: payload by link, {"alice->bob": bytes}.
        network_seconds: until the last message is there, if nobody computes.
        multiply_adds: ring products of all parties together (online only).
    """

    rounds: int
    sent_bytes: dict[str, int]
    network_seconds: float
    multiply_adds: int = 0

    @property
    def total_bytes(self) -> int:
        return sum(self.sent_bytes.values())


@dataclass(frozen=True)
class Cost:
    """What a plan costs on a network, phase by phase, counted on its messages."""

    network: str
    setup: PhaseCost
    offline: PhaseCost
    online: PhaseCost
    peak_memory_bytes: dict[str, int]

    def _repr_html_(self) -> str:
        """The table that a notebook shows."""
        phases = (("setup", self.setup), ("offline", self.offline), ("online", self.online))
        rows = [
            (name, str(cost.rounds), size(cost.total_bytes), seconds(cost.network_seconds))
            for name, cost in phases
        ]
        headings = ("phase", "rounds", "sent by all", f"network time on {self.network}")
        head = tag("tr", [tag("th", heading) for heading in headings])
        lines = [tag("tr", [tag("td", cell) for cell in row]) for row in rows]
        return str(tag("table", head, lines))


@dataclass(frozen=True, repr=False)
class Plan(ir_plan.Plan):
    """A compiled program; `ir.plan.Plan` with what a user does with it."""

    def __repr__(self) -> str:
        manifest = self.manifest
        inputs = ", ".join(name for name in manifest.owners if name != WEIGHTS)
        online = sum(self.sent_bytes(Phase.ONLINE).values())
        return (
            f"<Plan {self.digest[:12]}: {manifest.suite} of {', '.join(manifest.parties)}; "
            f"{inputs} to {', '.join(manifest.receivers)}; "
            f"{counted(self.rounds(Phase.ONLINE), 'round')}, {size(online)} online>"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: the plan in a line, and its cost on its own network."""
        return f"{tag('p', repr(self))}{self.cost()._repr_html_()}"

    @classmethod
    def of(cls, plan: ir_plan.Plan) -> Self:
        found = cls(**{f.name: getattr(plan, f.name) for f in fields(ir_plan.Plan)})
        if "digest" in vars(plan):  # known already: it is of the same content
            vars(found)["digest"] = plan.digest
        return found

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads model.plan; see `ir.plan.file.load` for what is refused."""
        with paused_collection():
            return cls.of(plan_file.load(path))

    def save(self, path: str | Path) -> None:
        """Writes model.plan; the same plan gives the same bytes."""
        plan_file.save(self, path)

    @property
    def network(self) -> Network:
        """The network that the plan was compiled for."""
        own = self.manifest.network
        seconds = float(str(own["round_trip_seconds"]))
        return Network(str(own["name"]), float(str(own["bytes_per_second"])), seconds)

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """What classes are called, by the output that holds their places, counted from 0."""
        return self.manifest.labels

    @property
    def forms(self) -> dict[str, str]:
        """What is revealed in place of an output: `argmax`, by the output's name."""
        return self.manifest.forms

    def cost(self, network: str | None = None, entry: int = 0) -> Cost:
        """Rounds, bytes and network seconds on a network: `lan`, `wan` or a YAML file.

        Args:
            network: the one that the plan was compiled for if None.
            entry: the number of the entry whose runs are priced.
        """
        chosen = self.network if network is None else named_network(network)
        multiply_adds = sum(layer.multiply_adds for layer in self.layers_of(entry))
        phases = []
        for phase in Phase:
            sent = self.sent_bytes(phase, entry)
            rounds = self.rounds(phase, entry)
            seconds = chosen.delivered(self.messages(phase, entry))
            count = multiply_adds if phase == Phase.ONLINE else 0
            phases.append(PhaseCost(rounds, sent, seconds, count))
        memory = {name: program.arena_bytes for name, program in self.programs.items()}
        setup, offline, online = phases
        return Cost(chosen.name, setup, offline, online, memory)

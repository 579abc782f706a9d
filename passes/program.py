"""A program on its way through the passes, and what a user may decide about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

from veilgraph.ir.graph.program import Graph
from veilgraph.ir.graph.table_options import AS_USUAL, TableOptions
from veilgraph.ir.meaning.integers import NumpyProducts, Products
from veilgraph.ir.plan.tables import Pace
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import Encoding, RealRange
from veilgraph.passes.encode.aim import Aim
from veilgraph.passes.graph.drop_clips import DroppedClips
from veilgraph.passes.graph.infer_visibility import Visibility
from veilgraph.passes.graph.reveal_as import Form, before, counting_scope, scope
from veilgraph.passes.party.align_messages import pace_of
from veilgraph.passes.party.batch_rounds import Schedule
from veilgraph.passes.party.expand_protocols import Choices, Expanded
from veilgraph.passes.ranges.calibrate import Key, Ranges, Reach
from veilgraph.passes.secret.count_questions import Questions
from veilgraph.targets.target import Target
from veilgraph.targets.variants import Goal, Roles

Samples = Mapping[str, npt.NDArray[np.float32]]


class Protection(Enum):
    """What is done about thresholds of inner truncations that a receiver knows."""

    NONE = "none"
    ROLES = "roles"  # the receiver has the role that knows none, where a protocol has one
    EXACT = "exact"  # truncations are put right by comparisons


@dataclass(frozen=True)
class Options:
    """What a user may decide about the passes.

    Attributes:
        samples: real inputs for calibration, samples on a new first axis; None: ranges unknown.
        ring_bits: width of every ring; None lets the encoding choose.
        frac_bits: of every value; None lets the encoding choose.
        average_pools: take average pools in place of max pools.
        max_error: mean error of the outputs, relative to their mean size, that is allowed on the
            samples; None leaves it to the encoding. Of an output that is revealed as a decision
            it is that of the numbers it is made of.
        tolerances: how many times as much some outputs may be off by, by name.
        reveal_as: what is revealed in place of outputs, by name.
        counted: of each output that counts answers, the output of numbers that these are made of:
            it is measured in its place, and nobody gets it.
        trusts_ranges: real functions hold on calibrated ranges with their margin, and no further.
        public: the model's parameters that every party may know, which the front door made
            constants.
        tables: how models of tables are read.
        protection: of weights from a receiver who knows how values are rounded.
        goal: by what protocols are chosen.
        is_prepared: the offline phase is prepared ahead, and no part of a protocol's price.
        most_store: bytes that an inference prepared ahead may take in a party's store.
        roles: whether parties rotate through the roles of protocols.
        states: of each input that is a state, the output that it is in the next run.
        state_ranges: where states lie.
        like: how another plan keeps states, by name, where this one goes on from its states.
        reached: where inputs and operations lay, in more runs than the samples are.
        keep_clips: clips of quantised tensors stay, though no sample reaches them.
        announced: inputs that their owner tells every party.
        rates: those of them that are learning rates.
        given_by_all: inputs that all parties give, each with COMMON or EACH in an owner's place.
        updates: of each state that is an update of what it was, the output that says what a run
            adds to it. These outputs are what is measured, and nobody gets them.
        columns: names of an input's columns, by input.
        parts: by input of the model that several owners give, the places of each part's columns.
        is_joined: one entry of several, which are expanded, and whose masks are checked, together.
    """

    samples: Samples | None = None
    ring_bits: int | None = None
    frac_bits: int | None = None
    average_pools: bool = False
    max_error: float | None = None
    tolerances: Mapping[str, float] = field(default_factory=dict)
    reveal_as: Mapping[str, Form] = field(default_factory=dict)
    counted: Mapping[str, str] = field(default_factory=dict)
    trusts_ranges: bool = False
    public: tuple[str, ...] = ()
    tables: TableOptions = AS_USUAL
    protection: Protection = Protection.NONE
    goal: Goal = Goal.AUTO
    is_prepared: bool = False
    most_store: int | None = None
    roles: Roles = Roles.AUTO
    states: Mapping[str, str] = field(default_factory=dict)
    state_ranges: Mapping[str, RealRange] = field(default_factory=dict)
    like: Mapping[str, Encoding] = field(default_factory=dict)
    reached: Mapping[Key, Reach] = field(default_factory=dict)
    keep_clips: bool = False
    announced: tuple[str, ...] = ()
    rates: tuple[str, ...] = ()
    given_by_all: Mapping[str, str] = field(default_factory=dict)
    updates: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    is_joined: bool = False

    @property
    def decisions(self) -> set[str]:
        """Outputs that are right or wrong, and have no error."""
        return {name for name, form in self.reveal_as.items() if form.decides} | {*self.counted}

    @property
    def decided_in(self) -> tuple[str, ...]:
        """What the names of the operations begin with that make these."""
        forms = self.reveal_as.items()
        return (
            *(scope(name, form) for name, form in forms if form.decides),
            *map(counting_scope, self.counted),
        )

    @property
    def hidden(self) -> set[str]:
        """The outputs that are there to be measured."""
        updates = {*self.updates.values()} - {*self.states.values()}
        forms = {before(name, form) for name, form in self.reveal_as.items()}
        return forms | {*self.counted.values()} | updates


class Level(Enum):
    """How far down a program is: what its last stage worked on."""

    GRAPH = 1
    VISIBLE = 2  # the graph, whose values are known to be public or secret
    SECRET = 3
    PARTY = 4
    SCHEDULED = 5  # the party level, whose messages have rounds


class Watch:
    """Is told what a pass is at. This one does nothing with it."""

    def at(self, doing: str) -> None:
        """What is being done, for whoever looks on: "sample 2 of 4"."""

    def tried(self, what: str) -> None:
        """What was tried and given up, for a log: "trial 1 is off by 0.8%, and 0.5% is allowed"."""


@dataclass
class Program:
    """A program on its way down.

    The fields without a default are set by the stage that makes them: `visibility` from the level
    VISIBLE on, `ranges` before SECRET, `secret`, `expanded` and `schedule` from their levels on.
    """

    target: Target
    options: Options
    graph: Graph
    level: Level = field(default=Level.GRAPH, kw_only=True)
    aim: Aim = field(default_factory=Aim, kw_only=True)
    misses: int = 0  # how often the samples said that this was not enough
    dropped_clips: DroppedClips = field(default=DroppedClips(), kw_only=True)
    # By input: k of each column, whose numbers are given over 2^k (scale_columns).
    column_exponents: Mapping[str, tuple[int, ...]] = field(default_factory=dict, kw_only=True)
    products: Products = field(default_factory=NumpyProducts, kw_only=True)
    watch: Watch = field(default_factory=Watch, kw_only=True)
    visibility: Visibility = field(init=False)
    ranges: Ranges = field(init=False)
    secret: SecretProgram = field(init=False)
    choices: Choices = field(init=False)
    entry: int = field(default=0, kw_only=True)  # of `expanded` and `schedule`
    expanded: Expanded = field(init=False)
    schedule: Schedule = field(init=False)
    questions: list[Questions] = field(init=False)

    @property
    def pace(self) -> Pace:
        """What the time of a round is worth, by which messages are put in rounds."""
        return pace_of(self.target.network, self.options.goal)

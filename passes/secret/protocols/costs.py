"""What one protocol sends: counted on a trace of it alone, in a target's suite.

The communication cost model of what is chosen before there is a program: rings
(passes/encode/scales/cost_model.py), and protocols (choose_protocols.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import NUMBERS
from veilgraph.ir.party.node import Shape
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.secret.function_forms import FunctionForm
from veilgraph.ir.types import MAX_RING_BITS, Kind, words
from veilgraph.passes.party.batch_rounds import Schedule, batch_rounds
from veilgraph.passes.party.products import products, seconds_of
from veilgraph.passes.secret.function_protocols import public_table
from veilgraph.passes.secret.protocols.problem import NEVER, Waits
from veilgraph.targets.parties import Member, Operation, Parties, Sharing
from veilgraph.targets.target import Target
from veilgraph.targets.variants import Variant

FIRST = Member(0)  # of those that compute
MOST_SETTINGS = 16  # whose traces a process keeps


@dataclass(frozen=True)
class Communication:
    """What a protocol sends, the messages of the setup apart.

    Attributes:
        bits: of all parties together, by phase.
        rounds: from operands that are all there to the result, by phase.
        links: bytes by phase, sender and receiver.
        turns: of each round online the bytes by sender and receiver.
        planes: bytes of bit planes that a party sends online.
        multiplying: seconds in which `MACHINE` multiplies, by phase and party.
        waits: online rounds from what a party has of the operands to what another has of the
            result.
    """

    bits: Mapping[Phase, int]
    rounds: Mapping[Phase, int]
    links: Mapping[tuple[Phase, int, int], int]
    turns: Sequence[Mapping[tuple[int, int], int]]
    planes: Mapping[int, int]
    multiplying: Mapping[tuple[Phase, int], float]
    waits: Waits

    @property
    def all_bits(self) -> int:
        return sum(self.bits.values())

    @property
    def busiest_bytes(self) -> int:
        """Online, of each round's busiest link: others wait for it."""
        return sum(max(turn.values(), default=0) for turn in self.turns)

    def sent_by(self, phase: Phase) -> Counter[int]:
        """Bytes by party."""
        return self._by_party(phase, 1)

    def received_by(self, phase: Phase) -> Counter[int]:
        """Bytes by party; those of the offline phase are what lies in its store."""
        return self._by_party(phase, 2)

    def _by_party(self, phase: Phase, end: int) -> Counter[int]:
        found: Counter[int] = Counter()
        for link, sent in self.links.items():
            if link[0] == phase:
                found[link[end]] += sent
        return found

    def scaled(self, factor: int) -> Communication:
        """Of so many times more elements."""
        return replace(
            self,
            bits={phase: factor * bits for phase, bits in self.bits.items()},
            links={link: factor * sent for link, sent in self.links.items()},
            turns=[{link: factor * sent for link, sent in turn.items()} for turn in self.turns],
            planes={party: factor * sent for party, sent in self.planes.items()},
            multiplying={key: factor * spent for key, spent in self.multiplying.items()},
        )

    def balanced(self, dealt: Mapping[tuple[int, int], int], parties: int) -> Communication:
        """The same within a program: who was sent least so far is dealt what comes next.

        Args:
            dealt: bits, by who sends to whom; each party that does sends to all others.
        """
        links = dict(self.links)
        for host in {host for host, _ in dealt}:
            members = [i for i in range(parties) if i != host]
            for i in members:
                link = (Phase.OFFLINE, host, i)
                even = sum(dealt.get((host, j), 0) for j in members) // len(members)
                links[link] = links.get(link, 0) + (even - dealt.get((host, i), 0)) // 8
        return replace(self, links=links)

    def rotated(self, parties: int) -> Communication:
        """The same where so many rotate through all roles."""
        links: Counter[tuple[Phase, int, int]] = Counter()
        turns: list[Counter[tuple[int, int]]] = [Counter() for _ in self.turns]
        planes: Counter[int] = Counter()
        waits = np.full_like(self.waits, NEVER)
        for rotation in range(parties):
            rotated = {i: (i + rotation) % parties for i in range(parties)}
            for (phase, sender, receiver), sent in self.links.items():
                links[phase, rotated.get(sender, sender), rotated.get(receiver, receiver)] += sent
            for found, turn in zip(turns, self.turns, strict=True):
                for (sender, receiver), sent in turn.items():
                    found[rotated.get(sender, sender), rotated.get(receiver, receiver)] += sent
            for party, sent in self.planes.items():
                planes[rotated.get(party, party)] += sent
            order = [rotated.get(i, i) for i in range(len(waits))]
            waits[np.ix_(order, order)] = np.maximum(waits[np.ix_(order, order)], self.waits)
        return replace(
            self,
            links={link: round(sent / parties) for link, sent in links.items()},
            turns=[{link: round(sent / parties) for link, sent in turn.items()} for turn in turns],
            planes={party: round(sent / parties) for party, sent in planes.items()},
            waits=tuple(map(tuple, waits.tolist())),
        )


def kept(target: Target, *more: object) -> dict[tuple[object, ...], Any]:
    """What was traced before in this process, for targets whose protocols send the same.

    These have the same protocols and parties; networks and what a program names may differ. Who
    asks adds what it finds.

    Args:
        more: what traces depend on besides, and who asks.
    """
    suite = target.suite
    own = tuple(getattr(suite, each.name) for each in fields(suite) if each.name != "protocols")
    offered, chosen = tuple(suite.protocols.items()), tuple(sorted(target.protocols.items()))
    return _kept((own, offered, chosen, target.members, *more))


@lru_cache(MOST_SETTINGS)
def _kept(setting: tuple[object, ...]) -> dict[tuple[object, ...], Any]:
    return {}


def parties_of(target: Target, chosen: Mapping[str, Variant] | None = None) -> Parties:
    """A target's parties, with a program of their own.

    Args:
        chosen: protocols by name; the target's if None.
    """
    placed = target.placed(Program(target.everyone))
    return replace(placed, chosen=target.protocols if chosen is None else chosen)


def source(
    p: Parties,
    target: Target,
    name: str,
    shape: Shape,
    bits: int,
    setup: bool = False,
    giver: Member = FIRST,
) -> Sharing:
    """What a member shares, a weight once a session if `setup`, else an input."""
    role, phase = ("weight", Phase.SETUP) if setup else ("input", Phase.ONLINE)
    with p.program.in_phase(phase):
        value = p.program.source(role, name, giver.party, shape, words(bits))
        return replace(target.suite.share(p, giver, value), known=value)


def computed(p: Parties, target: Target, name: str, shape: Shape, bits: int) -> Sharing:
    """What was computed: all parts are there at once, none is zero, and none is known ahead."""
    if target.suite.states is None:
        return source(p, target, name, shape, bits)
    return target.suite.states.found(p, name, shape, words(bits))


def any_constant(p: Parties, shape: Shape, bits: int) -> Sharing:
    """A public tensor in Z_2^bits that is equal to no other of its program."""
    return public_table(p.program.constant(len(p.program.nodes), shape, words(bits)))


def any_tables(p: Parties, form: FunctionForm) -> list[Sharing]:
    """In place of a real function's public tables."""
    return [any_constant(p, shape, MAX_RING_BITS) for shape in form.table_shapes]


def of_call(
    p: Parties, target: Target, operation: Operation, operands: Iterable[Sharing], layer: str = ""
) -> Sharing:
    """A protocol's result.

    Raises:
        UnsupportedError: the suite has no protocol for the op; `layer` is where it stands.
    """
    result: Sharing = target.suite.called(p, operation.name, layer)(p, operation, *operands)
    return result


def communication(result: Sharing, first: int = 0) -> Communication:
    """Of the messages that a result needs, those before node `first` of its program apart.

    All parties' parts of it are made.
    """
    program = result[0].program
    for number, part in enumerate(result.parts):
        for party in part.at:
            program.output(part, party, f"part{number}", 0)
    schedule = batch_rounds(program)
    columns = schedule.columns
    sends = np.flatnonzero((columns.op == NUMBERS[ops.SEND]) & (schedule.is_live != 0))
    is_own = sends >= first
    before = {Phase(phase) for phase in columns.phase[sends[~is_own]].tolist()}
    bits: Counter[Phase] = Counter()
    links: Counter[tuple[Phase, int, int]] = Counter()
    planes: Counter[int] = Counter()
    turns: dict[int, Counter[tuple[int, int]]] = {}
    own = sends[is_own]
    senders = columns.party[columns.args[columns.first[own]]]
    sent = (columns.phase, columns.party, columns.tensor, schedule.levels)
    for sender, *row in zip(senders.tolist(), *(x[own].tolist() for x in sent), strict=True):
        phase, party, (shape, type) = Phase(row[0]), row[1], columns.tensors[row[2]]
        if phase == Phase.SETUP:
            continue
        elements = prod(shape)
        bits[phase] += type.bits * elements
        links[phase, sender, party] += type.message_bytes(elements)
        if phase == Phase.ONLINE:
            turn = turns.setdefault(row[3], Counter())
            turn[sender, party] += type.message_bytes(elements)
        if phase == Phase.ONLINE and type.kind is Kind.PLANES:
            planes[sender] += type.message_bytes(elements)
    return Communication(
        bits=bits,
        # Operands are shared in one round, or in none.
        rounds={phase: schedule.rounds[phase] - (phase in before) for phase in Phase},
        links=links,
        turns=list(turns.values()),
        planes=planes,
        multiplying=_multiplying(schedule),
        waits=_waits(schedule, len(program.parties), first),
    )


def _multiplying(schedule: Schedule) -> dict[tuple[Phase, int], float]:
    """Seconds by phase and party."""
    found: dict[tuple[Phase, int], float] = {}
    columns = schedule.columns
    for i, multiply_adds in products(columns, schedule.is_live != 0):
        key = Phase(columns.phase[i]), int(columns.party[i])
        found[key] = found.get(key, 0.0) + seconds_of(columns, i, multiply_adds)
    return found


def _waits(schedule: Schedule, parties: int, first: int) -> Waits:
    """What each party's copy of an output waits for, of nodes before `first`."""
    columns = schedule.columns
    online = np.flatnonzero((schedule.is_live != 0) & (columns.phase == Phase.ONLINE))
    nothing = (NEVER,) * parties
    own = [tuple(0 if i == j else NEVER for j in range(parties)) for i in range(parties)]
    paths: dict[int, tuple[int, ...]] = {}
    found = np.full((parties, parties), NEVER)
    args, begins = columns.args.tolist(), columns.first
    each = (online, columns.op[online], columns.party[online], begins[online], begins[online + 1])
    for i, op, party, begin, end in zip(*(x.tolist() for x in each), strict=True):
        if i < first:
            paths[i] = own[party]
            continue
        read = [paths[a] for a in args[begin:end] if a in paths]
        path = tuple(map(max, *read)) if len(read) > 1 else read[0] if read else nothing
        paths[i] = tuple([n + 1 for n in path]) if op == NUMBERS[ops.SEND] else path
        if op == NUMBERS[ops.OUTPUT]:
            found[:, party] = np.maximum(found[:, party], path)
    return tuple(map(tuple, found.tolist()))

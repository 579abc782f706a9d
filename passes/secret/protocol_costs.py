"""What one protocol sends: counted on a trace of it alone, by the names of a target's suite.

The communication cost model of what is chosen before there is a program: rings
(passes/encode/scales/cost_model.py), and protocols (passes/secret/choose_protocols.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from veilgraph.ir.party import ops
from veilgraph.ir.party.program import Program, Shape
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.secret.function_forms import FunctionForm
from veilgraph.ir.types import MAX_RING_BITS, words
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.secret.function_protocols import public_table
from veilgraph.targets.networks import Network
from veilgraph.targets.suite import Member, Operation, Parties, Sharing
from veilgraph.targets.target import Target
from veilgraph.targets.variants import Variant

FIRST = Member(0)  # of those that compute


@dataclass(frozen=True)
class Communication:
    """What a protocol sends, the messages of the setup apart.

    Attributes:
        bits: of all parties together, offline and online.
        rounds: in which it sends, by phase.
        busiest_bytes: on the link that carries most, by phase.
    """

    bits: int
    rounds: Mapping[Phase, int]
    busiest_bytes: Mapping[Phase, int]

    def seconds(self, network: Network, count_offline: bool) -> float:
        """Of the messages alone; without the offline phase, where it is prepared ahead."""
        phases = (Phase.OFFLINE, Phase.ONLINE) if count_offline else (Phase.ONLINE,)
        return sum(network.seconds(self.rounds[p], self.busiest_bytes[p]) for p in phases)


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
        return target.suite.share(p, giver, value)


def any_constant(p: Parties, shape: Shape, bits: int) -> Sharing:
    """A public tensor in Z_2^bits that is equal to no other of its program."""
    return public_table(p.program.constant(len(p.program.nodes), shape, words(bits)))


def any_tables(p: Parties, form: FunctionForm) -> list[Sharing]:
    """In place of a real function's public tables."""
    return [any_constant(p, shape, MAX_RING_BITS) for shape in form.table_shapes]


def of_call(
    p: Parties, target: Target, operation: Operation, operands: Iterable[Sharing], layer: str = ""
) -> Communication:
    """Of a protocol alone: what its operands were made with is apart.

    Raises:
        UnsupportedError: the suite has no protocol for the op; `layer` is where it stands.
    """
    before = len(p.program.nodes)
    protocol = target.suite.called(p, operation.name, layer)
    return communication(protocol(p, operation, *operands), before)


def communication(result: Sharing, first: int = 0) -> Communication:
    """Of the messages that a result needs, those before node `first` of its program apart.

    All parties' parts of it are made.
    """
    program = result[0].program
    for number, part in enumerate(result.parts):
        for party in part.at:
            program.output(part, party, f"part{number}", 0)
    schedule = batch_rounds(program)
    nodes = (program.nodes[i] for i in schedule.live if i >= first)
    sends = [node for node in nodes if node.op is ops.SEND and node.phase != Phase.SETUP]
    links: Counter[tuple[Phase, int, int]] = Counter()
    for node in sends:
        sender = program.nodes[node.args[0]].party
        links[node.phase, sender, node.party] += node.type.message_bytes(node.elements)
    rounds = {(node.phase, schedule.round_of(node)) for node in sends}
    return Communication(
        bits=sum(node.type.bits * node.elements for node in sends),
        rounds=Counter(phase for phase, _ in rounds),
        busiest_bytes={
            phase: max((sent for link, sent in links.items() if link[0] == phase), default=0)
            for phase in Phase
        },
    )

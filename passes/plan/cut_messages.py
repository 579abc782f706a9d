"""cut_messages: the pieces that a large message is sent in, while the rest of it is still computed.

A fused step makes its streams element by element, so what its first elements give of each stream
can go before the others are there. All pieces of a part of a step go one after another, then those
of the next part; planes of bits, where an element has a bit in each, go when their step is done.
Sender and receiver have a message's pieces in one order: that of the wire.

    before:  message 6 MiB to bob: %5 (4 MiB), %7 (2 MiB), both made by step 12 of 500,000 elements
    after:   %5[: 1 MiB], %7[: 512 KiB] when step 12 has done 125,000;  %5[1 MiB : 2 MiB], ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from veilgraph.ir.party.node import Node
from veilgraph.kernels import PART_ELEMENTS
from veilgraph.passes.party.batch_rounds import Position
from veilgraph.passes.plan.assign_buffers import Memory, Message
from veilgraph.passes.plan.fuse_local import Action, LocalSteps

PIECE_BYTES = 1 << 19
ROUND = -1  # in place of an action: the round itself


class Piece(NamedTuple):
    """Bytes of a message, in its party's arena.

    A piece to send is there when `action` of its segment has done its first `elements` elements
    (all, if 0); one that is received may be put there from the segment's start on if `early`.
    """

    position: Position
    peer: int
    is_send: bool
    offset: int
    bytes: int
    action: int = ROUND
    elements: int = 0
    early: bool = False


@dataclass(frozen=True)
class Stream:
    """One tensor of a message: `start` in bytes from the message's."""

    send: Node
    start: int

    def bytes(self, elements: int) -> int:
        """Of the first elements of a step, as its kernel counts them; of planes only all."""
        return self.send.type.message_bytes(elements // self.send.type.per_element)

    @property
    def elements(self) -> int:
        """Of its step, as the step's kernel counts them."""
        return self.send.elements * self.send.type.per_element


class Cut(NamedTuple):
    """A piece before it has a place: bytes from the message's start."""

    start: int
    bytes: int
    action: int
    elements: int


def cut_messages(
    steps: LocalSteps, memories: Sequence[Memory], piece_bytes: int = PIECE_BYTES
) -> list[list[Piece]]:
    """Every party's pieces, in the order of rounds, peers and the wire.

    Args:
        piece_bytes: what a part of a step gives a peer, about.
    """
    nodes = steps.schedule.program.nodes
    actions = [{s.position: s.actions for s in segments} for segments in steps.segments]
    cuts = {
        (party, m.peer, m.position): cut
        for party, memory in enumerate(memories)
        for position, to in _large(memory).items()
        for m, cut in _cut(nodes, actions[party][position], memory, to, piece_bytes)
    }
    return [list(_pieces(party, memory, cuts)) for party, memory in enumerate(memories)]


def _pieces(
    party: int, memory: Memory, cuts: Mapping[tuple[int, int, Position], list[Cut]]
) -> Iterator[Piece]:
    for m in sorted(memory.messages, key=lambda m: (m.position, m.peer)):
        ends = (party, m.peer) if m.is_send else (m.peer, party)
        cut = cuts.get((*ends, m.position))
        if cut is None:
            yield Piece(m.position, m.peer, m.is_send, m.offset, m.bytes, early=m.early)
            continue
        assert sum([c.bytes for c in cut]) == m.bytes, "pieces are not the message"
        for start, size, action, elements in cut:
            made = (action, elements) if m.is_send else (ROUND, 0)
            yield Piece(m.position, m.peer, m.is_send, m.offset + start, size, *made, m.early)


def _large(memory: Memory) -> dict[Position, list[Message]]:
    """The messages to cut, by round."""
    found: dict[Position, list[Message]] = {}
    for m in memory.messages:
        if m.is_send and m.early:
            found.setdefault(m.position, []).append(m)
    return found


def _cut(
    nodes: Sequence[Node],
    actions: Sequence[Action],
    memory: Memory,
    messages: Sequence[Message],
    piece_bytes: int,
) -> Iterator[tuple[Message, list[Cut]]]:
    """Each of one round's large messages, cut."""
    cuts: dict[int, list[Cut]] = {m.peer: [] for m in messages}
    starts = {m.peer: m.offset for m in messages}
    for number, action in enumerate(actions):
        streams = [
            Stream(node, memory.messages_of[node.id].offset - starts[node.party])
            for node in (nodes[i] for i in action.nodes if i in memory.messages_of)
            if node.party in cuts
        ]
        for peer, cut in _cut_action(number, streams, piece_bytes):
            cuts[peer].append(cut)
    for m in messages:
        yield m, _joined(cuts[m.peer])


def _cut_action(
    number: int, streams: Sequence[Stream], piece_bytes: int
) -> Iterator[tuple[int, Cut]]:
    """The pieces that one step makes, with their peers."""
    words = [stream for stream in streams if stream.send.type.in_order]
    elements = words[0].elements if words else 0
    sent: Counter[int] = Counter()
    for stream in words:
        sent[stream.send.party] += stream.bytes(elements)
    parts = max(1, max(sent.values(), default=0) // piece_bytes)
    length = max(1, -(-elements // (parts * PART_ELEMENTS))) * PART_ELEMENTS
    for first in range(0, elements, length):
        last = min(first + length, elements)
        done = 0 if last == elements else last
        for stream in words:
            start, end = (stream.bytes(e) for e in (first, last))
            yield stream.send.party, Cut(stream.start + start, end - start, number, done)
    for stream in streams:
        if not stream.send.type.in_order:
            whole = stream.bytes(stream.elements)
            yield stream.send.party, Cut(stream.start, whole, number, 0)


def _joined(cuts: Sequence[Cut]) -> list[Cut]:
    """Pieces that lie side by side and are there at one time, as one."""
    joined: list[Cut] = []
    for cut in cuts:
        last = joined[-1] if joined else None
        together = last is not None and (last.action, last.elements) == (cut.action, cut.elements)
        if last is not None and together and last.start + last.bytes == cut.start:
            joined[-1] = last._replace(bytes=last.bytes + cut.bytes)
        else:
            joined.append(cut)
    return joined

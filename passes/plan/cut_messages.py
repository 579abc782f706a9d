"""cut_messages: the pieces that a large message is sent in, while the rest of it is still computed.

A fused step makes its streams element by element, so what its first elements give of each stream
can go before the others are there. All pieces of a part of a step go one after another, then those
of the next part; planes of bits, where an element has a bit in each, go when their step is done.
Sender and receiver have a message's pieces in one order: that of the wire.

    before:  message 6 MiB to bob: %5 (4 MiB), %7 (2 MiB), both made by step 12 of 500,000 elements
    after:   %5[: 1 MiB], %7[: 512 KiB] when step 12 has done 125,000;  %5[1 MiB : 2 MiB], ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party.columns import Columns, Int64s
from veilgraph.ir.types import Kind
from veilgraph.kernels import PART_ELEMENTS
from veilgraph.passes.party.batch_rounds import Position, place_of
from veilgraph.passes.plan.assign_buffers import NOWHERE, Memory, Message
from veilgraph.passes.plan.fuse_local import LocalSteps

PIECE_BYTES = 1 << 19
ROUND = -1  # in place of an action: the round itself

# Bytes of a message, in its party's arena. A piece to send is there when `action` of its segment
# has done its first `elements` elements (all, if 0); one that is received may be put there from the
# segment's start on if `early`.
PIECE = np.dtype(
    [
        ("place", np.int64),  # of its round, as `Schedule.places`
        ("peer", np.int64),
        ("is_send", np.bool_),
        ("offset", np.int64),
        ("bytes", np.int64),
        ("action", np.int64),
        ("elements", np.int64),
        ("early", np.bool_),
    ]
)
Pieces = npt.NDArray[np.void]
Wire = tuple[int, int, Position]


class Streams(NamedTuple):
    """Tensors of large messages, action by action: `start` in bytes from the message's.

    `group` counts the actions that make any; `action` is such an action's place in its segment.
    """

    node: Int64s
    message: Int64s
    start: Int64s
    group: Int64s
    action: Int64s

    def of(self, chosen: Int64s) -> Streams:
        return Streams(*(column[chosen] for column in self))


class Cuts(NamedTuple):
    """Pieces before they have places: bytes from their messages' starts.

    `part` counts those that an action gives a stream.
    """

    message: Int64s
    start: Int64s
    bytes: Int64s
    action: Int64s
    elements: Int64s
    part: Int64s

    def of(self, chosen: Int64s) -> Cuts:
        return Cuts(*(column[chosen] for column in self))

    @staticmethod
    def joined(every: Sequence[Cuts]) -> Cuts:
        none = Cuts(*np.zeros((6, 0), np.int64))
        return Cuts(*map(np.concatenate, zip(none, *every, strict=True)))


def cut_messages(
    steps: LocalSteps, memories: Sequence[Memory], piece_bytes: int = PIECE_BYTES
) -> list[Pieces]:
    """Every party's pieces, in the order of rounds, peers and the wire.

    Args:
        piece_bytes: what a part of a step gives a peer, about.
    """
    numbers: dict[Wire, int] = {}  # of large messages
    found = []
    for party, memory in enumerate(memories):
        large = [m for m in memory.messages if m.is_send and m.early]
        cuts = _cut(steps.schedule.columns, _streams(steps, party, memory, large), piece_bytes)
        found.append(cuts._replace(message=cuts.message + len(numbers)))
        numbers |= {_wire(party, m): number for number, m in enumerate(large, len(numbers))}
    cuts = Cuts.joined(found)
    return [_pieces(party, memory, cuts, numbers) for party, memory in enumerate(memories)]


def _wire(party: int, m: Message) -> Wire:
    """A message by its sender, its receiver and its round."""
    return (party, m.peer, m.position) if m.is_send else (m.peer, party, m.position)


def _pieces(party: int, memory: Memory, cuts: Cuts, numbers: Mapping[Wire, int]) -> Pieces:
    rows = [
        (place_of(m.position), m.peer, m.is_send, m.offset, m.bytes, ROUND, 0, m.early)
        for m in memory.messages
    ]
    whole = np.array(rows, PIECE)
    number = np.array([numbers.get(_wire(party, m), -1) for m in memory.messages], np.int64)
    begins, ends = (np.searchsorted(cuts.message, number, side) for side in ("left", "right"))
    counts = np.where(number < 0, 1, ends - begins)
    assert counts.all(), "a message of no pieces"
    firsts = np.cumsum(counts) - counts
    which = np.repeat(np.arange(len(whole)), counts)
    pieces, is_cut = whole[which], number[which] >= 0
    at = (begins[which] + np.arange(len(which)) - firsts[which])[is_cut]
    pieces["offset"][is_cut] += cuts.start[at]
    pieces["bytes"][is_cut] = cuts.bytes[at]
    sent = pieces["is_send"][is_cut]
    pieces["action"][is_cut] = np.where(sent, cuts.action[at], ROUND)
    pieces["elements"][is_cut] = np.where(sent, cuts.elements[at], 0)
    if len(whole):
        sums = np.add.reduceat(pieces["bytes"], firsts)
        assert np.array_equal(sums, whole["bytes"]), "pieces are not the messages"
    return pieces


def _streams(steps: LocalSteps, party: int, memory: Memory, large: Sequence[Message]) -> Streams:
    """What a party's actions make of its large messages, in order."""
    columns, own = steps.schedule.columns, steps.of_parties[party]
    parties = len(steps.schedule.program.parties)
    # By place and peer in one number; messages are in this order.
    keys = np.array([place_of(m.position) * parties + m.peer for m in large], np.int64)
    actions = np.flatnonzero(np.isin(own.place, keys // parties))
    nodes = own.nodes.take(actions)
    group = np.repeat(np.arange(len(actions)), np.diff(nodes.first))
    wanted = own.place[actions][group] * parties + columns.party[nodes.rows]
    is_made = (memory.messages_of.offset[nodes.rows] != NOWHERE) & np.isin(wanted, keys)
    node, group = nodes.rows[is_made].astype(np.int64), group[is_made]
    message = np.searchsorted(keys, wanted[is_made])
    starts = np.array([m.offset for m in large], np.int64)
    place = own.place[actions]
    number = actions - np.searchsorted(own.place, place)
    start = memory.messages_of.offset[node] - starts[message]
    return Streams(node, message, start, group, number[group])


def _cut(columns: Columns, streams: Streams, piece_bytes: int) -> Cuts:
    """The pieces that steps make, message by message: of each part of a step a piece of each
    stream of words, and of planes one when it is done.
    """
    is_planes = np.array([type.kind is Kind.PLANES for _, type in columns.tensors], bool)
    in_planes = is_planes[columns.tensor[streams.node]]
    planes = streams.of(np.flatnonzero(in_planes))
    last = np.full(len(planes.node), np.iinfo(np.int64).max)  # behind all parts
    size, done = columns.message_bytes[planes.node], np.zeros_like(planes.start)
    whole = Cuts(planes.message, planes.start, size, planes.action, done, last)
    words = streams.of(np.flatnonzero(~in_planes))
    cuts = Cuts.joined([_cut_words(columns, words, piece_bytes), whole])
    return _merged(cuts.of(np.lexsort([cuts.part, cuts.action, cuts.message])))  # stable


def _cut_words(columns: Columns, streams: Streams, piece_bytes: int) -> Cuts:
    """The pieces of streams of words, in the order of their streams."""
    length, elements = _parts(columns, streams, piece_bytes)
    counts = -(-elements // length)
    which = np.repeat(np.arange(len(streams.node)), counts)
    part = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    streams, length, elements = streams.of(which), length[which], elements[which]
    first, last = part * length, np.minimum((part + 1) * length, elements)
    start, end = (_message_bytes(columns, streams.node, each) for each in (first, last))
    done = np.where(last == elements, 0, last)
    return Cuts(streams.message, streams.start + start, end - start, streams.action, done, part)


def _parts(columns: Columns, streams: Streams, piece_bytes: int) -> tuple[Int64s, Int64s]:
    """Of each stream the elements of a part of its step, and of all of it, as the step's kernel
    counts them: so many that the peer who gets most of the step gets about `piece_bytes` in each.
    """
    if not len(streams.node):
        return streams.node, streams.node
    groups, first = np.unique(streams.group, return_index=True)
    group = np.searchsorted(groups, streams.group)
    elements = columns.steps[streams.node[first]][group]
    size = _message_bytes(columns, streams.node, elements)
    # What each message gets of each step; a step's messages are to one peer each.
    pairs, which = np.unique(np.stack([group, streams.message]), axis=1, return_inverse=True)
    sent, most = np.zeros(pairs.shape[1], np.int64), np.zeros(len(groups), np.int64)
    np.add.at(sent, which.reshape(-1), size)
    np.maximum.at(most, pairs[0], sent)
    parts = np.maximum(1, most // piece_bytes)[group]
    length = np.maximum(1, -(-elements // (parts * PART_ELEMENTS))) * PART_ELEMENTS
    return length, elements


def _message_bytes(columns: Columns, nodes: Int64s, steps: Int64s) -> Int64s:
    """Of the first elements of words, as kernels count them, on the wire."""
    bits = np.array([type.bits for _, type in columns.tensors], np.int64)[columns.tensor[nodes]]
    per_element = [type.per_element for _, type in columns.tensors]
    elements = steps // np.array(per_element, np.int64)[columns.tensor[nodes]]
    return -(-elements * bits // 64) * 8


def _merged(cuts: Cuts) -> Cuts:
    """Pieces that lie side by side and are there at one time, as one."""
    is_new = np.ones(len(cuts.start), bool)
    same = np.stack([cuts.message, cuts.action, cuts.elements])
    is_new[1:] = (same[:, 1:] != same[:, :-1]).any(0)
    is_new[1:] |= cuts.start[:-1] + cuts.bytes[:-1] != cuts.start[1:]
    first = np.flatnonzero(is_new)
    sums = np.add.reduceat(cuts.bytes, first) if len(first) else cuts.bytes
    return cuts.of(first)._replace(bytes=sums)

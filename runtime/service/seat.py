"""What a client's program does, done at each computing party in the client's place.

A client's program draws, subtracts, sends, receives and adds: it is linear in what it is given, in
each draw and in each message. So a party runs the client's own program with a part of these, and
the parts add up:

- Masks. Each key of the client's belongs to other parties too, and the first of them stands for it.
  It runs the program on zeros under that key. What the program would send is less the key's draws:
  these differences, added over all parties, are the client's mask, which only the client adds up.
  The client answers with its input plus the mask, and that is its message in the plan.
- Outputs. A party that received nothing from others, and zeros in their place, ends with its part.
  The client adds the parts.

So a client needs no key, and gets what its own program would have told it: the sum of its masks and
its outputs. It is the same for one client that gives all of an input, or for many with some rows.
The key of a role's draws is one of the parties that the role shares it with: `role_keys`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import BufferKind, PartyPlan, Phase, Tensor
from veilgraph.ir.roles import CLIENT
from veilgraph.runtime.client.wire import wrapped
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.interface import Piece
from veilgraph.runtime.encoding import Words, word_dtype
from veilgraph.runtime.links.links import Links
from veilgraph.runtime.phases import step_ranges
from veilgraph.runtime.randomness import SEED_BYTES
from veilgraph.runtime.service import packed
from veilgraph.runtime.session.keys import DrawKeys, Holders, SessionKeys, expand, in_order

_NOBODYS = bytes(SEED_BYTES)  # a key in place of one that another party stands for: it cancels


def members_of(plan: Plan) -> tuple[str, ...]:
    """The parties of a plan that serve it: all but its clients."""
    return tuple(name for name in plan.manifest.parties if plan.manifest.role(name) != CLIENT)


def without_clients(plan: Plan, holders: Holders) -> Holders:
    """Who of some holders serves the plan."""
    names, members = plan.manifest.parties, members_of(plan)
    return frozenset(party for party in holders if names[party] in members)


def role_keys(plan: Plan, holders: Sequence[Holders], keys: SessionKeys) -> SessionKeys:
    """All keys of a plan that a party holds where it serves clients, from those of the parties.

    A key that the plan gives to a client too is the parties' own: derived from their session's key,
    apart from every other use of that.

    Args:
        holders: of each key of the plan.
        keys: of this party's session with the others that serve.
    """
    found = {}
    for each in in_order(holders):
        inner = without_clients(plan, each)
        if inner not in keys:
            continue
        named = bytes(sorted(each))
        found[each] = keys[inner] if inner == each else expand(keys[inner], "role", named)
    return SessionKeys(found)


@dataclass(frozen=True)
class _Place:
    """Where the program leaves an input, less its draws, to send it: before which online round.

    Memory is used again after that round.
    """

    round: int
    offset: int
    kind: BufferKind
    bits: int
    elements: int

    @property
    def bytes(self) -> int:
        return packed.stored_bytes(self.kind, self.bits, self.elements)


class Seat:
    """A client of a plan at one party, for one entry; for one thread at a time.

    Args:
        plan: the plan, verified.
        client: the role that is stood for.
        party: who stands here.

    Raises:
        UsageError: the client does more than to give inputs and to receive outputs.
    """

    def __init__(self, plan: Plan, client: str, party: str, entry: int = 0) -> None:
        self.program: PartyPlan = plan.party(client)
        self._entry = entry
        self._peer = plan.manifest.parties.index(party)
        self._parties = plan.manifest.parties
        self._is_first = plan.manifest.computing[0] == party
        self._mine = [
            self._first_of(plan, holders) == party and client in holders
            for holders in self.program.keys
        ]
        self._holders = [frozenset(map(self._parties.index, each)) for each in self.program.keys]
        self._nothing = _NOBODYS * len(self.program.keys)
        self._device = ready("cpu", plan, client).open(self._nothing)
        self._offline = step_ranges(self.program, Phase.OFFLINE, entry)
        self._online = step_ranges(self.program, Phase.ONLINE, entry)
        self._require_no_other_clients(plan)
        self.inputs = tuple(t for t in self.program.inputs if t.entry == entry)
        self.outputs = tuple(t for t in self.program.outputs if t.entry == entry)
        self._places = self._found_places()

    @staticmethod
    def _first_of(plan: Plan, holders: Sequence[str]) -> str:
        computing = [name for name in plan.manifest.computing if name in holders]
        if not computing:
            raise _does_more(plan.manifest.named(CLIENT)[0])
        return computing[0]

    def _require_no_other_clients(self, plan: Plan) -> None:
        """What clients tell each other passes by no party: nobody could stand for both."""
        clients = {self._parties.index(name) for name in plan.manifest.named(CLIENT)}
        for steps in (*self._offline, *self._online):
            if any(piece.peer in clients for piece in (*steps.sends, *steps.receives)):
                raise _does_more(self.program.party)

    @property
    def receivers(self) -> frozenset[str]:
        """The parties that the plan has the client send anything."""
        peers = {piece.peer for steps in self._online for piece in steps.sends}
        return frozenset(self._parties[peer] for peer in peers)

    @property
    def receives(self) -> bool:
        """Whether this party is one of them."""
        return self._parties[self._peer] in self.receivers

    # Masks

    def masks(self, number: int, keys: DrawKeys) -> dict[str, Words]:
        """This party's part of the mask of each input, flat, in inference `number`.

        The client's message is its input plus all parties' parts.
        """
        table = [
            keys[holders] if mine else _NOBODYS
            for holders, mine in zip(self._holders, self._mine, strict=True)
        ]
        found = self._masks_under(number, b"".join(table))
        if self._is_first:
            return found
        theirs = self._masks_under(number, self._nothing)
        return {t.name: wrapped(found[t.name] - theirs[t.name], t) for t in self.inputs}

    def _masks_under(self, number: int, keys: bytes) -> dict[str, Words]:
        """What the program would send of each input if all were zero, under these keys."""
        self._begin(keys)
        sent = self._sent(number, [places[0] for places in self._places.values()])
        self._begin(self._nothing)
        return dict(zip(self._places, sent, strict=True))

    # An inference

    def offline(self, links: Links) -> list[bytes]:
        """What this party tells the client before an inference, message by message."""
        received = []
        for steps in self._offline:
            if pieces := _of(steps.receives, self._peer):
                message = bytearray(_length(pieces))
                links.exchange({}, {self._peer: message}, steps.name)
                received.append(bytes(message))
        return received

    def online(
        self, links: Links, number: int, told: Sequence[bytes], given: Mapping[str, Words]
    ) -> dict[str, Words]:
        """The client's part of an inference towards this party.

        Args:
            links: the client's end of its link with this party.
            told: what `offline` gave.
            given: the client's inputs plus their masks, flat; nothing where `receives` is false.

        Returns:
            This party's part of each output, flat.
        """
        self._begin(self._nothing)
        waiting = list(told)
        for steps in self._offline:
            self._device.run(steps.first, steps.last, number)
            if pieces := _of(steps.receives, self._peer):
                self._put(pieces, waiting.pop(0))
        for i, steps in enumerate(self._online):
            self._device.run(steps.first, steps.last, number)
            self._round(links, i, given)
        found = {t.name: self._words(t) for t in self.outputs}
        self._wipe()
        return found

    def _round(self, links: Links, i: int, given: Mapping[str, Words]) -> None:
        steps = self._online[i]
        sends, receives = _of(steps.sends, self._peer), _of(steps.receives, self._peer)
        if sends:
            for name, words in given.items():
                for place in (each for each in self._places[name] if each.round == i):
                    content = packed.store(words, place.kind, place.bits)
                    self._device.copy_in(place.offset, content)
        if sends or receives:
            message = bytearray(_length(receives))
            links.exchange(
                {self._peer: self._taken(sends)} if sends else {},
                {self._peer: message} if receives else {},
                steps.name,
            )
            self._put(receives, bytes(message))
        for piece in steps.receives:
            if piece.peer != self._peer:
                self._device.copy_in(piece.offset, bytes(piece.bytes))

    # Memory

    def _begin(self, keys: bytes) -> None:
        self._wipe()
        self._device.rekey(keys)

    def _wipe(self) -> None:
        """Overwrites what a client gave or is told."""
        self._device.copy_in(0, bytes(self.program.arena_bytes))

    def _sent(self, number: int, places: Sequence[_Place]) -> list[Words]:
        """What is at each place before its round, if nothing is received."""
        found = {}
        for i, steps in enumerate(self._online):
            self._device.run(steps.first, steps.last, number)
            found.update({place: self._read(place) for place in places if place.round == i})
        return [found[place] for place in places]

    def _put(self, pieces: Sequence[Piece], message: bytes) -> None:
        start = 0
        for piece in pieces:
            self._device.copy_in(piece.offset, message[start : start + piece.bytes])
            start += piece.bytes

    def _taken(self, pieces: Sequence[Piece]) -> bytes:
        return b"".join(
            self._device.copy_out((piece.offset, piece.bytes)).tobytes() for piece in pieces
        )

    def _read(self, place: _Place) -> Words:
        content = self._device.copy_out((place.offset, place.bytes))
        return packed.load(content, place.kind, place.bits, place.elements)

    def _words(self, tensor: Tensor) -> Words:
        dtype = word_dtype(tensor.ring_bits)
        content = self._device.copy_out((tensor.offset, tensor.elements * dtype.itemsize))
        return wrapped(content.view(dtype), tensor)

    # Where inputs are sent from

    def _found_places(self) -> dict[str, list[_Place]]:
        """Each input's places, found by what the program does with a pattern in its place."""
        candidates = self._candidates()
        self._begin(self._nothing)
        base = self._sent(0, candidates)
        found: dict[str, list[_Place]] = {}
        for tensor in self.inputs:
            pattern = _pattern(tensor)
            self._begin(self._nothing)
            self._device.copy_in(tensor.offset, pattern.view(np.uint8))
            found[tensor.name] = [
                place
                for place, sent, before in zip(
                    candidates, self._sent(0, candidates), base, strict=True
                )
                if place.bits == tensor.ring_bits
                and place.elements == tensor.elements
                and np.array_equal(wrapped(sent - before, tensor), pattern)
            ]
        known = [place for places in found.values() for place in places]
        if set(known) != set(candidates) or not all(found.values()):
            raise _does_more(self.program.party)
        return found

    def _candidates(self) -> list[_Place]:
        """Buffers of the program that messages are sent from, several side by side in one."""
        found: list[_Place] = []
        sent_bytes = 0
        for i, steps in enumerate(self._online):
            sent = {range(piece.offset, piece.offset + piece.bytes) for piece in steps.sends}
            sent_bytes += sum(map(len, sent))
            places: dict[int, _Place] = {}
            for step in self.program.steps[steps.first : steps.last]:
                for row in self.program.buffers_of(step):
                    if any(int(row["offset"]) in each for each in sent):
                        places[int(row["offset"])] = _place(i, row)
            found += places.values()
        if sum(place.bytes for place in found) != sent_bytes:
            raise _does_more(self.program.party)
        return found


def _place(round: int, row: np.void) -> _Place:
    elements = int(np.prod(row["shape"][: int(row["rank"])], dtype=np.int64))
    kind, bits = BufferKind(row["kind"]), int(row["bits"])
    return _Place(round, int(row["offset"]), kind, bits, elements)


def _pattern(tensor: Tensor) -> Words:
    """Elements that are all told apart, as far as the ring has so many."""
    spread = 2 * np.arange(tensor.elements, dtype=np.uint64) + np.uint64(1)
    return wrapped(spread.astype(word_dtype(tensor.ring_bits)), tensor)


def _of(pieces: Sequence[Piece], peer: int) -> list[Piece]:
    return [piece for piece in pieces if piece.peer == peer]


def _length(pieces: Sequence[Piece]) -> int:
    return sum(piece.bytes for piece in pieces)


def _does_more(client: str) -> UsageError:
    return UsageError(
        f"{client} does more in this plan than to give inputs and to receive outputs.",
        "A service serves plans whose clients do that alone; use `veilgraph run` for others.",
    )

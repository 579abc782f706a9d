"""Rounds of long messages on a GPU: steps, copies, encryption and sockets go on at the same time.

A message is cut in parts of a chunk at most. Each is copied out as soon as the step that makes it
is done, on the GPU's own clock, and the links have it as soon as it is there. What comes is copied
in chunk by chunk while the next is on its way; the steps after the round wait for the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from veilgraph.runtime.devices.cuda.drivers.interface import Bytes, Event
from veilgraph.runtime.devices.cuda.staging import Copy, Staging, chunks
from veilgraph.runtime.devices.interface import Piece, by_peer

Steps = Callable[[int, int, int], None]


@dataclass(frozen=True)
class _Memory:
    """What is sent to one peer or more, there once all steps before `due` are done."""

    offset: int
    bytes: int
    due: int


@dataclass(frozen=True)
class _Part:
    """A copy to the host, of a chunk of something."""

    memory: _Memory
    copy: Copy


class StagedLongRound:
    """See device.LongRound.

    Args:
        staging: whose pinned memory the messages pass through.
        first, last: the steps before the round.
        steps: begins steps [first, last) of that, as an inference's number.
    """

    def __init__(
        self,
        staging: Staging,
        first: int,
        last: int,
        sends: Sequence[Piece],
        receives: Sequence[Piece],
        steps: Steps,
    ) -> None:
        self._staging, self._first, self._last, self._steps = staging, first, last, steps
        self._parts, end = _parts(sends, first, last)
        self.sends = {
            peer: [part for piece in pieces for part in self._parts_of(piece)]
            for peer, pieces in by_peer(sends).items()
        }
        self.receives, self._inward, end = _received(staging.pinned, receives, end)
        assert end <= len(staging.pinned), "a round larger than those of its program"

    def _parts_of(self, piece: Piece) -> Iterator[tuple[Bytes, int]]:
        """Where the parts of a piece are in pinned memory, and their numbers."""
        memory = _memory(piece, self._first, self._last)
        for number, part in enumerate(self._parts, start=1):
            if part.memory == memory:
                copy = part.copy
                yield self._staging.pinned[copy.pinned :][: copy.count], number

    @property
    def arrivals(self) -> list[tuple[int, int]]:
        return [(peer, came) for peer, came, _ in self._inward]

    def begin(self, run: int) -> None:
        staging, step = self._staging, self._first
        events = iter(staging.events(len(self._parts)))
        for due, parts in groupby(self._parts, key=lambda part: part.memory.due):
            self._steps(step, due, run)
            step = due
            self._copy_out(list(parts), events)
        self._steps(step, self._last, run)
        with staging.guard():
            staging.compute.record(staging.computed)
            staging.delivered.synchronize()  # the last round's messages have left the memory

    def _copy_out(self, parts: Sequence[_Part], events: Iterator[Event]) -> None:
        staging = self._staging
        with staging.guard():
            staging.compute.record(staging.computed)
            staging.outward.wait(staging.computed)
            for part, event in zip(parts, events, strict=False):
                staging.copy_out(part.copy)
                staging.outward.record(event)

    def parts(self) -> Iterator[int]:
        for number, event in enumerate(self._staging.events(len(self._parts)), start=1):
            with self._staging.guard():
                event.synchronize()
            yield number

    def deliver(self, number: int) -> None:
        staging = self._staging
        with staging.guard():
            if number == 0:
                staging.inward.wait(staging.computed)  # steps that read what was there before
            staging.copy_in(self._inward[number][2])
            if number == len(self._inward) - 1:
                staging.inward.record(staging.delivered)
                staging.compute.wait(staging.delivered)


def _parts(sends: Sequence[Piece], first: int, last: int) -> tuple[list[_Part], int]:
    """What is copied out, in the order in which it may be, peers in turn; and where that ends.

    What two peers get is copied once.
    """
    found: list[tuple[int, int, _Part]] = []
    end = 0
    seen = set()
    for pieces in by_peer(sends).values():
        turn = 0
        for piece in pieces:
            memory = _memory(piece, first, last)
            if memory in seen:
                continue
            seen.add(memory)
            for copy in chunks(Copy(end, piece.offset, piece.bytes)):
                found.append((memory.due, turn, _Part(memory, copy)))
                turn += 1
            end += piece.bytes
    found.sort(key=lambda each: each[:2])
    return [part for _, _, part in found], end


def _memory(piece: Piece, first: int, last: int) -> _Memory:
    """Of a step a GPU does all at once: what needs its first elements waits for the rest too."""
    return _Memory(piece.offset, piece.bytes, min(max(piece.step + 1, first), last))


def _received(
    pinned: Bytes, receives: Sequence[Piece], start: int
) -> tuple[Mapping[int, Bytes], list[tuple[int, int, Copy]], int]:
    """Where messages come to from `start` on; and copies, peers in turn, each with its peer and how
    much of that peer's message has come by then; and where it ends."""
    views: dict[int, Bytes] = {}
    found: list[tuple[int, int, int, Copy]] = []
    end = start
    for peer, pieces in by_peer(receives).items():
        begin, turn = end, 0
        for piece in pieces:
            for copy in chunks(Copy(end, piece.offset, piece.bytes)):
                came = copy.pinned + copy.count - begin
                found.append((turn, peer, came, copy))
                turn += 1
            end += piece.bytes
        views[peer] = pinned[begin:end]
    found.sort(key=lambda each: each[0])
    return views, [(peer, came, copy) for _, peer, came, copy in found], end

"""Messages between a GPU and the links: through pinned memory, on streams of their own.

Before a round its messages are copied out as soon as the steps before it are done, after it what
came is copied in, and the steps that follow wait for that on the GPU, not on the host. Messages
that lie next to each other are one copy; long ones go in chunks, so that copies in both directions
share the bus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veilgraph.ir.plan.tables import PartyPlan
from veilgraph.runtime.devices.cuda.drivers.interface import Bytes, Driver, Event, Stream
from veilgraph.runtime.devices.interface import MemoryRange, Places

CHUNK_BYTES = 4 << 20
GAP_BYTES = 4096  # what is copied along to the host rather than start another copy

Guard = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Copy:
    """`count` bytes at `pinned` in the host's memory, and at `offset` in the arena."""

    pinned: int
    offset: int
    count: int


def merged(places: Iterable[MemoryRange], gap: int) -> list[MemoryRange]:
    """The places in order, as one those that overlap or are at most `gap` bytes apart."""
    found: list[MemoryRange] = []
    for offset, count in sorted(places):
        if found and offset <= sum(found[-1]) + gap:
            first = found[-1][0]
            found[-1] = first, max(sum(found[-1]), offset + count) - first
        else:
            found.append((offset, count))
    return found


def staging_bytes(program: PartyPlan) -> int:
    """An upper bound of pinned memory for any round of a program."""
    rounds: dict[tuple[int, int, int], int] = {}
    for row in program.messages:
        number = int(row["phase"]), int(row["entry"]), int(row["round"])
        rounds[number] = rounds.get(number, 0) + int(row["bytes"]) + GAP_BYTES
    return max(rounds.values(), default=0)


class Staging:
    """Pinned memory that all rounds of a party share, one at a time, and the streams of copies.

    Args:
        compute: the stream of the steps.
        arena: the address of the party's memory.
        count: bytes of pinned memory; as many as `staging_bytes` says.
        guard: what makes the GPU's context current, and names the step of a fault.
        wrote: told where in the arena something was received.
    """

    def __init__(
        self,
        driver: Driver,
        compute: Stream,
        arena: int,
        count: int,
        guard: Guard,
        wrote: Callable[[MemoryRange], None],
    ) -> None:
        self._driver, self._wrote = driver, wrote
        self._events: list[Event] = []
        self.compute, self.arena, self.guard = compute, arena, guard
        self.pinned = driver.pinned(count)
        self.outward, self.inward = driver.stream(), driver.stream()
        self.computed, self.fetched, self.delivered = (driver.event() for _ in range(3))

    def round(self, sends: Mapping[int, Places], receives: Mapping[int, Places]) -> StagedRound:
        sent, outward, end = self._laid(sends, GAP_BYTES, 0)
        received, inward, end = self._laid(receives, 0, end)
        assert end <= len(self.pinned), "a round larger than those of its program"
        return StagedRound(self, sent, received, outward, inward)

    def _laid(
        self, messages: Mapping[int, Places], gap: int, end: int
    ) -> tuple[dict[int, Bytes], tuple[Copy, ...], int]:
        """Messages by peer as views from `end` on, the copies that they are, and their end.

        One of several pieces is put together, or taken apart, by its copies.
        """
        views: dict[int, Bytes] = {}
        copies = []
        whole = {peer: pieces[0] for peer, pieces in messages.items() if len(pieces) == 1}
        for first, count in merged(whole.values(), gap):
            copies.append(Copy(end, first, count))
            for peer, (offset, size) in whole.items():
                if first <= offset and offset + size <= first + count:
                    views[peer] = self.pinned[end + offset - first :][:size]
            end += count
        for peer in messages.keys() - whole.keys():
            start = end
            for offset, size in messages[peer]:
                copies.append(Copy(end, offset, size))
                end += size
            views[peer] = self.pinned[start:end]
        return views, tuple(chunk for copy in copies for chunk in chunks(copy)), end

    def copy_out(self, copy: Copy) -> None:
        view = self.pinned[copy.pinned :][: copy.count]
        self.outward.copy_out(view, self.arena + copy.offset)

    def copy_in(self, copy: Copy) -> None:
        view = self.pinned[copy.pinned :][: copy.count]
        self.inward.copy_in(self.arena + copy.offset, view)
        self._wrote((copy.offset, copy.count))

    def events(self, count: int) -> list[Event]:
        """So many events, which rounds share."""
        if len(self._events) < count:
            with self.guard():
                self._events += [self._driver.event() for _ in range(count - len(self._events))]
        return self._events[:count]

    def settle(self) -> None:
        """Waits for copies that a round which did not end has left under way."""
        for stream in (self.outward, self.inward):
            stream.record(self.fetched)
            self.fetched.synchronize()

    def wipe(self) -> None:
        self.pinned[:] = 0


def chunks(copy: Copy) -> Iterator[Copy]:
    """The copy in pieces of CHUNK_BYTES, and a rest."""
    for start in range(0, copy.count, CHUNK_BYTES):
        count = min(CHUNK_BYTES, copy.count - start)
        yield Copy(copy.pinned + start, copy.offset + start, count)


@dataclass(frozen=True)
class StagedRound:
    """A round whose messages pass through a Staging; see device.Round."""

    staging: Staging
    sends: Mapping[int, npt.NDArray[np.uint8]]
    receives: Mapping[int, npt.NDArray[np.uint8]]
    outward: tuple[Copy, ...]
    inward: tuple[Copy, ...]

    def fetch(self) -> None:
        staging = self.staging
        with staging.guard():
            staging.compute.record(staging.computed)
            if not self.outward:
                staging.delivered.synchronize()  # the last round's messages have left the memory
                return
            staging.outward.wait(staging.computed)
            for copy in self.outward:
                staging.copy_out(copy)
            staging.outward.record(staging.fetched)
            staging.fetched.synchronize()

    def deliver(self) -> None:
        if not self.inward:
            return
        staging = self.staging
        with staging.guard():
            staging.inward.wait(staging.computed)  # steps that read what was there before
            for copy in self.inward:
                staging.copy_in(copy)
            staging.inward.record(staging.delivered)
            staging.compute.wait(staging.delivered)

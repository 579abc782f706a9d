"""How a party runs one phase: ranges of kernel steps, with a round of messages after each.

Where device and links are both native a whole phase is one native call; else Python alternates
between them. Both do the same steps, and count the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from veilgraph.ir.plan.tables import (
    LARGE_MESSAGE_BYTES,
    ROUND,
    Direction,
    PartyPlan,
    Phase,
    rows_of,
)
from veilgraph.runtime import _native
from veilgraph.runtime.devices.interface import Device, LongRound, MemoryRange, Piece, by_peer
from veilgraph.runtime.links.links import Links, NativeRounds
from veilgraph.runtime.transcript import PhaseRecord


@dataclass(frozen=True)
class StepRange:
    """Kernel steps [first, last), then the round `last`, if `sends` or `receives` has a piece."""

    first: int
    last: int
    name: str
    sends: list[Piece]
    receives: list[Piece]

    @property
    def has_round(self) -> bool:
        return bool(self.sends or self.receives)

    @property
    def longest_bytes(self) -> int:
        """Of the longest message that is sent or received."""
        messages = (*by_peer(self.sends).values(), *by_peer(self.receives).values())
        return max((sum(piece.bytes for piece in pieces) for pieces in messages), default=0)


class PhaseLoop(Protocol):
    """Runs one phase of a party, as often as wanted."""

    def run(self, number: int, record: PhaseRecord) -> None:
        """All steps as inference `number`; counts rounds and time in links.

        Raises:
            PeerError, SecurityAbort: as `Links.exchange`.
        """


def phase_loop(device: Device, links: Links, ranges: Sequence[StepRange]) -> PhaseLoop:
    """The fastest way of running these ranges on this device, over these links."""
    interpreter, rounds = device.native, links.native
    if interpreter is not None and rounds is not None:
        return NativePhase(interpreter, rounds, ranges)
    return AlternatingPhase(device, links, ranges)


class RoundStep(Protocol):
    """A range of steps and the round after it."""

    def run(self, number: int, record: PhaseRecord) -> None:
        """As `PhaseLoop.run`."""


class AlternatingPhase:
    """Any device and any links, one after the other."""

    def __init__(self, device: Device, links: Links, ranges: Sequence[StepRange]) -> None:
        self._device = device
        self._links = links
        self._round_steps = [_round_step(device, links, steps) for steps in ranges]

    def run(self, number: int, record: PhaseRecord) -> None:
        for each in self._round_steps:
            each.run(number, record)
        self._device.finish()
        if self._links.native is not None:
            record.encryption_seconds = self._links.native.encryption_seconds


def _round_step(device: Device, links: Links, steps: StepRange) -> RoundStep:
    if links.native is not None and steps.longest_bytes >= LARGE_MESSAGE_BYTES:
        messages = device.long_round(steps.first, steps.last, steps.sends, steps.receives)
        if messages is not None:
            return LongRoundStep(device, links.native, steps, messages)
    return PlainRoundStep(device, links, steps)


class PlainRoundStep:
    """A round after all steps before it."""

    def __init__(self, device: Device, links: Links, steps: StepRange) -> None:
        self._device, self._links, self._steps = device, links, steps
        sends, receives = _places(steps.sends), _places(steps.receives)
        self._messages = device.round(sends, receives) if steps.has_round else None

    def run(self, number: int, record: PhaseRecord) -> None:
        steps, messages = self._steps, self._messages
        if steps.last > steps.first:
            self._device.run(steps.first, steps.last, number)
        if messages is None:
            return
        messages.fetch()
        start = time.perf_counter_ns()
        self._links.exchange(messages.sends, messages.receives, steps.name)
        end = time.perf_counter_ns()
        messages.deliver()
        self._device.note(steps.last, start, end)
        record.network_seconds += (end - start) / 1e9
        record.rounds += 1


class LongRoundStep:
    """A round that begins with the steps before it, over native links."""

    def __init__(
        self, device: Device, links: NativeRounds, steps: StepRange, messages: LongRound
    ) -> None:
        self._device, self._links, self._steps = device, links, steps
        self._messages = messages
        sends = {peer: list(parts) for peer, parts in messages.sends.items()}
        self._round = _native.LongRound(links.rounds, sends, dict(messages.receives))

    def run(self, number: int, record: PhaseRecord) -> None:
        messages, steps = self._messages, self._steps
        messages.begin(number)
        start = time.perf_counter_ns()
        with self._links.during(self._round, steps.name):
            for part in messages.parts():
                if not self._round.release(part):
                    break
            computed = time.perf_counter_ns()
            for delivery, (peer, came) in enumerate(messages.arrivals):
                if not self._round.wait_for(peer, came):
                    break
                messages.deliver(delivery)
        end = time.perf_counter_ns()
        self._device.note(steps.last, start, end)
        record.network_seconds += (end - computed) / 1e9
        record.rounds += 1


def _places(pieces: Sequence[Piece]) -> dict[int, list[MemoryRange]]:
    """Where each peer's message is, piece by piece."""
    return {
        peer: [(piece.offset, piece.bytes) for piece in message]
        for peer, message in by_peer(pieces).items()
    }


class NativePhase:
    """One native call for all ranges, without Python's lock.

    Large messages are sent and received while the steps before their round run.
    """

    def __init__(
        self, interpreter: _native.Interpreter, links: NativeRounds, ranges: Sequence[StepRange]
    ) -> None:
        self._links = links
        self._names = [steps.name for steps in ranges]
        self._phase = _native.Phase(interpreter, links.rounds)
        for steps in ranges:
            self._phase.add(steps.first, steps.last, steps.sends, steps.receives)

    def run(self, number: int, record: PhaseRecord) -> None:
        try:
            fault, reached, rounds, network_ns = self._phase.run(number, *self._links.patience)
        except BaseException:
            self._links.stop(self._links.party)
            raise
        record.rounds, record.network_seconds = rounds, network_ns / 1e9
        record.encryption_seconds = self._links.encryption_seconds
        if fault is not None:
            raise self._links.ended_by(fault, self._names[reached])


def step_ranges(program: PartyPlan, phase: Phase, entry: int = 0) -> list[StepRange]:
    """A party's ranges of one phase of an entry, in order."""
    steps = program.steps
    own = np.flatnonzero((steps["phase"] == phase) & (steps["entry"] == entry))
    if not len(own):
        return []
    found, first = [], int(own[0])
    for i in own[steps["kernel"][own] == ROUND]:
        found += _until_round(program, phase, first, int(i))
        first = int(i) + 1
    found.append(StepRange(first, int(own[-1]) + 1, "", [], []))
    return found


def _until_round(program: PartyPlan, phase: Phase, first: int, last: int) -> list[StepRange]:
    """Steps [first, last), then the round `last`.

    A party that sits out rounds has steps of several segments here. A round that begins while steps
    run can begin with its own segment at the earliest: what is received has no place before.
    """
    row = program.steps[last]
    messages, number = rows_of(program.messages, phase, int(row["entry"])), int(row["round"])
    pieces: dict[Direction, list[Piece]] = {d: [] for d in Direction}
    for row in messages[messages["round"] == number]:
        fields = (int(row[name]) for name in Piece._fields)
        pieces[Direction(row["direction"])].append(Piece(*fields))
    name = f"{phase.name.lower()} round {number + 1}"
    received = pieces[Direction.RECEIVE]
    begin = max((piece.step for piece in received if piece.step < last), default=first)
    found = [StepRange(begin, last, name, pieces[Direction.SEND], received)]
    return found if begin <= first else [StepRange(first, begin, name, [], []), *found]

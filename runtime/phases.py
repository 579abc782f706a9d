"""How a party runs one phase: stretches of kernel steps, with a round of messages after each.

Where device and links are both native a whole phase is one native call; else Python takes turns
between them. Both do the same steps, and count the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from veilgraph.ir.plan import ROUND, Direction, PartyPlan, Phase
from veilgraph.runtime import _native
from veilgraph.runtime.cpu_device import CpuDevice
from veilgraph.runtime.device import Device, Place
from veilgraph.runtime.links import Links
from veilgraph.runtime.native_links import NativeLinks
from veilgraph.runtime.transcript import PhaseRecord


class Piece(NamedTuple):
    """A piece of a peer's message in the arena, and when it may be moved; see ir.plan.MESSAGE."""

    peer: int
    offset: int
    bytes: int
    step: int
    elements: int


@dataclass(frozen=True)
class Stretch:
    """Kernel steps [first, last), then the round `last`, if `sends` or `receives` has a piece."""

    first: int
    last: int
    name: str
    sends: list[Piece]
    receives: list[Piece]

    @property
    def has_round(self) -> bool:
        return bool(self.sends or self.receives)


class PhaseLoop(Protocol):
    """Runs one phase of a party, as often as wanted."""

    def run(self, number: int, record: PhaseRecord) -> None:
        """All steps as inference `number`; counts rounds and time in links.

        Raises:
            PeerError, SecurityAbort: as `Links.exchange`.
        """


def phase_loop(device: Device, links: Links, stretches: Sequence[Stretch]) -> PhaseLoop:
    """The fastest way of running these stretches on this device, over these links."""
    if isinstance(links, NativeLinks) and isinstance(device, CpuDevice):
        return NativePhase(device.machine, links, stretches)
    return TurnsPhase(device, links, stretches)


class TurnsPhase:
    """Turns between any device and any links: each round after all steps before it."""

    def __init__(self, device: Device, links: Links, stretches: Sequence[Stretch]) -> None:
        self._device = device
        self._links = links
        self._stretches = [
            (s, device.round(_places(s.sends), _places(s.receives)) if s.has_round else None)
            for s in stretches
        ]

    def run(self, number: int, record: PhaseRecord) -> None:
        for stretch, messages in self._stretches:
            if stretch.last > stretch.first:
                self._device.run(stretch.first, stretch.last, number)
            if messages is None:
                continue
            messages.fetch()
            start = time.perf_counter_ns()
            self._links.exchange(messages.sends, messages.receives, stretch.name)
            end = time.perf_counter_ns()
            messages.deliver()
            self._device.note(stretch.last, start, end)
            record.network_seconds += (end - start) / 1e9
            record.rounds += 1
        self._device.finish()
        if isinstance(self._links, NativeLinks):
            record.encryption_seconds = self._links.encryption_seconds


def _places(pieces: Sequence[Piece]) -> dict[int, list[Place]]:
    """Where each peer's message is, piece by piece."""
    found: dict[int, list[Place]] = {}
    for piece in pieces:
        found.setdefault(piece.peer, []).append((piece.offset, piece.bytes))
    return found


class NativePhase:
    """One native call for all stretches, without the interpreter's lock.

    Large messages are sent and received while the steps before their round run.
    """

    def __init__(
        self, device: _native.Machine, links: NativeLinks, stretches: Sequence[Stretch]
    ) -> None:
        self._links = links
        self._names = [stretch.name for stretch in stretches]
        self._phase = _native.Phase(device, links.rounds)
        for stretch in stretches:
            self._phase.add(stretch.first, stretch.last, stretch.sends, stretch.receives)

    def run(self, number: int, record: PhaseRecord) -> None:
        try:
            fault, reached, rounds, network_ns = self._phase.run(
                number, self._links.timeout_seconds
            )
        except BaseException:
            self._links.stop(self._links.party)
            raise
        record.rounds, record.network_seconds = rounds, network_ns / 1e9
        record.encryption_seconds = self._links.encryption_seconds
        if fault is not None:
            raise self._links.ended_by(fault, self._names[reached])


def stretches_of(program: PartyPlan, phase: Phase) -> list[Stretch]:
    """A party's stretches of one phase, in order."""
    steps = program.steps
    own = np.flatnonzero(steps["phase"] == phase)
    if not len(own):
        return []
    found, first = [], int(own[0])
    for i in own[steps["kernel"][own] == ROUND]:
        found.append(_stretch(program, phase, first, int(i)))
        first = int(i) + 1
    found.append(Stretch(first, int(own[-1]) + 1, "", [], []))
    return found


def _stretch(program: PartyPlan, phase: Phase, first: int, last: int) -> Stretch:
    messages, number = program.messages, int(program.steps["round"][last])
    pieces: dict[Direction, list[Piece]] = {d: [] for d in Direction}
    for row in messages[(messages["phase"] == phase) & (messages["round"] == number)]:
        fields = (int(row[name]) for name in Piece._fields)
        pieces[Direction(row["direction"])].append(Piece(*fields))
    name = f"{phase.name.lower()} round {number + 1}"
    return Stretch(first, last, name, pieces[Direction.SEND], pieces[Direction.RECEIVE])

"""When parties are done with a phase: each computes and waits in the order of its own program.

A party does the steps before a round, sends its messages, and goes on when those to it have come.
So two that wait for each other in turn compute one after the other, and what both do meanwhile
takes no longer than the slower one. A link carries one message after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import (
    LARGE_MESSAGE_BYTES,
    MOST_COUNTED_BYTES,
    ROUND,
    Direction,
    PartyPlan,
    Phase,
    rows_of,
)
from veilgraph.targets.networks import Network


@dataclass(frozen=True)
class Piece:
    """Of a message: the peer, bytes, and seconds into the steps before it until it is made."""

    peer: int
    bytes: int
    made: float


@dataclass(frozen=True)
class Stop:
    """A round of a party, and the seconds of the steps since the round before."""

    round: int
    seconds: float
    sends: Sequence[Piece]
    senders: frozenset[int]  # whose messages it waits for


@dataclass
class _Party:
    stops: Sequence[Stop]
    rest: float  # seconds after the last round
    at: int = 0  # the stop that comes next, or is waited at
    has_sent: bool = False  # what that stop sends
    ready: float = 0.0  # when it began on the steps before that stop


class _Links:
    """What is on its way between parties."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._free: dict[tuple[int, int], float] = {}
        self._arrived: dict[tuple[int, int, int], float] = {}

    def send(self, sender: int, stop: Stop, begun: float) -> None:
        for piece in stop.sends:
            link = sender, piece.peer
            begin = max(self._free.get(link, 0.0), begun + piece.made)
            self._free[link] = end = begin + piece.bytes / self._network.bytes_per_second
            self._arrived[stop.round, *link] = end + self._network.round_trip_seconds / 2

    def arrived(self, receiver: int, stop: Stop) -> float | None:
        """When the last message of a round is there; None as long as one was not sent."""
        times = [self._arrived.get((stop.round, sender, receiver)) for sender in stop.senders]
        known = [each for each in times if each is not None]
        return max(known, default=0.0) if len(known) == len(times) else None


def finished(
    plan: Plan,
    phase: Phase,
    network: Network,
    round_seconds: float,
    seconds: Mapping[str, npt.NDArray[np.float64]],
    entry: int = 0,
) -> float:
    """Seconds until the last party is done with a phase that all begin at once.

    Args:
        round_seconds: of a round beyond the network's time.
        seconds: of each step of each party's program.
    """
    links = _Links(network)
    names = plan.manifest.parties
    each = [party_of(plan.programs[name], phase, seconds[name], entry) for name in names]
    parties = [_Party(*found) for found in each]
    # Of a file that nobody has checked some may wait for ever.
    while any(
        _went_on(number, party, links, round_seconds) for number, party in enumerate(parties)
    ):
        pass
    return max(party.ready + party.rest for party in parties)


def party_of(
    program: PartyPlan, phase: Phase, seconds: npt.NDArray[np.float64], entry: int
) -> tuple[list[Stop], float]:
    """The rounds of a phase, and seconds after the last one."""
    steps = program.steps
    own = np.flatnonzero((steps["phase"] == phase) & (steps["entry"] == (entry if phase else 0)))
    if not len(own):
        return [], 0.0
    messages = rows_of(program.messages, phase, entry)
    messages = messages[np.argsort(messages["round"], kind="stable")]
    passed = np.concatenate(([0.0], np.cumsum(seconds)))
    stops, begin = [], int(own[0])
    for step in own[steps["kernel"][own] == ROUND].tolist():
        number = int(steps["round"][step])
        mine = messages[slice(*np.searchsorted(messages["round"], [number, number + 1]))]
        stops.append(_stop(mine, number, passed[begin : step + 1] - passed[begin], begin))
        begin = step + 1
    return stops, float(passed[int(own[-1]) + 1] - passed[begin])


def _stop(
    messages: npt.NDArray[np.void], number: int, passed: npt.NDArray[np.float64], begin: int
) -> Stop:
    """A round with these messages after steps that begin at one, and what has passed after each.

    Where a message is large each piece is sent as soon as it is made.
    """
    sent, received = (messages[messages["direction"] == each] for each in Direction)
    sizes = np.minimum(sent["bytes"], MOST_COUNTED_BYTES).astype(np.int64)
    after = np.clip(sent["step"].astype(np.int64) + 1 - begin, 0, len(passed) - 1)
    if max(map(_longest, (sent, received))) < LARGE_MESSAGE_BYTES:
        after[:] = len(passed) - 1
    rows = zip(sent["peer"].tolist(), sizes.tolist(), passed[after].tolist(), strict=True)
    pieces = [Piece(*row) for row in rows]
    return Stop(number, float(passed[-1]), pieces, frozenset(received["peer"].tolist()))


def _longest(messages: npt.NDArray[np.void]) -> float:
    """Bytes of the longest one with a peer."""
    return float(np.bincount(messages["peer"], messages["bytes"]).max(initial=0))


def _went_on(number: int, party: _Party, links: _Links, round_seconds: float) -> bool:
    """Whether a party did anything: goes on until a message that was not sent yet."""
    before = party.at, party.has_sent
    while party.at < len(party.stops):
        stop = party.stops[party.at]
        if not party.has_sent:
            links.send(number, stop, party.ready)
            party.has_sent = True
        arrived = links.arrived(number, stop)
        if arrived is None:
            break
        party.ready = max(party.ready + stop.seconds, arrived)
        party.ready += round_seconds if stop.senders else 0.0
        party.at, party.has_sent = party.at + 1, False
    return (party.at, party.has_sent) != before

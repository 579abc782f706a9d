"""What devices promise: to be ready, to run, and to meet the links in rounds; see choose.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from veilgraph.runtime._native import Interpreter
from veilgraph.runtime.links.links import Buffer

MemoryRange: TypeAlias = tuple[int, int]  # in a party's memory: offset and length in bytes
Places: TypeAlias = Sequence[MemoryRange]


class Piece(NamedTuple):
    """A piece of a peer's message in the arena, and when it may be moved; see ir.plan.MESSAGE."""

    peer: int
    offset: int
    bytes: int
    step: int
    elements: int


def by_peer(pieces: Iterable[Piece]) -> dict[int, list[Piece]]:
    """Each peer's message, its pieces in the order of the wire."""
    found: dict[int, list[Piece]] = {}
    for piece in pieces:
        found.setdefault(piece.peer, []).append(piece)
    return found


class Round(Protocol):
    """The messages of one round where the links find them; made once, used at each inference."""

    @property
    def sends(self) -> Mapping[int, Buffer]:
        """What goes to whom, by party; good from `fetch` on."""

    @property
    def receives(self) -> Mapping[int, Buffer]:
        """Where what comes from whom has to be; free from `fetch` on."""

    def fetch(self) -> None:
        """Brings what is sent, as the steps so far left it."""

    def deliver(self) -> None:
        """Takes what was received to where the steps after this will find it."""


class LongRound(Protocol):
    """Steps, and the round after them whose messages move meanwhile; made once, used at each
    inference: `begin`, then all `parts`, then each delivery in order."""

    @property
    def sends(self) -> Mapping[int, Sequence[tuple[Buffer, int]]]:
        """Each peer's message in parts, with the number in `parts` by which each is there."""

    @property
    def receives(self) -> Mapping[int, Buffer]:
        """Where what comes from whom has to be; free from `begin` on."""

    @property
    def arrivals(self) -> Sequence[tuple[int, int]]:
        """For each delivery a peer, and how many bytes of its message must have come before."""

    def begin(self, run: int) -> None:
        """Begins the steps, as inference number `run`."""

    def parts(self) -> Iterable[int]:
        """Waits for what is sent: 1, 2 and so on as parts are there."""

    def deliver(self, number: int) -> None:
        """Takes the next of what was received to where the steps after this will find it."""


class Device(Protocol):
    """A party's memory and its table of steps, every step of it checked.

    Steps and copies take place in the order of the calls; `run` and `Round.deliver` may return
    before theirs are done. All calls are from one thread at a time.
    """

    @property
    def native(self) -> Interpreter | None:
        """What does all the work, where whole phases may be one native call; None elsewhere."""

    def rekey(self, keys: bytes) -> None:
        """Draws are under these keys from here on, as many as the device was opened with."""

    def run(self, first: int, last: int, run: int) -> None:
        """Steps [first, last), none of them a round, as inference number `run`."""

    def round(self, sends: Mapping[int, Places], receives: Mapping[int, Places]) -> Round:
        """A round whose messages, by peer, are at these places, one after another."""

    def long_round(
        self, first: int, last: int, sends: Sequence[Piece], receives: Sequence[Piece]
    ) -> LongRound | None:
        """Steps [first, last) and a round that begins with them; None if `round` does as well."""

    def copy_in(self, offset: int, content: Buffer) -> None:
        """Writes bytes to the party's memory."""

    def copy_out(self, place: MemoryRange) -> npt.NDArray[np.uint8]:
        """A copy of what is at a place once all steps so far are done."""

    def finish(self) -> None:
        """Waits until all that was begun is done."""

    @property
    def profile(self) -> dict[str, tuple[int, int]]:
        """Calls and nanoseconds by kernel since `reset_profile`."""

    def reset_profile(self) -> None: ...

    @property
    def spans(self) -> list[tuple[int, int, int]]:
        """Step, start and end of all that ran since `trace`, by `time.perf_counter_ns`."""

    def trace(self) -> None:
        """From here on keeps when each step ran, and forgets those before."""

    def note(self, step: int, start: int, end: int) -> None:
        """A step that ran elsewhere: a round."""

    def close(self) -> None:
        """Overwrites with zeros all memory that held secrets; nothing can be run any more."""


class Ready(Protocol):
    """A party's program on a device, made before there is a session: compiled, proven, fitting."""

    @property
    def product(self) -> str:
        """What computes, as people know it."""

    def open(self, keys: bytes) -> Device:
        """The device, with keys in the plan's order, 16 bytes each.

        Raises:
            VeilgraphError: the device can't be had any more.
        """

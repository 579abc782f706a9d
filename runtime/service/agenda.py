"""What is done next, agreed on by all parties of a service without a leader.

Parties go on in turns. In each, every party says to all others which requests it has, and how far
each is. What follows is a function of these statements alone, so all parties decide the same: no
party orders requests, and none can hold up another's but by being silent, which ends the link.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from veilgraph.ir.errors import SecurityAbort

ID_BYTES = 16
MOST_REQUESTS = 56  # that a party has at a time
MOST_ASSIGNED = 32  # whose masks are out, and whose inputs are awaited
_HEAD = struct.Struct("<BB14x")  # flags, number of requests
_ITEM = struct.Struct(f"<{ID_BYTES}sBB")  # id, how far, plan
TURN_BYTES = _HEAD.size + MOST_REQUESTS * _ITEM.size


class Stage(IntEnum):
    """How far a request is at one party."""

    KNOWN = 1
    READY = 2  # all that this party needs of the input is here
    GONE = 3  # its client is


@dataclass(frozen=True)
class Item:
    """A request as one party states it; `plan` counts the plans that are served."""

    id: bytes
    stage: Stage
    plan: int


@dataclass(frozen=True)
class Statement:
    """What one party says in a turn.

    Attributes:
        items: its requests, at most MOST_REQUESTS; none at a party that no client asks.
        is_changed: its models are others than those that are served.
        is_leaving: it goes when no request is left.
    """

    items: tuple[Item, ...] = ()
    is_changed: bool = False
    is_leaving: bool = False

    def pack(self) -> bytes:
        """TURN_BYTES bytes."""
        assert len(self.items) <= MOST_REQUESTS
        flags = self.is_changed | self.is_leaving << 1
        items = b"".join(_ITEM.pack(each.id, each.stage, each.plan) for each in self.items)
        return (_HEAD.pack(flags, len(self.items)) + items).ljust(TURN_BYTES, b"\0")

    @staticmethod
    def unpack(content: bytes) -> Statement:
        """SecurityAbort where a peer says what has no meaning."""
        flags, count = _HEAD.unpack_from(content)
        if flags > 3 or count > MOST_REQUESTS:
            raise _senseless()
        items = []
        for number in range(count):
            name, stage, plan = _ITEM.unpack_from(content, _HEAD.size + number * _ITEM.size)
            if stage not in Stage.__members__.values():
                raise _senseless()
            items.append(Item(name, Stage(stage), plan))
        if len({item.id for item in items}) < count:
            raise _senseless()
        return Statement(tuple(items), bool(flags & 1), bool(flags & 2))


def _senseless() -> SecurityAbort:
    return SecurityAbort(
        "A peer said something in a turn that has no meaning.",
        "Give every party the same version of veilgraph.",
    )


@dataclass(frozen=True)
class Decisions:
    """What a turn leads to, in this order: the same at all parties.

    Attributes:
        dropped: requests whose client is gone at some party.
        due: requests to run, in this order.
        assigned: requests that get an inference each, in this order.
        is_idle: nothing is waited for, so that something may be prepared.
        changes: plans are agreed on anew.
        ends: a party leaves, and no request is left that all know.
    """

    dropped: tuple[Item, ...] = ()
    due: tuple[Item, ...] = ()
    assigned: tuple[Item, ...] = ()
    is_idle: bool = False
    changes: bool = False
    ends: bool = False


class Agenda:
    """The requests that all parties know, in an order that all have.

    Args:
        asked: the parties that clients ask, by index: a request is known when all of them have it.
    """

    def __init__(self, asked: Iterable[int]) -> None:
        self._asked = tuple(asked)
        self._known: dict[bytes, Item] = {}  # to all, by what they stated last
        self._queue: dict[bytes, Item] = {}
        self._assigned: dict[bytes, Item] = {}

    def decide(self, statements: Mapping[int, Statement]) -> Decisions:
        """Goes on by one turn.

        Args:
            statements: every party's, by index.
        """
        stages = self._stages([statements[party] for party in self._asked])
        leaving = any(each.is_leaving for each in statements.values())
        changes = any(each.is_changed for each in statements.values())
        dropped = self._drop(stages)
        due = [item for item in self._assigned.values() if stages.get(item.id) == Stage.READY]
        for item in due:
            del self._assigned[item.id]
        if not (leaving or changes):  # what is open ends first
            self._take_in(stages)
        assigned = self._assign()
        is_idle = not (due or self._assigned or self._queue)
        return Decisions(
            tuple(dropped),
            tuple(due),
            tuple(assigned),
            is_idle and not leaving,
            changes and is_idle,
            leaving and is_idle,
        )

    def _stages(self, statements: Sequence[Statement]) -> dict[bytes, Stage]:
        """How far each request is that all of those asked have: the least of all of them.

        One that is gone at any of them is gone.
        """
        by_party = [{item.id: item for item in each.items} for each in statements]
        self._known = {}
        found = {}
        for name in dict.fromkeys(name for items in by_party for name in items):
            items = [each[name] for each in by_party if name in each]
            if any(item.stage == Stage.GONE for item in items):
                found[name] = Stage.GONE
            elif len(items) == len(by_party) and len({item.plan for item in items}) == 1:
                found[name] = min(item.stage for item in items)
                self._known[name] = items[0]
        return found

    def _drop(self, stages: Mapping[bytes, Stage]) -> list[Item]:
        dropped = []
        for waiting in (self._queue, self._assigned):
            for name in list(waiting):
                if stages.get(name, Stage.GONE) == Stage.GONE:
                    dropped.append(waiting.pop(name))
        return dropped

    def _take_in(self, stages: Mapping[bytes, Stage]) -> None:
        for name in sorted(self._known):
            new = name not in self._queue and name not in self._assigned
            if new and stages[name] == Stage.KNOWN:
                self._queue[name] = self._known[name]

    def _assign(self) -> list[Item]:
        free = MOST_ASSIGNED - len(self._assigned)
        assigned = list(self._queue.values())[:free]
        for item in assigned:
            self._assigned[item.id] = self._queue.pop(item.id)
        return assigned

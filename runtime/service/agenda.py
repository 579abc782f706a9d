"""What is done next, agreed on by all parties of a service without a leader.

Parties go on in turns. In each, every party says to all others which requests it has, and how far
each is. What follows is a function of these statements alone, so all parties decide the same: no
party orders requests, and none can hold up another's but by being silent, which ends the link.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from veilgraph.ir.errors import SecurityAbort
from veilgraph.runtime.client.wire import ID_BYTES

MOST_REQUESTS = 56  # that a party has at a time
MOST_ASSIGNED = 32  # whose masks are out, and whose inputs are awaited
_HEAD = struct.Struct("<BB14x")  # flags, number of requests
_ITEM = struct.Struct(f"<{ID_BYTES}sBBH")  # id, how far, plan, rows
TURN_BYTES = _HEAD.size + MOST_REQUESTS * _ITEM.size


class Stage(IntEnum):
    """How far a request is at one party."""

    KNOWN = 1
    WAITED = 2  # and for others that could share an inference with it, for as long as it is to
    READY = 3  # all that this party needs of the input is here
    GONE = 4  # its client is


@dataclass(frozen=True)
class Item:
    """A request as one party states it; `plan` counts the plans that are served."""

    id: bytes
    stage: Stage
    plan: int
    rows: int = 1


@dataclass(frozen=True)
class Batch:
    """Requests for one plan that one inference answers, each with its first row there."""

    places: tuple[tuple[Item, int], ...]

    @property
    def items(self) -> tuple[Item, ...]:
        return tuple(item for item, _ in self.places)

    @property
    def id(self) -> bytes:
        """Of no other batch."""
        return self.places[0][0].id

    def only(self, names: Container[bytes]) -> Batch:
        """The same with the requests of these names alone."""
        return Batch(tuple(each for each in self.places if each[0].id in names))


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
        items = b"".join(
            _ITEM.pack(each.id, each.stage, each.plan, each.rows) for each in self.items
        )
        return (_HEAD.pack(flags, len(self.items)) + items).ljust(TURN_BYTES, b"\0")

    @staticmethod
    def unpack(content: bytes) -> Statement:
        """SecurityAbort where a peer says what has no meaning."""
        flags, count = _HEAD.unpack_from(content)
        if flags > 3 or count > MOST_REQUESTS:
            raise _senseless()
        items = []
        for number in range(count):
            name, stage, *rest = _ITEM.unpack_from(content, _HEAD.size + number * _ITEM.size)
            if stage not in Stage.__members__.values():
                raise _senseless()
            items.append(Item(name, Stage(stage), *rest))
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
        ended: batches of which no request is left.
        due: batches to run, in this order, with the requests that are left.
        assigned: batches that get an inference each, in this order.
        is_idle: nothing is waited for, so that something may be prepared.
        changes: plans are agreed on anew.
        ends: a party leaves, and no request is left that all know.
    """

    dropped: tuple[Item, ...] = ()
    ended: tuple[bytes, ...] = ()
    due: tuple[tuple[bytes, Batch], ...] = ()
    assigned: tuple[Batch, ...] = ()
    is_idle: bool = False
    changes: bool = False
    ends: bool = False


class Agenda:
    """The requests that all parties know, in an order that all have.

    Args:
        asked: the parties that clients ask, by index: a request is known when all of them have it.
        rows: that an inference of each plan takes, by the plan's number.
    """

    def __init__(self, asked: Iterable[int], rows: Sequence[int] = ()) -> None:
        self._asked, self._rows = tuple(asked), tuple(rows)
        self._known: dict[bytes, Item] = {}  # to all, by what they stated last
        self._queue: dict[bytes, Item] = {}
        self._assigned: dict[bytes, Batch] = {}  # by id, with the requests that are left

    def decide(self, statements: Mapping[int, Statement]) -> Decisions:
        """Goes on by one turn.

        Args:
            statements: every party's, by index.
        """
        stages = self._stages([statements[party] for party in self._asked])
        leaving = any(each.is_leaving for each in statements.values())
        changes = any(each.is_changed for each in statements.values())
        dropped, ended = self._drop(stages)
        due = [pair for pair in self._assigned.items() if _is_ready(pair[1], stages)]
        for name, _ in due:
            del self._assigned[name]
        if not (leaving or changes):  # what is open ends first
            self._take_in(stages)
        assigned = self._assign(stages, waits=not (leaving or changes))
        is_idle = not (due or self._assigned or self._queue)
        return Decisions(
            tuple(dropped),
            tuple(ended),
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
            elif (
                len(items) == len(by_party) and len({(item.plan, item.rows) for item in items}) == 1
            ):
                found[name] = min(item.stage for item in items)
                self._known[name] = items[0]
        return found

    def _drop(self, stages: Mapping[bytes, Stage]) -> tuple[list[Item], list[bytes]]:
        """The requests that are gone, and the batches that are then empty."""
        left = {name for name, stage in stages.items() if stage != Stage.GONE}
        dropped = [item for name, item in self._queue.items() if name not in left]
        for item in dropped:
            del self._queue[item.id]
        ended = []
        for name, batch in list(self._assigned.items()):
            dropped += [item for item in batch.items if item.id not in left]
            self._assigned[name] = batch.only(left)
            if not self._assigned[name].places:
                ended.append(name)
                del self._assigned[name]
        return dropped, ended

    def _take_in(self, stages: Mapping[bytes, Stage]) -> None:
        open = {item.id for batch in self._assigned.values() for item in batch.items}
        for name in sorted(self._known):
            new = name not in self._queue and name not in open
            if new and stages[name] < Stage.READY:
                self._queue[name] = self._known[name]

    def _assign(self, stages: Mapping[bytes, Stage], *, waits: bool) -> list[Batch]:
        """Batches that are full, or of which a request has waited, or that can grow no more."""
        assigned = []
        for batch, is_full in self._batches():
            if len(self._assigned) >= MOST_ASSIGNED:
                break
            if is_full or not waits or any(stages[i.id] > Stage.KNOWN for i in batch.items):
                assigned.append(batch)
                self._assigned[batch.id] = batch
                for item in batch.items:
                    del self._queue[item.id]
        return assigned

    def _batches(self) -> Iterator[tuple[Batch, bool]]:
        """What waits, put together in its order; and whether no more fits."""
        begun: dict[int, tuple[list[tuple[Item, int]], int]] = {}
        for item in list(self._queue.values()):
            places, used = begun.pop(item.plan, ([], 0))
            rows = self._rows[item.plan] if item.plan < len(self._rows) else 1
            if places and used + item.rows > rows:
                yield Batch(tuple(places)), True
                places, used = [], 0
            places.append((item, used))
            used += item.rows
            if used >= rows:
                yield Batch(tuple(places)), True
            else:
                begun[item.plan] = places, used
        for places, _ in begun.values():
            yield Batch(tuple(places)), False


def _is_ready(batch: Batch, stages: Mapping[bytes, Stage]) -> bool:
    return all(stages[item.id] == Stage.READY for item in batch.items)

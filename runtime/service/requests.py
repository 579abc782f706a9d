"""Requests of clients at one party, from the thread that talks to a client to the one in turns."""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from veilgraph.ir.errors import PeerError, ResourceLimitError, VeilgraphError
from veilgraph.runtime.client.wire import MOST_OF_CLIENT
from veilgraph.runtime.encoding import Words
from veilgraph.runtime.links.tls import Channel
from veilgraph.runtime.service.agenda import MOST_REQUESTS, Item, Stage
from veilgraph.runtime.service.served import ByRole
from veilgraph.runtime.transcript import Transcript

MOST_WAITS = 4  # times `wait_seconds` that requests which keep coming can hold up one
LOOK_SECONDS = 0.25  # how soon a client that is gone is noticed


@dataclass(eq=False)
class Request:
    """One inference that a client asks for, or a client of each role of the plan together.

    Attributes:
        id: the same at all parties, and of no other request.
        session: of the plan that it is for.
        clients: who fills each role.
        rows: of those that the plan takes; 1 where it takes its inputs whole.
        since: when it came.
        row: its first one in the inference that was assigned.
        is_shared: with requests of others.
        masks: this party's part, once an inference is assigned.
        given: the clients' inputs plus their masks, as they come.
        answer: this party's part of the outputs.
        record: what the inference took here, once it ended.
        error: in place of an answer.
        news: of masks, answer or error; number, row, `is_shared` and record are set with them.
    """

    id: bytes
    session: bytes
    clients: Mapping[str, str]
    rows: int = 1
    stage: Stage = Stage.KNOWN
    since: float = field(default_factory=time.monotonic)
    number: int = 0
    row: int = 0
    is_shared: bool = False
    masks: ByRole | None = None
    given: dict[str, Mapping[str, Words]] = field(default_factory=dict)
    answer: ByRole | None = None
    record: Transcript = field(default_factory=Transcript)
    error: VeilgraphError | None = None
    news: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def told(self) -> Iterator[None]:
        """While it is set, all of it at once; wakes who waits for it, and for nothing else."""
        with self.news:
            yield
            self.news.notify_all()


class Requests:
    """All requests of a party. Every method may be called by any thread.

    Args:
        wait_seconds: how long a request waits for others to share an inference with. It begins anew
            when an inference of its plan ends: those who were answered may ask again, and would
            else take turns with those who waited, in inferences that are half full. And it begins
            anew when another request for the plan comes, as those come in bursts: up to
            MOST_WAITS times as long in all.
    """

    def __init__(self, wait_seconds: float = 0.0) -> None:
        self._wait_seconds = wait_seconds
        self._ended: dict[bytes, float] = {}  # when an inference last did, by session
        self._came: dict[bytes, float] = {}  # when a request last did
        self._lock = threading.Lock()
        self._open: dict[bytes, Request] = {}
        self._refusal: VeilgraphError | None = _no_links()
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)

    # Of the thread that talks to a client

    def add(self, request: Request) -> None:
        """Takes a request in.

        Raises:
            PeerError: links are down, or this party leaves.
            ResourceLimitError: as many are open as may be.
        """
        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            if len(self._open) >= MOST_REQUESTS or request.id in self._open:
                raise ResourceLimitError(
                    f"{len(self._open)} requests are open here, and no more are taken.",
                    "Ask again in a moment.",
                )
            for client in request.clients.values():
                own = sum(client in each.clients.values() for each in self._open.values())
                if own >= MOST_OF_CLIENT:
                    raise ResourceLimitError(
                        f"{own} requests of this client are open here, and no more are taken.",
                        "Ask again when one of them has its answer.",
                    )
            self._open[request.id] = request
            self._came[request.session] = request.since
        self.wake()

    def wait_for_masks(
        self, request: Request, seconds: float, is_there: Callable[[], bool]
    ) -> ByRole:
        """Until an inference is assigned; PeerError if none is in time.

        Args:
            is_there: whether the client still is; asked now and then.
        """
        self._wait(request, seconds, is_there, lambda: request.masks is not None)
        assert request.masks is not None
        return request.masks

    def wait_for_answer(
        self, request: Request, seconds: float, is_there: Callable[[], bool]
    ) -> ByRole:
        """Until the inference is run; PeerError if it is not in time, or broke off."""
        self._wait(request, seconds, is_there, lambda: request.answer is not None)
        assert request.answer is not None
        return request.answer

    def _wait(
        self,
        request: Request,
        seconds: float,
        is_there: Callable[[], bool],
        is_done: Callable[[], bool],
    ) -> None:
        end = time.monotonic() + seconds
        with request.news:
            while not (is_done() or request.error is not None):
                left = end - time.monotonic()
                if left <= 0:
                    raise PeerError(
                        f"The parties did not get to this request within {seconds:g} seconds.",
                        "A party may not have got it, or is busy: ask again.",
                    )
                if not is_there():
                    raise PeerError("The client is gone.", "Ask again.")
                request.news.wait(min(left, LOOK_SECONDS))
            if request.error is not None:
                raise request.error

    def give(self, request: Request, role: str, given: Mapping[str, Words]) -> None:
        """The input of a role's client came, or none is needed here."""
        with self._lock:
            request.given[role] = given
            if request.stage == Stage.KNOWN and request.given.keys() == request.clients.keys():
                request.stage = Stage.READY
        self.wake()

    def drop(self, request: Request) -> None:
        """A client of it is gone, or has its answer."""
        with self._lock:
            if request.answer is None:
                request.stage = Stage.GONE
        self.wake()

    # Of the thread that goes on in turns

    def items(self, plans: Mapping[bytes, int]) -> tuple[Item, ...]:
        """What this party states; requests that are gone are stated once.

        Args:
            plans: the places of those that are served, by session; requests for others end.
        """
        with self._lock:
            for request in list(self._open.values()):
                if request.session not in plans:
                    self._end(request.id, PeerError("The plan is served no more.", "Ask again."))
            for times in (self._ended, self._came):
                for each in times.keys() - plans.keys():
                    del times[each]
            found = tuple(
                Item(each.id, self._stage(each), plans[each.session], each.rows)
                for each in self._open.values()
            )
            for item in found:
                if item.stage == Stage.GONE:
                    self._end(item.id, PeerError("The client is gone.", "Ask again."))
            return found

    def _stage(self, request: Request) -> Stage:
        has_waited = self._left(request, time.monotonic()) <= 0
        return Stage.WAITED if request.stage == Stage.KNOWN and has_waited else request.stage

    def _left(self, request: Request, now: float) -> float:
        begun = max(request.since, self._ended.get(request.session, request.since))
        last = max(begun, self._came.get(request.session, begun))
        return min(last + self._wait_seconds, begun + MOST_WAITS * self._wait_seconds) - now

    def wait_left(self) -> float:
        """Seconds until a request has waited for others as long as it is to."""
        now = time.monotonic()
        with self._lock:
            left = (self._left(each, now) for each in self._open.values() if each.masks is None)
            return min((seconds for seconds in left if seconds > 0), default=math.inf)

    def assign(self, item: Item, number: int, row: int, masks: ByRole, *, is_shared: bool) -> None:
        with self._lock:
            request = self._open.get(item.id)
            if request is not None:
                with request.told():
                    request.number, request.row, request.masks = number, row, masks
                    request.is_shared = is_shared

    def given(self, item: Item) -> ByRole:
        with self._lock:
            return self._open[item.id].given if item.id in self._open else {}

    def answer(self, item: Item, answer: ByRole, record: Transcript) -> None:
        with self._lock:
            request = self._open.pop(item.id, None)
            if request is not None:
                self._ended[request.session] = time.monotonic()
                with request.told():
                    request.answer, request.record = answer, record

    def refuse(self, items: Iterable[Item], error: VeilgraphError) -> None:
        """Ends requests with an error."""
        with self._lock:
            for item in items:
                self._end(item.id, error)

    def _end(self, name: bytes, error: VeilgraphError) -> None:
        request = self._open.pop(name, None)
        if request is not None:
            with request.told():
                request.error = error

    def close(self, error: VeilgraphError) -> None:
        """Ends all requests, and takes no more until `reopen`."""
        with self._lock:
            self._refusal = error
            for name in list(self._open):
                self._end(name, error)

    def refuse_new(self, error: VeilgraphError) -> None:
        """Takes no more, and lets those end that are there."""
        with self._lock:
            self._refusal = error

    def reopen(self) -> None:
        with self._lock:
            self._refusal = None

    # Waiting

    def wake(self) -> None:
        """Begins a turn."""
        with suppress(BlockingIOError):
            os.write(self._write_end, b"\0")

    def wait(self, channels: Iterable[Channel], seconds: float) -> None:
        """Until something is to be stated, a peer has begun a turn, or the time is over."""
        poll = select.poll()
        poll.register(self._read_end, select.POLLIN)
        for channel in channels:
            if channel.fileno() >= 0:
                poll.register(channel.fileno(), select.POLLIN)
        poll.poll(1000 * seconds)
        with suppress(BlockingIOError):
            os.read(self._read_end, 1 << 12)


def _no_links() -> PeerError:
    return PeerError("The parties are not connected yet.", "Ask again in a moment.")

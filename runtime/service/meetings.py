"""Clients of a plan's roles, put together at one party: a request begins once all have come.

A plan may have several clients: an image from one, a second input from another. They agree on a
meeting between them, a text that nobody else knows, and each names it as it asks. Whoever comes
first waits. The request's id is of the meeting and of the certificates of all who came, so parties
at which others came know different requests, and run none of them. A plan of one client goes the
same way, and its client waits for nobody.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from veilgraph.ir.errors import PeerError, UsageError, VeilgraphError
from veilgraph.runtime.client import wire
from veilgraph.runtime.service.requests import LOOK_SECONDS, Request, Requests

MEETING_SECONDS = 30.0  # that who came first waits for the others


@dataclass(frozen=True)
class Arrival:
    """A client that came: its role, its name here, its certificate's SHA-256 in hex, its rows."""

    role: str
    client: str
    certificate: str
    rows: int


@dataclass(eq=False)
class Meeting:
    """Who came so far, by role; and the request, or why there is none, once all have."""

    arrivals: dict[str, Arrival] = field(default_factory=dict)
    request: Request | None = None
    error: VeilgraphError | None = None

    def missing(self, roles: Sequence[str]) -> list[str]:
        return [role for role in roles if role not in self.arrivals]

    def require_fits(self, new: Arrival) -> None:
        """PeerError or UsageError for who can't be part of this request."""
        if new.role in self.arrivals:
            raise PeerError(
                f"Somebody has come to this meeting as {new.role} already.",
                "Agree on another meeting, and tell nobody else of it.",
            )
        for other in self.arrivals.values():
            if other.rows != new.rows:
                raise UsageError(
                    f"{other.role} brings {other.rows} rows, and {new.role} {new.rows}.",
                    "Bring as many as the others.",
                )


class Meetings:
    """All meetings at one party; every method may be called by any thread.

    Args:
        requests: where a request goes once all have come.
        seconds: that a client waits for the others.
    """

    def __init__(self, requests: Requests, seconds: float = MEETING_SECONDS) -> None:
        self._requests, self._seconds = requests, seconds
        self._changed = threading.Condition()
        self._open: dict[bytes, Meeting] = {}

    def join(
        self,
        facts: Sequence[str],
        session: bytes,
        new: Arrival,
        roles: Sequence[str],
        check: Callable[[], None],
    ) -> tuple[Request, Mapping[str, Arrival]]:
        """A request that a client of each role came for, and who they are.

        Args:
            facts: the meeting, and what else all must agree on.
            session: of the plan that it is for.
            roles: of the plan's clients, in its order.
            check: raises when waiting makes no sense any more; asked now and then.

        Raises:
            PeerError: one did not come in time, or another came in this role.
            UsageError: others bring another number of rows.
            ResourceLimitError: as `Requests.add`.
        """
        name = wire.digest("meeting", facts)
        with self._changed:
            meeting = self._open.setdefault(name, Meeting())
            meeting.require_fits(new)
            meeting.arrivals[new.role] = new
            if meeting.missing(roles):
                self._wait(name, meeting, new, roles, check)
            else:
                del self._open[name]
                self._begin(facts, session, meeting, roles)
        if meeting.request is None:
            assert meeting.error is not None
            raise meeting.error
        return meeting.request, meeting.arrivals

    def _begin(
        self, facts: Sequence[str], session: bytes, meeting: Meeting, roles: Sequence[str]
    ) -> None:
        came = [meeting.arrivals[role] for role in roles]
        shown = [each.certificate for each in came]
        name = wire.request_id(facts, came[0].rows, shown)
        clients = {each.role: each.client for each in came}
        request = Request(name, session, clients, came[0].rows)
        try:
            self._requests.add(request)
            meeting.request = request
        except VeilgraphError as error:
            meeting.error = error
        self._changed.notify_all()

    def _wait(
        self,
        name: bytes,
        meeting: Meeting,
        new: Arrival,
        roles: Sequence[str],
        check: Callable[[], None],
    ) -> None:
        end = time.monotonic() + self._seconds
        try:
            while meeting.request is None and meeting.error is None:
                left = end - time.monotonic()
                if left <= 0:
                    raise PeerError(
                        f"{' and '.join(meeting.missing(roles))} did not come to this meeting "
                        f"within {self._seconds:g} seconds.",
                        "Ask at the same time, and name the same meeting.",
                    )
                check()
                self._changed.wait(min(left, LOOK_SECONDS))
        except BaseException:
            del meeting.arrivals[new.role]
            if not meeting.arrivals:
                del self._open[name]
            raise

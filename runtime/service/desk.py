"""Where clients are talked to: a thread each, over TLS 1.3 in which either side proves who it is.

A client may ask whose certificate this party has (enrolled.py).
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias

from veilgraph.ir.errors import PeerError, SupersededError, UsageError, VeilgraphError
from veilgraph.runtime.client import wire
from veilgraph.runtime.service.audit import AuditLog
from veilgraph.runtime.service.enrolled import MOST_CERTIFICATE_BYTES, Enrolled
from veilgraph.runtime.service.meetings import MEETING_SECONDS, Arrival, Meetings
from veilgraph.runtime.service.requests import Request, Requests
from veilgraph.runtime.service.served import Model, ServedPlan
from veilgraph.runtime.session.callers import source_of
from veilgraph.runtime.session.certificates import fingerprint
from veilgraph.runtime.session.config import LEAST_BYTES_PER_SECOND
from veilgraph.runtime.session.exchange import Dropped

LOG = logging.getLogger("veilgraph.service")
MOST_CLIENTS = 256  # connections at a time
MOST_HANDSHAKES = 64  # of them, of one network, that have not proven who they are
MOST_STRANGERS = 8  # of them, of one network, that come with a token
MOST_LINKS_OF_CLIENT = 32  # of them, of one client
HANDSHAKE_SECONDS = 5.0
IDLE_SECONDS = 600.0  # between two requests of one connection
INPUT_SECONDS = 10.0  # from masks to the input
SHARED_INPUT_SECONDS = 1.0  # of requests that share an inference: the others wait
NONCE_BYTES = 16
Conversation: TypeAlias = Callable[[socket.socket, str], None]


class Desk:
    """Talks to clients.

    Args:
        me: this party's name.
        served: what is served now, by name of the model; empty while links are down.
        audit: where each request is written down, and counted.
        seconds: that a client waits, for its turn and for its answer.
        input_seconds: that a client is waited for, from its masks to its input; longer for what is
            long, by the least rate of links.
        meeting_seconds: that a client waits for those of the plan's other roles.
        receipt: a signed one of a request that was answered and when it came, for its client.
    """

    def __init__(
        self,
        me: str,
        enrolled: Enrolled,
        requests: Requests,
        served: Callable[[], Mapping[str, ServedPlan]],
        audit: AuditLog,
        seconds: float = 60.0,
        input_seconds: float = INPUT_SECONDS,
        meeting_seconds: float = MEETING_SECONDS,
        receipt: Callable[[ServedPlan, Request, datetime], str] = lambda *_: "",
    ) -> None:
        self._me, self._enrolled, self._requests = me, enrolled, requests
        self._audit, self._meetings = audit, Meetings(requests, meeting_seconds)
        self._receipt = receipt
        self._served, self._seconds, self._input_seconds = served, seconds, input_seconds
        self._free = threading.BoundedSemaphore(MOST_CLIENTS)
        self._links: Counter[str] = Counter()  # connections by client
        self._handshakes: Counter[str] = Counter()  # by network
        self._strangers: Counter[str] = Counter()  # who come with tokens, by network
        self._lock = threading.Lock()
        enrolled.finish(self._note)

    def admit(self, enrolled: Enrolled, most_a_day: int | None) -> None:
        """Others may ask from now on, each about so many rows in a day; any number if None."""
        self._enrolled = enrolled
        enrolled.finish(self._note)  # the folder may be another
        self._audit.allow(most_a_day)

    def take(self, connection: socket.socket, address: str) -> None:
        """Begins to talk to a client who called, on a thread of its own."""
        self._begin(self._serve, connection, address)

    def enrol(self, connection: socket.socket, address: str) -> None:
        """Begins to talk to who called with a token, on a thread of its own."""
        self._begin(self._enrol, connection, address)

    def _begin(self, talk: Conversation, connection: socket.socket, address: str) -> None:
        if not self._free.acquire(blocking=False):
            LOG.warning("%s is turned away: %d clients are talked to", address, MOST_CLIENTS)
            connection.close()
            return
        try:
            threading.Thread(
                target=self._talk, args=(talk, connection, address), daemon=True
            ).start()
        except RuntimeError as error:  # the port, which calls this, goes on
            LOG.warning("%s is turned away: %s", address, error)
            connection.close()
            self._free.release()

    def _talk(self, talk: Conversation, connection: socket.socket, address: str) -> None:
        try:
            talk(connection, address)
        except Dropped as error:
            LOG.warning("%s is turned away: %s", address, error)
        except (OSError, wire.WireError) as error:
            LOG.info("%s: %s", address, error)
        except Exception:  # whatever a client brings about ends its own conversation alone
            LOG.exception("%s: what it sent could not be answered", address)
        finally:
            connection.close()
            self._free.release()

    def _serve(self, connection: socket.socket, address: str) -> None:
        """To who has shown a certificate of the folder, and has its key."""
        with self._secured(connection, address, self._enrolled.context()) as secured:
            client = self._enrolled.name_of(_shown(secured))
            if client is None:
                raise Dropped("its certificate may not ask")
            with self._counted(self._links, client, MOST_LINKS_OF_CLIENT):
                self._answer_all(secured, client)

    def _enrol(self, connection: socket.socket, address: str) -> None:
        """To who is not known yet, and has one try."""
        source = source_of(address.rpartition(":")[0])
        with (
            self._counted(self._strangers, source, MOST_STRANGERS),
            self._secured(connection, address, self._enrolled.open_context()) as secured,
        ):
            asked, der = wire.receive(secured, MOST_CERTIFICATE_BYTES, HANDSHAKE_SECONDS)
            try:
                token, signature = str(asked.get("token")), str(asked.get("signature"))
                client = self._enrolled.enrol(token, der, signature, self._note)
            except VeilgraphError as error:
                LOG.warning("%s is not enrolled: %s", address, error.message)
                _refuse(secured, error)
                return
            LOG.info("%s is enrolled", client)
            wire.send(secured, {"client": client})

    def _note(self, client: str, der: bytes) -> None:
        facts = {"client": client, "certificate": fingerprint(der).hex()}
        self._audit.keep(facts, "enrolled")

    def _secured(
        self, connection: socket.socket, address: str, context: ssl.SSLContext
    ) -> ssl.SSLSocket:
        source = source_of(address.rpartition(":")[0])
        with self._counted(self._handshakes, source, MOST_HANDSHAKES):
            connection.settimeout(HANDSHAKE_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # answers are awaited
            return context.wrap_socket(connection, server_side=True)

    @contextmanager
    def _counted(self, counter: Counter[str], who: str, most: int) -> Iterator[None]:
        """One of so many of `who`, so that it alone keeps out no others; Dropped if it is more."""
        with self._lock:
            counter[who] += 1
            count = counter[who]
        try:
            if count > most:
                raise Dropped(f"{most} others of {who} are there")
            yield
        finally:
            with self._lock:
                counter[who] -= 1
                if not counter[who]:
                    del counter[who]

    def _answer_all(self, connection: ssl.SSLSocket, client: str) -> None:
        while True:
            connection.settimeout(IDLE_SECONDS)
            asked, _ = wire.receive(connection, 0)
            connection.settimeout(self._seconds)
            try:
                if self._enrolled.name_of(_shown(connection)) is None:
                    raise PeerError("This client may not ask any more.", "Ask who runs the party.")
                self._answer(connection, client, asked)
            except VeilgraphError as error:
                LOG.info("%s is refused: %s", client, error.message)
                _refuse(connection, error)

    def _answer(self, connection: ssl.SSLSocket, client: str, asked: dict[str, Any]) -> None:
        served = self._model(asked.get("model"))
        match asked.get("ask"):
            case "model":
                wire.require_same_version(self._me, wire.VERSION, asked.get("version"))
                wire.send(connection, self._description(served))
            case "infer":
                self._infer(connection, client, asked, served)
            case _:
                raise wire.WireError("it asked for what no service does")

    def _model(self, name: object) -> ServedPlan:
        served = self._served()
        if isinstance(name, str) and name in served:
            return served[name]
        if not served:
            raise PeerError(f"{self._me} serves nothing now.", "Ask again in a moment.")
        raise UsageError(
            f"{self._me} serves no model {str(name)[:60]!r}.", f"It serves {', '.join(served)}."
        )

    def _description(self, served: ServedPlan) -> dict[str, Any]:
        manifest = served.plan.manifest
        found: dict[str, Any] = {
            "version": wire.VERSION, "party": self._me,
            "plan": served.plan.digest, "session": served.id.hex(),
            "suite": manifest.suite, "computing": list(manifest.computing),
            "labels": {name: list(texts) for name, texts in manifest.labels.items()},
            "forms": manifest.forms, "rows": served.model.rows,
        }  # fmt: skip
        found["roles"] = {
            role: {
                "receivers": sorted(seat.receivers),
                "inputs": [wire.described(each) for each in seat.inputs],
                "outputs": [wire.described(each) for each in seat.outputs],
            }
            for role, seat in served.model.seats.items()
        }
        return found

    def _infer(
        self, connection: ssl.SSLSocket, client: str, asked: dict[str, Any], served: ServedPlan
    ) -> None:
        if not served.model.seats:
            raise UsageError(f"{self._me} is no party to ask.", "Leave it out: it only deals.")
        if (asked.get("plan"), asked.get("session")) != (served.plan.digest, served.id.hex()):
            raise SupersededError(f"{self._me} serves another plan or session now.", "Ask again.")
        role, rows = _role(asked, served.model), _rows(asked, served.model)
        agreed = [_nonce(asked), served.plan.digest, served.id.hex()]
        new = Arrival(role, client, fingerprint(_shown(connection)).hex(), rows)
        facts = {
            "client": client, "certificate": new.certificate, "role": role,
            "model": served.model.name, "plan": served.plan.digest, "session": served.id.hex(),
            "meeting": wire.digest("meeting", agreed).hex(), "rows": str(rows),
        }  # fmt: skip
        self._audit.ask(facts)
        request, is_told, began = None, False, datetime.now(UTC)
        try:
            check = partial(self._require_open, connection, served)
            roles = tuple(served.model.seats)
            request, came = self._meetings.join(agreed, served.id, new, roles, check)
            facts |= {"request": request.id.hex()}  # as receipts have it
            head: dict[str, Any] = {"clients": {each: came[each].certificate for each in roles}}
            answer = self._answered(connection, request, served.model, role, head)
            is_told = True
            self._audit.end(facts | _others(request, role), "answered")
            if asked.get("receipt") is True:
                head["receipt"] = self._receipt(served, request, began)
            wire.send(connection, head, answer)
        finally:
            if request is not None:
                self._requests.drop(request)  # first: writing down may fail
            if not is_told:
                self._audit.end(facts, "not answered")

    def _answered(
        self,
        connection: ssl.SSLSocket,
        request: Request,
        model: Model,
        role: str,
        head: dict[str, Any],
    ) -> bytes:
        """This party's part of what the client of a role is told, once it gave its inputs."""
        seat, is_there = model.seats[role], partial(_is_quiet, connection)
        inputs = wire.of_rows(seat.inputs, request.rows, model.rows)
        masks = self._requests.wait_for_masks(request, self._seconds, is_there)
        head |= {"number": request.number, "row": request.row}
        wire.send(connection, head, wire.to_bytes(masks[role], inputs))
        given = {}
        if seat.receives:
            count = wire.elements_bytes(inputs)
            least = SHARED_INPUT_SECONDS if request.is_shared else self._input_seconds
            seconds = least + count / LEAST_BYTES_PER_SECOND
            content = wire.receive(connection, count, seconds)[1]
            given = wire.from_bytes(content, inputs)
        self._requests.give(request, role, given)
        connection.settimeout(self._seconds)
        answer = self._requests.wait_for_answer(request, self._seconds, is_there)
        return wire.to_bytes(answer[role], wire.of_rows(seat.outputs, request.rows, model.rows))

    def _require_open(self, connection: ssl.SSLSocket, served: ServedPlan) -> None:
        """PeerError when a client that waits for others is gone, or the plan is."""
        if not _is_quiet(connection):
            raise PeerError("The client is gone.", "Ask again.")
        now = self._served().get(served.model.name)
        if now is None or now.id != served.id:
            raise PeerError("The plan is served no more.", "Ask again.")


def _is_quiet(connection: ssl.SSLSocket) -> bool:
    """Whether a client that is to wait does so: what comes is its end, or makes no sense."""
    return not connection.pending() and not select.select([connection], [], [], 0)[0]


def _refuse(connection: ssl.SSLSocket, error: VeilgraphError) -> None:
    kind = type(error).__name__
    wire.send(connection, {"error": error.message, "hint": error.hint, "kind": kind})


def _shown(connection: ssl.SSLSocket) -> bytes:
    """The certificate that a client has proven to be its own."""
    return connection.getpeercert(binary_form=True) or b""


def _rows(asked: Mapping[str, Any], model: Model) -> int:
    rows = asked.get("rows")
    if type(rows) is int and 1 <= rows <= model.rows:
        return rows
    most = f"1 to {model.rows} rows at a time" if model.rows > 1 else "its inputs whole"
    raise UsageError(f"{model.name} takes {most}.", "Ask about as many.")


def _role(asked: Mapping[str, Any], model: Model) -> str:
    role = asked.get("role")
    if isinstance(role, str) and role in model.seats:
        return role
    raise UsageError(
        f"{model.name} has no client {str(role)[:60]!r}.", f"It has {', '.join(model.seats)}."
    )


def _others(request: Request, role: str) -> dict[str, str]:
    """For the audit log: whom a client met."""
    others = ", ".join(name for each, name in request.clients.items() if each != role)
    return {"with": others} if others else {}


def _nonce(asked: Mapping[str, Any]) -> str:
    """That clients of one request agree on; a client that asks alone draws its own."""
    nonce = asked.get("nonce")
    if not (isinstance(nonce, str) and nonce.isascii() and len(nonce) == 2 * NONCE_BYTES):
        raise wire.WireError("its request has no nonce")
    return nonce

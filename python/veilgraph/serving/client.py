"""Asks a service of several parties, in the shape of `onnxruntime.InferenceSession`."""

from __future__ import annotations

import hashlib
import select
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import PeerError, SecurityAbort, SupersededError, UsageError
from veilgraph.ir.plan.tables import Tensor
from veilgraph.runtime.client import wire
from veilgraph.runtime.client.client_config import ClientConfig
from veilgraph.runtime.encoding import Words, decode, encode
from veilgraph.runtime.randomness import SEED_BYTES, fresh_seed
from veilgraph.runtime.session.certificates import load_certificates
from veilgraph.serving.party_links import (
    answer_of,
    first_words,
    reach,
    wire_receive,
    wire_send,
)
from veilgraph.serving.statements import (
    RoleStated,
    Stated,
    agreed,
    may_settle,
    place_of,
    stated_by,
    who_differs,
)
from veilgraph.verification.receipts import checked

SETTLE_SECONDS = 3.0  # that parties may differ in what they serve
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.3  # before they are asked again
_LEAST_MEETING = 16  # characters: who guesses a meeting may come to it
_MEETING = b"veilgraph meeting 1\0"


class Client:
    """One that asks, and computes nothing: it needs no plan and no native code.

    Args:
        model: its name at the parties.
        config: path of the client's parties.yaml.
        role: which of the plan's clients this one is; may be left out where the plan has one.
        others: certificate files (PEM) of who must fill other roles; whoever comes, for roles that
            are left out.
        plan: the digest that the plan must have, in hex; any if None.
        timeout_seconds: how long to wait for an answer, in place of the file's.
        receipts: whether each party is to sign what it did.

    Attributes:
        plan: digest of the plan that the parties serve.
        role, roles: this client's, and all of the plan.
        inputs, outputs: what `run` takes and gives, of this client's role.
        labels: what classes are called, by the output that holds their places, counted from 0.
        receipts: of the last `run`, by party, where they were asked for: what verification/receipts
            writes into a file, checked.
        forms: what is revealed in place of an output: `argmax`, by the output's name.

    Raises:
        UsageError: a file that makes no sense, or a model that a party does not serve.
        PeerError: a party that can't be reached, does not know this client, or shows another
            certificate.
        SecurityAbort: parties that go on serving different plans or sessions, that state different
            things of one, or that serve another plan than asked.
    """

    def __init__(
        self,
        model: str,
        config: str | Path,
        *,
        role: str | None = None,
        others: Mapping[str, str | Path] | None = None,
        plan: str | None = None,
        timeout_seconds: float | None = None,
        receipts: bool = False,
    ) -> None:
        self._config = ClientConfig.load(Path(config))
        self._others = {
            name: [hashlib.sha256(der).hexdigest() for der in load_certificates(Path(file))]
            for name, file in (others or {}).items()
        }
        self._seconds = timeout_seconds or self._config.timeout_seconds
        self._model = model
        self._links: dict[str, ssl.SSLSocket] = {}
        self._wants_receipts, self.receipts = receipts, dict[str, bytes]()
        try:
            self._open(plan, role)
        except BaseException:
            self.close()
            raise

    def _open(self, wanted: str | None, role: str | None) -> None:
        for party in self._config.parties:
            self._links[party.name] = reach(party, self._config, self._seconds)
        found = self._agreed()
        for name in [name for name in self._links if name not in found.computing]:
            self._links.pop(name).close()  # it only deals
        self.plan, self._session = found.plan, found.session
        if wanted is not None and wanted != self.plan:
            raise SecurityAbort(
                f"The parties serve {self._model} with the plan {self.plan[:16]}..., and "
                f"{wanted[:16]}... was asked for.",
                "Ask who runs the parties which plan is in use.",
            )
        self.rows, self.labels, self.forms = found.rows, found.labels, found.forms
        self._take_role(found.roles, role)

    def _agreed(self) -> Stated:
        """What all parties state of the model, the same.

        Parties that read their models again take up another plan one after the other. So those that
        differ in plan or session are asked again before that is held against them.
        """
        end, pause = time.monotonic() + min(SETTLE_SECONDS, self._seconds), _FIRST_PAUSE
        stated = self._stated()
        while may_settle(stated) and time.monotonic() < end:
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)
            stated = self._stated()
        return agreed(self._model, stated)

    def _stated(self) -> dict[str, Stated]:
        """What each party states of the model now."""
        asked = {"ask": "model", "model": self._model, "version": wire.VERSION}
        for name, link in self._links.items():
            with first_words(name):
                wire.send(link, asked)
        found = {}
        for name, link in self._links.items():
            with first_words(name):
                fields = answer_of(name, link, 0)[0]
            wire.require_same_version(name, fields.get("version"), wire.VERSION)
            found[name] = stated_by(name, fields)
        return found

    def _take_role(self, roles: Mapping[str, RoleStated], role: str | None) -> None:
        """What this client gives and is told."""
        self.roles = tuple(roles)
        self.role = str(role or (self.roles[0] if len(self.roles) == 1 else self._config.name))
        if unknown := [each for each in (self.role, *self._others) if each not in self.roles]:
            raise UsageError(
                f"{self._model} has no client {unknown[0]}.",
                f"It has {', '.join(self.roles)}: say which this is.",
            )
        own = roles[self.role]
        self._receive = [name for name in self._links if name in own.receivers]
        self.inputs, self.outputs = own.inputs, own.outputs

    def run(
        self,
        inputs: Mapping[str, npt.ArrayLike],
        *,
        meeting: str | None = None,
        rows: int | None = None,
    ) -> dict[str, npt.NDArray[np.float32]]:
        """One inference.

        Parties that have read their models again meanwhile are asked once more, where they serve
        the same plan: what they refused had no input with it.

        Args:
            inputs: all inputs of this role by name; where the model computes rows each for itself
                (`rows` is above 1), up to so many rows, the same number of each input.
            meeting: where the plan has several roles, a text of 16 characters or more that their
                clients agreed on, for this inference alone, and that nobody else knows.
            rows: how many the others bring, where this role gives no input.

        Returns:
            The outputs of this role by name, float32.

        Raises:
            UsageError, AccuracyError: an input that does not fit, or is outside its range.
            PeerError: a party that is lost, busy or refuses, or a client of another role that did
                not come; nobody has learned the input. SupersededError: the parties serve another
                plan by now.
            SecurityAbort: another came in a role than `others` names; nobody has learned the input.
        """
        try:
            return self._asked(inputs, meeting, rows)
        except SupersededError as error:
            self._renew(error)
            return self._asked(inputs, meeting, rows)

    def _renew(self, error: SupersededError) -> None:
        """Links to parties in another session; `error` where the plan is another, too."""
        plan = self.plan
        try:
            self._open(None, self.role)
            if self.plan != plan:
                raise error
        except BaseException:
            self.close()
            raise

    def _asked(
        self, inputs: Mapping[str, npt.ArrayLike], meeting: str | None, rows: int | None
    ) -> dict[str, npt.NDArray[np.float32]]:
        count = rows or self._rows_of(inputs)
        taken = wire.of_rows(self.inputs, count, self.rows)
        given = wire.of_rows(self.outputs, count, self.rows)
        encoded = self._encoded(inputs, taken)
        asked = {
            "ask": "infer", "model": self._model, "plan": self.plan, "session": self._session,
            "role": self.role, "nonce": self._nonce(meeting), "rows": count,
            "receipt": self._wants_receipts,
        }  # fmt: skip
        try:
            for name, link in self._links.items():
                wire_send(name, link, asked)
            masks = self._added(taken)[0]
            masked = {t.name: wire.wrapped(encoded[t.name] + masks[t.name], t) for t in taken}
            content = wire.to_bytes(masked, taken)
            for name in self._receive:
                wire_send(name, self._links[name], {}, content)
            parts, heads = self._added(given)
            self.receipts = self._receipts(asked, heads) if self._wants_receipts else {}
        except BaseException:
            self.close()  # what a party still sends would be taken for the next answer
            raise
        return {t.name: decode(parts[t.name], t).reshape(t.shape) for t in given}

    def _nonce(self, meeting: str | None) -> str:
        if len(self.roles) == 1:
            if meeting is not None:
                raise UsageError(
                    f"{self._model} has one client, who meets nobody.", "Leave it out."
                )
            return fresh_seed().hex()
        if meeting is None or len(meeting) < _LEAST_MEETING:
            raise UsageError(
                f"{self._model} has the clients {', '.join(self.roles)}, who ask together.",
                f"Agree with them on a meeting, a text of {_LEAST_MEETING} characters or more that "
                "nobody else knows, and name it.",
            )
        return hashlib.sha256(_MEETING + meeting.encode()).hexdigest()[: 2 * SEED_BYTES]

    def _require_clients(self, party: str, clients: Mapping[str, str]) -> None:
        """SecurityAbort where another fills a role than `others` names."""
        if tuple(clients) != self.roles:
            raise PeerError(f"{party} is no service: it named no clients.", "")
        for role, known in self._others.items():
            if clients[role] not in known:
                raise SecurityAbort(
                    f"Somebody else came as {role}, by what the parties say.",
                    "Agree on another meeting, and tell nobody else of it.",
                )

    def _rows_of(self, inputs: Mapping[str, npt.ArrayLike]) -> int:
        """How many rows are asked about, as far as inputs have as many axes as the model's."""
        ranks = {tensor.name: len(tensor.shape) for tensor in self.inputs}
        shapes = {name: np.shape(each) for name, each in inputs.items()}
        counts: set[int] = {s[0] for name, s in shapes.items() if s and len(s) == ranks.get(name)}
        if self.rows == 1 or not counts:
            return self.rows
        if len(counts) > 1 or not 1 <= max(counts) <= self.rows:
            raise UsageError(
                f"{self._model} takes 1 to {self.rows} rows, as many of each input, and got "
                f"{', '.join(map(str, sorted(counts)))}.",
                "Ask about other rows in a request of their own.",
            )
        return counts.pop()

    def _encoded(
        self, inputs: Mapping[str, npt.ArrayLike], taken: tuple[Tensor, ...]
    ) -> dict[str, Words]:
        names = [tensor.name for tensor in self.inputs]
        if unknown := [name for name in inputs if name not in names]:
            raise UsageError(
                f"{self._model} has no input `{unknown[0]}`.", f"Its inputs: {', '.join(names)}."
            )
        if missing := [name for name in names if name not in inputs]:
            raise UsageError(f"Input `{missing[0]}` was not given.", "Give all inputs by name.")
        if not self._links:
            raise PeerError("This client's links are closed.", "Make another Client.")
        return {t.name: encode(inputs[t.name], t).reshape(-1) for t in taken}

    def _receipts(
        self, asked: Mapping[str, Any], heads: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, bytes]:
        """What parties signed, each of this very request; SecurityAbort for another."""
        known = {party.name: party.certificates for party in self._config.parties}
        agreed = [str(asked[fact]) for fact in ("nonce", "plan", "session")]
        found = {}
        for name, head in heads.items():
            clients = map(str, dict(head["clients"]).values())
            request = wire.request_id(agreed, asked["rows"], clients).hex()
            content = str(head.get("receipt")).encode(errors="replace")
            receipt = checked(content, known[name], f"of {name}", f"{name}'s key")
            stated = receipt.party, receipt.plan, receipt.session, receipt.request
            if stated != (name, self.plan, self._session, request):
                raise SecurityAbort(
                    f"{name} signed a receipt of something else than this request.",
                    "Tell who runs the parties.",
                )
            found[name] = content
        return found

    def _added(
        self, tensors: tuple[Tensor, ...]
    ) -> tuple[dict[str, Words], dict[str, dict[str, Any]]]:
        """The sum of what all parties send, which must be of one inference; and their fields."""
        total: dict[str, Words] = {}
        places, heads = {}, {}
        for name in self._as_they_speak():
            link = self._links[name]
            head, content = wire_receive(name, link, wire.elements_bytes(tensors))
            heads[name] = head
            places[name] = place_of(name, head)
            self._require_clients(name, dict(places[name][2]))
            try:
                part = wire.from_bytes(content, tensors)
            except wire.WireError as error:
                raise PeerError(f"{name} is no service: {error}.", "") from error
            for tensor in tensors:
                added = total.get(tensor.name, np.zeros_like(part[tensor.name]))
                total[tensor.name] = wire.wrapped(added + part[tensor.name], tensor)
        if who := who_differs(places):
            raise SecurityAbort(
                f"{who} another inference (number, row, clients): {places}.",
                "Tell who runs the parties.",
            )
        return total, heads

    def _as_they_speak(self) -> Iterator[str]:
        """Each party once, as soon as it says something: one that refuses lets the others wait."""
        waiting, end = dict(self._links), time.monotonic() + self._seconds
        while waiting:
            ready = [name for name, link in waiting.items() if link.pending()]
            if not ready:
                seconds = max(0.0, end - time.monotonic())
                spoke = set(select.select(list(waiting.values()), [], [], seconds)[0])
                ready = [name for name, link in waiting.items() if link in spoke]
            for name in ready or list(waiting):  # who is too late says so by its own timeout
                del waiting[name]
                yield name

    # Links

    @property
    def is_open(self) -> bool:
        """False after `close`, and after a request that broke off."""
        return bool(self._links)

    def close(self) -> None:
        """Ends the links."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

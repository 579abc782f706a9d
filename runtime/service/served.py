"""One plan of a service: a session of its own over links that other plans use too.

Plans take turns: one phase of one plan is under way at a time, so each has frames of its own,
counted from 0, on the same links. Keys are of the plan's own session, agreed on afresh by its
parties whenever links come up; so no two plans, and no two sessions, share a draw.
"""

from __future__ import annotations

import hashlib
import logging
import socket
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import UsageError, VeilgraphError
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.roles import CLIENT
from veilgraph.runtime._native import Stream
from veilgraph.runtime.devices.interface import Ready
from veilgraph.runtime.encoding import Words, word_dtype
from veilgraph.runtime.links.links import Links, TlsLinks
from veilgraph.runtime.links.native import NativeLinks
from veilgraph.runtime.links.tls import Channel
from veilgraph.runtime.party import Party, Prepared
from veilgraph.runtime.service.seat import Seat, members_of, role_keys, without_clients
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.handshake import NO_DEALING, Terms, open_session
from veilgraph.runtime.session.keys import SessionKeys, holders_of
from veilgraph.runtime.session.session_ids import SpentSessions
from veilgraph.runtime.store.setup_files import KeptSetup, load_setup, save_setup
from veilgraph.runtime.store.share_files import DealtShares
from veilgraph.runtime.transcript import Transcript

LOG = logging.getLogger("veilgraph.service")
ByRole: TypeAlias = Mapping[str, Mapping[str, Words]]  # of each client, by name, flat


@dataclass(frozen=True)
class Model:
    """What a party serves under a name: a plan that it has verified, and what it brings to it.

    Attributes:
        name: NAME/VERSION.
        weights: its own, by name; none at a party that owns none.
        dealt: its shares of weights that nobody owns.
        place: where it computes, made ready.
        seats: each client's here, by its role; none at a party that only deals.
        rows: that inputs and outputs have, each computed for itself, so that clients may share an
            inference; 1 where one client gives inputs whole.
    """

    name: str
    plan: Plan
    place: Ready
    seats: Mapping[str, Seat] = field(default_factory=dict)
    weights: Mapping[str, npt.ArrayLike] = field(default_factory=dict)
    dealt: DealtShares | None = None
    rows: int = 1

    @property
    def version(self) -> int:
        return int(self.name.rpartition("/")[2])

    @property
    def key(self) -> bytes:
        """SHA-256 of what parties have to agree on, the name too: versions may have one plan."""
        return hashlib.sha256(f"{self.name}\0{self.plan.digest}\0{self.rows}".encode()).digest()

    @cached_property
    def source(self) -> bytes:
        """SHA-256 of what this party brings to setup: other weights are shared anew."""
        found = hashlib.sha256(self.dealt.dealing if self.dealt else b"")
        for name, array in sorted(self.weights.items()):
            found.update(f"{name}\0".encode() + np.ascontiguousarray(array).tobytes())
        return found.digest()


@dataclass(eq=False)
class Ahead:
    """An inference to come.

    Attributes:
        prepared: its number and keys, and what its offline phase left.
        told: what each client was told in that phase, by role; None before it.
    """

    prepared: Prepared
    told: Mapping[str, list[bytes]] | None = None


def clients_of(plan: Plan) -> tuple[str, ...]:
    """The clients of a plan that can be served: roles that are filled as it is asked.

    Raises:
        UsageError: a plan that a service can't serve, and why.
    """
    manifest = plan.manifest
    clients = manifest.named(CLIENT)
    owners = {p.party for p in plan.programs.values() if p.inputs}
    receivers = {p.party for p in plan.programs.values() if p.outputs}
    hint = "Compile it with --client NAME --owner INPUT=NAME --reveal OUTPUT=NAME."
    if not clients:
        raise UsageError("A service has plans that clients ask about, and this has none.", hint)
    if owners | receivers != set(clients):
        raise UsageError(
            "In a plan that is served clients own all inputs and alone receive outputs.", hint
        )
    if len(manifest.entries) > 1 or manifest.states:
        raise UsageError("A plan of several entries, or with states, is not served.", hint)
    return tuple(clients)


def links_over(
    channels: Mapping[int, Channel],
    party: int,
    names: tuple[str, ...],
    patience: tuple[float, float],
) -> Links:
    """Links of one plan, or of none, over channels that others use at other times.

    Args:
        channels: by the peer's index in `names`; all of one transport.
        patience: seconds that a peer may be silent, and the least bytes a second after that.
    """
    streams = {peer: each for peer, each in channels.items() if isinstance(each, Stream)}
    if len(streams) == len(channels):
        return NativeLinks(party, names, streams, *patience)
    sockets = {peer: each for peer, each in channels.items() if isinstance(each, socket.socket)}
    return TlsLinks(party, names, sockets, *patience)


class ServedPlan:
    """A model in a session with all parties; one call at a time, the same at all of them.

    Args:
        model: what this party serves.
        config: this party's, with the parties of the plan that are no clients.
        channels: to each other party, by name.
        secret: of this party's private key; see `secret_of`.
        traces: whether transcripts say when each step ran.

    Raises:
        PeerError, SecurityAbort: as `session.setup.join`.
    """

    def __init__(
        self,
        model: Model,
        config: Config,
        channels: Mapping[str, Channel],
        secret: bytes,
        *,
        traces: bool = False,
    ) -> None:
        self.model, self.plan = model, model.plan
        self._me = config.me.name
        self._patience = config.timeout_seconds, config.least_bytes_per_second
        inner = config.for_parties(members_of(self.plan))
        self._file = config.state_dir / f"setup-{self._me}-{model.key.hex()}"
        kept = self._kept(secret)
        self.id, keys, is_kept = self._agree(inner, channels, secret, kept)
        self._ends: list[Channel] = []
        self.ahead: list[Ahead] = []
        self._seats: dict[str, _Seated] = {}
        names = self.plan.manifest.parties
        by_index = {names.index(name): each for name, each in channels.items()}
        for role, seat in model.seats.items():
            near, far = _pair(channels)
            self._ends += near, far
            by_index[names.index(role)] = near
            end = {names.index(self._me): far}
            own = links_over(end, names.index(role), names, self._patience)
            self._seats[role] = _Seated(seat, own)
        links = links_over(by_index, names.index(self._me), names, self._patience)
        self._party = Party(self.plan, self._me, links, keys, model.place)
        try:
            self._set_up(kept if is_kept else None, secret)
        except BaseException:
            self.close()
            raise
        self._traces = traces
        self._trace()

    def _trace(self) -> None:
        if self._traces:
            self._party.trace()

    def _set_up(self, kept: KeptSetup | None, secret: bytes) -> None:
        if kept is not None:
            self._party.restore(Phase.SETUP, kept.memory)
            LOG.info("the weights of %s are shared since an earlier session", self.model.name)
            return
        self._party.share_weights(self.model.weights, self.model.dealt)
        self._keep(secret)

    def _kept(self, secret: bytes) -> KeptSetup | None:
        """What setup left in an earlier session, of the weights that this party has now."""
        if not self._file.exists():
            return None
        try:
            found = load_setup(self._file, self.plan, self._me, secret)
        except VeilgraphError as error:
            LOG.warning("%s Weights are shared anew.", error.message)
            return None
        return found if found.source == self.model.source else None

    def _keep(self, secret: bytes) -> None:
        kept = KeptSetup(self.id, self._party.kept(Phase.SETUP), self.model.source)
        try:
            save_setup(self._file, self.plan, self._me, kept, secret)
        except VeilgraphError as error:
            LOG.warning("%s Weights are shared again in the next session.", error.message)

    def _agree(
        self, inner: Config, channels: Mapping[str, Channel], secret: bytes, kept: KeptSetup | None
    ) -> tuple[bytes, SessionKeys, bool]:
        """This session's id, the keys of the plan's draws, and whether all kept one setup."""
        names = self.plan.manifest.parties
        number = {names.index(name): i for i, name in enumerate(inner.names)}
        outer = {i: party for party, i in number.items()}
        holders = holders_of(self.plan)
        serving = {without_clients(self.plan, each) for each in holders} - {frozenset()}
        by_index = {inner.names.index(name): each for name, each in channels.items()}
        links = links_over(by_index, inner.party, inner.names, self._patience)
        dealing = self.model.dealt.dealing if self.model.dealt else NO_DEALING
        digest, ring_bits = bytes.fromhex(self.plan.digest), self.plan.manifest.ring_bits
        session = open_session(
            links,
            Terms(digest, ring_bits, dealing=dealing),
            SpentSessions(inner.state_dir, self._me),
            secret,
            [frozenset(number[party] for party in each) for each in serving],
        )
        keys = SessionKeys(
            {frozenset(outer[i] for i in each): key for each, key in session.keys.items()}
        )
        own = kept.session if kept is not None else bytes(len(session.id))
        received = {peer: bytearray(len(own)) for peer in by_index}
        links.exchange(dict.fromkeys(received, own), received, "whose setup is kept")
        is_kept = kept is not None and all(content == own for content in received.values())
        return session.id, role_keys(self.plan, holders, keys), is_kept

    def prepare(self) -> Transcript:
        """Runs the next inference's offline phase, and puts it at the end of `ahead`.

        No request waits for it, so it is in no trace.
        """
        self.ahead.append(Ahead(self._party.reserve()))
        transcript = self.complete(self.ahead[-1])
        self._trace()
        return transcript

    def take(self) -> Ahead:
        """An inference that is prepared, or one that is yet to be, if none is ahead.

        The newest first: what it left may still be in the party's memory, and is copied nowhere.
        """
        return self.ahead.pop() if self.ahead else Ahead(self._party.reserve())

    def complete(self, ahead: Ahead) -> Transcript:
        """Runs an inference's offline phase, if it was not run yet.

        The later, the fewer copies: what it leaves is copied when another's is run before the
        inference itself.
        """
        if ahead.told is not None:
            return Transcript()
        told = {role: each.offline() for role, each in self._seats.items()}
        transcript = self._party.prepare_ahead(ahead.prepared)
        ahead.told = {role: each.result() for role, each in told.items()}
        return transcript

    def forget(self, ahead: Ahead) -> None:
        """An inference that nobody waits for any more; its masks are out, so it is never run."""
        self._party.forget(ahead.prepared)

    def of_rows(self, whole: ByRole, first: int, count: int) -> ByRole:
        """Some rows of all inputs or outputs, flat."""
        rows = self.model.rows
        return {
            role: {
                name: words.reshape(rows, -1)[first : first + count].reshape(-1)
                for name, words in each.items()
            }
            for role, each in whole.items()
        }

    def put_together(self, parts: Iterable[tuple[int, int, ByRole]]) -> ByRole:
        """Inputs plus masks of several requests; nothing of a role that sends this party nothing.

        Rows that nobody gives are zeros plus no mask: what they stand for, a mask alone, nobody
        knows, and nobody gets their outputs.

        Args:
            parts: first row, number of rows, and what was given.
        """
        found = {
            role: {t.name: np.zeros(t.elements, word_dtype(t.ring_bits)) for t in seat.inputs}
            for role, seat in self.model.seats.items()
            if seat.receives
        }
        for first, count, given in parts:
            for role, whole in found.items():
                for name, words in given.get(role, {}).items():
                    rows = whole[name].reshape(self.model.rows, -1)
                    rows[first : first + count] = words.reshape(count, -1)
        return found

    def masks(self, ahead: Ahead) -> ByRole:
        """This party's part of each client's masks; see `Seat.masks`."""
        number, keys = ahead.prepared.number, ahead.prepared.keys
        return {role: seat.masks(number, keys) for role, seat in self.model.seats.items()}

    def run(self, ahead: Ahead, given: ByRole) -> tuple[ByRole, Transcript]:
        """One inference that is complete; this party's part of each client's outputs, and what it
        took.
        """
        assert ahead.told is not None, "its offline phase is run before"
        if not self.plan.manifest.role(self._me).online:
            self.forget(ahead)
            return {}, Transcript()
        number = ahead.prepared.number
        parts = {
            role: each.online(number, ahead.told[role], given.get(role, {}))
            for role, each in self._seats.items()
        }
        _, transcript = self._party.infer({}, ahead.prepared)
        return {role: part.result() for role, part in parts.items()}, transcript

    def close(self) -> None:
        """Wipes the memory; links with other parties stay as they are."""
        self._party.wipe()
        self.ahead.clear()
        for end in self._ends:
            end.close()
        for each in self._seats.values():
            each.close()


@dataclass(frozen=True)
class Ran:
    """An inference that ended at this party: what for, its number, and what it took here."""

    served: ServedPlan
    number: int
    requests: tuple[bytes, ...]
    transcript: Transcript


class _Seated:
    """A client's seat, on a thread of its own beside the party's."""

    def __init__(self, seat: Seat, links: Links) -> None:
        self._seat, self._links = seat, links
        self._thread = ThreadPoolExecutor(1, "veilgraph-seat")

    def offline(self) -> Future[list[bytes]]:
        return self._thread.submit(self._seat.offline, self._links)

    def online(
        self, number: int, told: list[bytes], given: Mapping[str, Words]
    ) -> Future[dict[str, Words]]:
        return self._thread.submit(self._seat.online, self._links, number, told, given)

    def close(self) -> None:
        self._thread.shutdown()


def _pair(channels: Mapping[str, Channel]) -> tuple[Channel, Channel]:
    """Both ends of a link within this process, of the same transport as others."""
    near, far = socket.socketpair()
    if any(isinstance(each, socket.socket) for each in channels.values()):
        return near, far
    return Stream.plain(near.detach()), Stream.plain(far.detach())

"""How links come about: dial the parties before me, await those after me, prove who each one is.

After the preamble (preamble.py) comes TLS 1.3 (tls.py), in which either side trusts exactly the
certificate that the other has shown and parties.yaml pins. It proves who has the key; each side
then says so with one byte, so that a dialer knows it was let in, and who was dialed that the dialer
has not given up meanwhile. A party that begins anew, while others are still awaited, takes the
place of its own earlier connection.

A stranger at the port can't end the run: whoever doesn't get through is dropped, and awaiting goes
on until the timeout, whose error says who was turned away. Nor can strangers keep the right party
out: none of them is waited for (callers.py). A dialer that is refused stops.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
import time
from collections import deque
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from veilgraph.ir.errors import PeerError, UsageError
from veilgraph.runtime._native import TlsError
from veilgraph.runtime.links.tls import CUT, Channel, Transport, words
from veilgraph.runtime.session.callers import Callers
from veilgraph.runtime.session.certificates import load_certificate
from veilgraph.runtime.session.config import Config, PartyAddress
from veilgraph.runtime.session.exchange import Dropped, Talk, hold
from veilgraph.runtime.session.peer_status import PeerStatus, validity, way_out
from veilgraph.runtime.session.port import Port
from veilgraph.runtime.session.preamble import IdentityExchange, own_greeting

_SLICE_SECONDS = 0.1  # how soon a failure elsewhere is seen
_LOOK_SECONDS = 0.02  # how soon a party that came at an open port is seen
_CALL_SECONDS = 5.0  # one attempt to reach a host, and as long again to be let in
_NAMED = 3  # of those turned away, in an error

C = TypeVar("C", bound=Channel)


@dataclass
class _Search(Generic[C]):
    """What the threads that look for peers share: when to end, and what came of it."""

    config: Config
    transport: Transport[C]
    plaintext: bool
    timeout_seconds: float
    ended: threading.Event = field(default_factory=threading.Event)
    found: dict[int, C] = field(default_factory=dict)
    turned_away: deque[str] = field(default_factory=lambda: deque(maxlen=_NAMED))
    misfit: PeerError | None = None  # of a caller who proved who it is
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.timeout_seconds
        self.preamble = own_greeting(self.config, self.plaintext)

    def remaining(self, most: float) -> float:
        """Seconds that one act may take: at least a moment, at most `most`."""
        return max(0.01, min(most, self.deadline - time.monotonic()))

    def over(self) -> bool:
        return self.ended.is_set() or time.monotonic() >= self.deadline

    def introduce(self, connection: socket.socket) -> IdentityExchange:
        return IdentityExchange(connection, self.config, self.plaintext, self.preamble)

    def keep(self, peer: int, channel: C) -> None:
        """Takes a channel as the link to a peer, in place of one that the peer made earlier.

        Both proved who they are, and nobody dials again who has not given the earlier one up.
        """
        with self.lock:
            if self.ended.is_set():
                channel.close()
                raise Dropped("it came after the end")
            if peer in self.found:
                self.found[peer].close()
                self.turned_away.append(f"an earlier connection of {self.config.names[peer]}")
            self.found[peer] = channel

    def give_up(self, misfit: PeerError) -> None:
        self.misfit = misfit
        self.ended.set()

    def check_complete(self) -> None:
        """PeerError if a party has not come; it says what was tried, and who was turned away."""
        if self.misfit is not None:
            raise self.misfit
        lacking = sorted(self.config.peers - self.found.keys())
        missing = [self.config.parties[peer] for peer in lacking]
        if missing:
            away = f" Turned away: {'; '.join(self.turned_away)}." if self.turned_away else ""
            addresses = ", ".join(f"{each.name} ({each.host}:{each.port})" for each in missing)
            raise PeerError(
                f"No link to {addresses} within {self.timeout_seconds:g} seconds.{away}",
                f"Start {missing[0].name}, and look at addresses and firewalls in between.",
            )


def connect(
    config: Config,
    timeout_seconds: float,
    transport: Transport[C],
    *,
    insecure_plaintext: bool = False,
    port: Port | None = None,
) -> dict[int, C]:
    """A channel to every peer of a configuration, by index, each proven to be with the party meant.

    Args:
        port: where parties call, if it is open already.

    Raises:
        PeerError: a peer that did not come in time, or certificates that don't fit.
        UsageError: an address that can't be listened at, or plaintext beyond loopback.
    """
    if insecure_plaintext:
        check_loopback(config, "Plaintext links are", "Leave out --insecure-plaintext")
    else:
        _check_validity(config)
    awaits = any(peer > config.party for peer in config.peers)
    listener = listen(config) if awaits and port is None else None
    search = _Search(config, transport, insecure_plaintext, timeout_seconds)
    threads = ThreadPoolExecutor(len(config.parties), "veilgraph-connect")
    jobs = [threads.submit(_dial, search, peer) for peer in config.peers if peer < config.party]
    if listener is not None:
        jobs.append(threads.submit(_await_callers, search, listener))
    elif awaits and port is not None:
        jobs.append(threads.submit(_await_at, search, port))
    try:
        done, _ = wait(jobs, return_when=FIRST_EXCEPTION)
        for job in done:
            job.result()
        search.check_complete()
    except BaseException:
        with search.lock:
            search.ended.set()
        for channel in search.found.values():
            channel.close()
        raise
    finally:
        search.ended.set()
        threads.shutdown(wait=False)  # what is still under way sees that the search has ended
    return search.found


def check_loopback(config: Config, what: str, way_out: str) -> None:
    """UsageError unless every address, and the one listened at, is this very host."""
    for host in [*(party.host for party in config.parties), config.listen]:
        try:
            found = {str(each[4][0]) for each in socket.getaddrinfo(host, None)}
        except OSError:
            found = set()
        if not found or not all(ipaddress.ip_address(each).is_loopback for each in found):
            raise UsageError(
                f"{what} for this host alone, and {host} is not a loopback address.",
                f"{way_out}, or use 127.0.0.1 for every party.",
            )


def _check_validity(config: Config) -> None:
    """PeerError if a certificate that is already here can't be used today, before anyone waits."""
    for index in [config.party, *sorted(config.peers)]:
        party = config.parties[index]
        is_own = party == config.me
        known = (load_certificate(config.certificate),) if is_own else party.certificates
        found = {validity(der): der for der in known}
        if known and PeerStatus.WELCOME not in found:
            status, der = next(iter(found.items()))
            raise PeerError(
                f"The certificate of {party.name} can't be used: {status.reason}.",
                way_out(party.name, der, status, "this host's"),
            )


def listen(config: Config) -> socket.socket:
    """A socket at this party's port, which does not block.

    Raises:
        UsageError: an address that can't be listened at.
    """
    port = config.me.port
    try:
        found = socket.getaddrinfo(config.listen, port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        backlog = socket.SOMAXCONN  # the system cuts it to what it allows
        listener = socket.create_server(address[:2], family=family, backlog=backlog)
    except OSError as error:
        raise UsageError(
            f"{config.me.name} can't listen at {config.listen}:{port}: {error.strerror}.",
            "Free the port, or name another address under `me.listen` in parties.yaml.",
        ) from error
    listener.setblocking(False)
    return listener


def _await_callers(search: _Search[C], listener: socket.socket) -> None:
    """Takes connections until every party after me has come, or time is up."""
    with listener, Callers(listener, partial(_receive, search)) as callers:
        while not search.over() and _lacks_callers(search):
            callers.listen(_SLICE_SECONDS)


def _await_at(search: _Search[C], port: Port) -> None:
    """The same at a port that is open, where another thread takes them."""
    with port.answering(partial(_receive, search)):
        while not search.over() and _lacks_callers(search):
            search.ended.wait(_LOOK_SECONDS)


def _lacks_callers(search: _Search[C]) -> bool:
    config = search.config
    return any(peer > config.party and peer not in search.found for peer in config.peers)


def _receive(search: _Search[C], connection: socket.socket, address: str) -> Talk[None]:
    """Finds out who called, and keeps the connection if it is one of those awaited."""
    try:
        config = search.config
        introduction = search.introduce(connection)
        shown = yield from introduction.read_shown()
        peer, status = introduction.identify(shown)
        if status is PeerStatus.WELCOME and peer <= config.party:
            status = PeerStatus.SWAPPED
        introduction.show()
        introduction.answer(status)
        if status is not PeerStatus.WELCOME:
            raise Dropped(f"it showed {introduction.describe(shown)}: {status.reason}")
        theirs = yield from introduction.read_answer()
        if theirs is not PeerStatus.WELCOME:
            raise Dropped(f"it refused this party's certificate: {theirs.reason}")
        if search.plaintext:
            channel = search.transport.plain(connection)
        else:
            channel = yield from search.transport.secured(connection, shown, config, dialed=True)
        introduction.check_stores(config.names[peer])
        search.keep(peer, channel)
    except PeerError as misfit:
        search.give_up(misfit)
        connection.close()
    except (Dropped, OSError) as error:
        search.turned_away.append(f"{address} ({_why(error)})")
        connection.close()
    except GeneratorExit:
        connection.close()
        raise


def _dial(search: _Search[C], peer: int) -> None:
    """Connects to a party before me, again and again until it answers or time is up."""
    party = search.config.parties[peer]
    pause, latest = 0.02, ""
    while not search.over():
        try:
            _call(search, peer)
            return
        except (Dropped, OSError) as error:
            latest = f"{party.host}:{party.port} ({_why(error)})"
        search.ended.wait(search.remaining(pause))
        pause = min(0.5, 2 * pause)
    search.turned_away.append(latest)


def _call(search: _Search[C], peer: int) -> None:
    """One attempt to reach a party; PeerError where another attempt would not help."""
    party = search.config.parties[peer]
    address = (party.host, party.port)
    connection = socket.create_connection(address, search.remaining(_CALL_SECONDS))
    try:
        deadline = time.monotonic() + search.remaining(_CALL_SECONDS)
        hold(_get_in(search, connection, peer), deadline)
    except BaseException:
        connection.close()
        raise


def _get_in(search: _Search[C], connection: socket.socket, peer: int) -> Talk[None]:
    """Says who I am, finds out who was reached, and keeps the connection."""
    party = search.config.parties[peer]
    introduction = search.introduce(connection)
    introduction.show()
    shown = yield from introduction.read_shown()
    theirs = yield from introduction.read_answer()
    found, mine = introduction.identify(shown)
    if mine is PeerStatus.WELCOME and found != peer:
        mine = PeerStatus.SWAPPED
    if theirs is PeerStatus.WELCOME:
        introduction.answer(mine)
    if mine is not PeerStatus.WELCOME:
        raise _wrong_party(party, introduction.describe(shown), mine, shown)
    if theirs is not PeerStatus.WELCOME:
        raise _refused(party, theirs, search)
    if search.plaintext:
        channel = search.transport.plain(connection)
    else:
        channel = yield from _prove(search, connection, shown, party)
    introduction.check_stores(party.name)
    search.keep(peer, channel)


def _prove(
    search: _Search[C], connection: socket.socket, shown: bytes, party: PartyAddress
) -> Talk[C]:
    """TLS as the dialer; PeerError if one side has a certificate without its key."""
    try:
        secured = search.transport.secured(connection, shown, search.config, dialed=False)
        return (yield from secured)
    except CUT as error:
        raise Dropped("it closed the connection in the middle of TLS") from error
    except (ssl.SSLError, TlsError) as error:
        raise PeerError(
            f"{party.name} at {party.host}:{party.port} and this party could not prove who they "
            f"are: {words(error)}.",
            "One of them shows a certificate whose key it does not have.",
        ) from error


_BY_DATE = (PeerStatus.EXPIRED, PeerStatus.NOT_YET_VALID)


def _wrong_party(
    party: PartyAddress, description: str, status: PeerStatus, shown: bytes
) -> PeerError:
    if status in _BY_DATE:
        return PeerError(
            f"{party.name} showed {description}, and {status.reason}.",
            way_out(party.name, shown, status, "this host's"),
        )
    return PeerError(
        f"Who answers at {party.host}:{party.port} is not {party.name}: it showed {description}, "
        f"and {status.reason}.",
        f"Ask {party.name} which certificate it uses, and look at the address.",
    )


def _refused(party: PartyAddress, status: PeerStatus, search: _Search[C]) -> PeerError:
    me = search.config.me.name
    if status is PeerStatus.ABSENT:
        return PeerError(
            f"{party.name} runs from a store, and {me} takes no part in that.",
            f"Leave {me} out where the others run from stores, or start them without --store.",
        )
    if status is PeerStatus.UNLINKED:
        return PeerError(
            f"{party.name} measures its links, and not the one to {me}.",
            f"Start {party.name} with --peer {me} too, or leave {party.name} out here.",
        )
    if status in _BY_DATE and not search.plaintext:
        return PeerError(
            f"{party.name} refused this party's certificate: {status.reason}.",
            way_out(me, load_certificate(search.config.certificate), status, f"{party.name}'s"),
        )
    return PeerError(
        f"{party.name} refused this party's certificate: {status.reason}.",
        f"Give {party.name} the certificate that is in use here; `veilgraph cert issue` makes a "
        "new one.",
    )


def _why(error: Exception) -> str:
    """In words, without the system's number."""
    return (isinstance(error, OSError) and error.strerror) or str(error)

"""Whoever calls and proves nothing costs a descriptor: the right party gets in beside hundreds."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import resource
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from strangers import client_hello, shown
from three_parties import (
    Connect,
    connect_all,
    load_all,
    native_transport,
    run_threads,
    write_parties,
)

from veilgraph.runtime.links.links import TlsLinks
from veilgraph.runtime.links.native import NativeLinks
from veilgraph.runtime.session import callers as module
from veilgraph.runtime.session.callers import Callers, most_callers, source_of
from veilgraph.runtime.session.certificates import issue, load_certificate
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.exchange import Awaited, Dropped, Talk, hold

STRANGERS = 300  # sixteen at a time, for five seconds each, would take a minute and a half
SECONDS = 60  # below that, and enough where other work has the cores
FEW, MANY = "127.0.0.1", "127.0.0.2"  # two hosts


@dataclass(frozen=True)
class Stranger:
    """What each says when it has called, and then again and again; and whether it ever leaves."""

    say: bytes = b""
    rest: bytes = b""
    leaves: bool = False


def call(port: int, stranger: Stranger, count: int, arrived: Any) -> None:
    """Strangers at a port, who call again when they are turned away. Runs until it is killed.

    They are not on the parties' hosts, and so leave the cores to who is.
    """
    os.nice(19)
    callers: list[socket.socket] = []
    while True:
        with contextlib.suppress(OSError):  # nobody listens yet, or any more
            while len(callers) < count:
                callers.append(socket.create_connection(("127.0.0.1", port), 5))
                callers[-1].sendall(stranger.say)
                callers[-1].setblocking(False)
            arrived.set()
        time.sleep(0.02)
        callers = [each for each in callers if stays(each, stranger)]


def stays(caller: socket.socket, stranger: Stranger) -> bool:
    try:
        if stranger.rest:
            caller.send(stranger.rest)
        if caller.recv(1 << 16) and not stranger.leaves:
            return True
    except BlockingIOError:
        return True
    except OSError:
        pass
    caller.close()
    return False


def say_nothing(folder: Path) -> Stranger:
    return Stranger()


def say_a_byte_at_a_time(folder: Path) -> Stranger:
    return Stranger(b"v", b"e")


def show_the_certificate_of_another(folder: Path) -> Stranger:
    return Stranger(shown(load_certificate(folder / "carol.crt")))


def stop_before_tls(folder: Path) -> Stranger:
    return Stranger(show_the_certificate_of_another(folder).say + b"\0")


def stop_inside_tls(folder: Path) -> Stranger:
    return Stranger(stop_before_tls(folder).say + client_hello())


def come_back_again_and_again(folder: Path) -> Stranger:
    return Stranger(stop_inside_tls(folder).say, leaves=True)


@pytest.mark.parametrize(
    "what",
    [
        say_nothing,
        say_a_byte_at_a_time,
        show_the_certificate_of_another,
        stop_before_tls,
        stop_inside_tls,
        come_back_again_and_again,
    ],
)
def test_the_right_parties_get_in(
    connect: Connect, tmp_path: Path, what: Callable[[Path], Stranger]
) -> None:
    configs = load_all(write_parties(tmp_path))
    context = multiprocessing.get_context("fork")
    arrived = context.Event()
    arguments = (configs[0].me.port, what(tmp_path), STRANGERS, arrived)
    strangers = context.Process(target=call, args=arguments, daemon=True)
    strangers.start()

    def join(config: Config) -> Any:
        if config.party:
            assert arrived.wait(SECONDS)
        return connect(config, timeout_seconds=SECONDS)

    links = run_threads([lambda c=c: join(c) for c in configs], 2 * SECONDS)
    strangers.kill()
    strangers.join()
    for each in links:
        assert isinstance(each, TlsLinks | NativeLinks), each
        each.close()


class Door:
    """Callers at a free port, whose answer is to wait for a "!", and what became of each."""

    def __init__(self, most: int, listener: Any = None) -> None:
        self.listener = listener or socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.callers = Callers(self.listener, self.answer, most)
        self.ends: list[str] = []
        self.dialed: list[socket.socket] = []

    def answer(self, connection: socket.socket, address: str) -> Talk[None]:
        connection.setblocking(False)
        try:
            while True:
                yield Awaited(connection.fileno(), selectors.EVENT_READ)
                if connection.recv(1) == b"!":
                    raise Dropped("kept")
        except (Dropped, OSError) as error:
            self.ends.append(f"{address} {error}")
        finally:
            connection.close()

    def call(self, host: str) -> str:
        connection = socket.create_connection(("127.0.0.1", self.port), 5, (host, 0))
        self.dialed.append(connection)
        self.callers.listen(5)
        return "{}:{}".format(*connection.getsockname())


@pytest.fixture
def door() -> Iterator[Callable[..., Door]]:
    made: list[Door] = []

    def make(most: int, listener: Any = None) -> Door:
        made.append(Door(most, listener))
        return made[-1]

    yield make
    for each in made:
        with each.callers:
            pass
        each.listener.close()
        for connection in each.dialed:
            assert connection.recv(1) == b""  # nobody is left in the dark
            connection.close()


def test_a_host_with_many_callers_loses_its_oldest(door: Callable[..., Door]) -> None:
    here = door(most=3)
    alone = here.call(FEW)
    oldest, second, *_ = [here.call(MANY) for _ in range(4)]
    reason = "others called after it, and descriptors were running out"
    assert here.ends == [f"{oldest} {reason}", f"{second} {reason}"]
    here.dialed[0].sendall(b"!")
    here.callers.listen(5)
    assert here.ends[2:] == [f"{alone} kept"]


def test_a_host_with_few_callers_is_heard_first(
    door: Callable[..., Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TURN_SECONDS", 0.0)  # one caller a turn
    here = door(most=10)
    addresses = [here.call(host) for host in [MANY] * 5 + [FEW]]
    for connection in here.dialed:
        connection.sendall(b"!")
    for _ in addresses:
        here.callers.listen(5)
    assert here.ends[0] == f"{addresses[-1]} kept"
    assert sorted(here.ends) == sorted(f"{address} kept" for address in addresses)


def test_who_has_cost_the_least_is_heard_first(
    door: Callable[..., Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TURN_SECONDS", 0.0)  # one caller a turn
    here = door(most=10)
    costly, cheap = here.call(FEW), here.call(MANY)
    next(iter(here.callers._callers)).spent = 1.0
    for connection in here.dialed:
        connection.sendall(b"!")
    for _ in range(2):
        here.callers.listen(5)
    assert here.ends == [f"{cheap} kept", f"{costly} kept"]


def test_a_descriptor_that_a_fork_holds_still(door: Callable[..., Door]) -> None:
    """epoll goes on naming its number, which another caller has by then: it is named twice."""
    here = door(most=10)
    first = here.call(FEW)
    here.dialed.append(socket.socket())
    (caller,) = here.callers._callers
    held = os.dup(caller.awaited.descriptor)
    here.dialed[0].sendall(b"!")
    here.dialed[0].shutdown(socket.SHUT_WR)  # what is left to read, for ever
    here.callers.listen(5)
    here.dialed[1].connect(("127.0.0.1", here.port))
    while not here.callers._callers:
        here.callers.listen(5)
    (again,) = here.callers._callers
    assert again.awaited.descriptor == caller.awaited.descriptor
    here.dialed[1].sendall(b"!")
    while here.callers._callers:
        here.callers.listen(5)
    os.close(held)
    assert here.ends == [f"{first} kept", "{}:{} kept".format(*here.dialed[1].getsockname())]


def trickle() -> bytes:
    """A ClientHello of 131 kB in TLS records of a byte."""
    hello = b"\x01" + (131_000).to_bytes(3, "big") + bytes(131_000)
    return b"".join(b"\x16\x03\x01\x00\x01" + bytes([byte]) for byte in hello[:-1])


def test_a_handshake_of_too_many_bytes_is_refused(tmp_path: Path) -> None:
    transport, config = native_transport(), load_all(write_parties(tmp_path))[0]
    der = load_certificate(tmp_path / "bob.crt")
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    writer = threading.Thread(target=say_all, args=(theirs, trickle()))
    writer.start()
    with pytest.raises(OSError, match="Message too long"):
        hold(transport.secured(ours, der, config, dialed=True), time.monotonic() + 5)
    writer.join()


def test_the_longest_certificate_fits_in_a_handshake(connect: Connect, tmp_path: Path) -> None:
    """About 8 kB, which a preamble may show."""
    files = write_parties(tmp_path)
    hosts = [f"{i:03}.hospital.example" for i in range(355)]
    issue(tmp_path, "carol", hosts)
    assert 8000 < len(load_certificate(tmp_path / "carol.crt")) < 8192
    for links in connect_all(connect, load_all(files)):
        links.close()


def say_all(connection: socket.socket, content: bytes) -> None:
    with contextlib.suppress(OSError), connection:
        connection.sendall(content)


def test_who_takes_too_long_is_dropped(
    door: Callable[..., Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SECONDS", 0.05)
    here = door(most=10)
    address = here.call(FEW)
    start = time.monotonic()
    while not here.ends and time.monotonic() - start < 5:
        here.dialed[0].sendall(b"x")
        here.callers.listen(0.01)
    assert here.ends == [f"{address} it was too slow"]


class Exhausted:
    """A listener of a process that has no descriptor left, some times."""

    def __init__(self, times: int) -> None:
        self.inner = socket.create_server(("127.0.0.1", 0))
        self.times = times

    def accept(self) -> tuple[socket.socket, Any]:
        if self.times:
            self.times -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self.inner.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_where_no_descriptor_is_left_the_oldest_gives_its_own(door: Callable[..., Door]) -> None:
    listener = Exhausted(0)
    here = door(10, listener)
    oldest = here.call(FEW)
    listener.times = 1
    newest = here.call(FEW)
    assert [end.split()[0] for end in here.ends] == [oldest]
    here.dialed[1].sendall(b"!")
    here.callers.listen(5)
    assert here.ends[1] == f"{newest} kept"


def test_where_no_caller_has_a_descriptor_all_wait(door: Callable[..., Door]) -> None:
    here = door(10, Exhausted(1))
    address = here.call(FEW)
    assert here.ends == []
    here.callers.listen(5)
    here.dialed[0].sendall(b"!")
    here.callers.listen(5)
    assert here.ends == [f"{address} kept"]


@pytest.mark.parametrize(
    ("limit", "most"), [(256, 128), (1024, 512), (1 << 20, 1024), (resource.RLIM_INFINITY, 1024)]
)
def test_half_of_the_descriptors_are_for_callers(
    monkeypatch: pytest.MonkeyPatch, limit: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    assert most_callers() == most


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_what_counts_as_one_host(one: str, other: str, same: bool) -> None:
    assert (source_of(one) == source_of(other)) == same

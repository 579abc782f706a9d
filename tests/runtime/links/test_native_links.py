"""What native links alone have: keys that are renewed, signals, and a way back to Python's."""

from __future__ import annotations

import _ssl
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from three_parties import (
    connect_all,
    connect_native,
    load_all,
    native_transport,
    run_threads,
    write_parties,
)

from veilgraph.ir.errors import PeerError, ResourceLimitError
from veilgraph.runtime._native import OpenSsl
from veilgraph.runtime.links import native as native_links
from veilgraph.runtime.links.links import Links, TlsLinks
from veilgraph.runtime.links.native import NativeLinks, open_links
from veilgraph.runtime.links.openssl import openssl
from veilgraph.runtime.links.tls import RECORDS_PER_KEY
from veilgraph.runtime.session.config import Config

MIB = 1 << 20


def connect_often(config: Config) -> Links:
    """Native links whose keys last for 7 records; carol's are Python's."""
    if config.party == 2:
        return TlsLinks.connect(config)
    return NativeLinks.connect(config, native_transport(records_per_key=7))


def test_keys_are_renewed(tmp_path: Path) -> None:
    """In both directions at once, towards either kind, within a message and between messages."""
    links = run_threads([lambda c=c: connect_often(c) for c in load_all(write_parties(tmp_path))])

    def act(mine: Links) -> None:
        peers = [peer for peer in range(3) if peer != mine.party]
        for size in [0, 1, 3 * MIB, *[100] * 40, 3 * MIB]:
            sends = {peer: np.full(size, 16 * mine.party + peer, np.uint8) for peer in peers}
            receives = {peer: np.zeros(size, np.uint8) for peer in peers}
            mine.exchange(sends, receives, "round")
            for peer in peers:
                assert (receives[peer] == 16 * peer + mine.party).all()

    assert run_threads([lambda x=x: act(x) for x in links]) == [None] * 3
    for each in links:
        each.close()


def test_a_key_that_can_not_be_renewed_is_not_used_on(tmp_path: Path) -> None:
    links = connect_all(TlsLinks.connect, load_all(write_parties(tmp_path)))
    links[0]._links[1]._records = RECORDS_PER_KEY
    with pytest.raises(ResourceLimitError, match="link to bob has encrypted as much as it may"):
        links[0].exchange({1: b"x"}, {}, "relu")
    for each in links:
        each.close()


def test_a_signal_ends_a_round(tmp_path: Path) -> None:
    links = connect_all(connect_native, load_all(write_parties(tmp_path)))
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        links[0].exchange({}, {1: bytearray(1)}, "relu")
    assert time.monotonic() - start < 5
    with pytest.raises(PeerError, match="alice stopped"):
        links[1].exchange({}, {0: bytearray(1)}, "relu")
    for each in links:
        each.close()


def test_a_signal_whose_handler_returns_ends_nothing(tmp_path: Path) -> None:
    links = connect_all(connect_native, load_all(write_parties(tmp_path)))
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    threading.Timer(0.3, links[1].exchange, ({0: b"x"}, {}, "relu")).start()
    received = bytearray(1)
    try:
        links[0].exchange({}, {1: received}, "relu")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (received, seen) == (b"x", [signal.SIGUSR1])
    for each in links:
        each.close()


@pytest.mark.parametrize(
    ("sends", "receives", "error"),
    [
        ({1: "text"}, {}, TypeError),
        ({}, {1: b"constant"}, BufferError),
        ({0: b"to myself"}, {}, KeyError),
    ],
)
def test_mistakes_of_ours_end_the_links(
    tmp_path: Path, sends: Any, receives: Any, error: type[Exception]
) -> None:
    links = connect_all(connect_native, load_all(write_parties(tmp_path)))
    with pytest.raises(error):
        links[0].exchange(sends, receives, "relu")
    with pytest.raises(PeerError, match="alice stopped"):
        links[1].exchange({}, {0: bytearray(1)}, "relu")
    for each in links:
        each.close()


def test_parties_use_native_links(tmp_path: Path) -> None:
    native_transport()
    found = run_threads([lambda c=c: open_links(c) for c in load_all(write_parties(tmp_path))])
    assert [type(each) for each in found] == [NativeLinks] * 3
    for each in found:
        each.close()


def test_without_an_openssl_that_can_be_called_links_are_those_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_links, "openssl", lambda: "it is built in")
    found = run_threads([lambda c=c: open_links(c) for c in load_all(write_parties(tmp_path))])
    assert [type(each) for each in found] == [TlsLinks] * 3
    for each in found:
        each.close()


def test_why_openssl_can_not_be_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ssl, "__file__", "/no/such/library.so")
    assert "/no/such/library.so" in str(openssl())
    monkeypatch.delattr(_ssl, "__file__")
    assert openssl() == "Python's OpenSSL is built into the interpreter"


def test_a_library_that_is_not_linked_with_openssl() -> None:
    from veilgraph.kernels.native import library

    with pytest.raises(RuntimeError, match="OpenSSL_version_num"):
        OpenSsl(str(library("portable")))

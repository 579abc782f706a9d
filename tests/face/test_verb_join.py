"""`veilgraph join`: certificates over an untrusted network, and one string that people compare."""

from __future__ import annotations

import hashlib
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from verbs import reason

from veilgraph.ir.errors import PeerError, SecurityAbort
from veilgraph.runtime.session import joining
from veilgraph.runtime.session.certificates import init, load_certificate
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.joining import commitment, join, string_of

NAMES = ("alice", "bob", "carol")


def free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in listeners]
    for each in listeners:
        each.close()
    return ports


def joining_parties(folder: Path, answers: dict[str, str]) -> dict[str, tuple[int, str, str]]:
    """Runs the verb at three parties; exit code, output and error of each."""
    withs = [f"--with={n}=127.0.0.1:{p}" for n, p in zip(NAMES, free_ports(3), strict=True)]
    common = [sys.executable, "-m", "veilgraph.cli", "join", *withs, "--timeout", "30"]
    pipe = subprocess.PIPE
    processes = {
        name: subprocess.Popen(
            [*common, "--party", name, "--dir", str(folder / name)],
            text=True, stdin=pipe, stdout=pipe, stderr=pipe,
        )
        for name in NAMES
    }  # fmt: skip
    ended = {}
    for name, process in processes.items():
        out, err = process.communicate(answers[name] + "\n", timeout=60)
        ended[name] = process.returncode, out, err
    return ended


def test_three_parties_see_one_string_and_can_talk(tmp_path: Path) -> None:
    ended = joining_parties(tmp_path, {"alice": "yes", "bob": "yes", "carol": "no"})
    assert [code for code, _, _ in ended.values()] == [0, 0, 6], ended
    strings = {re.findall(r"^  (\d{5} \d{5} \d{5})$", out, re.M)[0] for _, out, _ in ended.values()}
    assert len(strings) == 1
    assert "Nothing was written" in ended["carol"][2]
    assert sorted(p.name for p in (tmp_path / "carol").iterdir()) == ["carol.crt", "carol.key"]
    certificates = {n: load_certificate(tmp_path / n / f"{n}.crt") for n in NAMES}
    for name in ("alice", "bob"):
        config = Config.load(tmp_path / name / "parties.yaml")
        assert (config.me.name, config.names) == (name, NAMES)
        assert {party.name: party.certificates[0] for party in config.parties} == certificates


def test_the_string_is_over_all_that_was_seen() -> None:
    """By hand: SHA-256 of a label and of each part behind its length, modulo 10^15."""
    names = ("a", "b")
    seen = {"a": (b"ca", b"na", b"xa"), "b": (b"cb", b"nb", b"xb")}
    parts = [b"a", b"ca", b"na", b"xa", b"b", b"cb", b"nb", b"xb"]
    content = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    digest = hashlib.sha256(b"veilgraph join 1 string\n" + content).digest()
    assert string_of(names, seen) == str(int.from_bytes(digest, "big") % 10**15).rjust(15, "0")
    for name in names:
        for place in range(3):
            changed = [*seen[name]]
            changed[place] += b"!"
            assert string_of(names, {**seen, name: (*changed,)}) != string_of(names, seen)
    assert commitment(("ab", "c"), "c", b"n", b"x") != commitment(("a", "bc"), "c", b"n", b"x")
    assert 10**joining.DIGITS > 2**40


def test_who_stands_in_between_gives_two_strings(tmp_path: Path) -> None:
    """mallory is bob to alice and alice to bob, each with a certificate of her own."""
    for name in ("alice", "bob", "mallory"):
        init(tmp_path, name)
    own = {n: load_certificate(tmp_path / f"{n}.crt") for n in ("alice", "bob", "mallory")}
    first, second = free_ports(2)
    here, there = ("127.0.0.1", first), ("127.0.0.1", second)
    nowhere = ("127.0.0.1", 1)
    found: dict[str, joining.Joined] = {}

    def take_part(key: str, me: str, addresses: dict[str, tuple[str, int]], der: bytes) -> None:
        found[key] = join(me, addresses, der, 20)

    threads = [
        threading.Thread(target=take_part, args=arguments)
        for arguments in (
            ("alice", "alice", {"alice": here, "bob": nowhere}, own["alice"]),
            ("to alice", "bob", {"alice": here, "bob": nowhere}, own["mallory"]),
            ("to bob", "alice", {"alice": there, "bob": nowhere}, own["mallory"]),
            ("bob", "bob", {"alice": there, "bob": nowhere}, own["bob"]),
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found["alice"].certificates["bob"] == own["mallory"]
    assert found["alice"].string == found["to alice"].string
    assert found["alice"].string != found["bob"].string


@pytest.mark.parametrize("what", ["certificate", "nonce", "junk"])
def test_what_was_not_committed_to_is_refused(tmp_path: Path, what: str) -> None:
    """bob, by hand, commits to one thing and reveals another."""
    for name in ("alice", "bob"):
        init(tmp_path, name)
    der = load_certificate(tmp_path / "bob.crt")
    names, (port,) = ("alice", "bob"), free_ports(1)
    raised: list[BaseException] = []

    def alice() -> None:
        addresses = {"alice": ("127.0.0.1", port), "bob": ("127.0.0.1", 1)}
        try:
            join("alice", addresses, load_certificate(tmp_path / "alice.crt"), 20)
        except SecurityAbort as error:
            raised.append(error)

    thread = threading.Thread(target=alice)
    thread.start()
    link = joining._dialed("bob", "alice", ("127.0.0.1", port), joining.time.monotonic() + 20)
    committed = b"junk" if what == "junk" else der
    joining._send(link, commitment(names, "bob", bytes(32), committed))
    joining._receive(link)
    nonce = b"\1" * 32 if what == "nonce" else bytes(32)
    joining._send(link, nonce + {"certificate": der[:-1], "nonce": der, "junk": b"junk"}[what])
    thread.join(30)
    link.close()
    (error,) = raised
    assert ("is no certificate" if what == "junk" else "than it committed to") in str(error)


def test_a_party_that_stops_is_named(tmp_path: Path) -> None:
    init(tmp_path, "alice")
    (port,) = free_ports(1)
    addresses = {"alice": ("127.0.0.1", port), "bob": ("127.0.0.1", 1)}
    raised: list[PeerError] = []

    def alice() -> None:
        try:
            join("alice", addresses, load_certificate(tmp_path / "alice.crt"), 20)
        except PeerError as error:
            raised.append(error)

    thread = threading.Thread(target=alice)
    thread.start()
    joining._dialed("bob", "alice", ("127.0.0.1", port), joining.time.monotonic() + 20).close()
    thread.join(30)
    assert "bob stopped, or is silent." in str(raised[0])


def test_strangers_do_not_take_a_place(tmp_path: Path) -> None:
    for name in ("alice", "bob"):
        init(tmp_path, name)
    (port,) = free_ports(1)
    addresses = {"alice": ("127.0.0.1", port), "bob": ("127.0.0.1", 1)}
    found: list[joining.Joined] = []

    def take_part(name: str) -> None:
        found.append(join(name, addresses, load_certificate(tmp_path / f"{name}.crt"), 20))

    threads = [threading.Thread(target=take_part, args=(name,)) for name in ("alice", "bob")]
    threads[0].start()
    for content in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\5hello", b""):
        for _ in range(50):
            try:
                with socket.create_connection(("127.0.0.1", port), 1) as stranger:
                    stranger.sendall(content)
                break
            except ConnectionRefusedError:
                threading.Event().wait(0.05)
    threads[1].start()
    for thread in threads:
        thread.join(30)
    assert len({each.string for each in found}) == 1
    assert len(found) == 2


@pytest.mark.parametrize(
    ("withs", "code", "sentence"),
    [
        (["bob=127.0.0.1:7002"], 2, "--with must name every party, alice too."),
        (["alice=127.0.0.1:7001"], 2, "--with must name every party"),
        (["alice=127.0.0.1:7001", "bob=127.0.0.1:7001"], 2, "the same address"),
        (["alice=127.0.0.1:7001", "b b=127.0.0.1:7002"], 2, "can't be a party's name"),
        (["alice=127.0.0.1"], 2, "is no address like"),
        (["alice=127.0.0.1:0"], 2, "is no address like"),
        (["alice=203.0.113.1:7001", "bob=127.0.0.1:7002"], 5, "alice can't listen at"),
        (["alice=127.0.0.1:PORT", "bob=127.0.0.1:7002"], 5, "bob did not come in time."),
    ],
)
def test_refuses(withs: list[str], code: int, sentence: str, tmp_path: Path) -> None:
    port = str(free_ports(1)[0])
    named = [f"--with={each.replace('PORT', port)}" for each in withs]
    options = ("--party", "alice", "--dir", tmp_path, "--timeout", "0.3")
    found, told = reason("join", *options, *named)
    assert (found, sentence in told) == (code, True), told
    assert not (tmp_path / "parties.yaml").exists()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "bob.crt").write_text("mine")
    withs = ("--with=alice=127.0.0.1:7001", "--with=bob=127.0.0.1:7002")
    code, told = reason("join", "--party", "alice", "--dir", tmp_path, *withs)
    assert code == 2
    assert "bob.crt is there already." in told

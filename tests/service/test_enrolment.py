"""Tokens with which clients enrol themselves: each once, in time, for a key that is theirs."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import ssl
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from serving import SAMPLES, Hospital, compiled, members, until

import veilgraph
from veilgraph.cli import main
from veilgraph.ir.errors import PeerError, ResourceLimitError, UsageError
from veilgraph.runtime.client import wire
from veilgraph.runtime.client.client_config import ClientConfig
from veilgraph.runtime.service.desk import MOST_STRANGERS
from veilgraph.runtime.service.enrolled import Enrolled, make_token, signed_content
from veilgraph.runtime.session import certificates
from veilgraph.runtime.session.certificates import fingerprint, load_certificate
from veilgraph.runtime.session.private_keys import load_private_key
from veilgraph.runtime.session.public_keys import party_signature
from veilgraph.serving.enrolling import enrol


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hospital]:
    plan, weights = compiled("rep3")
    found = Hospital(tmp_path_factory.mktemp("enrolment"), members(plan))
    found.put("small/1", plan, weights)
    for party in found.parties:  # a folder of its own each, as on hosts of their own
        own = found.folder / f"clients-{party}"
        own.mkdir()
        file = found.folder / f"{party}.yaml"
        content = yaml.safe_load(file.read_text())
        content["me"]["clients"] = own.name
        file.write_text(yaml.safe_dump(content))
    with found.served() as services:
        until(lambda: all(each.served for each in services.values()))
        yield found


def newcomer(hospital: Hospital, name: str) -> Path:
    """A client with a key, whose configuration this is, and whom nobody knows."""
    certificates.init(hospital.folder, name)
    file = hospital.folder / f"{name}.yaml"
    file.write_text(hospital.client.read_text().replace("patient", name))
    return file


def tokens(hospital: Hospital, name: str) -> list[str]:
    made = [
        run("cert", "token", name, "--config", hospital.folder / f"{party}.yaml", "--json")
        for party in hospital.parties
    ]
    said = [json.loads(each.stdout) for each in made]
    return [f"--token={each['party']}={each['token']}" for each in said]


def test_a_client_comes_with_tokens_and_asks(served: Hospital) -> None:
    config = newcomer(served, "nurse")
    given = tokens(served, "nurse")
    with pytest.raises(PeerError, match="turned this client away"):
        veilgraph.Client("small", config)
    done = run("cert", "enrol", "--config", config, *given)
    assert done.output == "".join(f"{party} has enrolled nurse.\n" for party in served.parties)
    with veilgraph.Client("small", config) as client:
        assert client.run({"x": SAMPLES[0]})["y"].shape == (1, 5)
    for party in served.parties:
        names = {path.name for path in (served.folder / f"clients-{party}").iterdir()}
        assert "nurse.crt" in names
        assert "nurse.token" not in names
    log = next(served.folder.rglob("asked-alice.jsonl")).read_text()
    assert '"what": "enrolled", "client": "nurse"' in log
    again = run("cert", "enrol", "--config", config, *given)
    assert again.exit_code == 5
    assert "There is no such token; or it was used" in again.output


def test_a_token_is_shown_to_people(served: Hospital) -> None:
    alice = served.folder / "alice.yaml"
    shown = run("cert", "token", "porter", "--config", alice, "--hours", "0.5").output
    assert "UTC, once, and for porter alone" in shown
    token = shown.split("alice=")[1].strip()
    assert len(token) == 32
    file = served.folder / "clients-alice" / "porter.token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert token not in file.read_text()


def test_one_certificate_has_one_name(served: Hospital) -> None:
    """Else a client would have the requests of two."""
    config = ClientConfig.load(newcomer(served, "double"))
    alice = served.folder / "clients-alice"
    assert enrol(config, "alice", make_token(alice, "double", 1)[0]) == "double"
    with pytest.raises(PeerError, match="This certificate is enrolled as double already"):
        enrol(config, "alice", make_token(alice, "second", 1)[0])
    assert (alice / "second.token").exists()


def test_strangers_who_keep_quiet_hold_up_no_client(served: Hospital) -> None:
    """Beyond eight of a network the next is dropped; those who are enrolled are answered."""
    alice = next(p for p in ClientConfig.load(served.client).parties if p.name == "alice")
    context = ssl.create_default_context(cadata=alice.certificates[0])
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with ExitStack() as stack:

        def stranger() -> ssl.SSLSocket:
            plain = socket.create_connection((alice.host, alice.port), 5)
            plain.sendall(wire.ENROL)
            return stack.enter_context(context.wrap_socket(plain))

        quiet = [stranger() for _ in range(MOST_STRANGERS)]
        with pytest.raises((ConnectionError, ssl.SSLError)):
            stranger().recv(1)
        certificates.init(served.folder, "quick")
        for party in served.parties:
            shutil.copy(served.folder / "quick.crt", served.folder / f"clients-{party}")
        config = served.folder / "quick.yaml"
        config.write_text(served.client.read_text().replace("patient", "quick"))
        with veilgraph.Client("small", config) as client:
            assert client.run({"x": SAMPLES[0]})["y"].shape == (1, 5)
        assert all(each.fileno() > 0 for each in quiet)


def test_a_party_that_is_not_listed(served: Hospital) -> None:
    with pytest.raises(UsageError, match="lists no party mallory"):
        enrol(ClientConfig.load(served.client), "mallory", "abc")


# At the party


@pytest.fixture
def party(tmp_path: Path) -> Enrolled:
    files = certificates.init(tmp_path, "alice")
    certificates.init(tmp_path, "nurse")
    (tmp_path / "clients").mkdir()
    return Enrolled(tmp_path / "clients", files.certificate, files.key)


def signed(folder: Path, token: str, party: str = "alice", key: str = "nurse") -> tuple[bytes, str]:
    """nurse's certificate, and a signature by a key."""
    own = load_certificate(folder / "nurse.crt")
    content = signed_content(token, load_certificate(folder / f"{party}.crt"), own)
    return own, party_signature(load_private_key(folder / f"{key}.key"), content)


def test_what_a_token_is_bound_to(party: Enrolled, tmp_path: Path) -> None:
    clients = tmp_path / "clients"
    certificates.init(tmp_path, "bob")
    token, _ = make_token(clients, "nurse", 1)
    own, signature = signed(tmp_path, token)
    for wrong in (
        signed(tmp_path, token, party="bob"),  # who was asked at bob's can't ask here with it
        signed(tmp_path, token, key="bob"),
        (own, signature.swapcase()),
        (own, ""),
        (own[:-1], signature),
        (b"", signature),
    ):
        with pytest.raises(PeerError, match="is none, or its key is another"):
            party.enrol(token, *wrong)
    for no_token in ("", token[:-1], token.upper(), "../nurse"):
        with pytest.raises(PeerError, match="There is no such token"):
            party.enrol(no_token, own, signature)
    assert party.enrol(token, own, signature) == "nurse"
    assert party.name_of(own) == "nurse"


def test_who_is_taken_out_of_the_folder_is_not_known(party: Enrolled, tmp_path: Path) -> None:
    files = certificates.init(tmp_path, "clerk")
    own = load_certificate(files.certificate)
    place = tmp_path / "clients" / "clerk.crt"
    assert party.name_of(own) is None
    shutil.copy(files.certificate, place)
    until(lambda: party.name_of(own) == "clerk")
    place.unlink()
    until(lambda: party.name_of(own) is None)
    place.write_bytes(b"")
    until(lambda: party.name_of(own) is None)
    place.write_bytes(files.certificate.read_bytes())  # in place: the folder's time stays
    until(lambda: party.name_of(own) == "clerk")
    shutil.rmtree(place.parent)
    until(lambda: party.name_of(own) is None)


def test_a_token_whose_time_is_over(party: Enrolled, tmp_path: Path) -> None:
    token, until = make_token(tmp_path / "clients", "nurse", 1)
    assert timedelta(minutes=59) < until - datetime.now(UTC) <= timedelta(hours=1)
    file = tmp_path / "clients" / "nurse.token"
    past = datetime.now(UTC) - timedelta(seconds=1)
    file.write_text(json.dumps({**json.loads(file.read_text()), "until": past.isoformat()}))
    with pytest.raises(PeerError, match="or its time is over"):
        party.enrol(token, *signed(tmp_path, token))


def test_files_that_are_no_tokens_are_passed_over(
    party: Enrolled, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, text in enumerate(("", "{}", "[]", '{"sha256": 1, "until": 2}', "7")):
        (tmp_path / "clients" / f"a{number}.token").write_text(text)
    token, _ = make_token(tmp_path / "clients", "nurse", 1)
    assert party.enrol(token, *signed(tmp_path, token)) == "nurse"
    assert caplog.text.count("is no token, and is passed over") == 5


def test_tokens_that_can_not_be_made(tmp_path: Path) -> None:
    clients = tmp_path / "clients"
    with pytest.raises(UsageError, match="There is no folder"):
        make_token(clients, "nurse", 1)
    clients.mkdir()
    with pytest.raises(UsageError, match="can't be a party's name"):
        make_token(clients, "../nurse", 1)
    for hours in (0, -1, 721, float("nan")):
        with pytest.raises(UsageError, match="can't be good for"):
            make_token(clients, "nurse", hours)
    (clients / "nurse.crt").touch()
    with pytest.raises(UsageError, match="nurse is enrolled"):
        make_token(clients, "nurse", 1)


@pytest.fixture
def asked(party: Enrolled, tmp_path: Path) -> tuple[str, bytes, str]:
    """What nurse brings to alice: a token, a certificate, a signature."""
    token, _ = make_token(tmp_path / "clients", "nurse", 1)
    return token, *signed(tmp_path, token)


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "clients").iterdir())


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def unwritten(*_: object) -> None:
    raise ResourceLimitError("Requests can't be written down: No space left on device.", "")


@pytest.mark.parametrize("fails", ["os.fsync", "audit log", "placing", "claiming"])
def test_a_full_disk_leaves_the_token(
    party: Enrolled,
    asked: tuple[str, bytes, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fails: str,
) -> None:
    with monkeypatch.context() as now:
        if fails == "os.fsync":
            now.setattr("veilgraph.ir.files.whole_files.os.fsync", full)
        elif fails == "placing":
            now.setattr("veilgraph.ir.files.whole_files.os.replace", full)
        elif fails == "claiming":
            now.setattr(Path, "rename", full)
        with pytest.raises(ResourceLimitError, match="No space left") as told:
            party.enrol(*asked, unwritten if fails == "audit log" else lambda *_: None)
    assert fails == "audit log" or "the token is still good" in str(told.value)
    assert names(tmp_path) == ["nurse.token"]
    assert party.enrol(*asked) == "nurse"
    assert names(tmp_path) == ["nurse.crt"]


def test_a_token_that_can_not_be_made_good_again(
    party: Enrolled,
    asked: tuple[str, bytes, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rename = Path.rename
    with monkeypatch.context() as now:
        now.setattr("veilgraph.ir.files.whole_files.os.replace", full)
        now.setattr(Path, "rename", lambda a, b: full() if a.suffix == ".used" else rename(a, b))
        with pytest.raises(ResourceLimitError, match="the token is not good any more"):
            party.enrol(*asked)
    assert names(tmp_path) == ["nurse.used"]
    with pytest.raises(PeerError, match="There is no such token"):
        party.enrol(*asked)


def test_a_newer_token_is_left_alone(
    party: Enrolled, asked: tuple[str, bytes, str], tmp_path: Path
) -> None:
    """Made while an older one of the name was being used, in vain."""

    def newer(*_: object) -> None:
        (tmp_path / "clients" / "nurse.enrolled").unlink()  # as before it was placed
        made.append(make_token(tmp_path / "clients", "nurse", 1)[0])
        full()

    made = list[str]()
    with pytest.raises(ResourceLimitError, match="the token is not good any more"):
        party.enrol(*asked, newer)
    with pytest.raises(PeerError, match="There is no such token"):
        party.enrol(*asked)
    assert names(tmp_path) == ["nurse.token"]
    assert party.enrol(made[0], *signed(tmp_path, made[0])) == "nurse"


def test_a_token_that_was_used_is_never_good_again(
    party: Enrolled, asked: tuple[str, bytes, str], tmp_path: Path
) -> None:
    """Whatever lies beside the certificate that it became, or beside a newer token."""
    clients = tmp_path / "clients"
    spent = (clients / "nurse.token").read_bytes()
    assert party.enrol(*asked) == "nurse"
    for newer in ("nurse.crt", "nurse.token"):
        (clients / "nurse.used").write_bytes(spent)
        if newer == "nurse.token":
            make_token(clients, "nurse", 1)
        party.finish(lambda *_: None)
        assert names(tmp_path) == [newer]
        (clients / newer).unlink()
        party.finish(lambda *_: None)
        with pytest.raises(PeerError, match="There is no such token"):
            party.enrol(*asked)


def test_a_certificate_that_came_by_hand_stays(
    party: Enrolled, asked: tuple[str, bytes, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clients = tmp_path / "clients"

    def by_hand(*_: object) -> None:
        (clients / "nurse.crt").write_text("another")

    with pytest.raises(ResourceLimitError, match="can't take its place: File exists"):
        party.enrol(*asked, by_hand)
    party.finish(lambda *_: None)
    assert "nurse.enrolled can't be taken for enrolled" in caplog.text
    assert (clients / "nurse.crt").read_text() == "another"
    (clients / "nurse.crt").unlink()
    with pytest.raises(UsageError, match="counts once the party starts again"):
        make_token(clients, "nurse", 1)
    party.finish(lambda *_: None)
    assert names(tmp_path) == ["nurse.crt"]
    assert party.name_of(asked[1]) == "nurse"


def test_a_token_that_another_process_claimed(
    party: Enrolled,
    asked: tuple[str, bytes, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "clients" / "nurse.token"
    monkeypatch.setattr(Enrolled, "_file_of", lambda *_: file)
    file.unlink()
    with pytest.raises(PeerError, match="The token was used"):
        party.enrol(*asked)
    assert names(tmp_path) == []


# A crash


STEPS = ("open", "fsync", "replace", "rename", "link", "unlink")
CRASHED = 9


def crash_at(step: int, party: Enrolled, asked: tuple[str, bytes, str], log: Path) -> bool:
    """Enrols in a process that ends before a step: a call that changes files, or writes the log.

    Returns:
        Whether it came to that step.
    """
    if child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, CRASHED)
        return code == CRASHED
    left = iter(range(step, -1, -1))

    def counted(call: Any) -> Any:
        def stepped(*given: Any, **more: Any) -> Any:
            if not next(left):
                os._exit(CRASHED)
            return call(*given, **more)

        return stepped

    code = 1
    try:
        for name in STEPS:
            setattr(os, name, counted(getattr(os, name)))
        party.enrol(*asked, counted(partial(note_in, log)))
        code = 0
    finally:
        os._exit(code)


def note_in(log: Path, name: str, der: bytes) -> None:
    with log.open("a") as file:
        file.write(f"{name} {fingerprint(der).hex()}\n")


def test_a_crash_at_each_step_leaves_a_token_or_a_certificate(tmp_path: Path) -> None:
    """Never both nor none; what is kept is in the log, and nothing else is."""
    kept, step, was_there = list[bool](), 0, True
    while was_there:
        folder = tmp_path / str(step)
        folder.mkdir()
        files = certificates.init(folder, "alice")
        certificates.init(folder, "nurse")
        (folder / "clients").mkdir()
        token, _ = make_token(folder / "clients", "nurse", 1)
        given, log = (token, *signed(folder, token)), folder / "log"
        party = Enrolled(folder / "clients", files.certificate, files.key)
        was_there = crash_at(step, party, given, log)
        again = Enrolled(folder / "clients", files.certificate, files.key)
        again.finish(partial(note_in, log))
        kept.append(again.name_of(given[1]) == "nurse")
        assert log.exists() == kept[-1]
        assert names(folder) == (["nurse.crt"] if kept[-1] else ["nurse.token"])
        if kept[-1]:
            with pytest.raises(PeerError, match="There is no such token"):
                again.enrol(*given)
            (folder / "clients" / "nurse.crt").unlink()
            with pytest.raises(PeerError, match="There is no such token"):
                again.enrol(*given)
        else:
            assert again.enrol(*given) == "nurse"
        step += 1
    assert kept == sorted(kept)  # once it is kept, it stays so
    assert kept.count(False) > 3
    assert kept.count(True) > 3


def test_what_can_not_be_written_down_counts_later(
    party: Enrolled, asked: tuple[str, bytes, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.MonkeyPatch.context() as now:
        now.setattr(os, "link", full)
        with pytest.raises(ResourceLimitError, match="is kept, but can't take its place") as told:
            party.enrol(*asked)
    assert "it counts from then on" in told.value.hint
    assert names(tmp_path) == ["nurse.enrolled"]
    party.finish(unwritten)
    assert "can't be taken for enrolled: Requests can't be written down" in caplog.text
    assert party.name_of(asked[1]) is None
    (tmp_path / "clients" / "other.enrolled").write_text("no certificate")
    party.finish(lambda *_: None)
    assert names(tmp_path) == ["nurse.crt", "other.enrolled"]
    assert party.name_of(asked[1]) == "nurse"

"""Receipts: `run --receipt` writes one at each party, and `verify --receipt` checks it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from test_cli import at_once
from verbs import Compiled, json_of, reason, run_verb

from veilgraph.ir.errors import PeerError
from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.processes import write_configs
from veilgraph.runtime.session.certificates import init, issue
from veilgraph.runtime.transcript import PhaseRecord, Transcript, predict
from veilgraph.verification.receipts import load_receipt, receipt_of, write_receipt

SESSION = bytes(range(32))
BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """alice's receipt of two runs, and alice.crt, in the current folder."""
    monkeypatch.chdir(tmp_path)
    init(tmp_path, "alice")
    setup = Transcript({Phase.SETUP: PhaseRecord(rounds=1, sent_bytes={1: 8})})
    record = PhaseRecord(rounds=3, sent_bytes={1: 8, 2: 16}, received_bytes={2: 40})
    runs = [Transcript({Phase.ONLINE: record})] * 2
    times = BEGAN, BEGAN + timedelta(seconds=90)
    made = receipt_of("alice", ("alice", "bob"), "ab" * 32, SESSION, times, setup, runs)
    write_receipt(made, Path("alice.key"), Path("alice.receipt"))
    assert load_receipt(Path("alice.receipt"), Path("alice.crt")) == made
    return tmp_path / "alice.receipt"


def checked(*more: object) -> tuple[int, str]:
    return reason("verify", "--receipt", "alice.receipt", "--cert", "alice.crt", *more)


def test_a_receipt_has_counts_and_times(written: Path) -> None:
    assert json_of("verify", "--receipt", written, "--cert", "alice.crt") == {
        "party": "alice",
        "parties": ["alice", "bob"],
        "plan": "ab" * 32,
        "session": SESSION.hex(),
        "inferences": 2,
        "began": "2026-01-02T03:04:05+00:00",
        "ended": "2026-01-02T03:05:35+00:00",
        "rounds": {"setup": 1, "offline": 0, "online": 6},
        "sent_bytes": {"setup": 8, "offline": 0, "online": 48},
        "received_bytes": {"setup": 0, "offline": 0, "online": 80},
        "request": "",
    }
    assert b"request" not in written.read_bytes()  # as earlier versions wrote it
    shown = run_verb("verify", "--receipt", written, "--cert", "alice.crt").stdout
    assert "6 rounds, 48 bytes sent, 80 received" in shown


def test_each_party_writes_one(copied: Compiled) -> None:
    plan = copied.plan
    write_configs(copied.folder, plan.manifest.parties)
    own = {"alice": ["--input", "image=@image.npy"], "bob": ["--weights", "digits.weights"]}
    commands = [
        ["run", "digits.plan", "--party", name, "--config", f"{name}.yaml", "--iterations", "2",
         "--receipt", f"{name}.receipt", *own.get(name, [])]
        for name in plan.manifest.parties
    ]  # fmt: skip
    ended = at_once(commands)
    assert [code for _, _, code in ended] == [0, 0, 0], ended
    found = [
        json_of("verify", "digits.plan", "--receipt", f"{name}.receipt", "--cert", f"{name}.crt")
        for name in plan.manifest.parties
    ]
    assert len({each["session"] for each in found}) == 1
    for name, each in zip(plan.manifest.parties, found, strict=True):
        assert (each["party"], each["inferences"], each["plan"]) == (name, 2, plan.digest)
        assert each["parties"] == list(plan.manifest.parties)
        assert each["began"] <= each["ended"]
        for phase in Phase:
            counted = predict(plan.party(name), phase)
            times = 1 if phase == Phase.SETUP else 2
            key = phase.name.lower()
            assert each["rounds"][key] == times * counted.rounds
            assert each["sent_bytes"][key] == times * sum(counted.sent_bytes.values())
            assert each["received_bytes"][key] == times * sum(counted.received_bytes.values())
    for name in ("bob", "carol"):
        code, told = reason("verify", "--receipt", "alice.receipt", "--cert", f"{name}.crt")
        assert code == 6
        assert f"{name}.crt's key did not sign the receipt alice.receipt." in told


def test_a_new_certificate_of_the_key_will_do(written: Path) -> None:
    issue(written.parent, "alice")
    assert run_verb("verify", "--receipt", written, "--cert", "alice.crt").exit_code == 0


def test_a_key_of_an_earlier_version_signs_too(written: Path) -> None:
    made = load_receipt(written, Path("alice.crt"))
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key = ec.generate_private_key(ec.SECP256R1())
    Path("alice.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    issue(written.parent, "alice")
    assert checked()[0] == 6
    write_receipt(made, Path("alice.key"), written)
    assert load_receipt(written, Path("alice.crt")) == made


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda text: text.replace('"inferences": 2', '"inferences": 1'), 6),
        (lambda text: text.replace("bob", "eve"), 6),
        (lambda text: text.replace("ed25519 ", "ecdsa-sha256 "), 6),
        (lambda text: text.replace("ed25519 ", "rsa "), 6),
        (lambda text: text.replace('"inferences": 2', '"inferences": 2.0'), 2),
        (lambda text: text.replace('"rounds": {', '"rounds": {"x": 1, '), 2),
        (lambda text: text.replace('"party"', '"value"'), 2),
        (lambda text: text.replace("==\n", "\n"), 2),
        (lambda text: text.partition("\n")[0] + "\n", 2),
        (lambda text: text + text, 2),
        (lambda text: "[" * 5000 + "\ned25519 AAAA\n", 2),
        (lambda text: "", 2),
        (lambda text: "\xff\n\xff\n", 2),
        (lambda text: "a" * 100_000, 2),
    ],
)
def test_a_changed_receipt_is_refused(
    written: Path, change: Callable[[str], str], code: int
) -> None:
    before = written.read_text()
    assert change(before) != before
    written.write_text(change(before))
    found, told = checked()
    assert found == code
    assert "Hint: " in told
    assert ("did not sign" if code == 6 else "is no receipt") in told


def test_a_receipt_of_another_plan(written: Path, digits: Compiled) -> None:
    code, told = reason(
        "verify", digits.file("digits.plan"), "--receipt", written, "--cert", "alice.crt"
    )
    assert code == 6
    assert f"The receipt is of another plan: {'ab' * 32}." in told


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--receipt", "alice.receipt"), "--receipt and --cert go together."),
        (("--cert", "alice.crt"), "--receipt and --cert go together."),
        ((), "PLAN is missing."),
        (("--receipt", "no.receipt", "--cert", "alice.crt"), "no.receipt can't be read"),
        (("--receipt", "alice.receipt", "--cert", "no.crt"), "no.crt can't be read"),
        (
            ("--receipt", "alice.receipt", "--cert", "alice.crt", "--config", "x"),
            "needs no --config",
        ),
    ],
)
def test_a_call_that_makes_no_sense(
    written: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    code, told = reason("verify", *arguments)
    assert code == 2
    assert sentence in told
    assert "Hint: " in told


def test_a_run_that_breaks_off_has_one_too(
    copied: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second inference fails: the receipt is of the first."""
    written = []

    class Session:
        def __init__(self, *arguments: object, **options: object) -> None:
            self.transcripts: list[None] = []

        def __enter__(self) -> Session:
            return self

        def __exit__(self, *raised: object) -> None:
            pass

        def run(self, arrays: object, entry: object) -> dict[str, Any]:
            if self.transcripts:
                raise PeerError("bob stopped.")
            self.transcripts.append(None)
            return {}

        def write_receipt(self, path: Path) -> None:
            written.append((path, len(self.transcripts)))

    monkeypatch.setattr("veilgraph.commands.run.Session", Session)
    run = ("run", "digits.plan", "--party", "carol", "--config", "carol.yaml")
    assert reason(*run, "--iterations", "2", "--receipt", "carol.receipt")[0] == 5
    assert written == [(Path("carol.receipt"), 1)]


def test_a_place_for_it_is_looked_at_before_the_run(copied: Compiled) -> None:
    write_configs(copied.folder, copied.plan.manifest.parties)
    run = ("run", "digits.plan", "--party", "carol", "--config", "carol.yaml", "--timeout", "0.5")
    assert reason(*run, "--receipt", "nowhere/carol.receipt")[0] == 2
    assert reason(*run, "--receipt", "digits.plan")[0] == 2
    assert json.loads(run_verb(*run, "--json").stdout)["error"]["exit_code"] == 5

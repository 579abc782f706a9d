"""A parties.yaml is read as written, and what is wrong with one is said with file and key."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from three_parties import edit, write_parties

from veilgraph.ir.errors import UsageError
from veilgraph.runtime.session.certificates import fingerprint, init, issue, load_certificate
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.private_keys import secret_of

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def alice(tmp_path: Path) -> Path:
    return write_parties(tmp_path)["alice"]


def refused(file: Path, change: Change, match: str) -> UsageError:
    with pytest.raises(UsageError, match=match) as caught:
        Config.load(edit(file, change))
    assert str(file) in caught.value.message
    return caught.value


def commanded(command: object) -> Change:
    """The key comes from a command."""

    def change(content: dict[str, Any]) -> None:
        content["me"].pop("key", None)
        content["me"]["key_command"] = command

    return change


def test_reads_what_is_written(alice: Path) -> None:
    config = Config.load(alice)
    folder = alice.parent
    assert config.names == ("alice", "bob", "carol")
    assert config.party == 0
    assert config.me.host == "127.0.0.1"
    assert config.key == folder / "alice.key"
    assert config.certificate == folder / "alice.crt"
    assert config.state_dir == folder / "state"
    assert config.listen == "127.0.0.1"
    assert config.timeout_seconds == 10.0
    assert (config.device, config.cubins) == ("cpu", None)
    assert config.parties[1].certificates == (load_certificate(folder / "bob.crt"),)


def test_reads_where_to_compute(alice: Path) -> None:
    where = {"device": "cuda:1", "cubins": "kernels"}
    config = Config.load(edit(alice, lambda content: content["me"].update(where)))
    assert (config.device, config.cubins) == ("cuda:1", alice.parent / "kernels")


def test_reads_how_slow_a_link_may_be(alice: Path) -> None:
    config = Config.load(edit(alice, lambda content: content.update(least_bytes_per_second=2000)))
    assert config.least_bytes_per_second == 2000.0


def test_another_timeout_is_held_to_the_same(alice: Path) -> None:
    config = Config.load(alice)
    assert config.waiting(None) == config
    assert config.waiting(86400).timeout_seconds == 86400
    for seconds in (0, -1, 86401, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="above 0, at most 86400, not") as caught:
            config.waiting(seconds)
        assert "parties.yaml" in caught.value.hint


def test_another_timeout_leaves_time_for_a_record(alice: Path) -> None:
    config = Config.load(alice)
    assert config.waiting(0.3).timeout_seconds == 0.3
    with pytest.raises(UsageError, match=r"than the timeout, 0\.2 seconds"):
        config.waiting(0.2)


def test_fingerprints_stand_for_certificates(alice: Path) -> None:
    digest = fingerprint(load_certificate(alice.parent / "bob.crt"))

    def pin(content: dict[str, Any]) -> None:
        del content["parties"][1]["certificate"]
        content["parties"][1]["fingerprint"] = digest.hex(":").upper()
        del content["timeout_seconds"]
        content["me"] |= {"listen": "0.0.0.0", "certificate": "alice.crt"}

    config = Config.load(edit(alice, pin))
    assert config.parties[1].fingerprints == (digest,)
    assert not config.parties[1].certificates
    assert config.listen == "0.0.0.0"
    assert (config.timeout_seconds, config.least_bytes_per_second) == (60.0, 62_500.0)


def test_takes_the_order_of_a_plan(alice: Path) -> None:
    config = Config.load(alice).for_parties(["carol", "alice", "bob"])
    assert config.names == ("carol", "alice", "bob")
    assert config.party == 1
    assert config.me.name == "alice"
    with pytest.raises(UsageError, match="The plan is for alice, dave"):
        config.for_parties(["alice", "dave"])


def test_parties_that_disagree_on_their_number(alice: Path) -> None:
    with pytest.raises(UsageError, match=r"for alice, bob; parties\.yaml lists alice"):
        Config.load(alice).for_parties(["alice", "bob"])


def test_a_dealer_that_computes(alice: Path) -> None:
    """The same host under two names: by its certificate, or by its address."""
    parties = [{"name": p.name, "host": p.host, "port": p.port} for p in Config.load(alice).parties]
    for name, party in zip(("alice", "bob", "carol"), parties, strict=True):
        party["certificate"] = f"{name}.crt"
    elsewhere = {"name": "dave", "host": "10.0.0.9", "port": 7001, "certificate": "alice.crt"}
    refused(
        alice,
        lambda c: c.update(parties=[*parties, elsewhere]),
        r"parties\[3\] \(dave\) has the same certificate as alice",
    )
    init(alice.parent, "dave")
    beside = parties[1] | {"name": "dave", "certificate": "dave.crt"}
    refused(
        alice,
        lambda c: c.update(parties=[*parties, beside]),
        r"parties\[3\] \(dave\) has the same address as bob",
    )
    shutil.copy(alice.parent / "alice.key", alice.parent / "dave.key")
    issue(alice.parent, "dave")
    other = elsewhere | {"certificate": "dave.crt"}
    refused(
        alice,
        lambda c: c.update(parties=[*parties, other]),
        r"parties\[3\] \(dave\) has the same key as alice",
    )


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda c: c.update(colour="red"), "colour is no known key"),
        (lambda c: c["me"].update(colour="red"), r"me\.colour is no known key"),
        (lambda c: c["parties"][1].update({7: 7}), r"parties\[1\]\.7 is no known key"),
        (lambda c: c.pop("me"), "me is missing"),
        (lambda c: c["me"].pop("key"), "me must have either `key` or `key_command`"),
        (lambda c: c["me"].update(key_command=["cat", "alice.key"]), "either `key` or `key_com"),
        (commanded("cat alice.key"), r"me\.key_command must be a list of texts"),
        (commanded([]), r"me\.key_command must be a list of texts"),
        (commanded(["cat", 7]), r"me\.key_command must be a list of texts"),
        (commanded(["no-such"]), "me.key_command, no-such, can't be run: No such file"),
        (commanded(["false"]), "me.key_command, false, ended with exit code 1"),
        (commanded(["echo", "no"]), "holds no private key"),
        (commanded(["head", "-c", "70000", "/dev/zero"]), "printed far more than a key"),
        (commanded(["cat", "bob.key"]), "don't belong together"),
        (lambda c: c["parties"][2].pop("host"), r"parties\[2\]\.host is missing"),
        (lambda c: c["me"].update(name="dave"), r"me\.name must be one of alice, bob, carol"),
        (lambda c: c["parties"][1].update(name="alice"), "same name as alice"),
        (lambda c: c["parties"][1].update(name="a,b"), "'a,b' can't be a party's name"),
        (lambda c: c["parties"][1].update(name=False), r"\.name must be text, not False"),
        (lambda c: c["parties"][1].update(host=""), r"\.host must be text"),
        (lambda c: c["parties"][1].update(host="a\nb"), r"\.host must be text"),
        (lambda c: c["parties"][1].update(port="7001"), r"\.port must be a whole number"),
        (lambda c: c["parties"][1].update(port=0), r"\.port must be a whole number from 1"),
        (lambda c: c["parties"][1].update(port=65536), r"\.port must be .* not 65536"),
        (lambda c: c["parties"][1].update(port=True), r"\.port must be a whole number"),
        (lambda c: c["parties"][1].update(port=c["parties"][0]["port"]), "same address as alice"),
        (lambda c: c["parties"][1].update(certificate="alice.crt"), "same certificate as alice"),
        (lambda c: c["parties"][1].update(certificate="none.crt"), "none.crt can't be read"),
        (lambda c: c["parties"][1].update(fingerprint="00"), "either `certificate` or"),
        (lambda c: c["parties"][1].pop("certificate"), "either `certificate` or `fingerprint`"),
        (lambda c: c.update(parties=[]), "parties must be a list of 2 to 16"),
        (lambda c: c.update(parties=c["parties"] * 6), "parties must be a list of 2 to 16"),
        (lambda c: c.update(parties=["alice", "bob"]), r"parties\[0\] must be a mapping"),
        (lambda c: c.update(me="alice"), "me must be a mapping"),
        (lambda c: c.update(timeout_seconds=0), "timeout_seconds must be a number of seconds"),
        (lambda c: c.update(timeout_seconds="1 s"), "timeout_seconds must be a number"),
        (lambda c: c.update(timeout_seconds=float("nan")), "timeout_seconds must be a number"),
        (
            lambda c: c.update(least_bytes_per_second=0),
            "least_bytes_per_second must be a number",
        ),
        (lambda c: c.update(least_bytes_per_second=True), "from 1 to 1e9, not True"),
        (lambda c: c.update(least_bytes_per_second="fast"), "from 1 to 1e9, not 'fast'"),
        (lambda c: c.update(least_bytes_per_second=2e9), "from 1 to 1e9, not 2000000000"),
        (lambda c: c.update(least_bytes_per_second=float("nan")), "from 1 to 1e9, not nan"),
        (
            lambda c: c.update(least_bytes_per_second=16384 / 10 - 1),
            "1637.4, a record of 16384 bytes takes longer than the timeout, 10 seconds",
        ),
        (lambda c: c["me"].update(key="none.key"), "none.key can't be read"),
        (lambda c: c["me"].update(key="bob.key"), "don't belong together"),
        (lambda c: c["me"].update(certificate="bob.crt"), "another than the one listed for alice"),
    ],
)
def test_says_what_is_wrong(alice: Path, change: Change, match: str) -> None:
    refused(alice, change, match)


def test_says_what_is_known(alice: Path) -> None:
    hint = refused(alice, lambda c: c["me"].update(colour="red"), "no known key").hint
    assert (
        hint
        == "Its keys are name, state_dir; optional: certificate, clients, cubins, device, key, "
        "key_command, listen, rows_a_day."
    )


def test_a_fingerprint_that_is_none(alice: Path) -> None:
    def pin(content: dict[str, Any]) -> None:
        content["parties"][1] = {"name": "bob", "host": "b", "port": 1, "fingerprint": "ab:cd"}

    refused(alice, pin, r"parties\[1\]\.fingerprint must be a SHA-256")


def test_my_certificate_must_be_somewhere(alice: Path) -> None:
    def pin(content: dict[str, Any]) -> None:
        content["parties"][0].pop("certificate")
        content["parties"][0]["fingerprint"] = "0" * 64

    refused(alice, pin, r"me\.certificate is missing")


def test_a_key_that_others_can_read(alice: Path) -> None:
    (alice.parent / "alice.key").chmod(0o644)
    error = refused(alice, lambda c: None, "Others on this host can read the key")
    assert error.hint.startswith("chmod 600 ")


def test_a_certificate_renewed_but_not_pinned(alice: Path) -> None:
    init(alice.parent / "new", "alice")
    refused(
        alice,
        lambda c: c["me"].update(certificate="new/alice.crt", key="new/alice.key"),
        "another than the one listed for alice",
    )


@pytest.mark.parametrize(
    "content",
    [b"parties: [", b"\xff\xfe\x00", b"- just\n- a list", b"", b"[" * 5000, b"a: 2020-99-99"],
)
def test_files_that_are_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "parties.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"parties.yaml: (it is no YAML|the file must be)"):
        Config.load(path)


def test_files_that_are_not_there_or_too_long(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read: No such file"):
        Config.load(tmp_path / "parties.yaml")
    (tmp_path / "long.yaml").write_bytes(b" " * (1 << 20) + b"a")
    with pytest.raises(UsageError, match="over 1 MiB"):
        Config.load(tmp_path / "long.yaml")


def test_two_certificates_of_a_party(alice: Path) -> None:
    """Others accept either; what it shows itself is the first of its own file."""
    old = fingerprint(load_certificate(alice.parent / "bob.crt"))
    new = bytes.fromhex(issue(alice.parent, "bob", beside=True).fingerprint)
    assert Config.load(alice).parties[1].fingerprints == (old, new)
    assert old != new

    def pin(content: dict[str, Any]) -> None:
        del content["parties"][1]["certificate"]
        content["parties"][1]["fingerprint"] = [new.hex(), old.hex(":")]

    assert Config.load(edit(alice, pin)).parties[1].fingerprints == (new, old)


def test_three_certificates_of_a_party(alice: Path) -> None:
    def pin(content: dict[str, Any]) -> None:
        del content["parties"][1]["certificate"]
        content["parties"][1]["fingerprint"] = ["00" * 32, "11" * 32, "22" * 32]

    bob = alice.parent / "bob.crt"
    bob.write_bytes(3 * bob.read_bytes())
    refused(alice, lambda _: None, r"bob\.crt holds 3 certificates")
    refused(alice, pin, "64 hex digits, or two of them")


def test_the_next_certificate_is_another_partys(alice: Path) -> None:
    with (alice.parent / "bob.crt").open("ab") as file:
        file.write((alice.parent / "carol.crt").read_bytes())
    refused(alice, lambda _: None, r"parties\[2\] \(carol\) has the same certificate as bob")


def test_a_command_prints_the_key(alice: Path) -> None:
    """As of an agent, or of a file with a passphrase; it is nowhere on the disk meanwhile."""
    key = serialization.load_pem_private_key((alice.parent / "alice.key").read_bytes(), None)
    secret = secret_of(alice.parent / "alice.key")
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked = key.private_bytes(*form, serialization.BestAvailableEncryption(b"words"))
    (alice.parent / "alice.key").unlink()
    (alice.parent / "locked.key").write_bytes(locked)
    unlock = ["openssl", "pkey", "-in", "locked.key", "-passin", "pass:words"]
    config = Config.load(edit(alice, commanded(unlock)))
    assert secret_of(config.key) == secret
    assert "PRIVATE" not in repr(config)
    path = config.key
    del config
    assert not path.exists()
    refused(alice, commanded(["cat", "locked.key"]), "without a password")


def test_a_command_that_waits(alice: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veilgraph.runtime.session.private_keys.COMMAND_SECONDS", 0.1)
    refused(alice, commanded(["sleep", "30"]), "took longer than 0.1 seconds")

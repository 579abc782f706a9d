"""`veilgraph sign` and `cert author`, and who `verify` and `inspect` say signed a plan."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from verbs import Compiled, json_of, reason, run_verb

from veilgraph.runtime.session.certificates import init_author
from veilgraph.runtime.session.private_keys import load_private_key
from veilgraph.runtime.session.public_keys import bytes_of, is_signed, text_of
from veilgraph.verification.signatures import signer_of

SIG = Path("digits.plan.sig")


@pytest.fixture
def author(copied: Compiled) -> str:
    """The public key of author.key, which has signed digits.plan."""
    key = str(json_of("cert", "author", "author.key")["public_key"])
    assert json_of("sign", "digits.plan", "--key", "author.key") == {
        "signature": "digits.plan.sig", "public_key": key, "digest": copied.plan.digest,
    }  # fmt: skip
    return key


def test_an_author_key_is_its_owners_alone_and_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "author.key"
    shown = run_verb("cert", "author", file).stdout
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    public_key = load_private_key(file).public_key()
    assert text_of(public_key.public_bytes_raw()) in shown
    before = file.read_bytes()
    code, told = reason("cert", "author", file)
    assert (code, file.read_bytes()) == (2, before)
    assert "author.key is there already." in told
    code, told = reason("cert", "author", tmp_path / "nowhere" / "author.key")
    assert code == 2
    assert "can't be written" in told


def test_who_signed_is_told(author: str) -> None:
    assert f"signed by          the key {author}" in run_verb("verify", "digits.plan").stdout
    assert f"signed by      the key {author}" in run_verb("inspect", "digits.plan").stdout
    for verb in ("verify", "inspect"):
        assert json_of(verb, "digits.plan")["signed_by"] == author
    assert run_verb("verify", "digits.plan", "--signed-by", author).exit_code == 0


def test_a_signature_is_a_line_over_the_digest(author: str, copied: Compiled) -> None:
    scheme, key, signature = SIG.read_text().removesuffix("\n").split(" ")
    assert (scheme, key) == ("ed25519", author)
    public_key, signed = bytes_of(key), bytes_of(signature, 64)
    assert public_key is not None
    assert signed is not None
    digest = bytes.fromhex(copied.plan.digest)
    assert is_signed(public_key, signed, b"veilgraph plan signature 1\n" + digest)
    assert not is_signed(public_key, signed, digest)


def test_a_plan_need_not_be_signed(digits: Compiled) -> None:
    plan = digits.file("digits.plan")
    assert "signed by          nobody" in run_verb("verify", plan).stdout
    assert "signed by" not in run_verb("inspect", plan).stdout
    assert json_of("verify", plan)["signed_by"] is None
    assert json_of("inspect", plan)["signed_by"] is None
    code, told = reason("verify", plan, "--signed-by", text_of(bytes(32)))
    assert code == 6
    assert "The plan is not signed: there is no" in told
    assert "Hint: Ask its author for digits.plan.sig." in told


def test_another_authors_signature_is_told(author: str) -> None:
    other = text_of(init_author(Path("other.key")).public_bytes_raw())
    code, told = reason("verify", "digits.plan", "--signed-by", other)
    assert code == 6
    assert f"signed with another key: {author}." in told


def test_a_signature_of_another_plan_is_refused(author: str, copied: Compiled) -> None:
    changed = replace(copied.plan.manifest, encoding="otherwise")
    replace(copied.plan, manifest=changed).save("digits.plan")
    for verb in ("verify", "inspect"):
        code, told = reason(verb, "digits.plan")
        assert code == 6
        assert "The signature digits.plan.sig does not fit the plan." in told
        assert "Hint: One of them was changed" in told


def flipped(text: str) -> str:
    """The same line, one bit of its signature another."""
    scheme, key, signature = text.split()
    found = bytearray(bytes_of(signature, 64) or b"")
    found[40] ^= 1
    return f"{scheme} {key} {text_of(bytes(found))}\n"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (flipped, 6),
        (lambda text: text.replace(text.split()[1], text_of(bytes(32))), 6),
        (lambda text: text.removesuffix("\n"), 2),
        (lambda text: text[: len(text) // 2] + "\n", 2),
        (lambda text: text.replace("ed25519", "rsa"), 2),
        (lambda text: text.replace("=\n", "\n"), 2),
        (lambda text: text + text, 2),
        (lambda text: "", 2),
        (lambda text: "\xff", 2),
        (lambda text: "a" * 10_000, 2),
    ],
)
def test_a_changed_signature_is_refused(
    author: str, change: Callable[[str], str], code: int
) -> None:
    SIG.write_text(change(SIG.read_text()))
    found, told = reason("verify", "digits.plan")
    assert found == code
    assert "Hint: " in told
    assert ("does not fit the plan" if code == 6 else "is no signature of a plan") in told


def test_a_signature_that_cannot_be_read(copied: Compiled) -> None:
    SIG.mkdir()
    code, told = reason("verify", "digits.plan")
    assert code == 2
    assert "The signature digits.plan.sig can't be read: Is a directory." in told
    init_author(Path("author.key"))
    code, told = reason("sign", "digits.plan", "--key", "author.key")
    assert code == 2
    assert "digits.plan.sig can't be written" in told


@pytest.fixture
def ecdsa_key(tmp_path: Path) -> Path:
    """A private key of an earlier version's kind."""
    file = tmp_path / "earlier.key"
    file.touch(0o600)
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key = ec.generate_private_key(ec.SECP256R1())
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return file


def test_a_key_that_signs_no_plans(copied: Compiled, ecdsa_key: Path) -> None:
    code, told = reason("sign", "digits.plan", "--key", ecdsa_key)
    assert code == 2
    assert "is not an Ed25519 key" in told
    assert "cert author" in told
    assert reason("sign", "digits.plan", "--key", "no.key")[0] == 2
    assert not SIG.exists()


def test_a_public_key_that_is_none(copied: Compiled) -> None:
    code, told = reason("verify", "digits.plan", "--signed-by", "bob")
    assert code == 2
    assert "`bob` is no public key" in told


def test_an_unsigned_plan_has_no_signer(copied: Compiled) -> None:
    assert signer_of(copied.plan, SIG) is None

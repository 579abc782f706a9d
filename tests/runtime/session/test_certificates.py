"""Organisations make keys and certificates that nobody else can read or replace by mistake."""

from __future__ import annotations

import base64
import hmac
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, x25519
from cryptography.hazmat.primitives.serialization import NoEncryption

from veilgraph.ir.errors import UsageError
from veilgraph.runtime.session import certificates
from veilgraph.runtime.session.certificates import (
    check_party_name,
    fingerprint,
    init,
    issue,
    load_certificate,
    self_signed,
)
from veilgraph.runtime.session.peer_status import PeerStatus, validity
from veilgraph.runtime.session.private_keys import load_private_key, secret_of
from veilgraph.runtime.session.public_keys import is_signed_by_party


def test_init_makes_a_key_and_its_certificate(tmp_path: Path) -> None:
    files = init(tmp_path / "keys", "alice", ["alice.example", "10.0.0.1", "::1"])
    assert files.key.stat().st_mode & 0o777 == 0o600
    assert files.certificate.stat().st_mode & 0o777 == 0o644
    der = load_certificate(files.certificate)
    assert fingerprint(der).hex() == files.fingerprint
    certificate = x509.load_der_x509_certificate(der)
    assert certificate.public_key() == load_private_key(files.key).public_key()
    assert certificate.subject.rfc4514_string() == "CN=alice"
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["alice.example"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "::1"]
    now = datetime.now(UTC)
    assert certificate.not_valid_before_utc < now
    left = certificate.not_valid_after_utc - now
    assert timedelta(days=824) < left <= timedelta(days=825)
    assert sorted(os.listdir(tmp_path / "keys")) == ["alice.crt", "alice.key"]


def test_keys_are_ed25519(tmp_path: Path) -> None:
    files = init(tmp_path, "alice")
    key = load_private_key(files.key)
    assert isinstance(key, ed25519.Ed25519PrivateKey)
    assert key.sign(b"twice") == key.sign(b"twice")


def test_a_key_of_an_earlier_version_is_renewed(tmp_path: Path) -> None:
    files = init(tmp_path, "alice")
    earlier = ec.generate_private_key(ec.SECP256R1())
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    files.key.write_bytes(earlier.private_bytes(encoding, form, serialization.NoEncryption()))
    der = load_certificate(issue(tmp_path, "alice").certificate)
    certificate = x509.load_der_x509_certificate(der)
    assert certificate.public_key() == earlier.public_key()
    certificate.verify_directly_issued_by(certificate)


def test_the_secret_of_a_key_is_the_keys_alone(tmp_path: Path) -> None:
    """Not of how it is written: HKDF-SHA256 (RFC 5869) of the raw key, labelled with its kind."""
    path, encoding, plain = tmp_path / "alice.key", serialization.Encoding.PEM, NoEncryption()
    forms = serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL
    elliptic, edwards = (
        ec.derive_private_key(5, ec.SECP256R1()),
        ed25519.Ed25519PrivateKey.from_private_bytes(bytes(31) + b"\5"),
    )
    path.touch(0o600)
    for key, used, label in (
        (elliptic, forms, b"secp256r1"),
        (edwards, forms[:1], b"ed25519"),
    ):
        for form in used:
            path.write_bytes(key.private_bytes(encoding, form, plain))
            info = b"veilgraph private key " + label + b"\0"
            extracted = hmac.digest(b"", bytes(31) + b"\5", "sha256")
            assert secret_of(path) == hmac.digest(extracted, info + b"\1", "sha256")


def test_init_replaces_only_by_force(tmp_path: Path) -> None:
    first = init(tmp_path, "alice")
    key = first.key.read_bytes()
    with pytest.raises(UsageError, match="already holds") as caught:
        init(tmp_path, "alice")
    assert "--force" in caught.value.hint
    assert first.key.read_bytes() == key
    second = init(tmp_path, "alice", force=True)
    assert second.fingerprint != first.fingerprint
    assert second.key.read_bytes() != key
    assert second.key.stat().st_mode & 0o777 == 0o600


def test_issue_keeps_the_key(tmp_path: Path) -> None:
    first = init(tmp_path, "alice")
    key = first.key.read_bytes()
    second = issue(tmp_path, "alice", ["new.example"], days=3)
    assert second.fingerprint != first.fingerprint
    assert fingerprint(load_certificate(second.certificate)).hex() == second.fingerprint
    assert second.key.read_bytes() == key


def test_issue_needs_a_key(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"alice.key can't be read") as caught:
        issue(tmp_path, "alice")
    assert "cert init" in caught.value.hint


@pytest.mark.parametrize("name", ["", "a,b", "../alice", "1alice", "a" * 32, "al ice", "älice"])
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="can't be a party's name"):
        init(tmp_path, name)
    assert check_party_name("hospital_2-north") == "hospital_2-north"


def test_hosts_and_days_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no host name"):
        init(tmp_path, "alice", ["höst"])
    with pytest.raises(UsageError, match="valid for 0 days"):
        init(tmp_path, "alice", days=0)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can't be written"):
        init(tmp_path / "file", "alice")
    files = init(tmp_path, "alice")
    files.certificate.unlink()
    files.certificate.mkdir()
    with pytest.raises(UsageError, match="can't be written"):
        issue(tmp_path, "alice")
    assert sorted(os.listdir(tmp_path)) == ["alice.crt", "alice.key", "file"]


def test_a_key_that_others_can_read(tmp_path: Path) -> None:
    files = init(tmp_path, "alice")
    files.key.chmod(0o640)
    with pytest.raises(UsageError, match="Others on this host can read") as caught:
        load_private_key(files.key)
    assert caught.value.hint == f"chmod 600 {files.key}"


def test_keys_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "alice.key"
    path.touch(0o600)
    with pytest.raises(UsageError, match="holds no private key"):
        load_private_key(path)
    private, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked = serialization.BestAvailableEncryption(b"password")
    path.write_bytes(ec.generate_private_key(ec.SECP256R1()).private_bytes(private, pkcs8, locked))
    with pytest.raises(UsageError, match="without a password"):
        load_private_key(path)
    other = x25519.X25519PrivateKey.generate()
    path.write_bytes(other.private_bytes(private, pkcs8, serialization.NoEncryption()))
    with pytest.raises(UsageError, match="neither an Ed25519 nor an ECDSA key"):
        load_private_key(path)


def test_certificates_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "alice.crt"
    with pytest.raises(UsageError, match="can't be read"):
        load_certificate(path)
    path.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(UsageError, match="holds no certificate"):
        load_certificate(path)
    path.write_bytes(bytes(1 << 17))
    with pytest.raises(UsageError, match="far too long"):
        load_certificate(path)


def test_self_signed_dates() -> None:
    start = datetime(2020, 1, 1, tzinfo=UTC)
    certificate = self_signed(ec.generate_private_key(ec.SECP256R1()), "alice", [], start, 30)
    assert certificate.not_valid_before_utc == datetime(2019, 12, 31, 23, tzinfo=UTC)
    assert certificate.not_valid_after_utc == datetime(2020, 1, 31, tzinfo=UTC)
    certificate.verify_directly_issued_by(certificate)


def test_a_certificate_of_a_version_that_is_none(tmp_path: Path) -> None:
    """Anybody may put one into a share file, or bring it with a token."""
    file = certificates.init(tmp_path, "alice").certificate
    der = certificates.load_certificate(file)
    odd = der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x7c", 1)
    assert odd != der
    assert not certificates.is_certificate(odd)
    assert validity(odd) is PeerStatus.UNKNOWN
    assert not is_signed_by_party(odd, "ed25519 AA==", b"")
    text = base64.encodebytes(odd).decode()
    file.write_text(f"-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n")
    with pytest.raises(UsageError, match="holds no certificate"):
        certificates.load_certificates(file)

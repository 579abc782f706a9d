"""Keys and certificates: each organisation makes its own, and pins those of the others.

There is no certificate authority, because nobody is trusted by all: `init` makes an organisation's
private key and a self-signed certificate for it, and the others name that very certificate (or its
SHA-256 fingerprint) in their parties.yaml. A link accepts that certificate and no other, so what it
says about hosts or issuers decides nothing. `issue` makes a new certificate for the key that is
there: before the old one expires, or when the host's name changes. A file may hold two, while one
takes the other's place: others accept either, and its owner shows the first.

Keys are Ed25519 (RFC 8032), whose signatures need no randomness: a copied host, whose randomness
repeats, gives nothing of its key away. Those that earlier versions made (ECDSA on P-256) go on
working. Files are PEM: `NAME.key` (PKCS 8, mode 0600) and `NAME.crt`.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.whole_files import placed_whole
from veilgraph.ir.roles import NAME_RULE, is_name
from veilgraph.runtime.session.private_keys import PrivateKey, load_private_key, read_pem

VALID_DAYS = 825
MOST_CERTIFICATES = 2  # of one owner at a time: the one in use, and the one that comes after it
UNREADABLE = (ValueError, x509.InvalidVersion)  # what reading raises of bytes that are none
_CLOCK_SKEW = timedelta(hours=1)  # clocks that nobody sets are off by minutes


@dataclass(frozen=True)
class CertificateFiles:
    """Where a party's key and certificate lie, and the fingerprint that the others may pin."""

    key: Path
    certificate: Path
    fingerprint: str


def init(
    directory: Path,
    name: str,
    hosts: Sequence[str] = (),
    *,
    days: int = VALID_DAYS,
    force: bool = False,
) -> CertificateFiles:
    """Makes a party's private key and its first certificate.

    Args:
        directory: where the files go; made (mode 0700) if it is not there.
        name: the party's name, as parties.yaml has it.
        hosts: names and addresses that the certificate mentions, for people.
        days: how long the certificate is valid.
        force: replace a key that is there; every other party must then pin anew.

    Raises:
        UsageError: a name that is none, a key that is there already, a directory not writable.
    """
    files = _files(directory, check_party_name(name))
    if not force and (files[0].exists() or files[1].exists()):
        raise UsageError(
            f"{directory} already holds a key or a certificate of {name}.",
            "`cert issue` renews the certificate; --force replaces both, and every other party "
            "must then pin the new one.",
        )
    key = ed25519.Ed25519PrivateKey.generate()
    certificate = self_signed(key, name, hosts, datetime.now(UTC), days)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_key(files[0], key)
    except OSError as error:
        raise _unwritable(files[0], error) from error
    return _store(files, certificate)


def init_author(path: Path) -> ed25519.Ed25519PublicKey:
    """Makes a private key for signing plans: Ed25519, PEM (PKCS 8), mode 0600.

    Raises:
        UsageError: something is there already, or can't be written.
    """
    if path.exists():
        raise UsageError(
            f"{path} is there already.",
            "Name another file: whoever lists a key would refuse what a new one signs.",
        )
    key = ed25519.Ed25519PrivateKey.generate()
    try:
        _write_key(path, key)
    except OSError as error:
        raise _unwritable(path, error) from error
    return key.public_key()


def issue(
    directory: Path,
    name: str,
    hosts: Sequence[str] = (),
    *,
    days: int = VALID_DAYS,
    beside: bool = False,
) -> CertificateFiles:
    """Makes a new certificate for the key that `init` made.

    Args:
        beside: keep the old one, and show it until `retire`; else the new one takes its place.

    Raises:
        UsageError: no such key, one that can't be read, a directory that can't be written, or two
            certificates that are there already.
    """
    files = _files(directory, check_party_name(name))
    made = self_signed(load_private_key(files[0]), name, hosts, datetime.now(UTC), days)
    if not beside:
        return _store(files, made)
    old = load_certificates(files[1])
    if len(old) == MOST_CERTIFICATES:
        raise UsageError(
            f"{files[1]} holds {MOST_CERTIFICATES} certificates already.",
            f"`cert retire {name}` ends the older one, once all others have the newer.",
        )
    return _store(files, *map(x509.load_der_x509_certificate, old), made)


def retire(directory: Path, name: str) -> CertificateFiles:
    """Ends a party's older certificate: from then on it shows the one that `issue` put beside it.

    Raises:
        UsageError: a file that can't be read or written, or that holds one certificate.
    """
    files = _files(directory, check_party_name(name))
    found = load_certificates(files[1])
    if len(found) == 1:
        raise UsageError(
            f"{files[1]} holds one certificate.",
            f"`cert issue {name} --beside` makes the one that comes after it.",
        )
    return _store(files, x509.load_der_x509_certificate(found[-1]))


def self_signed(
    key: PrivateKey,
    name: str,
    hosts: Sequence[str],
    start: datetime,
    days: int,
) -> x509.Certificate:
    """A certificate of `key` by itself, for both ends of TLS; valid from an hour before `start`.

    Raises:
        UsageError: days that are none, or a host that can't stand in a certificate.
    """
    if days < 1:
        raise UsageError(f"A certificate can't be valid for {days} days.", "Give at least 1.")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _CLOCK_SKEW)
        .not_valid_after(start + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    hashed = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, hashed)


def load_certificates(path: Path) -> tuple[bytes, ...]:
    """The certificates of a PEM file, as DER: one, or two while one takes the other's place.

    Raises:
        UsageError: a file that can't be read, that holds no certificate, or more than two.
    """
    try:
        found = x509.load_pem_x509_certificates(read_pem(path, "certificate"))
    except UNREADABLE as error:
        raise UsageError(
            f"{path} holds no certificate.", "Give the .crt file that `cert init` made."
        ) from error
    if len(found) > MOST_CERTIFICATES:
        raise UsageError(
            f"{path} holds {len(found)} certificates.",
            f"Keep at most {MOST_CERTIFICATES}: the one in use, and the one that comes after it.",
        )
    return tuple(each.public_bytes(serialization.Encoding.DER) for each in found)


def load_certificate(path: Path) -> bytes:
    """The certificate that the owner of a PEM file shows, as DER: the first of it.

    Raises:
        UsageError: as `load_certificates`.
    """
    return load_certificates(path)[0]


@dataclass(frozen=True)
class Description:
    """What a certificate says, and its fingerprint in hex; times in ISO 8601, UTC."""

    name: str
    begins: str
    ends: str
    fingerprint: str


def described(der: bytes) -> Description:
    """What a certificate (DER) says of itself, which nobody vouches for."""
    certificate = x509.load_der_x509_certificate(der)
    named = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return Description(
        str(named[0].value) if named else "nobody",
        certificate.not_valid_before_utc.isoformat(),
        certificate.not_valid_after_utc.isoformat(),
        fingerprint(der).hex(),
    )


def fingerprint(der: bytes) -> bytes:
    """The SHA-256 of a certificate, 32 bytes: what parties.yaml may pin."""
    return hashlib.sha256(der).digest()


def is_certificate(der: bytes) -> bool:
    try:
        x509.load_der_x509_certificate(der)
    except UNREADABLE:
        return False
    return True


def check_party_name(name: str) -> str:
    """The name, if it can stand in file names, lists and messages; else UsageError."""
    if not is_name(name):
        raise UsageError(f"{name!r} can't be a party's name.", NAME_RULE)
    return name


def _files(directory: Path, name: str) -> tuple[Path, Path]:
    return directory / f"{name}.key", directory / f"{name}.crt"


def _store(files: tuple[Path, Path], *certificates: x509.Certificate) -> CertificateFiles:
    """Writes the file; the fingerprint is the last one's, which is new to the others."""
    pem = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)
    try:
        _write(files[1], pem, 0o644)
    except OSError as error:
        raise _unwritable(files[1], error) from error
    return CertificateFiles(*files, certificates[-1].fingerprint(hashes.SHA256()).hex())


def _write_key(path: Path, key: ed25519.Ed25519PrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(path, pem, 0o600)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Puts a whole file in place at once; nobody else can ever read one of mode 0600."""
    with placed_whole(path, mode) as file:
        file.write(content)


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{path} can't be written: {error.strerror}.", "Choose a directory that is yours."
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise UsageError(
            f"{host!r} is no host name or address.", "Write names beyond ASCII in punycode."
        ) from error

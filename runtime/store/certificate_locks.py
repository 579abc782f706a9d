"""Files for a party whose private key the writer lacks: encrypted to the key of its certificate.

The writer draws a key pair of X25519 (RFC 7748), and the file's key comes by HKDF from what its
private half and the party's public key agree on; the public half stands in the file's head. A
party's Ed25519 key is taken to X25519 by the birational map of RFC 7748, section 4.1. That one key
both signs and agrees is sound: Thormarker, "On using the same key pair for Ed25519 and an X25519
based KEM", 2021. Anybody can write such a file: it says nothing about who did.
"""

from __future__ import annotations

import hashlib

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from veilgraph.ir.errors import UsageError
from veilgraph.runtime.session.keys import derive
from veilgraph.runtime.session.private_keys import PrivateKey
from veilgraph.runtime.store.at_rest import PUBLIC_KEY, Lock

_P = 2**255 - 19
_HINT = "Make a new key with `veilgraph cert init NAME --force`, and pin it at all parties."


def lock_to(certificate: bytes) -> Lock:
    """A fresh lock that the holder of a certificate's private key opens.

    Args:
        certificate: DER, with an Ed25519 key.

    Raises:
        UsageError: a key of another kind, or one that can't agree on anything.
    """
    party = public_key(certificate)
    fresh = X25519PrivateKey.generate()
    ephemeral = fresh.public_key().public_bytes_raw()
    try:
        agreed = fresh.exchange(X25519PublicKey.from_public_bytes(party))
    except ValueError as error:  # a point of small order
        raise _weak() from error
    return Lock(PUBLIC_KEY, _derived(agreed, ephemeral, party), ephemeral)


def public_key(certificate: bytes) -> bytes:
    """The X25519 public key, 32 bytes, that files for a certificate (DER) are encrypted to.

    Raises:
        UsageError: as `lock_to`.
    """
    key = x509.load_der_x509_certificate(certificate).public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError("A file can be encrypted to an Ed25519 key alone.", _HINT)
    try:
        return _montgomery(key)
    except ValueError as error:
        raise _weak() from error


def _weak() -> UsageError:
    return UsageError("The key of the certificate is one that anybody can agree with.", _HINT)


def lock_of_own(key: PrivateKey, ephemeral: bytes) -> Lock:
    """The lock of a file that was written to this key's certificate.

    Raises:
        UsageError: a key of another kind.
        ValueError: an ephemeral key of small order.
    """
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError("A file can be encrypted to an Ed25519 key alone.", _HINT)
    scalar = hashlib.sha512(key.private_bytes_raw()).digest()[:32]  # RFC 8032, section 5.1.5
    agreed = X25519PrivateKey.from_private_bytes(scalar).exchange(
        X25519PublicKey.from_public_bytes(ephemeral)
    )
    return Lock(PUBLIC_KEY, _derived(agreed, ephemeral, _montgomery(key.public_key())), ephemeral)


def _montgomery(key: Ed25519PublicKey) -> bytes:
    """u = (1 + y) / (1 - y)."""
    y = int.from_bytes(key.public_bytes_raw(), "little") & ((1 << 255) - 1)
    return ((1 + y) * pow(1 - y, -1, _P) % _P).to_bytes(32, "little")


def _derived(agreed: bytes, ephemeral: bytes, party: bytes) -> bytes:
    return derive(agreed, "file to a certificate", ephemeral + party)

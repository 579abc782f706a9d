"""Signatures of those who sign plans, whose public keys lie in files, and of parties.

An Ed25519 public key (RFC 8032) is 32 bytes, and in text their base64 (RFC 4648, section 4): 44
characters, in the one way that these bytes are written. A party signs with its certificate's key,
in text `ed25519 SIGNATURE` or `ecdsa-sha256 SIGNATURE`.
"""

from __future__ import annotations

import base64
import binascii

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

KEY_BYTES = 32
SIGNATURE_BYTES = 64
_ED25519, _ECDSA = "ed25519", "ecdsa-sha256"
_HASHED = ec.ECDSA(hashes.SHA256())


def text_of(content: bytes) -> str:
    """A public key or a signature as text."""
    return base64.b64encode(content).decode()


def bytes_of(text: str, count: int = KEY_BYTES) -> bytes | None:
    """The bytes of a public key, or of a signature; None where the text is of no `count` bytes.

    >>> bytes_of("AAAA", 3)
    b'\\x00\\x00\\x00'
    """
    try:
        found = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return None
    return found if len(found) == count and text_of(found) == text else None


def is_signed(public_key: bytes, signature: bytes, content: bytes) -> bool:
    """Whether the holder of a key signed a content, whose first bytes say what it is of."""
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(public_key).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


def party_signature(
    key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey, content: bytes
) -> str:
    """By a party's key, of a content whose first bytes say what it is."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return f"{_ED25519} {text_of(key.sign(content))}"
    return f"{_ECDSA} {text_of(key.sign(content, _HASHED))}"


def is_signed_by_party(certificate: bytes, signature: str, content: bytes) -> bool:
    """Whether the holder of a certificate's key (DER) made a `party_signature`."""
    scheme, _, text = signature.partition(" ")
    try:
        public_key = x509.load_der_x509_certificate(certificate).public_key()
        signed = base64.b64decode(text, validate=True)
        if scheme == _ED25519 and isinstance(public_key, ed25519.Ed25519PublicKey):
            public_key.verify(signed, content)
            return True
        if scheme == _ECDSA and isinstance(public_key, ec.EllipticCurvePublicKey):
            public_key.verify(signed, content, _HASHED)
            return True
    except (InvalidSignature, UnsupportedAlgorithm, x509.InvalidVersion, ValueError):
        pass
    return False

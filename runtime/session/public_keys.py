"""Public keys of those who sign plans, as files and parties.yaml have them.

An Ed25519 public key (RFC 8032) is 32 bytes, and in text their base64 (RFC 4648, section 4): 44
characters, in the one way that these bytes are written.
"""

from __future__ import annotations

import base64
import binascii

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

KEY_BYTES = 32
SIGNATURE_BYTES = 64


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
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True

"""Who signed a plan: a line of text beside it, by a key that its author keeps.

`model.plan.sig` is `ed25519 PUBLIC_KEY SIGNATURE`, both in base64. What is signed is a label and
the plan's digest, hence all that the plan says and does: a plan that differs in anything has no
signature. It says who vouches for the plan, and nothing of what the plan is; that is verified.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.files.whole_files import PUBLIC, placed_whole
from veilgraph.ir.plan.plan import Plan
from veilgraph.runtime.session.private_keys import load_private_key
from veilgraph.runtime.session.public_keys import (
    SIGNATURE_BYTES,
    bytes_of,
    is_signed,
    text_of,
)

SUFFIX = ".sig"
SCHEME = "ed25519"
_LABEL = b"veilgraph plan signature 1\n"
_MAX_BYTES = 1 << 10


def signature_file(plan_file: Path) -> Path:
    """Where the signature of a plan's file lies.

    >>> signature_file(Path("digits.plan")).name
    'digits.plan.sig'
    """
    return plan_file.with_name(plan_file.name + SUFFIX)


def sign(plan: Plan, key_file: Path, file: Path) -> bytes:
    """Signs a plan with an author's key, and puts the line in place of what `file` held.

    Returns:
        The author's public key, 32 bytes.

    Raises:
        UsageError: a key that can't be read or is not Ed25519, or a file that can't be written.
    """
    key = load_private_key(key_file)
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(
            f"The key {key_file} is not an Ed25519 key.", "Make one: `cert author FILE`."
        )
    public_key = key.public_key().public_bytes_raw()
    line = f"{SCHEME} {text_of(public_key)} {text_of(key.sign(_signed_bytes(plan)))}\n"
    try:
        with placed_whole(file, PUBLIC) as written:
            written.write(line.encode())
    except OSError as error:
        raise UsageError(
            f"{file} can't be written: {error.strerror}.", "Choose a directory that is yours."
        ) from error
    return public_key


def signer_of(plan: Plan, file: Path) -> bytes | None:
    """The public key of who signed a plan, 32 bytes; None where no such file is.

    Raises:
        UsageError: a file that can't be read, or holds no line of that form.
        SecurityAbort: a signature of another plan, or one that was changed.
    """
    parts = _parts(file)
    if parts is None:
        return None
    public_key, signature = parts
    if not is_signed(public_key, signature, _signed_bytes(plan)):
        raise SecurityAbort(
            f"The signature {file} does not fit the plan.",
            "One of them was changed, or is of another plan: ask its author for both.",
        )
    return public_key


def require_signer(signed_by: bytes | None, wanted: bytes, file: Path) -> None:
    """SecurityAbort unless a plan is signed with the wanted key.

    Args:
        signed_by: what `signer_of` says of `file`.
    """
    if signed_by == wanted:
        return
    if signed_by is None:
        told = f"The plan is not signed: there is no {file}."
        raise SecurityAbort(told, f"Ask its author for {file.name}.")
    raise SecurityAbort(
        f"The plan is signed with another key: {text_of(signed_by)}.",
        "Compare the author's key by another way than the plan's, such as the telephone.",
    )


def _parts(file: Path) -> tuple[bytes, bytes] | None:
    """Public key and signature, as a file has them; None where there is no file."""
    try:
        with file.open("rb") as opened:
            words = opened.read(_MAX_BYTES + 1).decode("ascii").split(" ")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(
            f"The signature {file} can't be read: {error.strerror}.",
            "Give its owner's rights to it, or move it away.",
        ) from error
    except UnicodeDecodeError:
        words = []
    if len(words) == 3 and words[0] == SCHEME and words[2].endswith("\n"):
        public_key, signature = bytes_of(words[1]), bytes_of(words[2][:-1], SIGNATURE_BYTES)
        if public_key is not None and signature is not None:
            return public_key, signature
    raise UsageError(
        f"{file} is no signature of a plan.",
        f"`veilgraph sign` makes one: a line of {SCHEME}, a public key and a signature.",
    )


def _signed_bytes(plan: Plan) -> bytes:
    return _LABEL + bytes.fromhex(plan.digest)

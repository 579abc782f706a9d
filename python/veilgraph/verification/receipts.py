"""Receipts: what a party says of a session that it took part in, signed with its certificate's key.

A file of two lines: a JSON object, and a signature of a label and that line, `ed25519 SIGNATURE` or
`ecdsa-sha256 SIGNATURE` in base64. It has digests, names, times and counts, and never a value. It
is one party's word; receipts of several parties of one session can be compared. One of a request to
a service names the request, which its client computes too.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.files.whole_files import PUBLIC, placed_whole
from veilgraph.ir.plan.tables import Phase
from veilgraph.runtime.session.certificates import load_certificates
from veilgraph.runtime.session.private_keys import PrivateKey, load_private_key
from veilgraph.runtime.session.public_keys import is_signed_by_party, party_signature
from veilgraph.runtime.transcript import Transcript

_LABEL = b"veilgraph receipt 1\n"
_MAX_BYTES = 1 << 16
NO_REQUEST = ("request", "")  # left out of a receipt, as earlier versions did
Counts = Mapping[str, int]


@dataclass(frozen=True)
class Receipt:
    """What a party says of a session.

    `plan` and `session` are a digest and an id in hex; `parties` are all that took part; times are
    in ISO 8601, UTC. `inferences` counts those that ended. By phase, all runs together: rounds
    that this party took part in, and bytes of the plan's messages that it sent and received.
    `request` is that of a service which the inference answered, in hex; none of `run`.
    """

    party: str
    parties: tuple[str, ...]
    plan: str
    session: str
    inferences: int
    began: str
    ended: str
    rounds: Counts
    sent_bytes: Counts
    received_bytes: Counts
    request: str = ""


def receipt_of(
    party: str,
    parties: Sequence[str],
    plan: str,
    session: bytes,
    times: tuple[datetime, datetime],
    setup: Transcript,
    runs: Sequence[Transcript],
    request: str = "",
) -> Receipt:
    """A receipt of what transcripts counted; `times` are of the session's begin and end, UTC."""
    rounds, sent, received = ({phase.name.lower(): 0 for phase in Phase} for _ in range(3))
    for transcript in (setup, *runs):
        for phase, record in transcript.phases.items():
            name = phase.name.lower()
            rounds[name] += record.rounds
            sent[name] += sum(record.sent_bytes.values())
            received[name] += sum(record.received_bytes.values())
    began, ended = (time.isoformat(timespec="seconds") for time in times)
    ids = plan, session.hex(), len(runs)
    return Receipt(party, tuple(parties), *ids, began, ended, rounds, sent, received, request)


def write_receipt(receipt: Receipt, key_file: Path, file: Path) -> None:
    """Signs a receipt with the key of the party's certificate, and puts it in place.

    Raises:
        UsageError: a key that can't be read, or a file that can't be written.
    """
    place(signed(receipt, load_private_key(key_file)), file)


def signed(receipt: Receipt, key: PrivateKey) -> bytes:
    """The content of a receipt's file."""
    stated = {name: value for name, value in asdict(receipt).items() if (name, value) != NO_REQUEST}
    line = json.dumps(stated).encode() + b"\n"
    return line + f"{party_signature(key, _LABEL + line)}\n".encode()


def place(content: bytes, file: Path) -> None:
    """Puts what `signed` gave in place; UsageError where it can't be written."""
    try:
        with placed_whole(file, PUBLIC) as written:
            written.write(content)
    except OSError as error:
        raise UsageError(
            f"{file} can't be written: {error.strerror}.", "Choose a directory that is yours."
        ) from error


def load_receipt(file: Path, certificate_file: Path) -> Receipt:
    """A receipt that the holder of a certificate's key signed.

    Raises:
        UsageError: a file that can't be read, or is no receipt; a certificate that is none.
        SecurityAbort: a receipt that another key signed, or that was changed.
    """
    certificates = load_certificates(certificate_file)
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"The receipt {file} can't be read: {error.strerror}.", "`run --receipt` writes one."
        ) from error
    return checked(content, certificates, str(file), f"{certificate_file}'s key")


def checked(content: bytes, certificates: Sequence[bytes], what: str, whose: str) -> Receipt:
    """What a receipt says that the key of one of these certificates (DER) signed.

    Args:
        what, whose: the receipt and the key, for the sentence of an error.

    Raises:
        UsageError, SecurityAbort: as `load_receipt`.
    """
    line, signature = _lines(content, what)
    receipt = _receipt(line)
    if receipt is None or not _is_signature(signature):
        raise _no_receipt(what)
    text = signature.removesuffix("\n")
    if any(is_signed_by_party(each, text, _LABEL + line) for each in certificates):
        return receipt
    raise SecurityAbort(
        f"{whose} did not sign the receipt {what}.",
        "The receipt was changed, or is another party's: give that party's certificate.",
    )


def require_plan(receipt: Receipt, digest: str) -> None:
    """SecurityAbort unless a receipt is of a session of this plan."""
    if receipt.plan != digest:
        raise SecurityAbort(
            f"The receipt is of another plan: {receipt.plan}.", "Give that plan, or none."
        )


def _lines(content: bytes, what: str) -> tuple[bytes, str]:
    """The line that is signed, and the other."""
    lines = content.splitlines(keepends=True)
    if len(content) > _MAX_BYTES or len(lines) != 2 or not content.isascii():
        raise _no_receipt(what)
    return lines[0], lines[1].decode()


def _is_signature(line: str) -> bool:
    try:
        base64.b64decode(line.removesuffix("\n").partition(" ")[2], validate=True)
    except ValueError:
        return False
    return True


def _receipt(line: bytes) -> Receipt | None:
    """What a line says; None where it is no receipt."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    found = {NO_REQUEST[0]: NO_REQUEST[1], **found}
    if {f.name for f in fields(Receipt)} != found.keys():
        return None
    texts = ("party", "plan", "session", "began", "ended", "request")
    counts = (found["rounds"], found["sent_bytes"], found["received_bytes"])
    names = [phase.name.lower() for phase in Phase]
    is_well_formed = (
        all(isinstance(found[name], str) for name in texts)
        and isinstance(found["parties"], list)
        and all(isinstance(name, str) for name in found["parties"])
        and type(found["inferences"]) is int
        and all(isinstance(each, dict) and list(each) == names for each in counts)
        and all(type(number) is int for each in counts for number in each.values())
    )
    return Receipt(**found | {"parties": tuple(found["parties"])}) if is_well_formed else None


def _no_receipt(what: str) -> UsageError:
    return UsageError(f"{what} is no receipt.", "`run --receipt FILE` writes one.")

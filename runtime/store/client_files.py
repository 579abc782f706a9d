"""Files of clients that are offline: shares of their inputs, a file a party, and parts of answers.

A client splits each input into as many uniform parts as parties compute, whose sum it is, and gives
each party a file with one. A party gives back a file with its part of each output. Both are shares
at rest (at_rest.py), mode 0600: encrypted to the certificate of who is to read them, bound to the
plan's digest, the reader and the sharing's id, which all files of one sharing have in common. That
encryption says nothing about who wrote a file: the writer's certificate lies inside, with a
signature of all that the file says.

What a party sends others of such a part hides it: see `answer` in serving/offline.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from veilgraph.ir.errors import SecurityAbort, UsageError, VeilgraphError
from veilgraph.ir.plan.tables import Tensor
from veilgraph.runtime.encoding import Words, word_dtype
from veilgraph.runtime.session.certificates import is_certificate, load_certificate
from veilgraph.runtime.session.private_keys import load_private_key
from veilgraph.runtime.session.public_keys import is_signed_by_party, party_signature
from veilgraph.runtime.store.at_rest import (
    PUBLIC_KEY,
    AtRest,
    Part,
    header_of,
    lock_of,
    read_at_rest,
    whole,
    write_at_rest,
)
from veilgraph.runtime.store.certificate_locks import lock_of_own, lock_to

INPUT, ANSWER = "clientinput", "clientanswer"
_LABEL = b"veilgraph file of a client 1\0"
_FACTS, _CERTIFICATE, _SIGNATURE, _ARRAY = "facts", "certificate", "signature", "array/"
_HINTS = {
    INPUT: "Give the file that `share` wrote for this party, all of one sharing.",
    ANSWER: "Give the files that the parties wrote for this client, all of one sharing.",
}


@dataclass(frozen=True)
class ClientFile:
    """A file of one of both kinds.

    Attributes:
        kind: INPUT or ANSWER.
        reader: the party, or the role, that is to read it.
        plan: digest, in hex.
        sharing: the id of the sharing, 32 bytes.
        facts: what else it says, as JSON has it: the client's role and, by kind, whom it names for
            other roles, or which party wrote it.
        part: which one of how many it holds of each array.
        words: flat, by name of the input or output.
        number: of the inference, in an ANSWER; 0 in an INPUT.
        writer: the certificate (DER) whose key signed it.
    """

    kind: str
    reader: str
    plan: str
    sharing: bytes
    facts: Mapping[str, Any]
    part: tuple[int, int]
    words: Mapping[str, Words]
    number: int = 0
    writer: bytes = b""

    @property
    def _header(self) -> AtRest:
        return AtRest(self.kind, self.reader, bytes.fromhex(self.plan), self.sharing, self.number)

    def save(
        self, path: Path, to: bytes, tensors: Sequence[Tensor], key: Path, certificate: Path
    ) -> None:
        """Signs the file, encrypts it to a certificate, and puts it in place.

        Args:
            to: the reader's certificate, DER.
            tensors: of the words.
            key, certificate: the writer's PEM files.

        Raises:
            UsageError: a place that can't be written to, or a certificate that can't be used.
            ResourceLimitError: no room.
        """
        writer = load_certificate(certificate)
        facts = json.dumps(self.facts, sort_keys=True).encode()
        arrays = [
            Part(_ARRAY + t.name, self.part, t.ring_bits, self.words[t.name]) for t in tensors
        ]
        signed = _signed(self._header, facts, writer, arrays)
        signature = party_signature(load_private_key(key), signed).encode()
        said = [whole(_FACTS, facts), whole(_CERTIFICATE, writer), whole(_SIGNATURE, signature)]
        write_at_rest(path, self._header, [*said, *arrays], lock_to(to))

    def require_words(self, path: Path, tensors: Sequence[Tensor]) -> None:
        """UsageError unless the file has the words of these inputs or outputs, and no others."""
        forms = {t.name: (t.elements, word_dtype(t.ring_bits)) for t in tensors}
        if {name: (len(each), each.dtype) for name, each in self.words.items()} != forms:
            raise UsageError(
                f"{path} holds other inputs or outputs than the plan has.", _HINTS[self.kind]
            )


def load_client_file(
    path: Path, kind: str, plan: str, reader: str, key: Path, number: int | None = 0
) -> ClientFile:
    """A file that was written for this reader, with whose certificate's key it is signed.

    Args:
        plan: digest, in hex.
        key: the reader's private key, a PEM file.
        number: of the inference; any if None.

    Raises:
        UsageError: no such file, or none of this kind.
        SecurityAbort: a file for another plan, reader or key, or one that was changed or cut short.
    """
    try:
        found = header_of(path)
        last = found.number if number is None else number
        expected = AtRest(kind, reader, bytes.fromhex(plan), found.session, last)
        how, ephemeral = lock_of(path)
        if how != PUBLIC_KEY:
            raise SecurityAbort(f"{path} is not encrypted to anybody.")
        lock = lock_of_own(load_private_key(key), ephemeral)
        parts = list(read_at_rest(path, expected, lock))
    except VeilgraphError as error:
        raise type(error)(error.message, _HINTS[kind]) from error
    except ValueError as error:  # an ephemeral key of small order
        raise _changed(path, kind) from error
    return _opened(path, expected, parts)


def _opened(path: Path, header: AtRest, parts: Sequence[Part]) -> ClientFile:
    said = {each.name: each.array.tobytes() for each in parts[:3]}
    arrays = parts[3:]
    if [*said] != [_FACTS, _CERTIFICATE, _SIGNATURE]:
        raise _changed(path, header.kind)
    writer, signature = said[_CERTIFICATE], said[_SIGNATURE].decode("ascii", "replace")
    try:
        facts = json.loads(said[_FACTS])
    except (ValueError, RecursionError) as error:
        raise _changed(path, header.kind) from error
    content = _signed(header, said[_FACTS], writer, arrays)
    places = {each.part for each in arrays}
    if (
        not (is_certificate(writer) and is_signed_by_party(writer, signature, content))
        or not isinstance(facts, dict)
        or len(places) > 1
        or not all(each.name.startswith(_ARRAY) for each in arrays)
        or not all(each.array.dtype == word_dtype(each.bits) for each in arrays)
    ):
        raise _changed(path, header.kind)
    found = ClientFile(
        *(header.kind, header.party, header.binding.hex(), header.session, facts),
        next(iter(places), (0, 1)),
        {each.name.removeprefix(_ARRAY): each.array.reshape(-1) for each in arrays},
    )
    return replace(found, number=header.number, writer=writer)


def _changed(path: Path, kind: str) -> SecurityAbort:
    return SecurityAbort(f"{path} is not as whoever signed it wrote it.", _HINTS[kind])


def _signed(header: AtRest, facts: bytes, writer: bytes, arrays: Sequence[Part]) -> bytes:
    """What a writer signs: all that a file says, each piece behind its length or of one length."""
    hashed = hashlib.sha256()
    texts = header.kind.encode(), header.party.encode(), header.binding, header.session
    number = header.number.to_bytes(8, "little")
    for piece in (*texts, number, facts, writer):
        hashed.update(len(piece).to_bytes(8, "little") + piece)
    for each in arrays:
        form = json.dumps([each.name, each.part, each.bits, each.array.shape]).encode()
        words = each.array.astype(each.array.dtype.newbyteorder("<")).tobytes()
        for piece in (form, words):
            hashed.update(len(piece).to_bytes(8, "little") + piece)
    return _LABEL + hashed.digest()

"""A share file of an offline client: damaged outside, in its encryption, and under a signature.

Anybody may encrypt to a party's certificate, and a client that a party knows may sign anything.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from veilgraph.plans import Plan
from veilgraph.runtime.encoding import word_dtype
from veilgraph.runtime.session import certificates
from veilgraph.runtime.session.certificates import load_certificate
from veilgraph.runtime.session.private_keys import load_private_key
from veilgraph.runtime.session.public_keys import party_signature
from veilgraph.runtime.store.at_rest import Part, _head, _read_head, whole, write_to
from veilgraph.runtime.store.certificate_locks import lock_of_own, lock_to
from veilgraph.runtime.store.client_files import INPUT, ClientFile, _signed, load_client_file
from veilgraph.runtime.store.sealed_chunks import ChunkKeys, ChunkReader, ChunkWriter
from veilgraph.serving.offline import _require_others

READER, WRITER = "alice", "patient"


class SharedFile:
    """Written by a client of a plan for a party.

    Attributes:
        content: of the file.
        inner: of its chunks, once they are decrypted.
        facts: that it says, under the client's signature.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._path, self._plan = folder / "a.share", plan
        self._reader = certificates.init(folder, READER)
        self._writer = certificates.init(folder, WRITER)
        self._to = load_certificate(self._reader.certificate)
        self._inputs = plan.party(WRITER).inputs
        words = {t.name: np.zeros(t.elements, word_dtype(t.ring_bits)) for t in self._inputs}
        said = {"role": WRITER, "others": {}}
        file = ClientFile(INPUT, READER, plan.digest, bytes(32), said, (0, 3), words)
        file.save(self._path, self._to, self._inputs, self._writer.key, self._writer.certificate)
        self._header, self.content = file._header, self._path.read_bytes()
        self.inner = self._decrypted()
        self.facts = json.dumps(
            {"others": {WRITER: [self._writer.fingerprint]}, "role": WRITER}
        ).encode()
        self._arrays = [
            Part(f"array/{t.name}", (0, 3), t.ring_bits, words[t.name]) for t in self._inputs
        ]

    def _decrypted(self) -> bytes:
        with self._path.open("rb") as file:
            head = _read_head(file, self._path)
            lock = lock_of_own(load_private_key(self._reader.key), head.ephemeral)
            reader = ChunkReader(file, self._path, ChunkKeys.of(lock.key, head.raw))
            return reader.read(reader.left)

    def load(self, content: bytes) -> ClientFile:
        self._path.write_bytes(content)
        return self._loaded()

    def load_sealed(self, inner: bytes) -> ClientFile:
        """Of what somebody encrypted to the party's certificate."""
        lock = lock_to(self._to)
        head = _head(self._header, lock)
        with self._path.open("wb") as file:
            file.write(head)
            chunks = ChunkWriter(file, ChunkKeys.of(lock.key, head))
            chunks.write(memoryview(inner))
            chunks.finish()
        return self._loaded()

    def load_signed(self, facts: bytes) -> None:
        """Of what a client that the party knows signed; read as `answer` does."""
        writer = load_certificate(self._writer.certificate)
        signed = _signed(self._header, facts, writer, self._arrays)
        signature = party_signature(load_private_key(self._writer.key), signed).encode()
        said = [whole("facts", facts), whole("certificate", writer), whole("signature", signature)]
        with self._path.open("wb") as file:
            write_to(file, self._header, [*said, *self._arrays], lock_to(self._to))
        found = self._loaded()
        found.require_words(self._path, self._inputs)
        role = str(found.facts.get("role"))
        _require_others(role, found, {role: found})

    def _loaded(self) -> ClientFile:
        return load_client_file(self._path, INPUT, self._plan.digest, READER, self._reader.key)

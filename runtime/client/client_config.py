"""A client's parties.yaml: the parties as they list themselves, and the client's own key.

    parties:
      - {name: alice, host: 10.0.0.1, port: 7001, certificate: alice.crt}
      - {name: bob, host: bob.example, port: 7001, certificate: bob.crt}
    me:
      name: patient                   # none of them
      key: patient.key                # mode 0600; or key_command: [...], which prints it
      certificate: patient.crt        # the one that each party has enrolled
    timeout_seconds: 60               # optional: how long to wait for an answer

A party that only deals may be left out. Paths are relative to the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from veilgraph.ir.errors import UsageError
from veilgraph.runtime.session.certificates import load_certificate, load_certificates
from veilgraph.runtime.session.config import MAX_PARTIES, TIMEOUT_SECONDS
from veilgraph.runtime.session.private_keys import KeyFile, load_private_key
from veilgraph.runtime.session.sections import Keys, Section, read_yaml

_TOP_KEYS = Keys(
    frozenset({"parties", "me"}), frozenset({"timeout_seconds", "least_bytes_per_second"})
)
_PARTY_KEYS = Keys(frozenset({"name", "host", "port", "certificate"}))
_ME_KEYS = Keys(frozenset({"name", "certificate"}), frozenset({"key", "key_command"}))


@dataclass(frozen=True)
class Address:
    """A party to ask; it is accepted with one of `certificates` (DER), and with no other."""

    name: str
    host: str
    port: int
    certificates: tuple[bytes, ...]


@dataclass(frozen=True)
class ClientConfig:
    """A client's parties.yaml, checked; `key` and `certificate` are its PEM files.

    `held` keeps a key that a command printed for as long as this lives.
    """

    parties: tuple[Address, ...]
    name: str
    key: Path
    certificate: Path
    timeout_seconds: float = TIMEOUT_SECONDS
    held: KeyFile | None = field(default=None, repr=False, compare=False)

    @staticmethod
    def load(path: Path) -> ClientConfig:
        """Reads and checks the file, and the files that it names.

        Raises:
            UsageError: whatever is missing, unknown, malformed or unreadable, with file and key.
        """
        try:
            return _config(Section(path.parent, "", read_yaml(path), _TOP_KEYS))
        except UsageError as error:
            raise UsageError(f"{path}: {error.message}", error.hint) from error


def _config(top: Section) -> ClientConfig:
    listed = top.values["parties"]
    if not isinstance(listed, list) or not 2 <= len(listed) <= MAX_PARTIES:
        raise top.wrong("parties", f"a list of 2 to {MAX_PARTIES} parties")
    parties = []
    for i, each in enumerate(listed):
        section = Section(top.folder, f"parties[{i}]", each, _PARTY_KEYS)
        found = load_certificates(section.file("certificate"))
        name, host, port = section.text("name"), section.text("host"), section.port("port")
        parties.append(Address(name, host, port, found))
    if len({party.name for party in parties}) < len(parties):
        raise top.wrong("parties", "a list of parties with different names")
    me = Section(top.folder, "me", top.values["me"], _ME_KEYS)
    if me.text("name") in {party.name for party in parties}:
        raise me.wrong("name", "the client's, which is none of the parties")
    key, certificate = KeyFile.of(me), me.file("certificate")
    load_private_key(key.path)
    load_certificate(certificate)
    given = "timeout_seconds" in top.values
    seconds = top.seconds("timeout_seconds") if given else TIMEOUT_SECONDS
    return ClientConfig(tuple(parties), me.text("name"), key.path, certificate, seconds, key)

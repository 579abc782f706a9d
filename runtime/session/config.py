"""parties.yaml: who takes part, where each listens, which certificate each shows, and who I am.

    parties:                          # in the plan's order
      - {name: alice, host: 10.0.0.1, port: 7001, certificate: alice.crt}
      - {name: bob, host: bob.example, port: 7001, certificate: bob.crt}
      - {name: carol, host: 10.0.0.3, port: 7001, fingerprint: 9f86d081...}   # SHA-256 in hex
                                      # two of them, as [.., ..] or in one file: either is accepted
    me:
      name: alice
      key: alice.key                  # mode 0600; or key_command: [...], which prints it
      certificate: alice.crt          # optional: as the list above has it
      state_dir: state                # sessions so far, and where stores stand
      listen: 0.0.0.0                 # optional: where to listen, if not at my host above
      device: cuda:0                  # optional: where to compute; cpu if left out
      cubins: cubins                  # optional: a folder of the GPU's kernels, compiled ahead
      clients: clients                # optional: a folder of certificates, NAME.crt, that may ask
      rows_a_day: 1000                # optional: of each of them; any number if left out
    timeout_seconds: 60               # optional: how long to wait for a silent peer
    least_bytes_per_second: 62500     # optional: how slow a link may be after that
    authors: ...                      # optional, and so is the next: consent.py
    consent: ...

The part `parties` is the same for everyone, `me` is each party's own. Paths are relative to the
file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from veilgraph.ir.errors import UsageError
from veilgraph.runtime.session.certificates import (
    MOST_CERTIFICATES,
    check_party_name,
    fingerprint,
    load_certificate,
    load_certificates,
)
from veilgraph.runtime.session.consent import Consent, authors_of, consent_of
from veilgraph.runtime.session.private_keys import KeyFile, load_private_key
from veilgraph.runtime.session.sections import MAX_SECONDS, Keys, Section, read_yaml

TIMEOUT_SECONDS = 60.0
# Half a megabit a second, of one link: two links share an uplink of one megabit, the slowest line
# that an office has. A round of a megabyte then takes 16 seconds, one of 100 MB half an hour.
LEAST_BYTES_PER_SECOND = 62_500.0
MAX_PARTIES = 16
MOST_A_DAY = 1_000_000_000  # requests
_RECORD_BYTES = 1 << 14  # the most that one TLS record holds
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class PartyAddress:
    """One party as the others know it.

    `fingerprints` are the SHA-256 of its certificates (32 bytes each), which alone a link accepts:
    one, or two while one takes the other's place. `certificates` are the certificates themselves
    (DER), in the same order, where the file gives more than fingerprints.
    """

    name: str
    host: str
    port: int
    fingerprints: tuple[bytes, ...]
    certificates: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Config:
    """A parties.yaml, checked: all parties in order, and what is my own.

    `party` is my index in `parties`; `key` and `certificate` are my PEM files; `listen` is the host
    to listen at; `timeout_seconds` is how long a peer may be silent, and with its bytes at
    `least_bytes_per_second` how long a round with it may take; `absent` are known parties that take
    no part in this session, and `unlinked` names those that do without a link to me; `device` and
    `cubins` are as in devices.ready; `clients` is a folder of certificates that may ask a service,
    each about so many rows in a day at most;
    `held` keeps a key that a command printed for as long as this lives;
    `authors` has public keys by name, and `consent` which plans are accepted, any if None.
    """

    parties: tuple[PartyAddress, ...]
    party: int
    key: Path
    certificate: Path
    state_dir: Path
    listen: str
    timeout_seconds: float = TIMEOUT_SECONDS
    least_bytes_per_second: float = LEAST_BYTES_PER_SECOND
    absent: tuple[PartyAddress, ...] = ()
    unlinked: frozenset[str] = frozenset()
    device: str = "cpu"
    cubins: Path | None = None
    clients: Path | None = None
    rows_a_day: int | None = None
    authors: Mapping[str, bytes] = field(default_factory=dict)
    consent: tuple[Consent, ...] | None = None
    held: KeyFile | None = field(default=None, repr=False, compare=False)

    @property
    def me(self) -> PartyAddress:
        return self.parties[self.party]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(party.name for party in self.parties)

    def without(self, names: Collection[str]) -> Config:
        """The same, for a session in which some of the others take no part.

        Raises:
            UsageError: it is this party that takes no part.
        """
        if self.me.name in names:
            raise UsageError(
                f"{self.me.name} takes no part in the online phase.",
                "Its work is done: start the others.",
            )
        parties = tuple(party for party in self.parties if party.name not in names)
        absent = tuple(party for party in self.parties if party.name in names)
        return replace(self, parties=parties, party=parties.index(self.me), absent=absent)

    @property
    def peers(self) -> frozenset[int]:
        """The parties that I have a link to, by index."""
        others = enumerate(self.names)
        return frozenset(i for i, n in others if i != self.party and n not in self.unlinked)

    def linked_with(self, names: Collection[str]) -> Config:
        """The same, with links to some of the others alone."""
        others = frozenset(self.names) - {self.me.name}
        assert others >= frozenset(names), "a link to a party that there is not"
        return replace(self, unlinked=others - frozenset(names))

    def waiting(self, seconds: float | None) -> Config:
        """The same, with another timeout where one is given.

        Raises:
            UsageError: as for the file's.
        """
        if seconds is None:
            return self
        if not 0 < seconds <= MAX_SECONDS:  # nor NaN
            raise UsageError(
                f"The timeout must be a number of seconds above 0, at most {MAX_SECONDS}, not "
                f"{seconds:g}.",
                "Leave it out: parties.yaml has one for all runs.",
            )
        return _patient(replace(self, timeout_seconds=seconds))

    @staticmethod
    def load(path: Path) -> Config:
        """Reads and checks a parties.yaml and the files that it names.

        Raises:
            UsageError: whatever is missing, unknown, malformed or unreadable, with file and key.
        """
        try:
            return _config(Section(path.parent, "", read_yaml(path), _TOP_KEYS))
        except UsageError as error:
            raise UsageError(f"{path}: {error.message}", error.hint) from error

    def for_parties(self, names: Sequence[str]) -> Config:
        """The same, with exactly the parties of a plan, in the plan's order.

        Raises:
            UsageError: a party of the plan that is not in the file, or the other way round.
        """
        if sorted(names) != sorted(self.names):
            raise UsageError(
                f"The plan is for {', '.join(names)}; parties.yaml lists {', '.join(self.names)}.",
                "List the plan's parties, or compile with `--parties`.",
            )
        by_name = {party.name: party for party in self.parties}
        parties = tuple(by_name[name] for name in names)
        return replace(self, parties=parties, party=parties.index(self.me))


_TOP_KEYS = Keys(
    frozenset({"parties", "me"}),
    frozenset({"timeout_seconds", "least_bytes_per_second", "authors", "consent"}),
)
_PARTY_KEYS = Keys(frozenset({"name", "host", "port"}), frozenset({"certificate", "fingerprint"}))
_ME_KEYS = Keys(
    frozenset({"name", "state_dir"}),
    frozenset({"key", "key_command", "certificate"})
    | frozenset({"listen", "device", "cubins", "clients", "rows_a_day"}),
)


def _config(top: Section) -> Config:
    listed = top.values["parties"]
    if not isinstance(listed, list) or not 2 <= len(listed) <= MAX_PARTIES:
        raise top.wrong("parties", f"a list of 2 to {MAX_PARTIES} parties")
    sections = [
        Section(top.folder, f"parties[{i}]", each, _PARTY_KEYS) for i, each in enumerate(listed)
    ]
    parties = tuple(_party(section) for section in sections)
    _check_distinct(parties)
    me = Section(top.folder, "me", top.values["me"], _ME_KEYS)
    names = [party.name for party in parties]
    if me.text("name") not in names:
        raise me.wrong("name", f"one of {', '.join(names)}")
    index = names.index(me.text("name"))
    key = KeyFile.of(me)
    authors = authors_of(top)
    config = Config(
        parties=parties,
        party=index,
        key=key.path,
        held=key,
        certificate=_own_certificate(me, key.path, sections[index], parties[index]),
        state_dir=me.file("state_dir"),
        listen=me.text("listen") if "listen" in me.values else parties[index].host,
        timeout_seconds=(
            top.seconds("timeout_seconds") if "timeout_seconds" in top.values else TIMEOUT_SECONDS
        ),
        least_bytes_per_second=(
            top.bytes_per_second("least_bytes_per_second")
            if "least_bytes_per_second" in top.values
            else LEAST_BYTES_PER_SECOND
        ),
        clients=me.file("clients") if "clients" in me.values else None,
        rows_a_day=(me.count("rows_a_day", MOST_A_DAY) if "rows_a_day" in me.values else None),
        device=me.text("device") if "device" in me.values else "cpu",
        cubins=me.file("cubins") if "cubins" in me.values else None,
        authors=authors,
        consent=consent_of(top, authors),
    )
    return _patient(config)


def _patient(config: Config) -> Config:
    """The same, once a record of the slowest link allowed comes within the timeout."""
    # What a link tells apart from silence is a whole record: bytes of one that is not complete are
    # with TLS, which can't say whose they are before its end.
    rate = config.least_bytes_per_second
    if rate * config.timeout_seconds < _RECORD_BYTES:
        raise UsageError(
            f"At least_bytes_per_second, {rate:g}, a record of {_RECORD_BYTES} bytes takes longer "
            f"than the timeout, {config.timeout_seconds:g} seconds.",
            "Wait longer, or ask for more bytes a second.",
        )
    return config


def _party(section: Section) -> PartyAddress:
    name = check_party_name(section.text("name"))
    host, port = section.text("host"), section.port("port")
    if ("certificate" in section.values) == ("fingerprint" in section.values):
        raise UsageError(
            f"{section.where} must have either `certificate` or `fingerprint`.",
            f"Pin the certificate that {name} made with `veilgraph cert init`.",
        )
    if "certificate" in section.values:
        found = load_certificates(section.file("certificate"))
        return PartyAddress(name, host, port, tuple(map(fingerprint, found)), found)
    return PartyAddress(name, host, port, _fingerprints(section))


def _fingerprints(section: Section) -> tuple[bytes, ...]:
    given = section.values["fingerprint"]
    listed = given if isinstance(given, list) else [given]
    digits = [str(each).replace(":", "").lower() for each in listed]
    if not 1 <= len(digits) <= MOST_CERTIFICATES or not all(map(_FINGERPRINT.fullmatch, digits)):
        raise section.wrong(
            "fingerprint", "a SHA-256 of 64 hex digits, or two of them", "`cert init` prints it."
        )
    return tuple(map(bytes.fromhex, digits))


def _check_distinct(parties: Sequence[PartyAddress]) -> None:
    """No two parties have one name, address, certificate or, where it is known, key."""
    for what in ("name", "address", "certificate", "key"):
        seen: dict[object, str] = {}
        for i, party in enumerate(parties):
            known: dict[str, set[object]] = {
                "name": {party.name},
                "address": {(party.host, party.port)},
                "certificate": set(party.fingerprints),
                "key": set(map(_public_key, party.certificates)),
            }
            values = known[what]
            if taken := values & seen.keys():
                raise UsageError(
                    f"parties[{i}] ({party.name}) has the same {what} as {seen[taken.pop()]}.",
                    f"Every party has its own {what}.",
                )
            seen |= dict.fromkeys(values, party.name)


def _public_key(certificate: bytes) -> bytes:
    """What a certificate (DER) certifies."""
    key = x509.load_der_x509_certificate(certificate).public_key()
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _own_certificate(me: Section, own: Path, listed: Section, party: PartyAddress) -> Path:
    """My certificate's file, once it is what the others pin and fits my key."""
    section = me if "certificate" in me.values else listed
    if "certificate" not in section.values:
        raise UsageError(
            "me.certificate is missing, and the list only has a fingerprint of it.",
            "Add `certificate: FILE` under `me`.",
        )
    path = section.file("certificate")
    der = load_certificate(path)
    if fingerprint(der) not in party.fingerprints:
        raise UsageError(
            f"me.certificate is another than the one listed for {party.name}.",
            "The others would refuse it: list the certificate that you use.",
        )
    key = load_private_key(own)
    if x509.load_der_x509_certificate(der).public_key() != key.public_key():
        raise UsageError(
            f"me.key and the certificate {path} don't belong together.",
            "Give the .key and .crt files of one `cert init`.",
        )
    return path

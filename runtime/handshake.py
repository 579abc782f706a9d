"""How parties make sure that they run the same thing, once, and agree on fresh keys.

Over each fresh link, all to all:

1. hello: protocol version, parties, ring, plan digest, number of inferences, whether they are a
   store's, and a fresh nonce; they must fit.
2. The session's id is the SHA-256 of all nonces in the parties' order and the plan's digest. Each
   party records it as spent, and says so; the ids must be the same, and new everywhere. It also
   says which dealing its shares of the weights are of, if it has any: they must be of one.
3. The lower party of each pair sends the pair's fresh seed.

Whoever finds a difference stops with SecurityAbort, which names who has what.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from veilgraph.ir.errors import SecurityAbort
from veilgraph.runtime.links import Links
from veilgraph.runtime.randomness import (
    NONCE_BYTES,
    SEED_BYTES,
    SessionKeys,
    fresh_nonce,
    fresh_seed,
)
from veilgraph.runtime.session_ids import SpentSessions

PROTOCOL_VERSION = 3
MAX_INFERENCES = (1 << 32) - 1  # of a session: draws count them in four bytes
_NAMES_BYTES = 511  # 16 names of at most 31 letters, with their commas
# version, my index, ring bits, inferences; plan digest; nonce; from a store; names. The version
# stays in front and the whole as long as it is, so that all versions can tell each other apart.
_HELLO = struct.Struct(f"<HBBI32s{NONCE_BYTES}sB{_NAMES_BYTES}s")
NO_DEALING = bytes(NONCE_BYTES)
# 1 if the session's id is new here; that id; the dealing's.
_CONFIRMATION = struct.Struct(f"<B32s{NONCE_BYTES}s")


@dataclass(frozen=True)
class Session:
    """What the parties agreed on: an id that is used once (32 bytes), and this party's keys."""

    id: bytes
    keys: SessionKeys


@dataclass(frozen=True)
class Terms:
    """What this party is about to run; all parties must say the same.

    Args:
        plan_digest: SHA-256 of the plan, 32 bytes.
        ring_bits: width of the plan's widest ring.
        inferences: that the session is for, at most MAX_INFERENCES; 0 where that is left open.
        from_store: whether their offline phases were run before.
        dealing: id of the dealing of which this party loads its shares of the weights; NO_DEALING
            if it loads none, and then it is not compared.
    """

    plan_digest: bytes
    ring_bits: int
    inferences: int = 0
    from_store: bool = False
    dealing: bytes = NO_DEALING


@dataclass(frozen=True)
class _Hello:
    version: int
    party: int
    terms: Terms
    nonce: bytes
    names: str

    def pack(self) -> bytes:
        terms = self.terms
        assert len(terms.plan_digest) == 32
        assert len(self.nonce) == NONCE_BYTES
        assert len(self.names) <= _NAMES_BYTES
        head = (self.version, self.party, terms.ring_bits, terms.inferences, terms.plan_digest)
        return _HELLO.pack(*head, self.nonce, terms.from_store, self.names.encode())

    @staticmethod
    def unpack(content: bytes) -> _Hello:
        version, party, ring_bits, inferences, digest, nonce, stored, names = _HELLO.unpack(content)
        read = names.rstrip(b"\0").decode("ascii", "replace")
        listed = "".join(c if c.isprintable() else "?" for c in read)  # it may reach a terminal
        terms = Terms(digest, ring_bits, inferences, bool(stored))
        return _Hello(version, party, terms, nonce, listed)

    def difference(self, other: _Hello, peer: int) -> str:
        """What keeps `other`, the hello of party `peer`, from fitting mine; empty if nothing."""
        my, their = self.terms, other.terms
        rows = (
            ("veilgraph's protocol in version", self.version, other.version),
            ("with", _source(my), _source(their)),
            ("a session of the parties", self.names, other.names),
            ("a plan with the digest", my.plan_digest.hex(), their.plan_digest.hex()),
            ("a ring with this many bits:", my.ring_bits, their.ring_bits),
            ("as party number", peer, other.party),
        )
        for what, mine, theirs in rows:
            if mine != theirs:
                return f"runs {what} {theirs}, and this party expects {mine}"
        if my.inferences != their.inferences:
            return f"runs {_counted(their)}, and this party expects {my.inferences or _OPEN}"
        return ""


_OPEN = "an open number"


def _source(terms: Terms) -> str:
    return "a store" if terms.from_store else "no store"


def _counted(terms: Terms) -> str:
    noun = "inference" if terms.inferences == 1 else "inferences"
    return f"{terms.inferences or f'{_OPEN} of'} {noun}"


def open_session(links: Links, terms: Terms, spent: SpentSessions | None) -> Session:
    """Agrees with all parties on a session, then starts the links' byte counters anew.

    Args:
        links: fresh links to all parties.
        terms: what this party is about to run.
        spent: where ids of sessions are kept; None only where all parties are one process, so that
            nobody else takes part.

    Raises:
        SecurityAbort: versions, parties, terms, ids or dealings that differ, or an id used before.
        PeerError: a peer that is lost or silent.
    """
    session_id = agree_on_id(links, terms, fresh_nonce())
    confirm_id(links, session_id, spent, terms.dealing)
    keys = exchange_seeds(links)
    links.reset_counters()
    return Session(session_id, keys)


def agree_on_id(links: Links, terms: Terms, nonce: bytes) -> bytes:
    """Compares hellos with every peer; the session's id, 32 bytes, from everyone's nonces."""
    names = ",".join(links.names)
    mine = _Hello(PROTOCOL_VERSION, links.party, terms, nonce, names)
    received = _all_to_all(links, mine.pack(), _HELLO.size, "handshake: hello")
    hellos = {peer: _Hello.unpack(content) for peer, content in received.items()}
    differences = [
        f"{links.names[peer]} {difference}"
        for peer, hello in hellos.items()
        if (difference := mine.difference(hello, peer))
    ]
    if differences:
        raise SecurityAbort(
            f"The parties don't fit together: {'; '.join(differences)}.",
            "Give every party the same model.plan, parties.yaml, options and version of veilgraph.",
        )
    hellos[links.party] = mine
    nonces = b"".join(hellos[party].nonce for party in sorted(hellos))
    return hashlib.sha256(nonces + terms.plan_digest).digest()


def confirm_id(
    links: Links, session_id: bytes, spent: SpentSessions | None, dealing: bytes = NO_DEALING
) -> None:
    """Records the id as spent, and makes sure that everyone has the same one for the first time.

    And that whoever loads shares of weights has them of the same dealing.
    """
    new = spent is None or spent.spend(session_id)
    mine = _CONFIRMATION.pack(new, session_id, dealing)
    received = _all_to_all(links, mine, _CONFIRMATION.size, "handshake: session id")
    if not new:
        raise _replayed("this party", session_id)
    for peer, content in received.items():
        their_new, their_id, their_dealing = _CONFIRMATION.unpack(content)
        if their_id != session_id:
            raise SecurityAbort(
                f"{links.names[peer]} is in session {their_id.hex()[:16]}..., this party in "
                f"{session_id.hex()[:16]}....",
                "A party sent different nonces to different parties; don't go on with it.",
            )
        if not their_new:
            raise _replayed(links.names[peer], session_id)
        if their_dealing != dealing and NO_DEALING not in (their_dealing, dealing):
            raise SecurityAbort(
                f"{links.names[peer]} has shares of the weights from another dealing than this "
                "party.",
                "Give every party the file that one run of `compile` wrote for it.",
            )


def exchange_seeds(links: Links) -> SessionKeys:
    """One fresh seed a pair, sent by its lower party, and one of my own that nobody else sees."""
    peers = [peer for peer in range(len(links.names)) if peer != links.party]
    sent = {peer: fresh_seed() for peer in peers if peer > links.party}
    received = {peer: bytearray(SEED_BYTES) for peer in peers if peer < links.party}
    links.exchange(sent, received, "handshake: seeds")
    pairs = sent | {peer: bytes(seed) for peer, seed in received.items()}
    return SessionKeys(links.party, fresh_seed(), pairs)


def _all_to_all(links: Links, mine: bytes, size: int, step: str) -> dict[int, bytes]:
    received = {peer: bytearray(size) for peer in range(len(links.names)) if peer != links.party}
    links.exchange(dict.fromkeys(received, mine), received, step)
    return {peer: bytes(content) for peer, content in received.items()}


def _replayed(who: str, session_id: bytes) -> SecurityAbort:
    return SecurityAbort(
        f"Session {session_id.hex()[:16]}... is a replay: {who} has taken part in it before.",
        "Don't run copies of one virtual machine: their randomness may repeat.",
    )

"""How parties make sure that they run the same thing, once, and agree on fresh keys.

Over each fresh link, all to all:

1. hello: protocol version, parties, ring, plan digest, number of inferences, whether they are a
   store's, and a fresh nonce; they must fit.
2. The session's id is the SHA-256 of all nonces in the parties' order and the plan's digest. Each
   party records it as spent, and its peers' nonces, and says which it has seen before; the ids must
   be the same, and all be new everywhere. It also says which dealing its shares of the weights are
   of, if it has any, which must be the same. Who has states says from where they may come, newest
   first: all begin from the first of them that all have.
3. All holders of a key contribute to it, and derive it; see keys.py.

Whoever finds a difference stops with SecurityAbort, which names who has what.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from veilgraph.ir.errors import SecurityAbort
from veilgraph.runtime.links.links import Links
from veilgraph.runtime.randomness import NONCE_BYTES, fresh_nonce
from veilgraph.runtime.session.keys import (
    SECRET_BYTES,
    Holders,
    SessionKeys,
    contribution,
    in_order,
    key_of,
)
from veilgraph.runtime.session.session_ids import SpentSessions, record_of

PROTOCOL_VERSION = 7
MAX_INFERENCES = (1 << 32) - 1  # of a session: draws count them in four bytes
_NAMES_BYTES = 511  # 16 names of at most 31 letters, with their commas
# version, my index, ring bits, inferences; plan digest; nonce; from a store; names. The version
# stays in front and the whole as long as it is, so that all versions can tell each other apart.
_HELLO = struct.Struct(f"<HBBI32s{NONCE_BYTES}sB{_NAMES_BYTES}s")
NO_DEALING = bytes(NONCE_BYTES)
# What stands in place of a plan's digest where parties run none, and measure their links.
MEASUREMENT = hashlib.sha256(b"veilgraph: links are measured").digest()
# 1 if the session's id is new here; parties, by bit, whose nonces are not; that id; the dealing's;
# then from where states may come: kind, session and number of each, and kind 0 for none.
MOST_ORIGINS = 2
_ORIGIN = "B32sQ"
_CONFIRMATION = struct.Struct(f"<BH32s{NONCE_BYTES}s{_ORIGIN * MOST_ORIGINS}")


@dataclass(frozen=True)
class Session:
    """What the parties agreed on.

    Attributes:
        id: used once, 32 bytes.
        keys: this party's.
        origin: of the states, where this party has some.
    """

    id: bytes
    keys: SessionKeys
    origin: Origin


@dataclass(frozen=True)
class Origin:
    """Where a party's states come from; kind 0: it has none.

    From zero (kind 1), or from a file (kind 2) that was saved after run `number` of `session`.
    """

    kind: int = 0
    session: bytes = bytes(32)
    number: int = 0

    @staticmethod
    def zero() -> Origin:
        return Origin(1)

    @staticmethod
    def saved(session: bytes, number: int) -> Origin:
        return Origin(2, session, number)

    def __str__(self) -> str:
        if self.kind == 2:
            return f"what run {self.number} of session {self.session.hex()[:16]}... left"
        return "zero" if self.kind else "nothing"


NO_STATE = Origin()


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
        origins: from where this party's states may come, newest first; () where it has none.
    """

    plan_digest: bytes
    ring_bits: int
    inferences: int = 0
    from_store: bool = False
    dealing: bytes = NO_DEALING
    origins: tuple[Origin, ...] = ()


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
        measure, they_measure = (each.plan_digest == MEASUREMENT for each in (my, their))
        if self.version == other.version and measure != they_measure:
            return f"{_doing(they_measure)}, and this party {_doing(measure)}"
        for what, mine, theirs in rows:
            if mine != theirs:
                return f"runs {what} {theirs}, and this party expects {mine}"
        if my.inferences != their.inferences:
            return f"runs {_counted(their)}, and this party expects {my.inferences or _OPEN}"
        return ""


_OPEN = "an open number"


def _doing(measures: bool) -> str:
    return "measures links with `doctor`" if measures else "runs a plan"


def _source(terms: Terms) -> str:
    return "a store" if terms.from_store else "no store"


def _counted(terms: Terms) -> str:
    noun = "inference" if terms.inferences == 1 else "inferences"
    return f"{terms.inferences or f'{_OPEN} of'} {noun}"


@dataclass(frozen=True)
class Agreed:
    """A session's id, 32 bytes, and the nonces that it is of, by party."""

    id: bytes
    nonces: Mapping[int, bytes]


def open_session(
    links: Links,
    terms: Terms,
    spent: SpentSessions | None,
    secret: bytes,
    holders: Iterable[Holders],
) -> Session:
    """Agrees with all parties on a session, then starts the links' byte counters anew.

    Args:
        links: fresh links to all parties.
        terms: what this party is about to run.
        spent: where ids of sessions are kept; None only where all parties are one process, so that
            nobody else takes part.
        secret: 32 bytes that this party alone knows, the same in each of its sessions.
        holders: of each key that the parties will need, the same everywhere.

    Raises:
        SecurityAbort: versions, parties, terms, ids or dealings that differ, or an id or a nonce
            used before.
        PeerError: a peer that is lost or silent.
    """
    agreed = agree_on_id(links, terms, fresh_nonce())
    origin = confirm_id(links, agreed, spent, terms.dealing, terms.origins)
    keys = agree_on_keys(links, agreed.id, secret, holders)
    links.reset_counters()
    return Session(agreed.id, keys, origin)


def agree_on_id(links: Links, terms: Terms, nonce: bytes) -> Agreed:
    """Compares hellos with every peer; the session's id is of everyone's nonces."""
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
    nonces = {party: hellos[party].nonce for party in sorted(hellos)}
    joined = b"".join(nonces.values())
    return Agreed(hashlib.sha256(joined + terms.plan_digest).digest(), nonces)


def confirm_id(
    links: Links,
    agreed: Agreed,
    spent: SpentSessions | None,
    dealing: bytes = NO_DEALING,
    origins: tuple[Origin, ...] = (),
) -> Origin:
    """Records the id as spent, and makes sure that everyone has the same one for the first time.

    So for the nonces of peers. And whoever loads shares of weights has them of the same dealing.

    Returns:
        Where the states of all come from that have some; NO_STATE at a party that has none.
    """
    session_id = agreed.id
    new, repeated = _recorded(links, agreed, spent)
    told = sum(1 << peer for peer in repeated)
    mine = _CONFIRMATION.pack(new, told, session_id, dealing, *_packed(origins))
    received = _all_to_all(links, mine, _CONFIRMATION.size, "handshake: session id")
    if not new:
        raise _replayed("this party", session_id)
    for peer in repeated:
        raise _repeats(links.names[peer], "this party")
    every = {links.party: origins}
    for peer, content in received.items():
        their_new, their_repeated, their_id, their_dealing, *stated = _CONFIRMATION.unpack(content)
        every[peer] = _unpacked(stated)
        if their_id != session_id:
            raise SecurityAbort(
                f"{links.names[peer]} is in session {their_id.hex()[:16]}..., this party in "
                f"{session_id.hex()[:16]}....",
                "A party sent different nonces to different parties; don't go on with it.",
            )
        if not their_new:
            raise _replayed(links.names[peer], session_id)
        for party, name in enumerate(links.names):
            if their_repeated >> party & 1:
                who = "this party" if party == links.party else name
                raise _repeats(who, links.names[peer])
        if their_dealing != dealing and NO_DEALING not in (their_dealing, dealing):
            raise SecurityAbort(
                f"{links.names[peer]} has shares of the weights from another dealing than this "
                "party.",
                "Give every party the file that one run of `compile` wrote for it.",
            )
    return _common(links, every) if origins else NO_STATE


def _packed(origins: tuple[Origin, ...]) -> list[int | bytes]:
    assert len(origins) <= MOST_ORIGINS
    padded = (*origins, *[NO_STATE] * (MOST_ORIGINS - len(origins)))
    return [field for each in padded for field in (each.kind, each.session, each.number)]


def _unpacked(stated: list[Any]) -> tuple[Origin, ...]:
    every = [Origin(*stated[i : i + 3]) for i in range(0, len(stated), 3)]
    return tuple(each for each in every if each != NO_STATE)


def _common(links: Links, every: Mapping[int, tuple[Origin, ...]]) -> Origin:
    """The first origin that all parties with states have, in the order of the first such party."""
    having = {party: origins for party, origins in sorted(every.items()) if origins}
    own = having[links.party]
    for origin in next(iter(having.values())):
        if all(origin in origins for origins in having.values()):
            return origin
    for peer, theirs in having.items():
        if not set(theirs) & set(own):
            raise SecurityAbort(
                f"{links.names[peer]} begins from {_either(theirs)}, and this party from "
                f"{_either(own)}.",
                "Let all parties go on from what they saved after the same run; FILE.before is the "
                "save before the last.",
            )
    raise SecurityAbort(
        "Of what two parties each could begin from, no other has the same.",
        "Let all parties go on from what they saved after the same run.",
    )


def _either(origins: tuple[Origin, ...]) -> str:
    return " or ".join(map(str, origins))


def _recorded(links: Links, agreed: Agreed, spent: SpentSessions | None) -> tuple[bool, list[int]]:
    """Whether the id is new here, and the peers whose nonces are not, or are another party's."""
    nonces = agreed.nonces
    others = {peer: nonce for peer, nonce in nonces.items() if peer != links.party}
    seen = {peer for peer, nonce in others.items() if [*nonces.values()].count(nonce) > 1}
    if spent is None:
        return True, sorted(seen)
    new, *fresh = spent.spend(agreed.id, *(record_of(nonce) for nonce in others.values()))
    seen.update(peer for peer, is_fresh in zip(others, fresh, strict=True) if not is_fresh)
    return new, sorted(seen)


def agree_on_keys(
    links: Links, session_id: bytes, secret: bytes, holders: Iterable[Holders]
) -> SessionKeys:
    """The keys of all sets of holders that this party is in; all holders contribute to each.

    What a party adds to a key goes to the other holders alone, in one message a peer.
    """
    me, fresh = links.party, fresh_nonce()
    held = [each for each in in_order(holders) if me in each]
    mine = {each: contribution(fresh, secret, session_id, me, each) for each in held}
    shared = {peer: [each for each in held if peer in each] for peer in range(len(links.names))}
    del shared[me]
    sent = {peer: b"".join(mine[each] for each in sets) for peer, sets in shared.items() if sets}
    received = {peer: bytearray(len(content)) for peer, content in sent.items()}
    if sent:
        links.exchange(sent, received, "handshake: keys")
    added = {each: {me: mine[each]} for each in held}
    for peer, content in received.items():
        for number, each in enumerate(shared[peer]):
            added[each][peer] = bytes(content[SECRET_BYTES * number :][:SECRET_BYTES])
    return SessionKeys({each: key_of(parts, session_id) for each, parts in added.items()})


def _all_to_all(links: Links, mine: bytes, size: int, step: str) -> dict[int, bytes]:
    received = {peer: bytearray(size) for peer in links.sent_bytes}
    links.exchange(dict.fromkeys(received, mine), received, step)
    return {peer: bytes(content) for peer, content in received.items()}


def _replayed(who: str, session_id: bytes) -> SecurityAbort:
    return SecurityAbort(
        f"Session {session_id.hex()[:16]}... is a replay: {who} has taken part in it before.",
        "Don't run copies of one virtual machine: their randomness may repeat.",
    )


def _repeats(who: str, seen_by: str) -> SecurityAbort:
    return SecurityAbort(
        f"The randomness of {who} repeats: {seen_by} has seen its nonce before.",
        "A copied machine, or one that went back to a snapshot, does that: let its system draw "
        "fresh randomness (a reboot), and never run two copies.",
    )

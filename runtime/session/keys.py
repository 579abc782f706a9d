"""Keys: what parties agree on, what each draws with, and the ratchet from inference to inference.

All of them come by HKDF-SHA256 (RFC 5869), each use with a label of its own:

    a party's secret   its private key                                       (`secret_of`)
    contribution       32 fresh bytes and the secret; session id, who, for whom
    a session's key    contributions of all its holders in the parties' order; session id, holders
    setup's key        the session's key
    S_1                the session's key
    inference i's key  S_i, "use"
    S_{i+1}            S_i, "next"

A key belongs to a set of parties, its holders: one alone, a pair, or more. Fresh bytes of any one
party, by way of the session's id, make every key of every party new; the secret keeps contributions
unknown where the fresh bytes can be guessed (RFC 8937 has this idea). Whoever gets S_i learns
nothing of what was drawn before inference i.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from veilgraph.ir.errors import SecurityAbort
from veilgraph.ir.plan.plan import Plan
from veilgraph.runtime.randomness import SEED_BYTES

SECRET_BYTES = 32  # of whatever keys are derived from
Holders: TypeAlias = frozenset[int]


def derive(secret: bytes, label: str, context: bytes = b"", salt: bytes = b"") -> bytes:
    """32 bytes from a secret of any length, for one use and one context."""
    return HKDF(hashes.SHA256(), SECRET_BYTES, salt, _info(label, context)).derive(secret)


def expand(secret: bytes, label: str, context: bytes = b"", count: int = SECRET_BYTES) -> bytes:
    """The same from 32 bytes that came from a derivation already: HKDF's second half alone."""
    assert len(secret) == SECRET_BYTES
    return HKDFExpand(hashes.SHA256(), count, _info(label, context)).derive(secret)


def _info(label: str, context: bytes) -> bytes:
    return b"veilgraph " + label.encode() + b"\0" + context


def _listed(holders: Holders) -> bytes:
    return bytes([len(holders), *sorted(holders)])


def in_order(holders: Iterable[Holders]) -> list[Holders]:
    """Sets of parties in the order in which all parties go through them: small ones first."""
    return sorted(set(holders), key=lambda each: (len(each), sorted(each)))


def holders_of(plan: Plan) -> list[Holders]:
    """Who holds the keys of a plan, the same list at all parties: each also has one of its own."""
    index = {name: i for i, name in enumerate(plan.manifest.parties)}
    keys = {frozenset(index[n] for n in each) for p in plan.programs.values() for each in p.keys}
    return in_order(keys | {frozenset({party}) for party in index.values()})


class _ByHolders(Mapping[Holders, bytes]):
    """Secrets of one size by the parties that know each. Immutable, and never printed."""

    __slots__ = ("_secrets",)
    size = SECRET_BYTES

    def __init__(self, secrets: Mapping[Holders, bytes]) -> None:
        assert all(len(secret) == self.size for secret in secrets.values())
        self._secrets = dict(secrets)

    def __getitem__(self, holders: Holders) -> bytes:
        return self._secrets[holders]

    def __iter__(self) -> Iterator[Holders]:
        return iter(self._secrets)

    def __len__(self) -> int:
        return len(self._secrets)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(holders={[sorted(holders) for holders in self]})"


class DrawKeys(_ByHolders):
    """What one party draws with in setup, or in one inference: AES-128 keys of 16 bytes."""

    __slots__ = ()
    size = SEED_BYTES

    def table(self, holders: Iterable[Iterable[int]]) -> bytes:
        """The keys of a plan, in the plan's order, 16 bytes each: what the kernels take.

        Raises:
            KeyError: a set of holders that this party is not in, or that no key is made for.
        """
        return b"".join(self[frozenset(each)] for each in holders)


class SessionKeys(_ByHolders):
    """The keys that one party holds in one session, 32 bytes each; nothing is drawn with them."""

    __slots__ = ()

    def setup(self) -> DrawKeys:
        """What setup draws with."""
        return DrawKeys({each: expand(self[each], "setup", count=SEED_BYTES) for each in self})

    def ratchet(self) -> Ratchet:
        """At the first inference."""
        return Ratchet(1, {each: expand(self[each], "inferences") for each in self})


@dataclass(frozen=True)
class Ratchet:
    """One party's keys from inference `number` on; `states` are the S_i of the key's holders.

    Whoever goes on to `next` must let go of this one, on disk too: that is what makes the keys of
    past inferences unknown to all.
    """

    number: int
    states: Mapping[Holders, bytes]

    def keys(self) -> DrawKeys:
        """What inference `number` draws with."""
        return DrawKeys({h: expand(s, "use", count=SEED_BYTES) for h, s in self.states.items()})

    def seal(self, secret: bytes, context: bytes) -> bytes:
        """32 bytes that encrypt what is kept of inference `number`, with the party's secret."""
        states = b"".join(self.states[each] for each in in_order(self.states))
        return derive(states + secret, "seal", context)

    def next(self) -> Ratchet:
        """At the next inference."""
        return Ratchet(self.number + 1, {h: expand(s, "next") for h, s in self.states.items()})

    def at(self, number: int) -> Ratchet:
        """At a later inference, or this one.

        Raises:
            SecurityAbort: an earlier one, whose keys are gone.
        """
        if number < self.number:
            raise SecurityAbort(
                f"The keys of inference {number} are gone: the next is {self.number}.",
                "Each inference is run once; begin another session, or `prepare` again.",
            )
        found = self
        while found.number < number:
            found = found.next()
        return found

    def branch(self) -> Ratchet:
        """For inferences from `number` on that are kept: it tells nothing of this one's own."""
        return Ratchet(self.number, {h: expand(s, "store") for h, s in self.states.items()})

    def __repr__(self) -> str:
        return f"Ratchet(number={self.number}, holders={[sorted(each) for each in self.states]})"


def contribution(
    fresh: bytes, secret: bytes, session_id: bytes, party: int, holders: Holders
) -> bytes:
    """What a party adds to the key of some holders, 32 bytes: for them alone."""
    assert party in holders
    context = bytes([party]) + _listed(holders)
    return derive(fresh + secret, "contribution", context, session_id)


def key_of(contributions: Mapping[int, bytes], session_id: bytes) -> bytes:
    """The key of those who contributed, by party."""
    assert all(len(each) == SECRET_BYTES for each in contributions.values())
    joined = b"".join(contributions[party] for party in sorted(contributions))
    return derive(joined, "session key", _listed(frozenset(contributions)), session_id)

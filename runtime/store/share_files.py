"""Weights that no host has: their shares, dealt where they were compiled, in a file a party.

Each weight becomes parts whose sum in its ring it is; all but the last are uniform. Which party
holds which parts is in the plan. A file is one of shares at rest (at_rest.py), mode 0600, bound to
the plan's digest, the party's name and the dealing's id: what one party loads of one dealing says
nothing, and means nothing beside another dealing's. Without the plan that it was dealt for it is
never loaded, so no other plan can make a party send its shares.

Who deals has no key of a party. With a party's certificate its file is encrypted to that; without,
it is encrypted under a key that everybody knows, and whoever gets the file has the shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy.typing as npt

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import Share
from veilgraph.runtime import randomness
from veilgraph.runtime.encoding import Words, encode, word_dtype
from veilgraph.runtime.session.certificates import load_certificate
from veilgraph.runtime.session.private_keys import load_private_key
from veilgraph.runtime.store.at_rest import (
    NONE,
    PUBLIC_KEY,
    AtRest,
    Lock,
    Part,
    header_of,
    lock_of,
    read_at_rest,
    write_at_rest,
)
from veilgraph.runtime.store.certificate_locks import lock_of_own, lock_to

KIND = "share"
ANYBODY = Lock(NONE, bytes(32))
HINT = "Give every party the file that `compile` wrote for it, all of one run."


@dataclass(frozen=True)
class DealtShares:
    """What one party gets of a dealing.

    Attributes:
        party: its name.
        plan_digest: of the plan that it was dealt for, in hex.
        dealing: the id that all shares of one dealing carry, `randomness.NONCE_BYTES` bytes.
        parts: one for each of the plan's shares.
    """

    party: str
    plan_digest: str
    dealing: bytes
    parts: tuple[Part, ...]

    @property
    def words(self) -> dict[str, Words]:
        """Ring elements by `Share.key`."""
        return {_key(each): each.array for each in self.parts}

    def save(self, path: str | Path, certificate: str | Path | None = None) -> None:
        """Writes the file that this party loads; readable by its owner alone.

        Args:
            certificate: the party's, PEM; without it the file hides nothing from who gets it.

        Raises:
            UsageError: a place that can't be written to, or a certificate that can't be used.
            ResourceLimitError: no room.
        """
        lock = ANYBODY if certificate is None else lock_to(load_certificate(Path(certificate)))
        header = AtRest(KIND, self.party, bytes.fromhex(self.plan_digest), self.dealing)
        write_at_rest(Path(path), header, self.parts, lock)

    def check(self, plan: Plan, party: str) -> None:
        """That these are the shares which `party` loads in a session of `plan`.

        Raises:
            SecurityAbort: those of another plan or party.
            UsageError: a share that is missing, or of another shape or type.
        """
        if self.plan_digest != plan.digest:
            raise SecurityAbort("The shares of the weights are those of another plan.", HINT)
        if self.party != party:
            raise SecurityAbort(
                f"The shares of the weights are {self.party}'s, and this is {party}.", HINT
            )
        held = {_key(each): each for each in self.parts}
        for share in plan.party(party).shares:
            part = held.get(share.key)
            if part is None:
                raise UsageError(
                    f"{party}'s shares lack part {share.part} of `{share.name}`.", HINT
                )
            words = (part.array.shape, part.array.dtype)
            form = (share.shape, word_dtype(share.ring_bits))
            if (part.part[1], part.bits, words) != (share.parts, share.ring_bits, form):
                raise UsageError(
                    f"{party}'s part {share.part} of `{share.name}` has another shape or type than "
                    "in the plan.",
                    HINT,
                )


def deal(plan: Plan, weights: Mapping[str, npt.ArrayLike]) -> dict[str, DealtShares]:
    """Shares of the weights, freshly drawn, by party; none where the plan has none of them loaded.

    Args:
        weights: real numbers by name.

    Raises:
        UsageError: a weight that is missing or does not fit.
    """
    dealing = randomness.fresh_nonce()
    held = {name: program.shares for name, program in plan.programs.items() if program.shares}
    whole = {share.name: share for shares in held.values() for share in shares}
    dealt: dict[str, Words] = {}
    for share in whole.values():
        if share.name not in weights:
            raise UsageError(f"Weight `{share.name}` is to be dealt, and it is not there.")
        dealt |= _parts(share, weights[share.name])
    return {
        name: DealtShares(name, plan.digest, dealing, tuple(_part(s, dealt) for s in shares))
        for name, shares in held.items()
    }


def _parts(share: Share, real: npt.ArrayLike) -> dict[str, Words]:
    """All parts of the weight that `share` is one of, by key."""
    keys = (f"{part}/{share.name}" for part in range(share.parts))
    parts = split(encode(real, share), share.ring_bits, share.parts)
    return dict(zip(keys, parts, strict=True))


def split(whole: Words, ring_bits: int, count: int) -> list[Words]:
    """So many parts of ring elements, whose sum in the ring they are: all but the last drawn."""
    mask = word_dtype(ring_bits).type((1 << ring_bits) - 1)
    rest, parts = whole, []
    for _ in range(count - 1):
        key = randomness.fresh_seed()
        drawn = randomness.elements(key, 0, 0, whole.size, 8 * mask.itemsize)
        parts.append((drawn & mask).reshape(whole.shape))
        rest = rest - parts[-1]
    return [*parts, rest & mask]


def _key(part: Part) -> str:
    """As `Share.key`."""
    return f"{part.part[0]}/{part.name}"


def _part(share: Share, dealt: Mapping[str, Words]) -> Part:
    return Part(share.name, (share.part, share.parts), share.ring_bits, dealt[share.key])


def shares_file(plan_file: Path, party: str) -> Path:
    """Where the shares of a party are, beside the plan: model.alice.shares."""
    return plan_file.with_suffix(f".{party}.shares")


def load_shares(path: str | Path, plan: Plan, party: str, key: Path | None = None) -> DealtShares:
    """The shares that `party` loads in a session of `plan`, from the file that was dealt to it.

    Args:
        key: the file of the party's private key, for shares that are encrypted to its certificate.

    Raises:
        UsageError: no such file, one that holds no shares, or lacks some; encrypted, and no key.
        SecurityAbort: the shares of another plan or party, or for another key; changed ones.
    """
    wanted = {share.key for share in plan.party(party).shares}
    try:
        dealing = header_of(Path(path)).session  # the parties compare it (handshake.py)
        expected = AtRest(KIND, party, bytes.fromhex(plan.digest), dealing)
        parts = read_at_rest(Path(path), expected, _lock(Path(path), key))
        kept = tuple(each for each in parts if _key(each) in wanted)
    except (UsageError, SecurityAbort) as error:
        raise type(error)(error.message, HINT) from error
    found = DealtShares(party, plan.digest, dealing, kept)
    found.check(plan, party)
    return found


def _lock(path: Path, key: Path | None) -> Lock:
    how, ephemeral = lock_of(path)
    if how != PUBLIC_KEY:
        return ANYBODY
    if key is None:
        raise UsageError(f"{path} is encrypted, and no private key was given.")
    try:
        return lock_of_own(load_private_key(key), ephemeral)
    except ValueError as error:
        raise SecurityAbort(f"{path} was changed: nobody's key opens it.") from error

"""Weights that no host has: their shares, dealt where they were compiled, in a file a party.

Each weight becomes parts whose sum in its ring it is; all but the last are uniform. Which party
holds which parts is in the plan. A file is safetensors, mode 0600, with the plan's digest, the
party's name and the dealing's id: what one party loads of one dealing says nothing, and means
nothing beside another dealing's. Without the plan that it was dealt for it is never loaded, so no
other plan can make a party send its shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.plan import Plan, Share
from veilgraph.runtime import randomness
from veilgraph.runtime.shares import Words, encode, word_dtype
from veilgraph.runtime.weights import write_tensors

HINT = "Give every party the file that `compile` wrote for it, all of one run."


@dataclass(frozen=True)
class DealtShares:
    """What one party gets of a dealing.

    Attributes:
        party: its name.
        plan_digest: of the plan that it was dealt for, in hex.
        dealing: the id that all shares of one dealing carry, `randomness.NONCE_BYTES` bytes.
        words: ring elements by `Share.key`.
    """

    party: str
    plan_digest: str
    dealing: bytes
    words: Mapping[str, Words]

    def save(self, path: str | Path) -> None:
        """Writes the file that this party loads; readable by its owner alone.

        Raises:
            UsageError: a place that can't be written to.
        """
        stated = {
            "veilgraph.plan": self.plan_digest,
            "veilgraph.party": self.party,
            "veilgraph.dealing": self.dealing.hex(),
        }
        write_tensors(self.words, path, stated)

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
        for share in plan.party(party).shares:
            words = self.words.get(share.key)
            if words is None:
                raise UsageError(
                    f"{party}'s shares lack part {share.part} of `{share.name}`.", HINT
                )
            if (words.shape, words.dtype) != (share.shape, word_dtype(share.ring_bits)):
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
        name: DealtShares(name, plan.digest, dealing, {s.key: dealt[s.key] for s in shares})
        for name, shares in held.items()
    }


def _parts(share: Share, real: npt.ArrayLike) -> dict[str, Words]:
    """All parts of the weight that `share` is one of, by key."""
    mask = word_dtype(share.ring_bits).type((1 << share.ring_bits) - 1)
    rest = encode(real, share)
    parts = []
    for _ in range(share.parts - 1):
        key = randomness.fresh_seed()
        drawn = randomness.elements(key, 0, 0, share.elements, 8 * mask.itemsize)
        parts.append((drawn & mask).reshape(share.shape))
        rest = rest - parts[-1]
    keys = (f"{part}/{share.name}" for part in range(share.parts))
    return dict(zip(keys, (*parts, rest & mask), strict=True))


def shares_file(plan_file: Path, party: str) -> Path:
    """Where the shares of a party are, beside the plan: model.alice.shares."""
    return plan_file.with_suffix(f".{party}.shares")


def load_shares(path: str | Path, plan: Plan, party: str) -> DealtShares:
    """The shares that `party` loads in a session of `plan`, from the file that was dealt to it.

    Raises:
        UsageError: no such file, one that holds no shares, or lacks some.
        SecurityAbort: the shares of another plan or party.
    """
    shares = plan.party(party).shares
    try:
        with safe_open(str(path), framework="numpy") as file:
            found = _read(file, shares)
    except FileNotFoundError as error:
        raise UsageError(f"There is no file {path} of {party}'s shares.", HINT) from error
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise UsageError(f"{path} holds no shares of weights, or damaged ones.", HINT) from error
    found.check(plan, party)
    return found


def _read(file: Any, shares: Iterable[Share]) -> DealtShares:
    """What a file says that it is, and those of its tensors that a plan asks for."""
    stated = file.metadata() or {}
    dealing = bytes.fromhex(stated["veilgraph.dealing"])
    if len(dealing) != randomness.NONCE_BYTES:
        raise ValueError("no id of a dealing")
    there = set(file.keys())
    words = {s.key: file.get_tensor(s.key) for s in shares if s.key in there}
    return DealtShares(stated["veilgraph.party"], stated["veilgraph.plan"], dealing, words)

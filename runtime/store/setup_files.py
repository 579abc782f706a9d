"""What setup left at a party, on disk, so that weights are shared once and not in each session.

A file holds the ranges of a party's memory that setup leaves for the session, its shares of the
weights among them, at rest (at_rest.py): encrypted under a key that comes from the party's private
key. It is bound to the plan and the party, and names the session whose setup it was: parties go on
from it only if all have the same. Whoever owns the weights, or loads shares of them from a file,
keeps a digest of these beside it, and shares anew when they are others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from veilgraph.ir.errors import SecurityAbort
from veilgraph.ir.plan.plan import Plan
from veilgraph.runtime.store.at_rest import (
    AtRest,
    at_rest_key,
    header_of,
    read_at_rest,
    whole,
    write_at_rest,
)

KIND = "setup"
_MEMORY, _SOURCE = "memory", "source"


@dataclass(frozen=True)
class KeptSetup:
    """What setup left.

    Attributes:
        session: whose setup it was, 32 bytes.
        memory: as `Party.kept` gives it.
        source: a digest of what this party brought to it.
    """

    session: bytes
    memory: bytes
    source: bytes


def save_setup(path: Path, plan: Plan, party: str, kept: KeptSetup, secret: bytes) -> None:
    """Writes a party's file whole.

    Args:
        secret: of the party's private key (`certificates.secret_of`).

    Raises:
        UsageError, ResourceLimitError: a place that can't be written to; what was there is whole.
    """
    header = AtRest(KIND, party, bytes.fromhex(plan.digest), kept.session, 0)
    parts = (whole(_MEMORY, kept.memory), whole(_SOURCE, kept.source))
    write_at_rest(path, header, parts, at_rest_key(secret, KIND))


def load_setup(path: Path, plan: Plan, party: str, secret: bytes) -> KeptSetup:
    """What `save_setup` wrote.

    Raises:
        UsageError: no such file, or none of a setup.
        SecurityAbort: a file of another party, plan or key, or one that was changed.
    """
    claimed = header_of(path)
    expected = AtRest(KIND, party, bytes.fromhex(plan.digest), claimed.session, 0)
    found = {
        each.name: each.array.tobytes()
        for each in read_at_rest(path, expected, at_rest_key(secret, KIND))
    }
    if found.keys() != {_MEMORY, _SOURCE}:
        raise SecurityAbort(f"{path} holds no setup.", "Move it away: weights are shared anew.")
    return KeptSetup(claimed.session, found[_MEMORY], found[_SOURCE])

"""States of a session on disk, so that another session goes on from them.

A file holds one party's parts of all states, at rest (at_rest.py): encrypted under a key that comes
from the party's private key. It is bound to the layout of the states, and not to the whole plan: a
plan with other inputs or another batch may go on, if its states are the same. It lacks states that
the plan's manifest calls `unsaved`, such as rows that their owners share again. It says after which
run of which session it was written, and parties go on together only if all say the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import UNSAVED, Share
from veilgraph.runtime.encoding import Words, word_dtype
from veilgraph.runtime.session.handshake import Origin
from veilgraph.runtime.store.at_rest import (
    AtRest,
    Part,
    at_rest_key,
    header_of,
    read_at_rest,
    whole,
    write_at_rest,
)

KIND = "state"
NOTE = "note"
HINT = "Give the file that this party saved with `--state-file`, of the same states."


@dataclass(frozen=True)
class SavedState:
    """One party's parts of all states, by `Share.key`, and after which run they were saved.

    Attributes:
        note: what else belongs to them: whoever saves knows what it says.
    """

    words: Mapping[str, Words]
    session: bytes
    number: int
    note: bytes = b""

    @property
    def origin(self) -> Origin:
        return Origin.saved(self.session, self.number)


def layout_of(plan: Plan) -> bytes:
    """SHA-256 over what states are, and which parts each party has of them."""
    rows = [
        (party, part.name, part.part, part.parts, part.shape, part.ring_bits, part.frac_bits)
        for party, program in plan.programs.items()
        for part in sorted(saved_parts(plan, program.states), key=lambda part: part.key)
    ]
    return hashlib.sha256(json.dumps([plan.manifest.suite, rows]).encode()).digest()


def save_state(path: str | Path, plan: Plan, party: str, saved: SavedState, secret: bytes) -> None:
    """Writes a party's file whole; the one that was there before stays beside it, as NAME.before.

    Args:
        secret: of the party's private key (`certificates.secret_of`).

    Raises:
        UsageError: a party that has no states, or a place that can't be written to.
        ResourceLimitError: no room; what was there before is whole.
    """
    parts = _parts(plan, party)
    header = AtRest(KIND, party, layout_of(plan), saved.session, saved.number)
    arrays = (Part(p.name, (p.part, p.parts), p.ring_bits, saved.words[p.key]) for p in parts)
    path, key = Path(path), at_rest_key(secret, KIND)
    write_at_rest(path, header, (*arrays, whole(NOTE, saved.note)), key, before(path))


def before(path: Path) -> Path:
    """Where the file is that was saved before the one at `path`."""
    return path.with_name(f"{path.name}.before")


def load_state(path: str | Path, plan: Plan, party: str, secret: bytes) -> SavedState:
    """What `save_state` wrote, read whole.

    Raises:
        UsageError: a party that has no states; no such file, or none of states.
        SecurityAbort: a file of another party, other states or another key, or one that was
            changed.
    """
    parts, path = _parts(plan, party), Path(path)
    claimed = header_of(path)
    expected = AtRest(KIND, party, layout_of(plan), claimed.session, claimed.number)
    words = {}
    note = b""
    for found in read_at_rest(path, expected, at_rest_key(secret, KIND)):
        if found.part == (0, 1):  # parts of states are of several
            note = found.array.tobytes()
            continue
        words[f"{found.part[0]}/{found.name}"] = found.array
    for part in parts:
        own = words.get(part.key)
        if own is None or (own.shape, own.dtype) != (part.shape, word_dtype(part.ring_bits)):
            raise SecurityAbort(f"{path} lacks a part of state `{part.name}`.", HINT)
    return SavedState(words, claimed.session, claimed.number, note)


def _parts(plan: Plan, party: str) -> tuple[Share, ...]:
    parts = saved_parts(plan, plan.party(party).states)
    if not parts:
        raise UsageError(
            f"{party} keeps no state in this plan.",
            "Leave out its state file; `compile --state` makes plans with states.",
        )
    return parts


def saved_parts(plan: Plan, parts: Sequence[Share]) -> tuple[Share, ...]:
    """Without states that runs give anew."""
    stated = plan.manifest.options.get(UNSAVED)
    unsaved = stated if isinstance(stated, list) else ()
    return tuple(part for part in parts if part.name not in unsaved)

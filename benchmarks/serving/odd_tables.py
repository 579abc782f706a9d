"""A party's tables of a plan with a few of their numbers changed, checked, opened and run.

A plan's digest would tell of any change: who writes a plan makes the digest too.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np

from veilgraph.ir.plan.checks import check
from veilgraph.ir.plan.tables import ROUND
from veilgraph.plans import Plan
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.randomness import SEED_BYTES

TABLES = ("steps", "buffers", "messages", "params", "kept")
WORDS = (1, 2, 4, 8)  # bytes
MOST_CHANGES = 4


class Tables:
    """Of one party.

    Attributes:
        content: of all its tables, one after another.
    """

    def __init__(self, plan: Plan, party: str) -> None:
        self._plan, self._party = plan, party
        self._tables = {name: getattr(plan.party(party), name) for name in TABLES}
        self.content = b"".join(each.tobytes() for each in self._tables.values())

    def run(self, content: bytes) -> None:
        """Each step that is no round, as far as the tables are legal."""
        found, start = dict[str, Any](), 0
        for name, table in self._tables.items():
            piece = content[start : start + table.nbytes]
            found[name] = np.frombuffer(piece, table.dtype).reshape(table.shape)
            start += table.nbytes
        program = replace(self._plan.party(self._party), **found)
        plan = replace(self._plan, programs={**self._plan.programs, self._party: program})
        check(plan)
        device = ready("cpu", plan, self._party).open(bytes(SEED_BYTES * len(program.keys)))
        try:
            for step in np.flatnonzero(program.steps["kernel"] != ROUND):
                device.run(int(step), int(step) + 1, 1)
        finally:
            device.close()


def changed(content: bytes, draw: random.Random) -> bytes:
    """With other numbers at a few places."""
    found = bytearray(content)
    for _ in range(draw.randint(1, MOST_CHANGES)):
        size = draw.choice(WORDS)
        at, other = (size * draw.randrange(len(found) // size) for _ in range(2))
        number = int.from_bytes(found[at : at + size], "little")
        most = (1 << 8 * size) - 1
        odd = (0, 1, most, most >> 1, number + draw.choice((-8, -1, 1, 8, 64)), number << 1)
        moved = int.from_bytes(found[other : other + size], "little")
        value = draw.choice((*odd, moved)) & most
        found[at : at + size] = value.to_bytes(size, "little")
    return bytes(found)

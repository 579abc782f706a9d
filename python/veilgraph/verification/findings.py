"""What was found of a plan that holds: what stays with whom, and what is revealed to whom.

The verifier finds it once; a party keeps it (verified_plans.py), and goes by it without the
verifier from then on.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from veilgraph.runtime.session.consent import OPENINGS

OUTPUT = "output"  # a kind of what is revealed; the others are OPENINGS
CONSTANTS, PUBLIC_WEIGHTS, SHARED_WEIGHTS = OPENINGS


@dataclass(frozen=True)
class Secret:
    """An input, a state, or all weights together: how many numbers, and whose they are."""

    name: str
    owner: str
    numbers: int


@dataclass(frozen=True)
class Revealed:
    """What some parties learn: an output, or what every party reads in the plan.

    `depends` names the inputs and states that an output is computed from, and "weights"; with a
    state, what runs before may have kept in it. `kind` is OUTPUT or another of the above.
    """

    what: str
    numbers: int
    to: tuple[str, ...]
    depends: tuple[str, ...]
    kind: str

    @property
    def output(self) -> str:
        """The name of an output."""
        assert self.kind == OUTPUT
        return self.what.removeprefix("output ")


@dataclass(frozen=True)
class Verified:
    """What was found of a plan that holds; all of it computed, none of it its author's words.

    `coalitions` are the sets of parties whose messages were looked at; `messages` counts tensors
    that cross between two parties; `rings` are widths in bits of what inputs, weights, states and
    outputs are elements of, and of what linear layers compute in; `rows` is how many rows inputs
    and outputs have that are computed each for itself, or 1.
    """

    digest: str
    suite: str
    security: str
    lowering: int
    coalitions: tuple[tuple[str, ...], ...]
    nodes: int
    draws: int
    messages: int
    layers: int
    secrets: tuple[Secret, ...]
    revealed: tuple[Revealed, ...]
    rings: tuple[int, ...]
    rows: int

    def to_json(self) -> str:
        """In one line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Verified | None:
        """What `to_json` wrote; None for any other text."""
        try:
            found = json.loads(text)
            found["secrets"] = tuple(Secret(**each) for each in found["secrets"])
            found["revealed"] = tuple(
                Revealed(**each | {"to": tuple(each["to"]), "depends": tuple(each["depends"])})
                for each in found["revealed"]
            )
            found["coalitions"] = tuple(map(tuple, found["coalitions"]))
            found["rings"] = tuple(found["rings"])
            return Verified(**found)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

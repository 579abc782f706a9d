"""The roles of a plan's parties: who computes, who gives and receives, who prepares.

A plan names a role for each party. Everything that differs between parties asks a role's facts
here, and no pass, link or store knows a role by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Collusion(Enum):
    """Whom a curious party in a role may join, of those that a suite protects against."""

    THRESHOLD = "threshold"  # others in this role, as many as the suite tolerates
    ANYONE = "anyone"  # any coalition at all
    NOBODY = "nobody"  # a coalition of its own


@dataclass(frozen=True)
class Role:
    """What parties in a role do.

    Attributes:
        name: in manifests and messages.
        computes: whether it holds parts of secrets, and works on them.
        owns: whether it may give inputs and weights, and receive outputs.
        online: whether it takes part in an inference whose offline phase was run before. Who does
            so keeps a store.
        collusion: whom it may join.
    """

    name: str
    computes: bool
    owns: bool
    online: bool
    collusion: Collusion

    def __str__(self) -> str:
        return self.name


COMPUTING = Role("computing", True, True, True, Collusion.THRESHOLD)
CLIENT = Role("client", False, True, True, Collusion.ANYONE)
DEALER = Role("dealer", False, False, False, Collusion.NOBODY)

# In this order parties stand in a plan: whoever is not there online comes last, so that the
# numbers of the others are the same without it.
ROLES = {role.name: role for role in (COMPUTING, CLIENT, DEALER)}


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}")
NAME_RULE = "A letter (a to z), then at most 30 letters, digits, hyphens and underscores."


def is_name(name: str) -> bool:
    """Whether a party of this name, in any role, can stand in file names, lists and messages."""
    return _NAME.fullmatch(name) is not None


def given_by(name: str, party: str) -> str:
    """What an input that all parties give is called where one of them gives it."""
    return f"{name}@{party}"

"""Roles answer for themselves: what differs between parties is asked of them, not of a name."""

from __future__ import annotations

import re
from pathlib import Path

from veilgraph.ir.roles import CLIENT, COMPUTING, DEALER, ROLES, Collusion

ROOT = Path(__file__).parents[2]
PRODUCT = ("frontend", "ir", "passes", "runtime", "kernels", "targets", "python")
SOURCES = (".py", ".h", ".cuh", ".cpp", ".cu")
MOST_FILES = 8  # the role, its suite, its option, and where its name is a key of JSON


def naming(word: str) -> list[str]:
    """Files of the product with a word in them, comments too; links are not followed."""
    files = (file for folder in PRODUCT for file in (ROOT / folder).rglob("*"))
    sources = (f for f in files if f.suffix in SOURCES and not f.is_symlink())
    own = (f for f in sources if not any(parent.is_symlink() for parent in f.parents))
    found = (f for f in own if re.search(word, f.read_text(), re.IGNORECASE))
    return sorted(str(f.relative_to(ROOT)) for f in found)


def test_few_files_know_the_dealer() -> None:
    found = naming("dealer")
    assert "ir/roles.py" in found
    assert len(found) <= MOST_FILES, found
    assert not [name for name in found if name.startswith(("runtime", "passes", "kernels"))]


def test_what_each_role_does() -> None:
    assert [*ROLES.values()] == [COMPUTING, CLIENT, DEALER]
    facts = {r.name: (r.computes, r.owns, r.online, r.collusion) for r in ROLES.values()}
    assert facts == {
        "computing": (True, True, True, Collusion.THRESHOLD),
        "client": (False, True, True, Collusion.ANYONE),
        "dealer": (False, False, False, Collusion.NOBODY),
    }


def test_who_is_away_online_comes_last() -> None:
    """So the numbers of the others are the same in a session from stores."""
    online = [role.online for role in ROLES.values()]
    assert online == sorted(online, reverse=True)

"""Which plans a party takes part in: the parts `authors` and `consent` of its parties.yaml.

    authors:                            # whose signatures on plans this party knows
      bob: dxnMQ8zVK5QpiMqgkvE...=      # the public key, as `cert author` shows it
    consent:                            # with it, no other plan is taken part in
      - plan: 4f1c0f...                 # one plan, by its digest; or
        reveal: {logits: [alice]}       # outputs, and to whom each may be revealed
        openings: [constants]           # what else may be revealed: findings.py has their kinds
      - author: bob                     # any plan that bob signed
        reveal: {logits: [alice]}
        openings: [constants]
        max_error: 0.01                 # optional: the largest error that the plan may state
        rings: [32, 64]                 # optional: in which rings, in bits

An entry accepts a plan that reveals at most what the entry lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from veilgraph.ir.errors import UsageError
from veilgraph.ir.types import MAX_RING_BITS
from veilgraph.runtime.session.certificates import check_party_name
from veilgraph.runtime.session.public_keys import bytes_of
from veilgraph.runtime.session.sections import Keys, Section

# What a plan may reveal that is none of its outputs: numbers that are in the plan itself, weights
# among them, and weights that enough parties have together.
OPENINGS = ("constants", "public weights", "shared weights")
_ENTRY_KEYS = Keys(
    frozenset(), frozenset({"plan", "author", "reveal", "openings", "max_error", "rings"})
)
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Consent:
    """One entry: which plans, by `digest` or `author`, and what these may do at most.

    `reveal` has who may learn each output, by its name; `max_error` and `rings` are None where any
    will do.
    """

    digest: str | None = None
    author: str | None = None
    reveal: Mapping[str, frozenset[str]] = field(default_factory=dict)
    openings: frozenset[str] = frozenset()
    max_error: float | None = None
    rings: frozenset[int] | None = None


def authors_of(top: Section) -> dict[str, bytes]:
    """Public keys by name, as the file lists them; UsageError for one that is none."""
    listed = top.values.get("authors", {})
    if not isinstance(listed, dict):
        raise top.wrong("authors", "a mapping of names to public keys")
    section = Section(top.folder, "authors", listed, Keys(frozenset(), frozenset(listed)))
    found: dict[str, bytes] = {}
    for name in listed:
        key = bytes_of(section.text(check_party_name(str(name))))
        if key is None:
            raise section.wrong(name, "a public key, 44 characters", "`cert author` shows it.")
        if key in found.values():
            raise section.wrong(name, "another key than the other authors'")
        found[name] = key
    return found


def consent_of(top: Section, authors: Mapping[str, bytes]) -> tuple[Consent, ...] | None:
    """What the file accepts; None where it does not say, and any plan that holds will do."""
    if "consent" not in top.values:
        return None
    listed = top.values["consent"]
    if not isinstance(listed, list):
        raise top.wrong("consent", "a list of entries", "`[]` accepts no plan at all.")
    sections = (
        Section(top.folder, f"consent[{i}]", each, _ENTRY_KEYS) for i, each in enumerate(listed)
    )
    return tuple(_entry(section, authors) for section in sections)


def _entry(section: Section, authors: Mapping[str, bytes]) -> Consent:
    given = section.values
    if ("plan" in given) == ("author" in given):
        raise UsageError(
            f"{section.where} must have either `plan` or `author`.",
            "An entry is for one plan, by its digest, or for all that an author signed.",
        )
    if "plan" in given and not _DIGEST.fullmatch(section.text("plan")):
        raise section.wrong("plan", "a digest of 64 hex digits", "`veilgraph inspect` shows it.")
    if "author" in given and section.text("author") not in authors:
        raise section.wrong("author", "a name under `authors`", "List the author's public key.")
    return Consent(
        digest=given.get("plan"),
        author=given.get("author"),
        reveal=_reveal(section) if "reveal" in given else {},
        openings=_openings(section) if "openings" in given else frozenset(),
        max_error=section.number("max_error", 1.0) if "max_error" in given else None,
        rings=_rings(section) if "rings" in given else None,
    )


def _reveal(section: Section) -> dict[str, frozenset[str]]:
    """Who may learn each output: a name, or a list of names."""
    listed = section.values["reveal"]
    if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed):
        raise section.wrong("reveal", "a mapping of outputs to parties")
    found = {}
    for output, names in listed.items():
        to = [names] if isinstance(names, str) else names
        if not isinstance(to, list) or not all(isinstance(name, str) for name in to):
            raise section.wrong("reveal", "a mapping of outputs to parties", "x: [alice, bob]")
        found[output] = frozenset(map(check_party_name, to))
    return found


def _openings(section: Section) -> frozenset[str]:
    listed = section.values["openings"]
    if not isinstance(listed, list) or not all(each in OPENINGS for each in listed):
        raise section.wrong("openings", f"a list of some of: {', '.join(OPENINGS)}")
    return frozenset(listed)


def _rings(section: Section) -> frozenset[int]:
    listed = section.values["rings"]
    if not isinstance(listed, list) or not all(
        type(each) is int and 1 <= each <= MAX_RING_BITS for each in listed
    ):
        raise section.wrong("rings", f"a list of widths from 1 to {MAX_RING_BITS} bits")
    return frozenset(listed)

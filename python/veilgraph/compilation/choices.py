"""What a user asks for in words and numbers, as the options of passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from numbers import Real
from typing import TypeVar

from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.graph.table_options import Categories, TableOptions, Trees
from veilgraph.ir.plan.tables import PUBLIC
from veilgraph.passes.graph.reveal_as import Form
from veilgraph.passes.program import Options, Protection
from veilgraph.targets.target import Target
from veilgraph.targets.variants import Choosing, Goal, Roles

Choosable = TypeVar("Choosable", bound=Enum)


def forms(given: str | Mapping[str, str] | None, outputs: Sequence[str]) -> dict[str, Form]:
    """What is revealed in place of outputs, by name."""
    if isinstance(given, str):
        given = dict.fromkeys(outputs, given)
    for name in given or {}:
        if name not in outputs:
            raise UsageError(
                f"The model has no output `{name}` to reveal.",
                f"Its outputs are {', '.join(outputs)}.",
            )
    return {name: Form.parse(text) for name, text in (given or {}).items()}


def protection(given: str, chosen: Target) -> Protection:
    """Of weights, of what the suite has."""
    found = one_of(Protection, given, "Weights can't be protected by")
    if found is Protection.ROLES and not chosen.suite.safe_role:
        raise UsageError(
            f"In suite {chosen.suite.name} no role is without thresholds to know.",
            "Take --protect-weights exact, or --suite rep3.",
        )
    return found


def require_secrets(tables: TableOptions, graphs: Mapping[str, Graph], chosen: Target) -> None:
    """UsageError where there is nothing of that kind, or it is public with all weights."""
    asked = []
    if tables.trees is Trees.SECRET:
        has_trees = any(graph.structures for graph in graphs.values())
        asked.append(("--trees", "decision trees whose structure", "the structure", has_trees))
    if tables.categories is Categories.SECRET:
        encodings = [given for graph in graphs.values() for given in graph.given.values()]
        has_text = any(given.is_hashed for given in encodings)
        asked.append(("--categories", "columns of text whose categories", "the table", has_text))
    for option, what, secret, is_there in asked:
        if not is_there:
            raise UsageError(f"The model has no {what} could be secret.", f"Leave {option} out.")
        if chosen.weights_owner == PUBLIC:
            raise UsageError(
                f"The weights are public, and {secret} that {option} keeps secret is among them.",
                f"Leave {option} out, or name a party: --owner weights=PARTY.",
            )


def require_error(max_error: object) -> None:
    """UsageError unless it is a share, or nothing."""
    if max_error is not None and not (isinstance(max_error, Real) and float(max_error) > 0):
        raise UsageError(
            f"An error of {max_error!r} can't be allowed.",
            "Give a number above 0, such as 0.01: a share of the outputs' mean size.",
        )


def one_of(kind: type[Choosable], given: str, refusal: str) -> Choosable:
    """What a user wrote, as one of an enumeration's members."""
    try:
        return kind(given)
    except ValueError:
        *others, last = (str(member.value) for member in kind)
        known = f"{', '.join(others)} or {last}"
        raise UsageError(f"{refusal} {given!r}.", f"Take {known}.") from None


def choosing(options: Options, given: Choosing) -> Options:
    """`options`, with what a user said of protocols; UsageError for what no goal or role is."""
    return replace(
        options,
        goal=one_of(Goal, given.get("goal", "auto"), "Protocols can't be chosen by"),
        roles=one_of(Roles, given.get("roles", "auto"), "Roles can't be"),
        is_prepared=given.get("prepared", False),
        most_store=given.get("most_store"),
    )


def ring_bits_of(ring: int | str) -> int | None:
    """None of "auto"."""
    if ring == "auto":
        return None
    try:
        return int(ring)
    except ValueError:
        raise UsageError(f"A ring of {ring!r} bits makes no sense.", "Use auto or bits.") from None

"""What parties state of a model to a client, read and held against each other.

A client has no plan: what it gives, to whom, and what it is told stands in what parties say. So
each of them states all of it, of all parties, and one that differs from the others ends the asking
before anything is sent. Where one party is honest, all is as its plan has it, or nobody is sent an
input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from veilgraph.ir.errors import PeerError, SecurityAbort, UsageError
from veilgraph.ir.plan.tables import Tensor
from veilgraph.runtime.client import wire


@dataclass(frozen=True)
class RoleStated:
    """Of a client role: what it gives, the parties that are sent it, and what it is told."""

    inputs: tuple[Tensor, ...]
    receivers: frozenset[str]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Stated:
    """What a party states of a model: see `Client`, whose attributes have these names."""

    plan: str
    session: str
    suite: str
    computing: tuple[str, ...]
    labels: Mapping[str, tuple[str, ...]]
    forms: Mapping[str, str]
    rows: int
    roles: Mapping[str, RoleStated]


def stated_by(party: str, fields: Mapping[str, Any]) -> Stated:
    """What a party's description of a model says; PeerError if it is none."""
    try:
        return Stated(
            _text(fields.get("plan")),
            _text(fields.get("session")),
            _text(fields.get("suite")),
            tuple(map(_text, _list(fields.get("computing")))),
            wire.labels_of(fields),
            wire.forms_of(fields),
            _count(fields.get("rows"), 1),
            {name: _role(name, each) for name, each in _fields(fields.get("roles")).items()},
        )
    except wire.WireError as error:
        raise _no_service(party, error) from error


def place_of(party: str, head: Mapping[str, Any]) -> tuple[int, int, tuple[tuple[str, str], ...]]:
    """Inference, row, and clients by role, in order, that a party's part is of.

    Raises:
        PeerError: it named none.
    """
    try:
        clients = _fields(head.get("clients"))
        came = tuple((role, _text(each)) for role, each in clients.items())
        return _count(head.get("number")), _count(head.get("row")), came
    except wire.WireError as error:
        raise _no_service(party, error) from error


def agreed(model: str, stated: Mapping[str, Stated]) -> Stated:
    """What all parties state.

    Args:
        stated: by party; those that compute, and any that only deal, which state no roles.

    Raises:
        UsageError: a party that computes is not listed.
        SecurityAbort: parties that state different things, and which one does, as far as that can
            be said.
    """
    _require_same(model, "plan", {name: each.plan for name, each in stated.items()})
    _require_same(model, "parties", {name: each.computing for name, each in stated.items()})
    computing = next(iter(stated.values())).computing
    if not computing or not all(name in stated for name in computing):
        raise UsageError(
            f"{model} is computed by {', '.join(computing) or 'nobody'}, and parties.yaml lists "
            f"{', '.join(stated)}.",
            "List all parties that compute.",
        )
    facts = {name: dict(_facts(each)) for name, each in stated.items() if name in computing}
    for what in facts[computing[0]]:
        _require_same(model, what, {name: each[what] for name, each in facts.items()})
    return stated[computing[0]]


def may_settle(stated: Mapping[str, Stated]) -> bool:
    """Whether parties state different plans or sessions, as honest ones do for a moment too.

    Who only deals is not asked about the session.
    """
    computing = next(iter(stated.values())).computing
    sessions = {each.session for name, each in stated.items() if name in computing}
    return len({each.plan for each in stated.values()}) > 1 or len(sessions) > 1


def _facts(stated: Stated) -> Iterator[tuple[str, object]]:
    """What parties must state alike, by what it is called to people."""
    yield "session", stated.session
    yield "suite", stated.suite
    yield "names of classes", stated.labels
    yield "forms of outputs", stated.forms
    yield "number of rows", stated.rows
    yield "roles", tuple(stated.roles)
    roles = stated.roles.items()
    yield "inputs or outputs", {name: (each.inputs, each.outputs) for name, each in roles}
    yield "parties that are sent an input", {name: each.receivers for name, each in roles}


def _require_same(model: str, what: str, found: Mapping[str, object]) -> None:
    """SecurityAbort where parties state different things."""
    if who := who_differs(found):
        raise SecurityAbort(
            f"{who} {model} with another {what}.",
            "Nothing was sent. Ask again in a moment; if it stays so, tell who runs the parties.",
        )


def who_differs(found: Mapping[str, object]) -> str:
    """Which party serves something else, as the begin of a sentence; "" if none does.

    One that differs from two or more who agree is named alone. Of two nobody can say which it is.
    """
    names = list(found)
    for odd in names:
        alike = [name for name in names if name != odd]
        first = found[alike[0]] if alike else None
        if found[odd] != first and len(alike) > 1 and all(found[each] == first for each in alike):
            return f"{odd}, other than {' and '.join(alike)}, serves"
    other = next((name for name in names if found[name] != found[names[0]]), None)
    return f"{names[0]} and {other} serve" if other else ""


def _role(name: str, fields: object) -> RoleStated:
    found = _fields(fields)
    inputs, outputs = (
        tuple(wire.tensor_of(_fields(each), name) for each in _list(found.get(what)))
        for what in ("inputs", "outputs")
    )
    return RoleStated(inputs, frozenset(map(_text, _list(found.get("receivers")))), outputs)


def _fields(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wire.WireError("it stated no fields where some belong")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise wire.WireError("it stated no list where one belongs")
    return value


def _text(value: object) -> str:
    """ASCII: digests, names of parties; other texts are hashed by nobody."""
    if not (isinstance(value, str) and value.isascii()):
        raise wire.WireError("it stated no text where one belongs")
    return value


def _count(value: object, least: int = 0) -> int:
    if not (type(value) is int and value >= least):
        raise wire.WireError("it stated no number where one belongs")
    return value


def _no_service(party: str, error: Exception) -> PeerError:
    return PeerError(f"{party} is no service: {error}.", "Ask who runs it what listens there.")

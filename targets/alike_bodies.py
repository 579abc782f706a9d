"""Bodies of protocols that are expanded once, and placed wherever a like operand is given.

What a body makes depends on what it closes over, on the parties' roles, on who was dealt more so
far, and on how its operand lies: who holds which part, since which phase, and which parts are
equal. Where all of these are as they were, the nodes are those of before, of other operands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass, replace
from types import FunctionType
from typing import Any

from veilgraph.ir.party.node import Shape
from veilgraph.ir.party.program import Program, Value
from veilgraph.ir.party.templates import Template, recording
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import Type
from veilgraph.targets.parties import Deal, Form, Link, Operation, Parties, Sharing
from veilgraph.targets.variants import Variant

Body = Callable[[Parties, Sharing], Sharing]
PLAIN = (int, str, float, type(None))


class _Unknown(Exception):
    """A body closes over something of which nobody says when two are the same."""


@dataclass(frozen=True)
class _Lying:
    """How a sharing lies, its nodes apart: these are a list, replicas last.

    Attributes:
        parts: of each its shape and type, and who holds it.
    """

    parts: tuple[tuple[Shape, Type, tuple[int, ...]], ...]
    form: Form
    resent: bool
    replica: _Lying | None

    @staticmethod
    def of(x: Sharing) -> _Lying:
        parts = tuple((part.shape, part.type, tuple(part.at)) for part in x.parts)
        return _Lying(parts, x.form, x.resent, None if x.replica is None else _Lying.of(x.replica))

    def sharing(self, program: Program, nodes: Iterator[int]) -> Sharing:
        parts = tuple(
            Value(program, {i: next(nodes) for i in holders}, shape, type)
            for shape, type, holders in self.parts
        )
        replica = None if self.replica is None else self.replica.sharing(program, nodes)
        return Sharing(parts, self.form, self.resent, replica)


def _nodes(x: Sharing) -> list[int]:
    own = [node for part in x.parts for node in part.at.values()]
    return own if x.replica is None else own + _nodes(x.replica)


@dataclass(frozen=True)
class _Made:
    """What a body made.

    Attributes:
        limits: of two links each, how much more the first has carried when the body is placed: more
            than the one number, and at most the other; else another is dealt something.
        used, dealt: what the body adds to those of `Parties`.
    """

    template: Template
    result: _Lying
    limits: tuple[tuple[Link, Link, float, float], ...]
    used: dict[str, Variant]
    dealt: Counter[Link]

    def fits(self, dealt: Counter[Link]) -> bool:
        return all(low < dealt[a] - dealt[b] <= high for a, b, low, high in self.limits)


def run(p: Parties, body: Body, x: Sharing) -> Sharing:
    """What a body makes of an operand, its source apart; `body` rotates no roles itself."""
    if p.bodies is None:
        return body(p, x)
    nodes = _nodes(x)
    phase = p.program.rows.phase
    operands = [*dict.fromkeys(n for n in nodes if phase(n) != Phase.SETUP)]
    number = {node: j for j, node in enumerate(operands)}
    try:
        key = (
            _known(body),
            (p.order, p.host, p.receiver, p.fixed_roles, p.rotates, tuple(p.chosen.items())),
            (p.program.phase, p.program.entry),
            _Lying.of(x),
            tuple((number[n], phase(n)) if n in number else (~n,) for n in nodes),
        )
    except _Unknown:
        return body(p, x)
    before: list[_Made] = p.bodies.setdefault(key, [])
    for made in before:
        if made.fits(p.dealt):
            results = made.template.placed(p.program, operands)
            if results is None:
                return body(p, x)
            p.used.update(made.used)
            p.dealt.update(made.dealt)
            return made.result.sharing(p.program, iter(results))
    return _recorded(p, body, x, operands, before)


def _recorded(
    p: Parties, body: Body, x: Sharing, operands: Sequence[int], kept: list[_Made]
) -> Sharing:
    """What a body makes, kept if it can be placed again."""
    q = replace(p, used={}, deals=[], bodies=None)
    dealt = Counter(p.dealt)
    with recording(p.program, operands) as record:
        result = body(q, x)
        template = record.template(_nodes(result))
    p.used.update(q.used)
    limits = _limits(q.deals or [], dealt)
    if template is not None and limits is not None:
        more = Counter({link: bits - dealt[link] for link, bits in p.dealt.items()})
        kept.append(_Made(template, _Lying.of(result), limits, q.used, +more))
    return result


def _limits(
    deals: Sequence[Deal], dealt: Counter[Link]
) -> tuple[tuple[Link, Link, float, float], ...] | None:
    """Between what differences of two links each deal is decided as it was; None of other numbers
    of links.

    Args:
        dealt: before all of them.
    """
    found: dict[tuple[Link, Link], tuple[float, float]] = {}
    for deal in deals:
        if len(deal) != 2:
            return None
        (a, sent_a), (b, sent_b) = deal
        low, high = found.get((a, b), (-float("inf"), float("inf")))
        # The first is taken where it has carried no more: d + (now - then) <= 0.
        edge = dealt[a] - dealt[b] - (sent_a - sent_b)
        taken = (low, min(high, edge)) if sent_a <= sent_b else (max(low, edge), high)
        found[a, b] = taken
    return tuple((a, b, low, high) for (a, b), (low, high) in found.items())


def _known(x: object) -> Hashable:
    """Equal of what a body may close over only where it does the same.

    Raises:
        _Unknown: of other things.
    """
    if isinstance(x, PLAIN):
        return type(x), x
    if isinstance(x, FunctionType):
        cells = tuple(_known(cell.cell_contents) for cell in x.__closure__ or ())
        return x.__code__, _known(x.__defaults__), _known(x.__kwdefaults__), cells
    if isinstance(x, tuple):
        return tuple(map(_known, x))
    if isinstance(x, Operation):
        return x.name, x.shape, x.ring_bits, _known(tuple(sorted(x.attrs.items())))
    if isinstance(x, Sharing):
        return _Lying.of(x), _of_setup(x)
    if _is_value(x):
        return x
    raise _Unknown


def _of_setup(x: Sharing) -> tuple[int, ...]:
    """The nodes of what is equal wherever it is read."""
    nodes = _nodes(x)
    phase = x.parts[0].program.rows.phase
    if any(phase(n) != Phase.SETUP for n in nodes):
        raise _Unknown
    return tuple(nodes)


def _is_value(x: Any) -> bool:
    """Whether it is a frozen dataclass that compares by its fields."""
    parameters = getattr(type(x), "__dataclass_params__", None) if is_dataclass(x) else None
    return parameters is not None and parameters.frozen and parameters.eq

"""What a protocol is written with: parties in roles, a provider, sharings, all seen from above.

A protocol's values are at some parties; a place is a role among those that compute, or a member.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from veilgraph.ir.party.node import Shape
from veilgraph.ir.party.program import Program, Value
from veilgraph.ir.types import Kind, Type, words
from veilgraph.targets.variants import Variant

Holders = Callable[[int, int], frozenset[int]]  # of a part, and of how many: computing parties
LinearMap = Callable[[Value], Value]  # the same of each part, and of the value
Link = tuple[int, int]  # sender and receiver
Deal = tuple[tuple[Link, int], ...]  # of each link that it could have taken the bits so far


@dataclass(frozen=True)
class Form:
    """How a sharing's parts are held. A suite with another way to hold them has a row of its own.

    Attributes:
        name: for people.
        holders: of part j of n, the roles that hold it.
        keeper: of part j of n, the one of them that keeps it where the sharing is read as an
            additive one; None where it is one as it is.
        is_public: its one part is the value, which everyone knows and is meant to.
    """

    name: str
    holders: Holders
    keeper: Callable[[int, int], int] | None = None
    is_public: bool = False

    REPLICATED: ClassVar[Form]
    ADDITIVE: ClassVar[Form]
    CLEAR: ClassVar[Form]
    PUBLIC: ClassVar[Form]


def all_but(lacking: int) -> Holders:
    """Part j is at every party but party j + `lacking`."""
    return lambda part, parts: frozenset(range(parts)) - {(part + lacking) % parts}


def alone(part: int, parts: int) -> frozenset[int]:
    """Part j is at party j alone."""
    return frozenset({part})


Form.REPLICATED = Form("replicated", all_but(1), lambda part, parts: part)  # of three: j - 1, j
Form.ADDITIVE = Form("additive", alone)  # not masked by a zero sharing
Form.CLEAR = Form("clear", alone)  # the value itself
Form.PUBLIC = Form("public", alone, is_public=True)


@dataclass(frozen=True, eq=False)
class Sharing:
    """A secret (or public) value as parts whose sum, or XOR for planes, it is.

    Attributes:
        resent: of a replicated value, that the second copy of each part costs a message of its own,
            which is not sent where nothing reads it.
        replica: of an additive value, the same in replicated form, resent: fewer bits than any
            additive value takes.
        known: the value at the one party that shared it, and moved its elements since.
        source: the sharing that this one is a linear map of, and the map of one part.
    """

    parts: tuple[Value, ...]
    form: Form
    resent: bool = False
    replica: Sharing | None = None
    known: Value | None = None
    source: tuple[Sharing, LinearMap] | None = None

    @property
    def shape(self) -> Shape:
        return self.parts[0].shape

    @property
    def type(self) -> Type:
        return self.parts[0].type

    @property
    def elements(self) -> int:
        return self.parts[0].elements

    def __getitem__(self, part: int) -> Value:
        """Part `part`, counted modulo the number of parts, as papers index them."""
        return self.parts[part % len(self.parts)]

    def map(self, body: LinearMap) -> Sharing:
        """A linear map, applied to each part."""
        made = None if self.replica is None else self.replica.map(body)
        parts = tuple(map(body, self.parts))
        return Sharing(parts, self.form, self.resent, made, source=(self, body))

    def rotated(self, by: int) -> Sharing:
        """The same value with part j + by in place of part j."""
        count = len(self.parts)
        made = None if self.replica is None else self.replica.rotated(by)
        parts = tuple(self.parts[(j + by) % count] for j in range(count))
        return Sharing(parts, self.form, self.resent, made)


@dataclass(frozen=True)
class Operation:
    """One op of the secret level, without MLIR: its name, result shape and ring, and attributes."""

    name: str
    shape: Shape
    ring_bits: int
    attrs: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.attrs[name]

    @property
    def type(self) -> Type:
        return words(self.ring_bits)


@dataclass(frozen=True)
class Member:
    """One of a program's parties, by its number: who gives a value, gets one, or prepares.

    It may compute or not: `Parties.role` says in which role it does.
    """

    party: int


Place = int | Member  # a role among those that compute, or somebody in particular


@dataclass(frozen=True)
class Parties:
    """The computing parties in the roles of a protocol: role i is party `order[i]`.

    Protocols name roles, and members of the program where it matters who they are. `rotated` gives
    the same parties in other roles, so that the work and the links of a protocol that treats its
    parties differently can be balanced.
    """

    program: Program
    order: tuple[int, ...]
    host: Member | None = None  # of what the provider prepares
    made: dict[Sharing, Any] = field(default_factory=dict)  # what a suite makes of a sharing once
    receiver: Member | None = None  # who is to know as little as can be of how values are rounded
    fixed_roles: bool = False  # in every truncation, though links are then not balanced
    rotates: bool = True  # from chunk to chunk, where a suite's protocols have unlike roles
    chosen: Mapping[str, Variant] = field(default_factory=dict)  # where not the suite's first
    used: dict[str, Variant] = field(default_factory=dict)  # by name, what was called
    dealt: Counter[Link] = field(default_factory=Counter)  # bits, by who sends to whom
    deals: list[Deal] | None = None  # what was decided of who is dealt; None: nobody asks
    bodies: dict[Any, Any] | None = None  # what bodies made (alike_bodies.py); None: none is kept

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.order)))

    def __len__(self) -> int:
        return len(self.order)

    @property
    def provider(self) -> Provider:
        """Where correlated randomness comes from."""
        assert self.host is not None, "this target has no provider"
        return Provider(self, self.host, tuple(self))

    def made_before(self, x: Sharing) -> tuple[Any, Sequence[LinearMap]] | None:
        """What a suite made of a sharing that `x` is a linear map of, the nearest, and the maps
        from there, in order; None where it made nothing.
        """
        maps: list[LinearMap] = []
        while x not in self.made:
            if x.source is None:
                return None
            x, body = x.source
            maps.insert(0, body)
        return self.made[x], maps

    def rotated(self, by: int) -> Parties:
        count = len(self.order)
        return replace(self, order=tuple(self.order[(i + by) % count] for i in self))

    def role(self, member: Member) -> int | None:
        """The role that a member computes in; None if it computes nothing."""
        return self.order.index(member.party) if member.party in self.order else None

    def index(self, place: Place) -> int:
        """The party there; roles count modulo their number, as papers index them."""
        if isinstance(place, Member):
            return place.party
        return self.order[place % len(self.order)]

    def at(self, value: Value, *places: Place) -> Value:
        """The copies of `value` at these places alone."""
        return value.only(*map(self.index, places))

    def draw(self, places: Sequence[Place], shape: Shape, type: Type) -> Value:
        """Fresh uniform randomness, known at these places alone."""
        return self.program.draw(map(self.index, places), shape, type)

    def share(
        self, name: str, part: int, parts: int, roles: Sequence[int], shape: Shape, type: Type
    ) -> Value:
        """Part `part` of weight `name`, from the files of these roles."""
        holders = (self.index(role) for role in roles)
        return self.program.share(name, (part, parts), holders, shape, type)

    def state(
        self, name: str, part: int, parts: int, roles: Sequence[int], shape: Shape, type: Type
    ) -> Value:
        """Part `part` of state `name`, as the last run left it at these roles."""
        holders = (self.index(role) for role in roles)
        return self.program.state(name, (part, parts), holders, shape, type)

    def keep(self, value: Value, name: str, part: int, parts: int, roles: Sequence[int]) -> None:
        """Lets these roles keep their copies of `value` as a part of state `name`."""
        holders = (self.index(role) for role in roles)
        self.program.keep(value, name, (part, parts), holders)

    def send(self, value: Value, sender: Place, receiver: Place, declared: str = "") -> Value:
        return self.program.send(value, self.index(sender), self.index(receiver), declared)


@dataclass(frozen=True)
class Dealt:
    """A sharing of what the provider knows: its parts, and the value there."""

    parts: tuple[Value, ...]
    value: Value


@dataclass(frozen=True)
class Provider:
    """Correlated randomness for additive sharings among members, from a host that is none of them.

    It shares a key with each member: what is only to be random costs no message. Parts are in the
    members' order. Members are all computing parties, or two for whom the third one prepares.
    """

    parties: Parties
    host: Place
    members: tuple[int, ...]

    def random(self, shape: Shape, type: Type) -> Dealt:
        """A random value that nobody but the provider knows.  Nothing is sent."""
        parts = [self.parties.draw((i, self.host), shape, type) for i in self.members]
        total = parts[0]
        for part in parts[1:]:
            total = plus(self.own(total), self.own(part))
        return Dealt(self.each(parts), self.own(total))

    def deal(self, value: Value) -> tuple[Value, ...]:
        """Parts of what the provider knows.  Offline; one value of its width to one member.

        All others draw theirs. The member is who was sent least so far: links are balanced.
        """
        p, last = self.parties, min(self.members, key=self._sent)
        if p.deals is not None:
            links = ((p.index(self.host), p.index(i)) for i in self.members)
            p.deals.append(tuple((link, p.dealt[link]) for link in links))
        drawn = {
            i: p.draw((i, self.host), value.shape, value.type) for i in self.members if i != last
        }
        rest = self.own(value)
        for part in drawn.values():
            rest = minus(rest, self.own(part))
        p.dealt[p.index(self.host), p.index(last)] += value.type.bits * value.elements
        sent = p.send(rest, self.host, last)
        return self.each([drawn.get(i, sent) for i in self.members])

    def _sent(self, member: int) -> int:
        return self.parties.dealt[self.parties.index(self.host), self.parties.index(member)]

    def opened(self, parts: Sequence[Value]) -> Value:
        """The sum of one part a member, at all of them: masked by the caller.  1 round."""
        total: Value | None = None
        for i, part in zip(self.members, parts, strict=True):
            for j in self.members:
                if j != i:
                    part = self.parties.send(part, i, j)
            total = part if total is None else plus(total, part)
        assert total is not None
        return total

    def opened_under(self, parts: Sequence[Value], mask: Sequence[Value]) -> Value:
        """The sum of the parts and of those of a mask, one each a member, at all.  1 round."""
        return self.opened([plus(part, m) for part, m in zip(parts, mask, strict=True)])

    def own(self, value: Value) -> Value:
        """The provider's copy."""
        return self.parties.at(value, self.host)

    def each(self, parts: Sequence[Value]) -> tuple[Value, ...]:
        """The copies of parts where they belong."""
        found = zip(parts, self.members, strict=True)
        return tuple(self.parties.at(part, i) for part, i in found)

    def plus_public(self, parts: Sequence[Value], public: Value) -> tuple[Value, ...]:
        """Parts of the value plus what all members know."""
        first, *others = parts
        return (plus(first, self.parties.at(public, self.members[0])), *others)


def plus(x: Value, y: Value) -> Value:
    """The sum in the ring, or the XOR of bit planes."""
    return x + y if x.type.kind is Kind.WORDS else x ^ y


def minus(x: Value, y: Value) -> Value:
    return x - y if x.type.kind is Kind.WORDS else x ^ y

"""What a protocol suite is: protocols under one security model, written on values seen from above.

A suite is one file in targets/suites/. Each protocol is an ordinary function of the parties, the
secret op and its operands; it returns a sharing. It has no loop over elements, no socket, no
device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from veilgraph.ir.errors import Offender, UnsupportedError
from veilgraph.ir.party.program import Program, Shape, Value
from veilgraph.ir.roles import Role
from veilgraph.ir.secret.function_forms import FunctionForm
from veilgraph.ir.types import Kind, Type, words
from veilgraph.targets.functions.function_block import Fitted, FunctionBlock, Wanted
from veilgraph.targets.variants import NOTHING, STANDARD, Needs, Protocol, Rounding, Variant

Holders = Callable[[int, int], frozenset[int]]  # of a part, and of how many: computing parties


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
    """

    parts: tuple[Value, ...]
    form: Form
    resent: bool = False
    replica: Sharing | None = None

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

    def map(self, body: Callable[[Value], Value]) -> Sharing:
        """A linear map, applied to each part."""
        made = None if self.replica is None else self.replica.map(body)
        return Sharing(tuple(map(body, self.parts)), self.form, self.resent, made)

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
    dealt: Counter[tuple[int, int]] = field(default_factory=Counter)  # bits, by who sends to whom

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.order)))

    def __len__(self) -> int:
        return len(self.order)

    @property
    def provider(self) -> Provider:
        """Where correlated randomness comes from."""
        assert self.host is not None, "this target has no provider"
        return Provider(self, self.host, tuple(self))

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


# How values enter and leave: sources and receivers are members, who may compute or not.
Share = Callable[[Parties, Member, Value], Sharing]
FromShares = Callable[[Parties, str, Shape, Type], Sharing]
Keep = Callable[[Parties, str, Sharing], None]
Reveal = Callable[[Parties, Member, Sharing], Value]
RevealTruncated = Callable[[Parties, Operation, Member, Sharing], Value]


@dataclass(frozen=True)
class Security:
    """Against whom a suite protects. There is no default that a party can read."""

    parties: tuple[int, int]  # fewest and most computing parties
    adversary: str  # "semi-honest", "malicious", "none"
    threshold: str  # how many parties may collude, in words
    coalition: int  # so many see nothing together; counted from all computing parties if negative
    provider: Role | None = None  # in which a host prepares; None: the parties need nobody

    def __str__(self) -> str:
        return f"{self.adversary} adversary: {self.threshold}"


@dataclass(frozen=True)
class States:
    """How secrets last from run to run.

    Attributes:
        found: a sharing of a state, by name, as the last run left it.
        keep: puts a sharing in its place, for the next run.
    """

    found: FromShares
    keep: Keep


@dataclass(frozen=True)
class Suite:
    """Protocols under one security model, and how values enter and leave.

    Attributes:
        share: a sharing of what one party, the owner, knows.
        from_shares: a sharing of a weight whose parts the parties' files hold, by name.
        reveal: the value of a sharing, at one party, the receiver.
        reveal_truncated: the same of a truncated value, for the receiver alone; None: a value is
            truncated for all parties, and then revealed.
        states: what lasts from run to run; None: nothing does.
        replicate: gives a value in parts of two its replica, in traces of what reads such a value;
            None: no protocol leaves a replica.
        rotates: roles are unlike, and parties take turns in them from chunk to chunk of a tensor.
        needs_consent: must be asked for by name, and says so in the manifest.
        functions: the building blocks for real functions; the first that fits a function is taken.
        protocols: the variants of each op and building block; the first is taken where nothing is
            chosen.
    """

    name: str
    security: Security
    summary: str
    share: Share
    from_shares: FromShares
    reveal: Reveal
    reveal_truncated: RevealTruncated | None = None
    states: States | None = None
    replicate: Callable[[Parties, Sharing], Sharing] | None = None
    rotates: bool = False
    needs_consent: bool = False
    functions: tuple[FunctionBlock, ...] = ()
    protocols: dict[str, tuple[Variant, ...]] = field(default_factory=dict)

    @property
    def safe_role(self) -> bool:
        """Whether a role knows no threshold of a truncation, and may be fixed."""
        truncations = self.protocols.get("truncate", ())
        return any(variant.rounding == Rounding.SAFE_ROLE for variant in truncations[:1])

    def protocol(
        self,
        *ops: str,
        variant: str = STANDARD,
        needs: Needs = NOTHING,
        rounding: Rounding = Rounding.EXACT,
    ) -> Callable[[Protocol], Protocol]:
        """Registers a function as a protocol of secret ops, or of a building block of others."""

        def register(function: Protocol) -> Protocol:
            for op in ops:
                before = self.protocols.get(op, ())
                assert variant not in [other.name for other in before], (
                    f"{self.name} has two protocols for {op} that are called {variant}"
                )
                made = Variant(variant, function, needs, rounding)
                self.protocols[op] = (*before, made)
            return function

        return register

    def offer(self, name: str, variants: Mapping[str, Protocol]) -> None:
        """Adds exact variants of an op or building block, the first of them for where nothing is
        chosen."""
        for variant, function in variants.items():
            self.protocol(name, variant=variant)(function)

    def include(
        self, protocols: Mapping[str, Protocol], rounding: Rounding = Rounding.EXACT
    ) -> None:
        """Adds protocols shared with other suites, where this one has none of its own."""
        for op, function in protocols.items():
            self.protocols.setdefault(op, (Variant(STANDARD, function, rounding=rounding),))

    def offered(self, op: str, node: str = "") -> Protocol:
        """The first protocol of a secret op, which `node` of a model needs.

        Raises:
            UnsupportedError: this suite has none.
        """
        if op not in self.protocols:
            raise self._without(op, node)
        return self.protocols[op][0].function

    def fit(self, wanted: Wanted) -> Fitted | None:
        """The form of the first building block that has one; None where none is exact enough.

        Raises:
            UnsupportedError: this suite has no building block for the function.
        """
        blocks = [block for block in self.functions if wanted.function in block.functions]
        if not blocks:
            raise self._without(wanted.function)
        return next((found for block in blocks if (found := block.fit(wanted))), None)

    def typical(self, ring_bits: int, in_bits: int, out_bits: int) -> FunctionForm:
        """A form that costs what functions of such encodings cost.

        Raises:
            UnsupportedError: this suite has no building block that knows.
        """
        for block in self.functions:
            if block.typical is not None:
                return block.typical(ring_bits, in_bits, out_bits)
        raise self._without("a real function")

    def _without(self, op: str, node: str = "") -> UnsupportedError:
        reason = f"Suite {self.name} has no protocol for it."
        way_out = "Take another --suite; `compile --compare-suites` shows which can."
        return UnsupportedError([Offender(node or op, op, self.name, reason, way_out)])

    def called(self, p: Parties, name: str, node: str = "") -> Protocol:
        """The protocol of an op or of a building block that was chosen for these parties.

        Protocols call others through it, so that one choice holds wherever a block is used.

        Raises:
            UnsupportedError: this suite has none.
        """
        if name not in p.chosen:
            self.offered(name, node)
        variant = p.chosen.get(name) or self.protocols[name][0]
        p.used[name] = variant
        return variant.function

    def choices(self, used: Mapping[str, Variant]) -> str:
        """Of what was called, what there was a choice of: `compare=few-rounds`."""
        several = (name for name in used if len(self.protocols.get(name, ())) > 1)
        return ", ".join(f"{name}={used[name].name}" for name in several)

"""What a protocol suite is: protocols under one security model, written on values seen from above.

A suite is one file in targets/suites/. Each protocol is an ordinary function of the parties, the
secret op and its operands; it returns a sharing. It has no loop over elements, no socket, no
device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from veilgraph.ir.errors import Offender, UnsupportedError
from veilgraph.ir.party import Program, Shape, Value
from veilgraph.ir.types import Type, words


class Dealer(Enum):
    """The role of a party that deals correlated randomness and computes nothing."""

    DEALER = "dealer"


DEALER = Dealer.DEALER
Role = int | Dealer


class Form(Enum):
    """How a sharing's parts are held."""

    REPLICATED = "replicated"  # part j at every party but one
    ADDITIVE = "additive"  # part j at party j alone, not masked by a zero sharing
    CLEAR = "clear"  # one part, the value itself
    PUBLIC = "public"  # one part, held by every party and meant to be


@dataclass(frozen=True, eq=False)
class Sharing:
    """A secret (or public) value as parts whose sum, or XOR for planes, it is.

    `resent` says of a replicated value that the second copy of each part costs a message of its
    own, which is not sent where nothing reads it.
    """

    parts: tuple[Value, ...]
    form: Form
    resent: bool = False

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
        return Sharing(tuple(body(part) for part in self.parts), self.form, self.resent)

    def rotated(self, by: int) -> Sharing:
        """The same value with part j + by in place of part j."""
        count = len(self.parts)
        parts = tuple(self.parts[(j + by) % count] for j in range(count))
        return Sharing(parts, self.form, self.resent)


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
class Parties:
    """The computing parties in the roles of a protocol: role i is party `order[i]`.

    Protocols name roles. `rotated` gives the same parties in other roles, so that the work and the
    links of a protocol that treats its parties differently can be balanced.
    """

    program: Program
    order: tuple[int, ...]
    dealer: int | None = None
    made: dict[Sharing, Any] = field(default_factory=dict)  # what a suite makes of a sharing once
    receiver: int | None = None  # who is to know as little as can be of how values are rounded
    fixed_roles: bool = False  # in every truncation, though links are then not balanced

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.order)))

    def __len__(self) -> int:
        return len(self.order)

    def rotated(self, by: int) -> Parties:
        count = len(self.order)
        return replace(self, order=tuple(self.order[(i + by) % count] for i in self))

    def role(self, party: int) -> int:
        return self.order.index(party)

    def index(self, role: Role) -> int:
        """The party in a role; roles count modulo their number, as papers index them."""
        if isinstance(role, Dealer):
            assert self.dealer is not None, "this target has no dealer"
            return self.dealer
        return self.order[role % len(self.order)]

    def at(self, value: Value, *roles: Role) -> Value:
        """The copies of `value` at these roles alone."""
        return value.only(*map(self.index, roles))

    def draw(self, roles: Sequence[Role], shape: Shape, type: Type) -> Value:
        """Fresh uniform randomness, known to these roles alone."""
        return self.program.draw(map(self.index, roles), shape, type)

    def share(
        self, name: str, part: int, parts: int, roles: Sequence[int], shape: Shape, type: Type
    ) -> Value:
        """Part `part` of weight `name`, from the files of these roles."""
        holders = (self.index(role) for role in roles)
        return self.program.share(name, (part, parts), holders, shape, type)

    def send(self, value: Value, sender: Role, receiver: Role, declared: str = "") -> Value:
        return self.program.send(value, self.index(sender), self.index(receiver), declared)


# Of the parties, the op and its operands' sharings it makes the result's; "share" makes a sharing
# of an owner's value, "from_shares" one of a weight whose parts the parties' files hold, and
# "reveal" a value of a sharing.
Protocol = Callable[..., Any]


@dataclass(frozen=True)
class Security:
    """Against whom a suite protects. There is no default that a party can read."""

    parties: tuple[int, int]  # fewest and most computing parties
    adversary: str  # "semi-honest", "malicious", "none"
    threshold: str  # how many parties may collude, in words
    coalition: int  # so many see nothing together; counted from all computing parties if negative
    dealer: bool = False

    def __str__(self) -> str:
        return f"{self.adversary} adversary: {self.threshold}"


@dataclass(frozen=True)
class Suite:
    """Protocols by the name of the secret op that they compute, and how values enter and leave."""

    name: str
    security: Security
    summary: str
    safe_role: bool = False  # one that knows no threshold of a truncation may be fixed
    needs_consent: bool = False  # must be asked for by name, and says so in the manifest
    protocols: dict[str, Protocol] = field(default_factory=dict)

    def protocol(self, *ops: str) -> Callable[[Protocol], Protocol]:
        """Registers a function as the protocol of secret ops, or of "share" and its like."""

        def register(function: Protocol) -> Protocol:
            for op in ops:
                assert op not in self.protocols, f"{self.name} has two protocols for {op}"
                self.protocols[op] = function
            return function

        return register

    def include(self, protocols: Mapping[str, Protocol]) -> None:
        """Adds protocols shared with other suites, where this one has none of its own."""
        for op, function in protocols.items():
            self.protocols.setdefault(op, function)

    def offered(self, op: str, node: str = "") -> Protocol:
        """The protocol of a secret op, which `node` of a model needs.

        Raises:
            UnsupportedError: this suite has none.
        """
        if op not in self.protocols:
            reason = f"Suite {self.name} has no protocol for it."
            way_out = "Take another --suite; `compile --compare-suites` shows which can."
            raise UnsupportedError([Offender(node or op, op, self.name, reason, way_out)])
        return self.protocols[op]

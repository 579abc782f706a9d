"""What a protocol suite is: protocols under one security model, written on values seen from above.

A suite is one file in targets/suites/. Each protocol is an ordinary function of the parties, the
secret op and its operands; it returns a sharing. It has no loop over elements, no socket, no
device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from veilgraph.ir.errors import Offender, UnsupportedError
from veilgraph.ir.party.node import Shape
from veilgraph.ir.party.program import Value
from veilgraph.ir.roles import Role
from veilgraph.ir.secret.function_forms import FunctionForm
from veilgraph.ir.types import Type
from veilgraph.targets.functions.function_block import Fitted, FunctionBlock, Wanted
from veilgraph.targets.parties import Member, Operation, Parties, Sharing
from veilgraph.targets.variants import NOTHING, STANDARD, Needs, Protocol, Rounding, Variant

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
        rotates_from: elements of the smallest tensor that is cut in chunks, from one of which to
            the next unlike roles rotate; None: roles are alike.
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
    rotates_from: int | None = None
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

    def offer(
        self, name: str, variants: Mapping[str, Protocol], rounding: Rounding = Rounding.EXACT
    ) -> None:
        """Adds variants of an op or building block, the first of them for where nothing is
        chosen."""
        for variant, function in variants.items():
            self.protocol(name, variant=variant, rounding=rounding)(function)

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

"""Calls of protocols, and what each choice of variants costs one, traced alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.tables import EACH, SHARED, STATE, Phase
from veilgraph.ir.secret.facts import FACTS, Compares, Rounding
from veilgraph.ir.secret.function_forms import FunctionForm
from veilgraph.ir.secret.ops import SecretOp
from veilgraph.ir.secret.program import Argument
from veilgraph.ir.secret.types import Secrecy, Tensor
from veilgraph.ir.types import words
from veilgraph.passes.party.expand_protocols import given_by_all
from veilgraph.passes.secret.function_protocols import form_of, operation_of
from veilgraph.passes.secret.protocols.costs import (
    Communication,
    any_constant,
    any_tables,
    communication,
    computed,
    kept,
    of_call,
    parties_of,
    source,
)
from veilgraph.targets.blocks.linear import additive
from veilgraph.targets.parties import Form, Member, Operation, Parties, Sharing
from veilgraph.targets.target import Target
from veilgraph.targets.variants import Variant

Choice = Mapping[str, Variant]  # by the name of an op or of a building block

SAMPLE = 64  # elements: roles don't rotate, and planes are not padded
MOST_MADE = 1 << 14  # traces of a target that are kept: a few kB each


@dataclass(frozen=True)
class Held:
    """How a sharing lies at the parties; of `Sharing`, all that bears on what is done with it."""

    form: Form
    resent: bool = False
    paired: bool = False  # whether it has a replica, of fewer bits than others
    ahead: frozenset[int] = frozenset()  # parts that their holders know before any input is there
    zeros: frozenset[int] = frozenset()  # parts that are zero
    knower: int | None = None  # the party that has the value itself

    @staticmethod
    def of(x: Sharing) -> Held:
        parts = list(enumerate(x.parts))
        zeros = frozenset(j for j, part in parts if part.constant_value() == 0)
        ahead = frozenset(j for j, part in parts if part.phase < Phase.ONLINE) - zeros
        knower = None if x.known is None else min(x.known.at)
        return Held(x.form, x.resent, x.replica is not None, ahead, zeros, knower)


@dataclass(frozen=True)
class Operand:
    """What a protocol is given: how it is encoded, where it comes from, and how it is held."""

    tensor: Tensor
    role: str = ""  # of an argument
    owner: str = ""
    held: Held | None = None  # None: as its source shares it


@dataclass(frozen=True)
class Call:
    """An op of a program, without MLIR.

    Attributes:
        is_multiplied: whether a product of secrets reads the result, or a linear map of it.
        with_replica: whether a replica of the result is part of the price.
    """

    operation: Operation
    operands: tuple[Operand, ...]
    layer: str
    form: FunctionForm | None = None
    is_multiplied: bool = False
    with_replica: bool = False

    @staticmethod
    def of(op: SecretOp, operands: tuple[Operand, ...], is_multiplied: bool = False) -> Call:
        name = op.location.name_str
        return Call(operation_of(op), operands, name, form_of(op), is_multiplied)

    @cached_property
    def kind(self) -> tuple[object, ...]:
        """Equal of calls that cost the same."""
        operation = self.operation
        attrs = repr(sorted(operation.attrs.items()))
        told = self.is_multiplied, self.with_replica
        return operation.name, operation.shape, operation.ring_bits, attrs, self.operands, told

    @property
    def is_elementwise(self) -> bool:
        """Whether it costs what its elements cost, one by one: a comparison with zero does."""
        facts = FACTS.get(self.operation.name)
        if facts is None or self.operands[0].tensor.shape != self.operation.shape:
            return False
        return facts.compares is Compares.SIGN or facts.rounding is Rounding.NEAREST

    @property
    def largest(self) -> int:
        """Elements of the largest operand that is no weight."""
        computed = (x for x in self.operands if x.role != "weight")
        secret = (x.tensor for x in computed if x.tensor.encoding.secrecy is Secrecy.SECRET)
        return max((prod(tensor.shape) for tensor in secret), default=0)

    def sampled(self, elements: int) -> Call:
        """The same op on a vector; what its integers stand for costs nothing."""
        operands = (
            replace(x, tensor=Tensor((elements,), replace(x.tensor.encoding, frac_bits=0)))
            for x in self.operands
        )
        operation = replace(self.operation, shape=(elements,))
        return replace(self, operation=operation, operands=tuple(operands), layer="")


@dataclass(frozen=True)
class Traced:
    """What a choice costs a call, what its protocols called, and how the result is held."""

    sent: Communication
    used: Choice
    held: Held


@dataclass(frozen=True)
class Traces:
    """Every choice of each call, each kind of call traced once in a process.

    Attributes:
        rotates: parties rotate through roles.
        receiver: who is to know as little as can be of how values are rounded.
    """

    target: Target
    rotates: bool
    receiver: Member | None = None
    # The choices of each kind of call: layers of a model are alike.
    _found: dict[tuple[object, ...], list[tuple[Choice, Traced]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def shared(self, argument: Argument) -> Traced:
        """An input, by who has it."""
        p, owner = self._parties({}), self.target.member(argument.owner)
        type = words(argument.tensor.encoding.ring_bits)
        x = p.program.source("input", "x", owner.party, argument.tensor.shape, type)
        first = len(p.program.nodes)
        result = self.target.suite.share(p, owner, x)
        return Traced(communication(result, first), {}, Held(result.form))

    def revealed(self, operand: Operand, who: str, truncation: Operation | None) -> Traced:
        """An output to one receiver, which may be truncated on the way."""
        p, suite = self._parties({}), self.target.suite
        x, member = self._operand(p, "x", operand), self.target.member(who)
        first = len(p.program.nodes)
        x = self._with_replica(p, x, operand.held)
        if truncation is None:
            clear = suite.reveal(p, member, x)
        else:
            assert suite.reveal_truncated is not None, "nothing is rounded as it is revealed"
            clear = suite.reveal_truncated(p, truncation, member, x)
        sent = communication(Sharing((clear,), Form.PUBLIC), first)
        return Traced(sent, {}, Held(Form.PUBLIC))

    def options(self, call: Call) -> list[tuple[Choice, Traced]]:
        """The choices that a call has, one at least; first the first variants of all. Calls of one
        kind have the same list.

        Where these leave a replicated result, and a product reads it, others pay for their replica.

        Raises:
            UsageError: a protocol that was chosen by hand, and does not take the call's ring.
            UnsupportedError: the suite has no protocol for it.
        """
        found = self._found.get(call.kind)
        if found is None:
            found = self._found[call.kind] = self._all_options(call)
        return found

    def _all_options(self, call: Call) -> list[tuple[Choice, Traced]]:
        found = list(self._options(call, self.target.protocols))
        for name, variant in found[0][1].used.items():
            if not _takes(variant, call):
                raise UsageError(
                    f"{name}={variant.name} takes rings of at most {variant.needs.ring_bits} "
                    f"bits, and {call.layer!r} is in one of {call.operation.ring_bits}.",
                    "Take a narrower --ring, or leave out --protocol.",
                )
        if not call.is_multiplied or found[0][1].held.form is not Form.REPLICATED:
            return found
        whole = replace(call, with_replica=True)
        return [(c, self._traced(whole, c) if t.held.paired else t) for c, t in found]

    def _options(self, call: Call, choice: Choice) -> Iterator[tuple[Choice, Traced]]:
        """Every choice of what is called, which depends on the choice of what calls it."""
        traced = self._traced(call, choice)
        for name in traced.used:
            variants = self.target.variants(name)
            if name not in choice and len(variants) > 1:
                first, *others = variants
                for variant in (first, *(v for v in others if _takes(v, call))):
                    yield from self._options(call, {**choice, name: variant})
                return
        yield choice, traced

    def _traced(self, call: Call, choice: Choice) -> Traced:
        """Of element-wise ops a vector of few elements is traced, which are one chunk."""
        elements = prod(call.operation.shape)
        # Roles don't rotate among so few elements: a sample is the same either way.
        traced = (
            self._known(call.sampled(min(elements, SAMPLE)), choice, ())
            if call.is_elementwise
            else self._known(call, choice, (self.rotates,))
        )
        sent, held = traced.sent, traced.held
        if call.is_elementwise and elements > SAMPLE:
            sent = sent.scaled(-(-elements // SAMPLE))
        smallest = self.target.suite.rotates_from
        if self.rotates and smallest is not None and call.largest >= smallest:
            sent = sent.rotated(len(self.target.parties))
            # Who has which part of the next op depends on the rotation.
            held = replace(held, ahead=frozenset(), zeros=frozenset())
        return replace(traced, sent=sent, held=held)

    def _unusual(self, choice: Choice) -> tuple[tuple[str, str], ...]:
        """What would not have been taken where nothing is chosen."""
        first = {name: self.target.variants(name)[0] for name in choice}
        return tuple(sorted((n, v.name) for n, v in choice.items() if v is not first[n]))

    @cached_property
    def _made(self) -> dict[tuple[object, ...], Traced]:
        return kept(self.target, self.receiver, Traced)

    def _known(self, call: Call, choice: Choice, rotates: tuple[bool, ...]) -> Traced:
        key = (*call.kind, self._unusual(choice), rotates)
        found = self._made.get(key)
        if found is None:  # another thread may be adding the same, and may clear all
            if len(self._made) >= MOST_MADE:
                self._made.clear()
            found = self._made[key] = self._trace(call, choice)
        return found

    def _trace(self, call: Call, choice: Choice) -> Traced:
        p = self._parties(choice)
        operands = [self._operand(p, f"x{j}", each) for j, each in enumerate(call.operands)]
        first = len(p.program.nodes)
        each = zip(operands, call.operands, strict=True)
        whole = [self._with_replica(p, x, operand.held) for x, operand in each]
        if call.form is not None:
            whole += any_tables(p, call.form)
        result = of_call(p, self.target, call.operation, whole, call.layer)
        if call.with_replica and result.replica is not None:
            result = result.replica
        sent = communication(result, first).balanced(p.dealt, len(p))
        return Traced(sent, p.used, Held.of(result))

    def _parties(self, choice: Choice) -> Parties:
        p = parties_of(self.target, choice)
        return replace(p, rotates=self.rotates, receiver=self.receiver)

    def _operand(self, p: Parties, name: str, operand: Operand) -> Sharing:
        tensor, encoding = operand.tensor, operand.tensor.encoding
        if encoding.secrecy is Secrecy.PUBLIC:
            return any_constant(p, tensor.shape, encoding.ring_bits)
        held = operand.held
        if held is None:
            return self._given(p, name, operand)
        x = computed(p, self.target, name, tensor.shape, encoding.ring_bits)
        x = additive(p, x) if held.form is Form.ADDITIVE else replace(x, resent=held.resent)
        parts = list(x.parts)
        for j in held.ahead:
            parts[j] = p.draw(sorted(parts[j].at), x.shape, x.type)
        for j in held.zeros:
            parts[j] = p.program.const(0, x.shape, x.type).only(*parts[j].at)
        known = None
        if held.knower is not None:
            known = p.program.source("input", f"{name}/known", held.knower, x.shape, x.type)
        return replace(x, parts=tuple(parts), known=known)

    def _with_replica(self, p: Parties, x: Sharing, held: Held | None) -> Sharing:
        """x, whose replica is part of the price of what reads it."""
        replicate = self.target.suite.replicate
        return x if replicate is None or held is None or not held.paired else replicate(p, x)

    def _given(self, p: Parties, name: str, operand: Operand) -> Sharing:
        """An argument of the program, by who has it."""
        shape, ring_bits = operand.tensor.shape, operand.tensor.encoding.ring_bits
        suite, owner = self.target.suite, operand.owner
        if owner == STATE and suite.states is not None:
            return suite.states.found(p, name, shape, words(ring_bits))
        if owner == EACH:
            return given_by_all(p, self.target, owner, name, shape, words(ring_bits))
        if owner == SHARED:
            return suite.from_shares(p, name, shape, words(ring_bits))
        is_weight, giver = operand.role == "weight", self.target.member(owner)
        return source(p, self.target, name, shape, ring_bits, is_weight, giver)


def _takes(variant: Variant, call: Call) -> bool:
    return call.operation.ring_bits <= variant.needs.ring_bits

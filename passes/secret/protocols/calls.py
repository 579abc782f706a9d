"""Calls of protocols, and what each choice of variants costs one, traced alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.secret.facts import FACTS, Compares, Rounding
from veilgraph.ir.secret.function_forms import FunctionForm
from veilgraph.ir.secret.ops import SecretOp
from veilgraph.ir.secret.types import Secrecy, Tensor
from veilgraph.ir.types import words
from veilgraph.passes.secret.function_protocols import form_of, operation_of
from veilgraph.passes.secret.protocols.costs import (
    Communication,
    any_constant,
    any_tables,
    of_call,
    parties_of,
    source,
)
from veilgraph.targets.blocks.linear import additive
from veilgraph.targets.suite import Form, Operation, Parties, Sharing
from veilgraph.targets.target import Target
from veilgraph.targets.variants import Variant

Choice = Mapping[str, Variant]  # by the name of an op or of a building block

SAMPLE = 64  # elements: roles don't rotate, and planes are not padded


@dataclass(frozen=True)
class Held:
    """How a sharing lies at the parties; of `Sharing`, all that bears on what is done with it."""

    form: Form
    resent: bool = False
    ahead: frozenset[int] = frozenset()  # parts that their holders know before any input is there


@dataclass(frozen=True)
class Operand:
    """What a protocol is given: how it is encoded, where it comes from, and how it is held."""

    tensor: Tensor
    role: str  # "input", "state", "weight", or "" for what was computed
    held: Held | None = None  # None: as its source shares it


@dataclass(frozen=True)
class Call:
    """An op of a program, without MLIR."""

    operation: Operation
    operands: tuple[Operand, ...]
    layer: str
    form: FunctionForm | None = None

    @staticmethod
    def of(op: SecretOp, operands: tuple[Operand, ...]) -> Call:
        return Call(operation_of(op), operands, op.location.name_str, form_of(op))

    @property
    def kind(self) -> tuple[object, ...]:
        """Equal of calls that cost the same."""
        operation = self.operation
        attrs = repr(sorted(operation.attrs.items()))
        return operation.name, operation.shape, operation.ring_bits, attrs, self.operands

    @property
    def is_elementwise(self) -> bool:
        """Whether it costs what its elements cost, one by one: a comparison with zero does."""
        facts = FACTS.get(self.operation.name)
        return facts is not None and (
            facts.compares is Compares.SIGN or facts.rounding is Rounding.NEAREST
        )

    def sampled(self) -> Call:
        """The same op on a few elements."""
        operands = (replace(x, tensor=replace(x.tensor, shape=(SAMPLE,))) for x in self.operands)
        operation = replace(self.operation, shape=(SAMPLE,))
        return replace(self, operation=operation, operands=tuple(operands), layer="")


@dataclass(frozen=True)
class Traced:
    """What a choice costs a call, what its protocols called, and how the result is held."""

    sent: Communication
    used: Choice
    held: Held


@dataclass(frozen=True)
class Traces:
    """Every choice of each call, each kind of call traced once.

    Attributes:
        rotates: parties take turns in roles.
        known: of few elements with turns and without, for these are one chunk.
    """

    target: Target
    rotates: bool
    known: dict[tuple[object, ...], Traced] = field(default_factory=dict)

    def options(self, call: Call) -> list[tuple[Choice, Traced]]:
        """The choices that a call has, one at least; first the first variants of all.

        Raises:
            UsageError: a protocol that was chosen by hand, and does not take the call's ring.
            UnsupportedError: the suite has no protocol for it.
        """
        found = list(self._options(call, self.target.protocols))
        for name, variant in found[0][1].used.items():
            if not _takes(variant, call):
                raise UsageError(
                    f"{name}={variant.name} takes rings of at most {variant.needs.ring_bits} "
                    f"bits, and {call.layer!r} is in one of {call.operation.ring_bits}.",
                    "Take a narrower --ring, or leave out --protocol.",
                )
        return found

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
        """Of element-wise ops only the first variants are traced whole, others on a few elements:
        links are balanced alike.
        """
        elements, usual = prod(call.operation.shape), self.target.protocols
        if not call.is_elementwise or elements <= SAMPLE or not self._unusual(choice):
            return self._known(call, choice)
        few, like = self._known(call.sampled(), choice), self._known(call, usual)
        return replace(few, sent=few.sent.scaled(elements / SAMPLE, like.sent))

    def _unusual(self, choice: Choice) -> tuple[tuple[str, str], ...]:
        """What would not have been taken where nothing is chosen."""
        first = {name: self.target.variants(name)[0] for name in choice}
        return tuple(sorted((n, v.name) for n, v in choice.items() if v is not first[n]))

    def _known(self, call: Call, choice: Choice) -> Traced:
        is_chunk = prod(call.operation.shape) <= SAMPLE and call.is_elementwise
        key = (is_chunk or self.rotates, *call.kind, self._unusual(choice))
        if key not in self.known:
            self.known[key] = self._trace(call, choice)
        return self.known[key]

    def _trace(self, call: Call, choice: Choice) -> Traced:
        p = replace(parties_of(self.target, choice), rotates=self.rotates)
        operands = [self._operand(p, f"x{j}", each) for j, each in enumerate(call.operands)]
        if call.form is not None:
            operands += any_tables(p, call.form)
        result, sent = of_call(p, self.target, call.operation, operands, call.layer)
        return Traced(sent, p.used, Held(result.form, result.resent, frozenset(_ahead(result))))

    def _operand(self, p: Parties, name: str, operand: Operand) -> Sharing:
        tensor, encoding = operand.tensor, operand.tensor.encoding
        if encoding.secrecy is Secrecy.PUBLIC:
            return any_constant(p, tensor.shape, encoding.ring_bits)
        states, held, is_weight = self.target.suite.states, operand.held, operand.role == "weight"
        if held is None or states is None:
            x = source(p, self.target, name, tensor.shape, encoding.ring_bits, setup=is_weight)
        else:  # all parts of what was computed are there at once, and none is known ahead
            x = states.found(p, name, tensor.shape, words(encoding.ring_bits))
        if held is None:
            return x
        x = additive(p, x) if held.form is Form.ADDITIVE else replace(x, resent=held.resent)
        parts = (
            p.draw(sorted(part.at), x.shape, x.type) if j in held.ahead else part
            for j, part in enumerate(x.parts)
        )
        return replace(x, parts=tuple(parts))


def _ahead(x: Sharing) -> Iterator[int]:
    """The parts that all their holders know before any input is there."""
    for j, part in enumerate(x.parts):
        if part.phase < Phase.ONLINE:
            yield j


def _takes(variant: Variant, call: Call) -> bool:
    return call.operation.ring_bits <= variant.needs.ring_bits

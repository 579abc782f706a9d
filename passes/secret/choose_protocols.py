"""choose_protocols: of the variants of each op's protocol the cheapest on the target's network.

A choice is priced by its messages: the op is traced alone, on operands of its own shapes and rings,
and the seconds of its rounds and of its busiest link are compared. Ops that run side by side share
rounds, which a price by itself does not see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torch_mlir import ir

from veilgraph.ir.errors import UsageError
from veilgraph.ir.secret.function_forms import FunctionForm
from veilgraph.ir.secret.ops import SecretOp
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import Secrecy, Tensor
from veilgraph.passes.party.expand_protocols import Choices
from veilgraph.passes.secret.function_protocols import form_of, operation_of
from veilgraph.passes.secret.protocol_costs import (
    any_constant,
    any_tables,
    of_call,
    parties_of,
    source,
)
from veilgraph.targets.blocks.linear import additive
from veilgraph.targets.suite import Operation, Parties, Sharing
from veilgraph.targets.target import Target
from veilgraph.targets.variants import Variant

Choice = Mapping[str, Variant]  # by the name of an op or of a building block


@dataclass(frozen=True)
class Operand:
    """What a protocol is given: how it is encoded, and where it comes from."""

    tensor: Tensor
    role: str  # "input", "weight", or "" for what was computed


@dataclass(frozen=True)
class Call:
    """An op of a program, without MLIR."""

    operation: Operation
    operands: tuple[Operand, ...]
    layer: str
    form: FunctionForm | None = None


@dataclass(frozen=True)
class Traced:
    """What a choice costs a call, and what its protocols called."""

    seconds: float
    used: Choice


@dataclass(frozen=True)
class ChooseProtocols:
    """Takes the cheapest variant of each protocol that there is a choice of.

    In suite additive with a second comparison, of more rounds and fewer bytes, on `wan`::

        %2 = relu %1  100 elements         compare=few-rounds
        %3 = relu %1  1000000 elements     compare=ripple

    Variants that promise less of roundings than the suite's first one are never taken unless the
    target names them, and neither are those that need what the target does not have.

    Attributes:
        count_offline: whether the offline phase is part of the price; else it is prepared ahead.
    """

    target: Target
    count_offline: bool = True

    def run(self, program: SecretProgram) -> Choices:
        """The choice of each op, by the value that it makes; empty where there is none.

        Raises:
            UsageError: a protocol that was chosen by hand, and does not take an op's ring.
            UnsupportedError: an op that the suite has no protocol for.
        """
        names = self.target.suite.protocols
        if not self.target.protocols and all(len(self.target.variants(n)) == 1 for n in names):
            return {}
        arguments = zip(program.block.arguments, program.arguments, strict=True)
        roles = {value: argument.role for value, argument in arguments}
        prices = _Prices(self.target, self.count_offline)
        return {
            op.operation.results[0]: prices.cheapest(_call(op, roles))
            for op in program.operations
            if op.operation.name != "secret.constant"
        }


def _call(op: SecretOp, roles: Mapping[ir.Value, str]) -> Call:
    operands = (Operand(Tensor.of(v), roles.get(v, "")) for v in op.operation.operands)
    return Call(operation_of(op), tuple(operands), op.location.name_str, form_of(op))


@dataclass(frozen=True)
class _Prices:
    """Of choices, each kind of call traced once."""

    target: Target
    count_offline: bool
    known: dict[tuple[object, ...], Traced] = field(default_factory=dict)

    def cheapest(self, call: Call) -> Choice:
        """The first of those that cost least."""
        options = list(self._options(call, self.target.protocols))
        choice, traced = min(options, key=lambda option: option[1].seconds)
        for name, variant in traced.used.items():
            if not _takes(variant, call):
                raise UsageError(
                    f"{name}={variant.name} takes rings of at most {variant.needs.ring_bits} "
                    f"bits, and {call.layer!r} is in one of {call.operation.ring_bits}.",
                    "Take a narrower --ring, or leave out --protocol.",
                )
        return choice

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
        operation = call.operation
        attrs = repr(sorted(operation.attrs.items()))
        named = tuple(sorted((name, variant.name) for name, variant in choice.items()))
        key = (operation.name, operation.shape, operation.ring_bits, attrs, call.operands, named)
        if key not in self.known:
            self.known[key] = self._price(call, choice)
        return self.known[key]

    def _price(self, call: Call, choice: Choice) -> Traced:
        p = parties_of(self.target, choice)
        operands = [self._operand(p, f"x{j}", each) for j, each in enumerate(call.operands)]
        if call.form is not None:
            operands += any_tables(p, call.form)
        sent = of_call(p, self.target, call.operation, operands, call.layer)
        return Traced(sent.seconds(self.target.network, self.count_offline), p.used)

    def _operand(self, p: Parties, name: str, operand: Operand) -> Sharing:
        """What was computed is as products leave it."""
        tensor, encoding = operand.tensor, operand.tensor.encoding
        if encoding.secrecy is Secrecy.PUBLIC:
            return any_constant(p, tensor.shape, encoding.ring_bits)
        is_weight = operand.role == "weight"
        x = source(p, self.target, name, tensor.shape, encoding.ring_bits, setup=is_weight)
        return x if operand.role else additive(p, x)


def _takes(variant: Variant, call: Call) -> bool:
    return call.operation.ring_bits <= variant.needs.ring_bits

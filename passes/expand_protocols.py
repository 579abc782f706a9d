"""expand_protocols: each secret op becomes the messages and local steps of its protocol in the
suite.

    before:  %2 = secret.truncate %1 {bits = 12}
    after:   %7 = draw @carol   %9 = send %8 @alice   ...   (rep3: two rounds)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch_mlir import ir

from veilgraph.ir.meaning.integers import encode
from veilgraph.ir.party import Program, Value
from veilgraph.ir.plan import PUBLIC, SHARED, Phase
from veilgraph.ir.secret import Argument, SecretProgram
from veilgraph.ir.secret_ops import SecretOp, Truncate, attributes_of
from veilgraph.ir.secret_types import RealRange, Tensor
from veilgraph.ir.types import words
from veilgraph.targets.suite import Form, Operation, Parties, Sharing
from veilgraph.targets.target import Target


@dataclass(frozen=True)
class LayerNote:
    """What the secret level knows of a layer: its op, encoding and range."""

    name: str
    op: str
    tensor: Tensor | None = None
    range: RealRange | None = None


@dataclass
class Expanded:
    """A party-level program, its public tensors, and a note on each of its layers."""

    program: Program
    constants: list[npt.NDArray[np.int64]] = field(default_factory=list)
    constant_rings: list[int] = field(default_factory=list)
    notes: list[LayerNote] = field(default_factory=lambda: [LayerNote("", "")])


def expand_protocols(secret: SecretProgram, target: Target, fixed_roles: bool = False) -> Expanded:
    """The program of all parties, in the target's suite.

    Args:
        fixed_roles: the receiver's role is that which knows no threshold, in every truncation that
            has one.
    """
    return _Expansion(secret, target, fixed_roles).run()


def only_receiver(secret: SecretProgram, target: Target) -> int | None:
    """The one party that receives outputs and does not have the weights, if there is one."""
    receiving = {who for name in secret.outputs for who in target.receiver(name)}
    asking = receiving - {target.weights_owner}
    return target.parties.index(asking.pop()) if len(asking) == 1 else None


class _Expansion:
    def __init__(self, secret: SecretProgram, target: Target, fixed_roles: bool) -> None:
        self.secret = secret
        self.target = target
        self.program = Program(target.everyone)
        count = len(target.parties)
        self.parties = Parties(
            self.program,
            tuple(range(count)),
            count if target.dealer else None,
            receiver=only_receiver(secret, target),
            fixed_roles=fixed_roles,
        )
        self.expanded = Expanded(self.program)
        self.sharings: dict[ir.Value, Sharing] = {}
        self.rounded = dict(self._rounded())
        self.numbers: dict[tuple[int, tuple[int, ...], bytes], int] = {}  # equal tensors once

    def run(self) -> Expanded:
        arguments = zip(self.secret.block.arguments, self.secret.arguments, strict=True)
        for value, argument in arguments:
            self.sharings[value] = self._argument(argument)
        for op in self.secret.operations:
            result = op.operation.results[0]
            if result not in self.rounded:
                self.sharings[result] = self._operation(op)
        for name, value in self.secret.outputs.items():
            self._output(name, value)
        return self.expanded

    def _rounded(self) -> Iterator[tuple[ir.Value, SecretOp]]:
        """What is truncated for one receiver alone: that is done as it is revealed."""
        if "reveal_truncated" not in self.target.suite.protocols:
            return
        for name, value in self.secret.outputs.items():
            op = None if isinstance(value, ir.BlockArgument) else value.owner.opview
            is_alone = sum(1 for _ in value.uses) == len(self.target.receiver(name)) == 1
            if type(op) is Truncate and is_alone and _keeps_range(op):
                yield value, op

    def _argument(self, argument: Argument) -> Sharing:
        if argument.owner == PUBLIC:
            return self._public(argument)
        phase = Phase.SETUP if argument.role == "weight" else Phase.ONLINE
        note = LayerNote(argument.name, argument.role, argument.tensor, argument.range)
        with self._layer(note), self.program.in_phase(phase):
            return self._shared(argument)

    def _shared(self, argument: Argument) -> Sharing:
        """What an owner shares, or what all parties have shares of already."""
        name, shape, protocols = argument.name, argument.tensor.shape, self.target.suite.protocols
        type = words(argument.tensor.encoding.ring_bits)
        if argument.owner == SHARED:
            dealt: Sharing = protocols["from_shares"](self.parties, name, shape, type)
            return dealt
        owner = self.target.parties.index(argument.owner)
        value = self.program.source(argument.role, name, owner, shape, type)
        shared: Sharing = protocols["share"](self.parties, owner, value)
        return shared

    def _public(self, argument: Argument) -> Sharing:
        """A weight that every party has: a constant of the plan."""
        encoding = argument.tensor.encoding
        real = self.secret.weights[argument.name]
        integers = encode(real, encoding.frac_bits, encoding.ring_bits)
        return Sharing((self._constant(integers, argument.tensor),), Form.PUBLIC)

    def _operation(self, op: ir.OpView) -> Sharing:
        name = op.operation.name.removeprefix("secret.")
        tensor = Tensor.of(op.operation.results[0])
        attrs = attributes_of(op)
        if name == "constant":
            return Sharing((self._constant(attrs["value"], tensor),), Form.PUBLIC)
        place = op.location.name_str if isinstance(op.location, ir.Location) else ""
        note = LayerNote(place, name, tensor, RealRange.of(op))
        with self._layer(note):
            operation = Operation(name, tensor.shape, tensor.encoding.ring_bits, attrs)
            operands = [self.sharings[value] for value in op.operation.operands]
            protocol = self.target.suite.offered(name, place)
            result: Sharing = protocol(self.parties, operation, *operands)
            return result

    def _constant(self, value: npt.NDArray[np.int64], result: Tensor) -> Value:
        type = words(result.encoding.ring_bits)
        if value.size and (value == value.flat[0]).all():
            return self.program.const(int(value.flat[0]), result.shape, type)
        key = type.bits, value.shape, value.tobytes()
        if key not in self.numbers:
            self.numbers[key] = len(self.expanded.constants)
            self.expanded.constants.append(value)
            self.expanded.constant_rings.append(type.bits)
        return self.program.constant(self.numbers[key], result.shape, type)

    def _output(self, name: str, value: ir.Value) -> None:
        tensor = Tensor.of(value)
        for receiver in self.target.receiver(name):
            party = self.target.parties.index(receiver)
            with self._layer(LayerNote(name, "reveal", tensor)):
                clear = self._revealed(party, value)
                self.program.output(clear, party, name, tensor.encoding.frac_bits)

    def _revealed(self, party: int, value: ir.Value) -> Value:
        if value in self.rounded:
            op = self.rounded[value]
            wide = self.sharings[op.operation.operands[0]]
            tensor, protocol = Tensor.of(value), self.target.suite.protocols["reveal_truncated"]
            ring_bits = tensor.encoding.ring_bits
            operation = Operation("reveal_truncated", tensor.shape, ring_bits, attributes_of(op))
            rounded: Value = protocol(self.parties, operation, party, wide)
            return rounded
        sharing = self.sharings[value]
        if sharing.form is Form.PUBLIC:
            return sharing[0]
        revealed: Value = self.target.suite.protocols["reveal"](self.parties, party, sharing)
        return revealed

    def _layer(self, note: LayerNote) -> AbstractContextManager[None]:
        self.expanded.notes.append(note)
        return self.program.in_layer(note.name)


def _keeps_range(op: SecretOp) -> bool:
    """Whether a truncation's result has all bits that are left, and no overflow to correct."""
    (operand,), result = op.operation.operands, op.operation.results[0]
    left: int = Tensor.of(operand).encoding.ring_bits - attributes_of(op)["bits"]
    return Tensor.of(result).encoding.ring_bits == left

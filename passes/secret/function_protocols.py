"""Calls of the protocols of building blocks, which compute the real functions of a secret program.

A protocol takes its block's parameters, and its public tables behind the operand.
"""

from __future__ import annotations

from dataclasses import replace

from veilgraph.ir.attributes import Shape
from veilgraph.ir.party.program import Value
from veilgraph.ir.secret.function_forms import FunctionForm, function_form, row_form
from veilgraph.ir.secret.ops import (
    ClippedFunction,
    Function,
    RealFunction,
    SecretOp,
    attributes_of,
)
from veilgraph.ir.secret.types import Tensor
from veilgraph.targets.functions.clips import Clip
from veilgraph.targets.parties import Form, Operation, Sharing


def form_of(op: SecretOp) -> FunctionForm | None:
    """What a building block has fitted to the op, if it is a real function."""
    if not isinstance(op, RealFunction):
        return None
    parameters = attributes_of(op)["form"]
    return function_form(parameters) if isinstance(op, Function) else row_form(parameters)


def operation_of(op: SecretOp) -> Operation:
    """What a suite has a protocol for: the op, or the building block that its form is for."""
    tensor, form = Tensor.of(op.operation.results[0]), form_of(op)
    if form is None:
        name = op.operation.name.removeprefix("secret.")
        return Operation(name, tensor.shape, tensor.encoding.ring_bits, attributes_of(op))
    dropped_bits = form.frac_bits - tensor.encoding.frac_bits
    made = computing(form, tensor.shape, tensor.encoding.ring_bits, dropped_bits)
    return replace(made, attrs={**made.attrs, **_clip(op)})


def _clip(op: SecretOp) -> dict[str, int]:
    """The end of a function that has one; its window has a name beside the form's."""
    if not isinstance(op, ClippedFunction):
        return {}
    named = attributes_of(op)
    clip = Clip(named["edge"], named["beyond"], named["window_bits"], named["dropped_bits"])
    return clip.parameters()


def computing(form: FunctionForm, shape: Shape, ring_bits: int, dropped_bits: int) -> Operation:
    """A form's values, truncated by `dropped_bits`, where there are some."""
    truncated = {"bits": dropped_bits} if dropped_bits else {}
    return Operation(form.block, shape, ring_bits, form.parameters() | truncated)


def public_table(value: Value) -> Sharing:
    """A constant that every party has."""
    return Sharing((value,), Form.PUBLIC)

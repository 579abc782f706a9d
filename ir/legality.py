"""The grammar of the graph and the secret level: what a pass may leave behind.

Checked between passes, so that a wrong pass fails at its own exit. What one operation's types and
attributes must be is its own verifier's business (`infer` in graph/ops.py and secret/ops.py); here
is what goes beyond one operation's types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from torch_mlir import ir

from veilgraph.ir.graph import ops as graph_ops
from veilgraph.ir.graph.program import Graph, attributes, name_of
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.dialect import SecretOp, attributes_of
from veilgraph.ir.secret.facts import Compares
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import RealRange, Tensor

MAX_FACTOR = 1 << 10  # public integers up to it multiply without a truncation


class IllegalProgram(AssertionError):
    """A pass left something that its level doesn't allow: a bug of ours."""


def check_graph(graph: Graph, encodable: bool = False) -> None:
    """A program of the graph level is well formed.

    Args:
        encodable: whether `encode_fixed_point` is to take it as it is.

    Raises:
        IllegalProgram: it isn't, with the operation and the reason.
    """
    try:
        graph.verify()
    except (AssertionError, ir.MLIRError) as error:
        raise IllegalProgram(f"not a legal graph: {error}") from error
    if encodable:
        weights = set(graph.parameters.values())
        for op in graph.operations:
            _reject(op, name_of(op), _encodable(op, weights))
            if all(value in weights for value in op.operation.operands):
                weights.add(op.operation.results[0])


def _encodable(op: ir.OpView, weights: set[ir.Value]) -> Iterable[str]:
    facts, operands = graph_ops.facts_of(op), list(op.operation.operands)
    if not facts.is_encoded:
        yield "it must have been approximated or folded"
    elif isinstance(op, graph_ops.Pad) and attributes(op)["value"] != 0:
        yield "only zeros can be padded"
    if operands and not facts.is_layout and all(value in weights for value in operands):
        yield "it computes with weights alone and must have been folded"


def check_secret(program: SecretProgram) -> None:
    """A program of the secret level is well formed.

    Raises:
        IllegalProgram: it isn't, with the operation and the reason.
    """
    try:
        legal = program.module.operation.verify()
    except ir.MLIRError as error:
        raise IllegalProgram(f"not a legal program: {error}") from error
    if not legal:
        raise IllegalProgram("not a legal program")
    names = [argument.name for argument in program.arguments]
    given = {a.name: a.tensor.shape for a in program.arguments if a.is_weight}
    weights = {name: array.shape for name, array in program.weights.items()}
    if len(set(names)) < len(names) or given != weights:
        raise IllegalProgram(f"weights {weights} don't match the arguments {names}")
    for op in program.operations:
        for rule in SECRET_RULES:
            _reject(op, op.location.name_str, rule(op))


def _ranges(op: SecretOp) -> Iterable[str]:
    declared = RealRange.of(op)
    if not (math.isfinite(declared.low) and math.isfinite(declared.high)):
        yield "its range isn't finite"
    if declared.low > declared.high:
        yield "its range is empty"


def _windows(op: SecretOp) -> Iterable[str]:
    if op.facts.compares is Compares.NOTHING:
        return
    named, ring_bits = attributes_of(op), Tensor.of(op.operation.operands[0]).encoding.ring_bits
    window, dropped = named["window_bits"], named["dropped_bits"]
    # These may look at all of a ring: others go on computing in it with what they found.
    is_apart = isinstance(op, secret_ops.Step | secret_ops.ClippedFunction)
    widest = ring_bits if is_apart else ring_bits - 1
    if not 0 <= dropped < window - 1 or window > widest:
        yield f"a window of {window} bits, {dropped} dropped, isn't one in a ring of {ring_bits}"
    if isinstance(op, secret_ops.TruncateRelu) and dropped > named["bits"]:
        yield "it drops more bits than it truncates"


def _factors(op: SecretOp) -> Iterable[str]:
    if isinstance(op, secret_ops.Scale):
        factor, ring_bits = attributes_of(op)["factor"], _ring_bits(op)
        if factor == 0 or abs(factor) >= 1 << (ring_bits - 1):
            yield f"a factor of {factor} isn't one in a ring of {ring_bits}"


def _constants(op: SecretOp) -> Iterable[str]:
    if isinstance(op, secret_ops.Constant):
        value, limit = attributes_of(op)["value"], 1 << (_ring_bits(op) - 1)
        if value.size and not (-limit <= int(value.min()) and int(value.max()) < limit):
            yield f"an integer doesn't fit a ring of {_ring_bits(op)}"


def _ring_bits(op: SecretOp) -> int:
    return Tensor.of(op.operation.results[0]).encoding.ring_bits


def _reject(op: ir.OpView, name: str, reasons: Iterable[str]) -> None:
    for reason in reasons:
        raise IllegalProgram(f"{op.operation.name} {name!r}: {reason}")


SECRET_RULES: tuple[Callable[[SecretOp], Iterable[str]], ...] = (
    _ranges,
    _windows,
    _factors,
    _constants,
)

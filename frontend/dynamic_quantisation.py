"""Tensors that are quantised while a model runs, decoded: each is the real tensor, unrounded.

DynamicQuantizeLinear takes its scale from the data. What its integers are multiplied with is made
real again by that very scale, so any scale gives the same numbers up to their rounding: 1 does. A
bias in the units of such a product is a quotient by the scale, rounded to an integer, and the
rounding goes the same way as that of the tensor:

    before:  q, s, z = DynamicQuantizeLinear(x)
             Cast(ConvInteger(q, w, z) + Cast(Floor(b / (s w_scale)))) * (s w_scale)
    after:   s = 1;  (Conv(x, w) + b / (s w_scale)) * (s w_scale)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, TensorProto

from veilgraph.frontend.load import NOT_A_MODEL
from veilgraph.frontend.quantised_tensors import Array, Code, Decoder
from veilgraph.frontend.steps import attributes_of
from veilgraph.ir.errors import UsageError

PRODUCTS = ("MatMulInteger", "ConvInteger")
MOVES = ("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity")
ROUNDINGS = ("Floor", "Ceil", "Round")


class _StillIntegers(Exception):
    """The integers themselves are asked for."""


def quantize(d: Decoder, node: NodeProto) -> bool:
    """DynamicQuantizeLinear whose integers are made real again: scale 1 and zero point 0 do."""
    y, scale, zero = node.output
    try:
        unrounded = list(_roundings(d, node))
    except _StillIntegers:
        return False
    d.exact.update(name for each in unrounded for name in each.output)
    d.real[y] = (node.input[0], Code(np.ones(()), np.zeros(()), TensorProto.FLOAT))
    d.constants |= {scale: np.ones((), np.float32), zero: np.zeros((), np.uint8)}
    d.constant(d.constants[scale], scale)
    return True


def _roundings(d: Decoder, node: NodeProto) -> Iterator[NodeProto]:
    """What rounds the biases that are added to products of what `node` quantises.

    Raises:
        _StillIntegers: not all that reads it makes it real again.
    """
    y, scale, zero = node.output
    if None in d.uses.get(scale, ()):
        raise _StillIntegers
    for reader in (*d.uses.get(y, ()), *d.uses.get(zero, ())):
        if reader is None or reader.input[0] != y or list(reader.input).count(y) > 1:
            raise _StillIntegers
        if reader.op_type in PRODUCTS and zero in reader.input[2:3]:
            yield from _of_product(d, reader.output[0], scale)
        elif reader.op_type != "DequantizeLinear" or list(reader.input[1:]) != [scale, zero]:
            raise _StillIntegers


def _of_product(d: Decoder, product: str, scale: str) -> Iterator[NodeProto]:
    for reader in d.uses.get(product, ()):
        if reader is not None and reader.op_type == "Add":
            (bias,) = [name for name in reader.input if name != product] or [product]
            yield from _of_bias(d, bias, scale)
            _require_real(d, reader.output[0])
        elif reader is None or attributes_of(reader).get("to") != TensorProto.FLOAT:
            raise _StillIntegers


def _require_real(d: Decoder, name: str) -> None:
    for reader in d.uses.get(name, ()):
        if reader is None or attributes_of(reader).get("to") != TensorProto.FLOAT:
            raise _StillIntegers


def _of_bias(d: Decoder, bias: str, scale: str) -> Iterator[NodeProto]:
    """The roundings of a quotient by the scale, which nothing else reads."""
    node = _made_by(d, bias)
    while node.op_type in MOVES:
        node = _made_by(d, node.input[0])
    if node.op_type != "Cast":
        raise _StillIntegers
    yield node
    node = _made_by(d, node.input[0])
    if node.op_type in ROUNDINGS:
        yield node
        node = _made_by(d, node.input[0])
    divisor = d.makers.get(node.input[1]) if node.op_type == "Div" else None
    follows = node.op_type == "Div" and node.input[1] == scale
    if not follows and (divisor is None or divisor.op_type != "Mul" or scale not in divisor.input):
        raise _StillIntegers


def _made_by(d: Decoder, name: str) -> NodeProto:
    node = d.makers.get(name)
    if node is None or len(d.uses.get(name, ())) != 1:
        raise _StillIntegers
    return node


def lstm(d: Decoder, node: NodeProto) -> bool:
    """com.microsoft.DynamicQuantizeLSTM(X, W, R, B, sequence_lens, h, c, P, scales and zeros): an
    LSTM whose weights are quantised and lie the other way, [directions, inputs, 4 H].
    """
    given = [*node.input, *("" for _ in range(12 - len(node.input)))]
    weights = []
    for first, code in ((1, 8), (2, 10)):
        names = (given[first], *given[code : code + 2])
        if any(name not in d.constants for name in names):
            return False
        q, scale, zero = (d.constants[name] for name in names)
        real = (q.astype(np.float64) - _by_direction(zero, q)) * _by_direction(scale, q)
        name = f"{node.output[0]}/operand.{first}"
        weights.append(d.constant(real.transpose(0, 2, 1), name))
    inputs = (given[0], *weights, *given[3:8])
    d.add("LSTM", inputs, node.output, node.name, **attributes_of(node))
    return True


def _by_direction(values: Array, weights: Array) -> Array:
    """Scales or zero points, one a direction or one a gate, so that they broadcast with weights."""
    rows = values.size // max(len(weights), 1)
    if weights.ndim != 3 or values.size != rows * len(weights) or rows not in (1, weights.shape[2]):
        raise UsageError(
            f"A scale or zero point of shape {values.shape} doesn't fit weights of shape "
            f"{weights.shape}.",
            NOT_A_MODEL,
        )
    return values.astype(np.float64).reshape(len(weights), 1, rows)

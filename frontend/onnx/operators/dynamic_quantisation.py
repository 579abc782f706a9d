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

from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto, TensorProto

from veilgraph.frontend.onnx.load import NOT_A_MODEL
from veilgraph.frontend.onnx.nodes import attributes_of
from veilgraph.frontend.onnx.operators.quantised_tensors import Array, Code, Decoder
from veilgraph.ir.errors import UsageError

PRODUCTS = ("MatMulInteger", "ConvInteger")
MOVES = ("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity")
ROUNDINGS = ("Floor", "Ceil", "Round")


class _StillIntegers(Exception):
    """The integers themselves are asked for."""


def quantize(d: Decoder, node: NodeProto) -> bool:
    """DynamicQuantizeLinear whose integers are made real again: scale 1 and zero point 0 do."""
    tensor = _Tensor(d, *node.output)
    try:
        tensor.follow()
    except _StillIntegers:
        return False
    d.exact.update(name for each in tensor.roundings for name in each.output)
    d.real[tensor.y] = (node.input[0], Code(np.ones(()), np.zeros(()), TensorProto.FLOAT))
    d.constants |= {tensor.scale: np.ones((), np.float32), tensor.zero: np.zeros((), np.uint8)}
    d.constant(d.constants[tensor.scale], tensor.scale)
    return True


@dataclass
class _Tensor:
    """A tensor quantised with a scale from the data, and what becomes of it.

    Attributes:
        reals: products of it as real numbers, in units of its scale.
        quotients: biases over its scale; by what each is divided.
        roundings: what rounds these.
    """

    d: Decoder
    y: str
    scale: str
    zero: str
    reals: set[str] = field(default_factory=set)
    quotients: dict[str, str] = field(default_factory=dict)
    roundings: list[NodeProto] = field(default_factory=list)

    def follow(self) -> None:
        """
        Raises:
            _StillIntegers: not all that reads it makes it real again, by its scale.
        """
        for reader in (*self._readers(self.y), *self._readers(self.zero)):
            if reader.input[0] != self.y or list(reader.input).count(self.y) > 1:
                raise _StillIntegers
            if reader.op_type in PRODUCTS and self.zero in reader.input[2:3]:
                self._follow_product(reader.output[0])
            elif not self._is_decoding(reader):
                raise _StillIntegers
        scales = self._scales()
        if not scales.issuperset(self.quotients.values()):
            raise _StillIntegers
        for real in self.reals:
            if any(r.op_type != "Mul" or scales.isdisjoint(r.input) for r in self._readers(real)):
                raise _StillIntegers

    def _readers(self, name: str) -> list[NodeProto]:
        """Those of a tensor that is no output of the model."""
        readers = [reader for reader in self.d.uses.get(name, ()) if reader is not None]
        if len(readers) < len(self.d.uses.get(name, ())):
            raise _StillIntegers
        return readers

    def _is_decoding(self, node: NodeProto) -> bool:
        named = [self.y, self.scale, self.zero]
        return node.op_type == "DequantizeLinear" and list(node.input) == named

    def _follow_product(self, product: str) -> None:
        for reader in self._readers(product):
            if reader.op_type == "Add":
                (bias,) = [name for name in reader.input if name != product] or [product]
                self._follow_bias(bias)
                for cast in self._readers(reader.output[0]):
                    self._add_real(cast)
            else:
                self._add_real(reader)

    def _add_real(self, cast: NodeProto) -> None:
        if attributes_of(cast).get("to") != TensorProto.FLOAT:
            raise _StillIntegers
        self.reals.add(cast.output[0])

    def _follow_bias(self, bias: str) -> None:
        """The roundings of a quotient by the scale, which nothing else reads."""
        node = self._made_by(bias)
        while node.op_type in MOVES:
            node = self._made_by(node.input[0])
        if node.op_type != "Cast":
            raise _StillIntegers
        self.roundings.append(node)
        node = self._made_by(node.input[0])
        if node.op_type in ROUNDINGS:
            self.roundings.append(node)
            node = self._made_by(node.input[0])
        if node.op_type != "Div":
            raise _StillIntegers
        self.quotients[node.output[0]] = node.input[1]

    def _made_by(self, name: str) -> NodeProto:
        node = self.d.makers.get(name)
        if node is None or len(self.d.uses.get(name, ())) != 1:
            raise _StillIntegers
        return node

    def _scales(self) -> set[str]:
        """The scale, and what it is a factor of; it is read by products and biases alone."""
        scales, waiting = {self.scale}, [self.scale]
        while waiting:
            name = waiting.pop()
            for reader in self._readers(name):
                others = [each for each in reader.input if each != name]
                if reader.op_type == "Mul" and others and others[0] in self.reals:
                    continue
                if reader.op_type == "Div" and reader.output[0] in self.quotients:
                    continue
                is_factor = reader.op_type == "Mul" and others and others[0] not in scales
                if is_factor or (reader.op_type in MOVES and reader.input[0] == name):
                    scales.add(reader.output[0])
                    waiting.append(reader.output[0])
                elif not self._is_decoding(reader):
                    raise _StillIntegers
        return scales


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

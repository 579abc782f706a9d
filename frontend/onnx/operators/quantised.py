"""Quantised models, decoded: the real numbers that their integers stand for.

An integer q with scale s and zero point z stands for (q - z) s. What quantised operators compute is
written in these numbers, before anything else looks at the model:

    DequantizeLinear of a constant                a constant of real numbers, the owner's weight
    QuantizeLinear, read by DequantizeLinear      a clip to the numbers that the type can say
    QLinearConv, QLinearMatMul, QGemm, ...        the operator on real numbers, and such a clip
    layout and maximum pools of quantised tensors the same on real numbers
    MatMulInteger, ConvInteger                    products of q - z
    DynamicQuantizeLinear before these            nothing: scale 1 and zero point 0 do as well
    DynamicQuantizeLSTM                           an LSTM with weights of real numbers

The rounding in between is left out: the plan computes what the quantised model approximates. Only
where integers themselves are asked for (an output, or an operator that isn't listed) are they made,
rounded.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper, version_converter

from veilgraph.frontend.onnx.constant_folding import replace_nodes, static_shapes
from veilgraph.frontend.onnx.load import NOT_A_MODEL
from veilgraph.frontend.onnx.nodes import attributes_of, constants, names_read
from veilgraph.frontend.onnx.operators import dynamic_quantisation
from veilgraph.frontend.onnx.operators.quantised_tensors import DOMAINS, Array, Code, Decoder, Rule
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.program import QuantisersClip

OLDEST_OPSET = 11  # with Round
TURNS = ("transA", "transB")  # of Gemm: the axes of such an operand lie the other way


def decode(model: ModelProto) -> Mapping[str, QuantisersClip]:
    """Rewrites the quantised operators of a model whose input shapes are fixed, in place.

    What can't be rewritten stays, and is refused later with a reason.

    Returns:
        The clips that it made, by the name of their last node.

    Raises:
        UsageError: shapes or types that don't fit together.
    """
    operators = {node.op_type for node in model.graph.node if node.domain in DOMAINS}
    if operators.isdisjoint(RULES) or not _current(model):
        return {}
    graph = model.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer} | dict(constants(graph))
    known = {name: _array(tensor) for name, tensor in tensors.items()}
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    decoder = Decoder(model, known, shapes | static_shapes(model, {}), _uses(model), makers)
    decoder.run(RULES)
    replace_nodes(graph, decoder.nodes)
    read = names_read(graph)
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    made = [numpy_helper.from_array(v, n) for n, v in decoder.added.items() if n in read]
    del graph.initializer[:]
    graph.initializer.extend([*kept, *made])
    return decoder.clips


def _current(model: ModelProto) -> bool:
    """Whether the model has an opset with Round; made so where the converter can."""
    if max(entry.version for entry in model.opset_import if not entry.domain) >= OLDEST_OPSET:
        return True
    names = {output: node.name for node in model.graph.node for output in node.output}
    try:
        model.CopyFrom(version_converter.convert_version(model, OLDEST_OPSET))
    except (RuntimeError, version_converter.ConvertError):
        return False
    for node in model.graph.node:
        node.name = names.get(node.output[0], node.output[0])
    return True


def _array(tensor: TensorProto) -> Array:
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except ValueError as error:
        raise UsageError(
            f"Tensor {tensor.name} doesn't fit its shape: {error}.", NOT_A_MODEL
        ) from error


def _uses(model: ModelProto) -> dict[str, list[NodeProto | None]]:
    found: dict[str, list[NodeProto | None]] = {}
    for node in model.graph.node:
        for name in node.input:
            found.setdefault(name, []).append(node)
    for info in model.graph.output:
        found.setdefault(info.name, []).append(None)
    return found


def _dequantize(d: Decoder, node: NodeProto) -> bool:
    output = node.output[0]
    real = d.decoded(node.input[0], d.code(node, 1, TensorProto.INT32), output)
    if not real:
        return False
    if real != output:
        d.make("Identity", real, name=output)
        d.nodes[-1].name = node.name
        d.name_clip(real, node.name)
        if real in d.bounds:
            d.bounds[output] = d.bounds[real]
    elif d.nodes and d.nodes[-1].output[0] == output:
        d.nodes[-1].name = node.name
    if output in d.added:
        d.constants[output] = d.added[output]
    return True


def _quantize(d: Decoder, node: NodeProto) -> bool:
    return d.encode(node.output[0], node.input[0], d.code(node, 1), node.name)


def _operand(d: Decoder, node: NodeProto, first: int, axis: int = 1) -> str:
    """The real numbers of an operand that scale and zero point follow."""
    code = d.code(node, first + 1)
    if code is None:
        return ""
    code = Code(code.scale, code.zero, code.kind, axis)
    return d.decoded(node.input[first], code, f"{node.output[0]}/operand.{first}")


def _bias(d: Decoder, node: NodeProto, index: int, scales: tuple[int, int]) -> list[str] | None:
    """A bias of integers whose scale is the product of two operands'; [] for none."""
    if index >= len(node.input) or not node.input[index]:
        return []
    parts = [d.constants.get(node.input[i]) for i in (index, *scales)]
    if any(part is None for part in parts):
        return None
    values, one, other = (np.asarray(part, np.float64) for part in parts)
    return [d.constant(values * one * other, f"{node.output[0]}/bias")]


def _product(operator: str, axes: tuple[int, int], bias: int, result: int) -> Rule:
    """A product of two quantised operands, quantised, with a bias or none.

    Args:
        axes: along which the operands' scales lie, where they have several and none is turned.
        bias, result: places of the bias, and of the result's scale; a result without one is real.
    """

    def rule(d: Decoder, node: NodeProto) -> bool:
        output, given = node.output[0], attributes_of(node)
        turned = [axis ^ given.get(name, 0) for axis, name in zip(axes, TURNS, strict=True)]
        x, y = _operand(d, node, 0, turned[0]), _operand(d, node, 3, turned[1])
        added = _bias(d, node, bias, (1, 4)) if bias else []
        if not (x and y) or added is None:
            return False
        is_real = len(node.input) <= result or not node.input[result]
        name = output if is_real else f"{output}/product"
        d.make(operator, x, y, *added, name=name, **given)
        d.nodes[-1].name = node.name if is_real else name
        return is_real or d.encode(output, name, d.code(node, result), node.name)

    return rule


def _elementwise(operator: str, operands: int) -> Rule:
    """A function of quantised operands, quantised; com.microsoft's."""

    def rule(d: Decoder, node: NodeProto) -> bool:
        given = attributes_of(node)
        if given.pop("channels_last", 0):
            return False
        reals = [_operand(d, node, 3 * i) for i in range(operands)]
        if not all(reals):
            return False
        name = f"{node.output[0]}/value"
        d.make(operator, *reals, name=name, **given)
        d.bound(d.nodes[-1])
        return d.encode(node.output[0], name, d.code(node, 3 * operands), node.name)

    return rule


def _concat(d: Decoder, node: NodeProto) -> bool:
    """QLinearConcat(scale, zero point, then each tensor with its own)."""
    reals = [_operand(d, node, first) for first in range(2, len(node.input), 3)]
    if not reals or not all(reals):
        return False
    name = f"{node.output[0]}/value"
    d.make("Concat", *reals, name=name, **attributes_of(node))
    return d.encode(node.output[0], name, d.code(node, 0), node.name)


def _integer_product(operator: str, axes: tuple[int, int]) -> Rule:
    """MatMulInteger and ConvInteger(x, w, x_zero_point, w_zero_point): products of integers."""

    def rule(d: Decoder, node: NodeProto) -> bool:
        output = node.output[0]
        reals = []
        for index, axis in enumerate(axes):
            name = node.input[index]
            zero_name = node.input[index + 2] if index + 2 < len(node.input) else ""
            if name in d.real and d.real[name][1].kind == TensorProto.FLOAT:
                reals.append(d.real[name][0])
                continue
            zero = d.constants.get(zero_name, np.zeros(()))
            if zero_name and zero_name not in d.constants:
                return False
            code = Code(np.ones(()), np.asarray(zero).astype(np.float64), 0, axis)
            reals.append(d.decoded(name, code, f"{output}/operand.{index}"))
        if not all(reals):
            return False
        floating = node.input[0] in d.real and d.real[node.input[0]][1].kind == TensorProto.FLOAT
        name = output if floating else f"{output}/product"
        d.make(operator, *reals, name=name, **attributes_of(node))
        d.nodes[-1].name = node.name
        if not floating:
            d.make("Cast", name, name=output, to=TensorProto.INT32)
        return True

    return rule


RULES: Mapping[str, Rule] = {
    "ConvInteger": _integer_product("Conv", (1, 0)),
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLSTM": dynamic_quantisation.lstm,
    "DynamicQuantizeLinear": dynamic_quantisation.quantize,
    "MatMulInteger": _integer_product("MatMul", (-2, -1)),
    "QGemm": _product("Gemm", (0, 1), 6, 7),
    "QLinearAdd": _elementwise("Add", 2),
    "QLinearAveragePool": _elementwise("AveragePool", 1),
    "QLinearConcat": _concat,
    "QLinearConv": _product("Conv", (1, 0), 8, 6),
    "QLinearGlobalAveragePool": _elementwise("GlobalAveragePool", 1),
    "QLinearLeakyRelu": _elementwise("LeakyRelu", 1),
    "QLinearMatMul": _product("MatMul", (-2, -1), 0, 6),
    "QLinearMul": _elementwise("Mul", 2),
    "QLinearSigmoid": _elementwise("Sigmoid", 1),
    "QuantizeLinear": _quantize,
}

"""ONNX operators that are written otherwise before the importer sees them.

Most of them torch-mlir doesn't know, or knows only in some forms; of a Gemm without an addend it
drops alpha, reductions of what has extent 1 make it abort, and the logarithm of a sum of powers
overflows. Written out they are made of what it does know.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from veilgraph.frontend.lowering import probing
from veilgraph.frontend.onnx.constant_folding import infer, replace_nodes
from veilgraph.frontend.onnx.nodes import Facts, Steps, attributes_of
from veilgraph.frontend.onnx.operators import (
    attention,
    division,
    elementary,
    recurrent,
    resizing,
    sampling,
    signals,
    trigonometry,
)
from veilgraph.frontend.onnx.operators import pooling as sliding
from veilgraph.frontend.onnx.row_guards import write_guards

Decomposition = Callable[[Steps], list[NodeProto]]


def _chain(*operators: str) -> Decomposition:
    """Operators one after another; what the node says of axes is for the one that reduces."""

    def decomposition(s: Steps) -> list[NodeProto]:
        x = s.operand(0)
        for operator in operators:
            if operator.startswith("Reduce"):
                axes = [s.operand(1)] if s.operand(1) else []
                x = s(operator, x, *axes, **attributes_of(s.node))
            else:
                x = s(operator, x)
        return s.finish(x)

    return decomposition


def _gemm(s: Steps) -> list[NodeProto]:
    """With a third operand, zero if it has an alpha and none."""
    if s.attribute("alpha", 1.0) == 1 or s.operand(2):
        return [s.node]
    node = NodeProto()
    node.CopyFrom(s.node)
    node.input[:] = [*node.input[:2], s.numbers([0.0])]
    return [*s.made, node]


# After conversion: opsets from 21 on, where every reduction takes its axes as an input.
DECOMPOSITIONS: Mapping[str, Decomposition] = {
    "Acos": trigonometry.inverse_cosine,
    "Acosh": elementary.inverse_hyperbolic_cosine,
    "Asin": trigonometry.inverse_sine,
    "Asinh": elementary.inverse_hyperbolic_sine,
    "Atanh": elementary.inverse_hyperbolic_tangent,
    "Attention": attention.attention,
    "AveragePool": sliding.average_pool,
    "CausalConvWithState": recurrent.causal_convolution,
    "Cosh": elementary.hyperbolic_cosine,
    "ConvTranspose": sliding.transposed_convolution,
    "CumProd": elementary.cumulative_product,
    "DFT": signals.dft,
    "Div": division.divide,
    "Einsum": elementary.einsum,
    "GRU": recurrent.layer,
    "Gather": elementary.gather,
    "GatherElements": elementary.gather_elements,
    "Gemm": _gemm,
    "GridSample": sampling.sampled,
    "GroupNormalization": elementary.group_normalization,
    "Hardmax": elementary.hardmax,
    "LSTM": recurrent.layer,
    "LinearAttention": recurrent.linear_attention,
    "LpNormalization": elementary.lp_normalization,
    "LpPool": sliding.lp_pool,
    "MeanVarianceNormalization": elementary.mean_variance_normalization,
    "Mod": division.remainder,
    "OneHot": elementary.one_hot,
    "PRelu": elementary.leaky_by_channel,
    "Pad": elementary.pad,
    "Pow": elementary.power,
    "RMSNormalization": attention.rms_normalization,
    "RNN": recurrent.layer,
    "ReduceL2": _chain("ReduceSumSquare", "Sqrt"),
    "ReduceLogSum": _chain("ReduceSum", "Log"),
    "ReduceLogSumExp": elementary.log_sum_exp,
    "ReduceProd": elementary.reduce_product,
    "Resize": resizing.resize,
    "RotaryEmbedding": attention.rotary_embedding,
    "STFT": signals.stft,
    "Shrink": elementary.shrink,
    "Sinh": elementary.hyperbolic_sine,
    "Softsign": elementary.softsign,
    "SpaceToDepth": elementary.space_to_depth,
    "SwiGLU": elementary.gated_swish,
    "Swish": elementary.swish,
    "Tan": trigonometry.tangent,
    "Trilu": elementary.trilu,
    "Upsample": resizing.resize,
    **dict.fromkeys(signals.SAID_BY, signals.said),
    **dict.fromkeys(probing.MOVES, probing.moves),
    **dict.fromkeys(probing.LINEAR, probing.linear),
}


def decompose(model: ModelProto, weights: dict[str, NDArray[np.float32]]) -> None:
    """Changes the model in place until no node is left that is written otherwise.

    Args:
        weights: the owner's values by input name; gets those that decompositions make of them.

    Raises:
        Unsupported: a form of an operator that can't be written otherwise.
    """
    known = set(weights)
    write_guards(model, weights)
    _declare(model, weights, known)
    changed = True
    while changed:
        before = set(weights)
        facts = Facts.of(infer(model), weights)
        parts = [decomposed(node, facts) for node in model.graph.node]
        changed = any(new[0] is not old for new, old in zip(parts, model.graph.node, strict=True))
        replace_nodes(model.graph, [node for part in parts for node in part])
        _declare(model, weights, before)


def _declare(
    model: ModelProto, weights: Mapping[str, NDArray[np.float32]], before: Collection[str]
) -> None:
    """Makes inputs of the weights that weren't there before."""
    for name in weights.keys() - before:
        kind = helper.make_tensor_value_info(name, TensorProto.FLOAT, weights[name].shape)
        model.graph.input.append(kind)


def decomposed(node: NodeProto, facts: Facts) -> list[NodeProto]:
    """The node, or nodes of the same results; one of them has its name."""
    decomposition = None if node.domain else DECOMPOSITIONS.get(node.op_type)
    return decomposition(Steps(node, facts)) if decomposition else [node]

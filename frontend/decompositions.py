"""ONNX operators that are written otherwise before the importer sees them.

torch-mlir would take these reductions apart too, but aborts where all that they reduce has
extent 1, and computes the last one in double precision. Of a Gemm without an addend it drops
alpha.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import NodeProto, helper

# In opsets from 18 on, where every reduction takes its axes as an input.
CHAINS: Mapping[str, tuple[str, ...]] = {
    "ReduceL2": ("ReduceSumSquare", "Sqrt"),
    "ReduceLogSum": ("ReduceSum", "Log"),
    "ReduceLogSumExp": ("Exp", "ReduceSum", "Log"),
}


def decompose(node: NodeProto) -> list[NodeProto]:
    """The node, or nodes of the same result; the last of them has its name and output."""
    if node.op_type == "Gemm" and not node.domain:
        return _with_addend(node)
    chain = CHAINS.get(node.op_type, ()) if not node.domain else ()
    if not chain:
        return [node]
    nodes = []
    source = node.input[0]
    for step, operator in enumerate(chain, start=1):
        name = node.name if step == len(chain) else f"{node.name}/{operator}"
        output = node.output[0] if step == len(chain) else f"{node.output[0]}/{operator}"
        reduces = operator.startswith("Reduce")
        part = helper.make_node(
            operator, [source, *(node.input[1:] if reduces else [])], [output], name=name
        )
        if reduces:
            part.attribute.extend(node.attribute)
        nodes.append(part)
        source = output
    return nodes


def _with_addend(node: NodeProto) -> list[NodeProto]:
    """A Gemm with a third operand, zero if it has an alpha and none."""
    scaled = any(a.name == "alpha" and a.f != 1 for a in node.attribute)
    if not scaled or (len(node.input) > 2 and node.input[2]):
        return [node]
    zero = f"{node.output[0]}/zero"
    full = NodeProto()
    full.CopyFrom(node)
    del full.input[2:]
    full.input.append(zero)
    return [helper.make_node("Constant", [], [zero], name=zero, value_floats=[0.0]), full]

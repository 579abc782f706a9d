"""ONNX operators that are written as several simpler ones before the importer sees them.

torch-mlir would take these reductions apart too, but aborts where all that they reduce has
extent 1, and computes the last one in double precision.
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

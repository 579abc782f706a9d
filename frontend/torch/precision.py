"""Real numbers of every precision as float32, in a traced PyTorch program.

Precision is a matter of the encoding that the compiler chooses: a model in float64 or float16, or
one that goes through them, is the same model in float32 (numeric_types.py does this for ONNX).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

REAL = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
CONVERSIONS = frozenset(
    (torch.ops.aten._to_copy.default, torch.ops.prims.convert_element_type.default)
)


def as_float32(graph: fx.Graph) -> None:
    """Changes the graph in place; conversions between real types go."""
    for node in graph.nodes:
        node.meta.pop("tensor_meta", None)  # what the importer would rather read
        if "val" in node.meta:
            node.meta["val"] = fx.node.map_aggregate(node.meta["val"], _value)
        node.args = fx.node.map_aggregate(node.args, _type)
        node.kwargs = fx.node.map_aggregate(node.kwargs, _type)
        if node.target in CONVERSIONS and _is_float(node) and _is_float(node.args[0]):
            node.replace_all_uses_with(node.args[0])
    graph.eliminate_dead_code()


def _is_float(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _value(value: Any) -> Any:
    real = isinstance(value, torch.Tensor) and value.dtype in REAL
    return value.to(torch.float32) if real else value


def _type(value: Any) -> Any:
    return torch.float32 if isinstance(value, torch.dtype) and value in REAL else value

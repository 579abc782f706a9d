"""What an exported PyTorch program computes from no tensor of its own: evaluated here.

A causal mask is `ones(n, n).tril()` in the code of a model. torch computes it once, while the model
is compiled, and it becomes a placeholder like a buffer.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

MOST_ELEMENTS = 1 << 16  # as ONNX literals have it: larger results are left to the importer


def fold_constants(graph: fx.Graph) -> dict[str, torch.Tensor]:
    """Takes out the nodes whose results follow from the program's text alone, in place.

    Returns:
        The value of each placeholder that it adds in their place. Tensors that one number fills are
        left: the importer reads them as that number.
    """
    known: dict[fx.Node, torch.Tensor] = {}
    for node in graph.nodes:
        if _is_constant(node, known):
            operands = fx.map_arg((node.args, node.kwargs), lambda operand: known[operand])
            with torch.no_grad():
                known[node] = node.target(*operands[0], **operands[1])
    added = {}
    first = next(iter(graph.nodes))
    for node in list(_read_elsewhere(known)):
        with graph.inserting_before(first):
            placeholder = graph.placeholder(f"{node.name}_folded")
        placeholder.meta = dict(node.meta)
        node.replace_all_uses_with(placeholder)
        added[placeholder.name] = known[node]
    graph.eliminate_dead_code()
    return added


def _is_constant(node: fx.Node, known: dict[fx.Node, torch.Tensor]) -> bool:
    """Whether a node computes one small tensor, always the same, from what is known."""
    value = node.meta.get("val")
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded not in node.target.tags
        and isinstance(value, torch.Tensor)
        and all(isinstance(extent, int) for extent in value.shape)
        and value.numel() <= MOST_ELEMENTS
        and all(operand in known for operand in node.all_input_nodes)
    )


def _read_elsewhere(known: dict[fx.Node, torch.Tensor]) -> Iterator[fx.Node]:
    """The known nodes of different numbers that others read."""
    for node, value in known.items():
        filled = value.numel() < 2 or bool((value == value.flatten()[0]).all())
        if not filled and any(user not in known for user in node.users):
            yield node

"""What an exported PyTorch program computes from no input: evaluated here.

A causal mask is `ones(n, n).tril()` in the code of a model. torch computes it once, while the model
is compiled, and it becomes a placeholder like a buffer.

Of what decompositions make from extents and known indices alone, the matrix of a resampling for
instance, everybody may know the numbers: they trace it within `public()`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import fx
from torch.fx import traceback

from veilgraph.frontend.torch.module_paths import path_of
from veilgraph.ir.errors import UsageError

MOST_ELEMENTS = 1 << 16  # as ONNX literals have it: larger results are left to the importer
MOST_PUBLIC_ELEMENTS = 1 << 24
MARK = "veilgraph"


def public() -> AbstractContextManager[None]:
    """Marks what is traced within: numbers that are no secret, if nothing secret goes in."""
    marked: AbstractContextManager[None] = traceback.annotate({MARK: "public"})
    return marked


def whole() -> AbstractContextManager[None]:
    """Operators that are traced within stay what they are."""
    marked: AbstractContextManager[None] = traceback.annotate({MARK: "whole"})
    return marked


def is_marked() -> bool:
    """Whether what is being traced is within one of these, and is decomposed no further."""
    return MARK in (traceback.current_meta.get("custom") or {})


@dataclass(frozen=True)
class Known:
    """A tensor that follows from no input.

    Attributes:
        text: it follows from the program's text alone.
        secret: it follows from real numbers that the model holds, which are its owner's.
        public: it is marked so, or follows from such tensors and numbers of the text alone.
    """

    tensor: torch.Tensor
    text: bool
    secret: bool
    public: bool


@dataclass(frozen=True)
class Folded:
    """The value of each placeholder that was added: the owner's, or public ones."""

    owned: Mapping[str, torch.Tensor]
    public: Mapping[str, torch.Tensor]


def fold_constants(
    graph: fx.Graph, held: Mapping[str, torch.Tensor], given: Collection[str] = ()
) -> Folded:
    """Takes out the nodes whose results follow from no input, in place.

    Args:
        held: what the model holds, by placeholder. Real numbers of it go into nothing but what is
            marked, integers into integers too.
        given: placeholders of those that everybody may know: what follows from them is no secret.
    """
    known = {
        node: Known(
            held[node.name],
            text=False,
            secret=held[node.name].is_floating_point() and node.name not in given,
            public=False,
        )
        for node in graph.nodes
        if node.op == "placeholder" and node.name in held
    }
    begun = set(known)
    for node in graph.nodes:
        if _is_constant(node, known):
            known[node] = _followed(node, known)
    folded = {node: value for node, value in known.items() if node not in begun}
    return _replaced(graph, folded)


def _followed(node: fx.Node, known: Mapping[fx.Node, Known]) -> Known:
    operands = [known[operand] for operand in node.all_input_nodes]
    secret = any(operand.secret for operand in operands)
    public = bool(operands) and all(operand.public for operand in operands)
    tensor = _computed(node, known)
    if _is_public(node) and not bool(tensor.isfinite().all()):
        where = path_of(node) or "forward"
        raise UsageError(
            f"The numbers that {where} multiplies by aren't finite ({node.name}).",
            "Where windows of an istft leave gaps, nothing is known of the signal: overlap them.",
        )
    return Known(
        tensor,
        text=all(operand.text for operand in operands),
        secret=secret,
        public=public or (_is_public(node) and not secret),
    )


def _computed(node: fx.Node, known: Mapping[fx.Node, Known]) -> torch.Tensor:
    """
    Raises:
        UsageError: torch can't.
    """
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda x: known[x].tensor)
    assert callable(node.target)
    try:
        with torch.no_grad():
            found: torch.Tensor = node.target(*args, **kwargs)
            return found.contiguous()  # copies were dropped
    except Exception as error:  # torch promises no class of errors
        raise UsageError(
            f"torch can't compute {node.name!r}, a constant of the model: {first_line(error)}",
            "Compute it before, and hold it as a buffer.",
        ) from error


def first_line(error: Exception) -> str:
    """What torch says is wrong, without where."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), "no reason given")


def _replaced(graph: fx.Graph, folded: Mapping[fx.Node, Known]) -> Folded:
    """A placeholder for each folded node that others read."""
    owned: dict[str, torch.Tensor] = {}
    public: dict[str, torch.Tensor] = {}
    first = next(iter(graph.nodes))
    for node in list(_read_elsewhere(folded)):
        with graph.inserting_before(first):
            placeholder = graph.placeholder(f"{node.name}_folded")
        placeholder.meta = dict(node.meta)
        node.replace_all_uses_with(placeholder)
        chosen = public if folded[node].public else owned
        chosen[placeholder.name] = folded[node].tensor
    graph.eliminate_dead_code()
    return Folded(owned, public)


def _is_public(node: fx.Node) -> bool:
    return (node.meta.get("custom") or {}).get(MARK) == "public"


def _is_constant(node: fx.Node, known: Mapping[fx.Node, Known]) -> bool:
    """Whether a node computes one small tensor, always the same, from what may go into it."""
    value = node.meta.get("val")
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded not in node.target.tags
        and isinstance(value, torch.Tensor)
        and all(isinstance(extent, int) for extent in value.shape)
        and value.numel() <= (MOST_PUBLIC_ELEMENTS if _is_public(node) else MOST_ELEMENTS)
        and all(operand in known for operand in node.all_input_nodes)
        and _may_hold(node, value, known)
    )


def _may_hold(node: fx.Node, value: torch.Tensor, known: Mapping[fx.Node, Known]) -> bool:
    operands = [known[operand] for operand in node.all_input_nodes]
    if _is_public(node) or all(operand.text for operand in operands):
        return True
    return not value.is_floating_point() and not any(operand.secret for operand in operands)


def _read_elsewhere(known: Mapping[fx.Node, Known]) -> Iterator[fx.Node]:
    """The known nodes that others read, without those that the importer reads as one number."""
    for node, value in known.items():
        tensor = value.tensor
        filled = tensor.numel() < 2 or bool((tensor == tensor.flatten()[0]).all())
        left = filled and value.text and not (value.public or _is_public(node))
        if not left and any(user not in known for user in node.users):
            yield node

"""Complex numbers of a traced PyTorch program become pairs of real ones.

The plan knows real numbers alone. Each call that takes or makes complex numbers is written out on
their parts (pairs.py, spectra.py); what is covered leaves no trace of them.

    view_as_real(rfft(x) * w)  ->  stack(re re' - im im', re im' + im re')
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch.fx import traceback
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as trees

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.torch import pairs, spectra
from veilgraph.frontend.torch.constants import first_line
from veilgraph.frontend.torch.decompositions import DECOMPOSITIONS
from veilgraph.frontend.torch.pairs import Pair
from veilgraph.frontend.torch.tracing import quietly
from veilgraph.ir.errors import UsageError

aten = torch.ops.aten
RULES = pairs.RULES | spectra.RULES
UNCOVERED = Unsupported(
    "It computes with complex numbers, in a form that isn't covered.",
    "Write it with torch.view_as_real, on both parts.",
)
RETURNED = Unsupported(
    "The model returns it, and it is complex.", "Return torch.view_as_real of it."
)
JUDGED = "veilgraph_complex"  # in a node's meta: what is wrong with it, None if nothing is
Tensors = dict[fx.Node, Any]  # nodes of both parts of each complex one, of several in a list


def are_complex(value: Any) -> bool:
    """Whether what a node makes is, or has, complex tensors."""
    leaves = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(leaf, torch.Tensor) and leaf.is_complex() for leaf in leaves)


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """Both parts of complex numbers along a new last axis; other numbers as they are."""
    return torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor


def without_complex_numbers(graph: fx.Graph, held: Collection[str]) -> None:
    """Changes the graph in place. What isn't covered stays, with the reason in its meta.

    Args:
        held: placeholders of tensors that the model holds: complex ones become what `as_real`
            makes of them.

    Raises:
        UsageError: torch can't trace what is written out.
    """
    try:
        with quietly():
            _as_pairs(graph, held)
    except Exception as error:  # torch promises no class of errors
        raise UsageError(
            f"Complex numbers of the model can't be taken apart: {first_line(error)}",
            "Compile its parts to find out which of them shows it.",
        ) from error


def _as_pairs(graph: fx.Graph, held: Collection[str]) -> None:
    known: Tensors = {}
    squares: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op == "placeholder" and node.name in held and are_complex(node.meta.get("val")):
            known[node] = _opened(node)
        elif node.op == "call_function":
            if _is_square(node, squares):
                node.replace_all_uses_with(squares[node.args[0]])
            elif _touches(node):
                _judge(node, known, squares)
    for node in graph.output_node().all_input_nodes:
        if node in known and node.op == "call_function":
            node.meta[JUDGED] = RETURNED
    graph.eliminate_dead_code()


def _touches(node: fx.Node) -> bool:
    read = (operand.meta.get("val") for operand in node.all_input_nodes)
    return (
        node.target in spectra.RULES
        or are_complex(node.meta.get("val"))
        or any(are_complex(value) for value in read)
    )


def _is_square(node: fx.Node, magnitudes: Collection[fx.Node]) -> bool:
    """|z|^2 needs no root."""
    if node.target is aten.pow.Tensor_Scalar:
        return node.args[0] in magnitudes and node.args[1] == 2
    twice = node.target is aten.mul.Tensor and node.args[0] is node.args[1]
    return twice and node.args[0] in magnitudes


def _opened(node: fx.Node) -> Pair:
    """Both parts of a tensor that the model holds."""
    graph, value = node.graph, node.meta["val"]
    node.meta["val"] = as_real(value)
    node.meta.pop("tensor_meta", None)
    found = []
    with graph.inserting_after(node):
        for place in (1, 0):
            part = graph.call_function(aten.select.int, (node, -1, place))
            part.meta = {**node.meta, "val": node.meta["val"].select(-1, place)}
            found.append(part)
    return Pair(*reversed(found))


def _judge(node: fx.Node, known: Tensors, squares: dict[fx.Node, fx.Node]) -> None:
    """Writes a call out, or says what is wrong with it."""
    operands = node.all_input_nodes
    if any(are_complex(x.meta.get("val")) and x not in known for x in operands):
        return  # judged with what makes it
    if node.target is operator.getitem:
        known[node] = known[operands[0]][node.args[1]]
        return
    try:
        made = _written_out(node, known)
    except Unsupported as refused:
        node.meta[JUDGED] = refused
        return
    node.meta[JUDGED] = None
    if isinstance(made, fx.Node):
        node.replace_all_uses_with(made)
        if node.target is aten.abs.default:
            squares[made] = made.args[0]
    else:
        known[node] = made


def _written_out(node: fx.Node, known: Tensors) -> Any:
    """The nodes that compute what a call does, put before it.

    Raises:
        Unsupported: no rule covers it.
    """
    given = {x: known.get(x, x) for x in node.all_input_nodes}
    leaves, tree = trees.tree_flatten(list(given.values()))
    traced, shape = _traced(node, given, leaves, tree)
    copies: dict[fx.Node, fx.Node] = {}
    placeholders = [inner for inner in traced.nodes if inner.op == "placeholder"]
    copies.update(zip(placeholders, leaves, strict=True))
    with node.graph.inserting_before(node):
        for inner in traced.nodes:
            if inner.op == "call_function":
                copies[inner] = node.graph.node_copy(inner, lambda old: copies[old])
                kept = {key: inner.meta[key] for key in ("val", "custom") if key in inner.meta}
                copies[inner].meta = {
                    key: value for key, value in node.meta.items() if key != "tensor_meta"
                } | kept
    results = [copies[inner] for inner in trees.tree_leaves(traced.output_node().args[0])]
    made = trees.tree_unflatten(results, shape)
    if not _fits(made, node.meta["val"]):
        raise UNCOVERED
    return made


def _fits(made: Any, wanted: Any) -> bool:
    """Whether nodes make what a call did: as many tensors, of the same kinds and shapes."""
    if isinstance(wanted, list | tuple):
        return len(made) == len(wanted) and all(map(_fits, made, wanted))
    parts = list(made) if isinstance(made, Pair) else [made]
    return isinstance(made, Pair) == are_complex(wanted) and all(
        part.meta["val"].shape == wanted.shape and not are_complex(part.meta["val"])
        for part in parts
    )


def _traced(
    node: fx.Node, given: Tensors, leaves: list[fx.Node], tree: trees.TreeSpec
) -> tuple[fx.Graph, trees.TreeSpec]:
    """A rule on a node's operands as torch traces it, and the structure of what it returns."""
    rule: Callable[..., Any] = RULES.get(node.target, lambda *args, **kwargs: NotImplemented)
    shapes: list[trees.TreeSpec] = []

    def flat(*tensors: torch.Tensor) -> list[Any]:
        operands = dict(zip(given, trees.tree_unflatten(list(tensors), tree), strict=True))
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda x: operands[x])
        made = rule(*args, **kwargs)
        if made is NotImplemented:
            raise UNCOVERED
        results, shape = trees.tree_flatten(made)
        shapes.append(shape)
        return list(results)

    values = [leaf.meta["val"] for leaf in leaves]
    mode = detect_fake_mode([*values, node.meta["val"]])
    assert mode is not None
    with torch.no_grad(), traceback.preserve_node_meta(), mode:
        traced = make_fx(flat, decomposition_table=dict(DECOMPOSITIONS))(*values)
    return traced.graph, shapes[-1]

"""Dropouts in training mode: products with masks, which are tensors of the model from here on.

torch draws a mask and multiplies, by elements or by channels. Here the mask is a placeholder, by
which one multiplies; who trains draws it, 0 or 1 / (1 - p).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch
from torch import fx

from veilgraph.frontend.torch.module_paths import path_of
from veilgraph.ir.errors import UsageError

aten = torch.ops.aten
BY_ELEMENT, DRAW, SCALE = aten.native_dropout.default, aten.bernoulli.p, aten.div.Scalar


@dataclass(frozen=True)
class Mask:
    """What a dropout multiplies by.

    Attributes:
        placeholder: its node.
        name: what it is called: that of the module, and ".mask".
        dropped: the share of its elements that are 0.
    """

    placeholder: str
    name: str
    dropped: float
    shape: tuple[int, ...]


def masked(graph: fx.Graph) -> list[Mask]:
    """Puts products with masks in the place of draws, in place.

    Raises:
        UsageError: a dropout that drops all.
    """
    masks: list[Mask] = []
    for node in list(graph.nodes):
        if node.target is BY_ELEMENT and node.args[2] and not _reads_mask(node):
            (made,) = node.users
            _multiply(graph, made, node.args[0], _mask(graph, made, node.args[1], masks))
        elif node.target is DRAW and (scaled := _scaled(node)) is not None:
            scaled.replace_all_uses_with(_mask(graph, scaled, 1 - node.args[1], masks))
    graph.eliminate_dead_code()
    for node in reversed(list(graph.nodes)):  # draws are no dead code to torch
        if node.target in (BY_ELEMENT, DRAW, SCALE, operator.getitem) and not node.users:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    return masks


def _reads_mask(node: fx.Node) -> bool:
    """Whether anything but the product is read."""
    return [user.args[1] for user in node.users] != [0]


def _scaled(draw: fx.Node) -> fx.Node | None:
    """What a draw over the share that is kept is, where nothing else reads the draw."""
    users = list(draw.users)
    is_scaled = len(users) == 1 and users[0].target is SCALE and users[0].args[1] == draw.args[1]
    return users[0] if is_scaled else None


def _multiply(graph: fx.Graph, made: fx.Node, x: fx.Node, mask: fx.Node) -> None:
    with graph.inserting_before(made):
        product = graph.call_function(aten.mul.Tensor, (x, mask))
    product.meta = dict(made.meta)
    made.replace_all_uses_with(product)


def _mask(graph: fx.Graph, node: fx.Node, dropped: float, masks: list[Mask]) -> fx.Node:
    """A new placeholder of the shape of `node`, which is dropped or kept by it."""
    place = path_of(node)
    if dropped >= 1:
        raise UsageError(
            f"Dropout `{place}` drops everything.", "Give it a share below 1, such as 0.5."
        )
    stem = f"{place}.mask".lstrip(".")
    used = sum(mask.name.partition("#")[0] == stem for mask in masks)
    name = f"{stem}#{used + 1}" if used else stem
    first = next(iter(graph.nodes))
    with graph.inserting_before(first):
        found = graph.placeholder(f"dropout_mask_{len(masks)}")
    found.meta = {"val": node.meta["val"]}
    masks.append(Mask(found.name, name, dropped, tuple(node.meta["val"].shape)))
    return found

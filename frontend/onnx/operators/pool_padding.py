"""Pools of an ONNX graph whose extents are rounded up, with explicit padding instead.

Opsets before 22 infer a last window that lies wholly in the padding, which no runtime computes;
and what hangs over the edge doesn't count in an average, whatever `count_include_pad` says. With
explicit padding neither question is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from veilgraph.frontend.onnx.constant_folding import Literals, replace_nodes, static_shapes
from veilgraph.frontend.onnx.nodes import attributes_of

Ints = tuple[int, ...]


def round_down(model: ModelProto, literals: Literals) -> None:
    """Rewrites every pool with `ceil_mode` whose input's shape is known, from the inputs on.

    Args:
        model: changed in place.
        literals: the known tensors; those of padding nodes are added.
    """
    waiting = True
    while waiting:
        shapes = static_shapes(model, literals)
        ready = (index for index, node in enumerate(model.graph.node) if _is_ready(node, shapes))
        index = next(ready, None)
        waiting = index is not None
        if index is not None:
            nodes = list(model.graph.node)
            pool = nodes[index]
            nodes[index : index + 1] = _explicit(pool, shapes[pool.input[0]], model, literals)
            replace_nodes(model.graph, nodes)


def _attributes(node: NodeProto) -> dict[str, Any]:
    if node.op_type not in ("AveragePool", "MaxPool") or node.domain:
        return {}
    return attributes_of(node)


def _is_ready(node: NodeProto, shapes: dict[str, Ints]) -> bool:
    """Whether it is a pool that rounds up, of a known input, with a number for each of its axes."""
    given = _attributes(node)
    if not given.get("ceil_mode", 0) or node.input[0] not in shapes:
        return False
    rank = len(shapes[node.input[0]]) - 2
    lengths = {"kernel_shape": rank, "strides": rank, "dilations": rank, "pads": 2 * rank}
    lists = {name: given[name] for name in lengths if name in given}
    return (
        "kernel_shape" in lists
        and all(len(values) == lengths[name] for name, values in lists.items())
        and min(given.get("strides", [1])) >= 1
    )


def _explicit(
    pool: NodeProto, shape: Ints, model: ModelProto, literals: Literals
) -> list[NodeProto]:
    """The pool without `ceil_mode`, after a node that pads for it where the padding counts."""
    given = _attributes(pool)
    del given["ceil_mode"]
    if given.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        return [_pool(pool, pool.input[0], given)]  # rounded up anyway, and padded to match
    low, high, overhang = _padding(given, shape)
    counted = given.get("count_include_pad", 0) and any(overhang)
    before = []
    source = pool.input[0]
    if counted:
        before = [_pad_node(pool, (0, 0, *low, 0, 0, *high), model, literals)]
        source = before[0].output[0]
        low, high = (0,) * len(low), (0,) * len(high)
        given["count_include_pad"] = 0
    given.pop("auto_pad", None)
    given["pads"] = (*low, *(h + o for h, o in zip(high, overhang, strict=True)))
    return [*before, _pool(pool, source, given)]


def _padding(given: dict[str, Any], shape: Ints) -> tuple[Ints, Ints, Ints]:
    """Padding below and above, and how far the last windows hang over beyond that."""
    kernel = given["kernel_shape"]
    rank = len(kernel)
    neutral = [1] * rank
    strides, dilations = given.get("strides", neutral), given.get("dilations", neutral)
    pads = given.get("pads", [0] * 2 * rank)
    low, high = tuple(pads[:rank]), tuple(pads[rank:])
    overhang = []
    for axis, extent in enumerate(shape[2:]):
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        padded = extent + low[axis] + high[axis]
        steps = -((reach - padded) // strides[axis])
        if steps * strides[axis] >= extent + low[axis]:
            steps -= 1  # the last window would see only padding
        overhang.append(max(0, steps * strides[axis] + reach - padded))
    return low, high, tuple(overhang)


def _pool(pool: NodeProto, source: str, attributes: dict[str, Any]) -> NodeProto:
    return helper.make_node(pool.op_type, [source], pool.output, name=pool.name, **attributes)


def _pad_node(pool: NodeProto, pads: Ints, model: ModelProto, literals: Literals) -> NodeProto:
    """Zeros around the pool's input, as its model's opset writes it."""
    name = f"{pool.name}/pad"
    if max(entry.version for entry in model.opset_import if not entry.domain) < 11:
        return helper.make_node("Pad", [pool.input[0]], [name], name=name, pads=pads)
    literals[f"{name}.pads"] = numpy_helper.from_array(np.array(pads), f"{name}.pads")
    return helper.make_node("Pad", [pool.input[0], f"{name}.pads"], [name], name=name)

"""Batch norms while a model trains: x is normalised by its batch, and running statistics follow.

    mean = sum of x / n,  variance = sum of (x - mean)^2 / n,  over all axes but the channels'
    y = gamma (x - mean) / sqrt(variance + epsilon) + beta      (Ioffe, Szegedy, ICML 2015)
    running = running - momentum (running - mean);  of the variance times n / (n - correction)

A momentum of None stands for the mean over all batches: the share of a step is a public number, 1
over how many there were.

The running statistics are states that a step updates and no gradient does. An evaluation normalises
by them.

A bias that is added right in front of such a norm moves nothing but the batch's mean. Its gradient
is zero, and what float32 or rounding in secret make of that zero would be a walk at random. So it
is no subject of the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, attributes, defining, users
from veilgraph.ir.training import MEAN_SHARE
from veilgraph.passes.graph.derivatives.algebra import reshaped, scaled, total
from veilgraph.passes.graph.public_factors import constant


def following(graph: Graph) -> list[ir.OpView]:
    """The batch norms that normalise by their batch while the model trains."""
    norms = [op for op in graph.operations if isinstance(op, ops.BatchNorm)]
    return [op for op in norms if "momentum" in attributes(op)]


def statistics_of(op: ir.OpView) -> list[ir.Value]:
    """The running mean and the running variance that a batch norm reads."""
    return list(op.operation.operands)[3:]


def share_of(op: ir.OpView) -> tuple[str, int] | None:
    """Of a norm whose statistics are means over all batches, the public input that is a step's
    share of them, and of how many batches they are at first.
    """
    batches = attributes(op).get("batches")
    return None if batches is None else (f"{MEAN_SHARE}{batches}", batches)


def normalise_by_batch(graph: Graph, shares: Mapping[str, ir.Value]) -> dict[str, ir.Value]:
    """Lets batch norms whose statistics are states normalise by their batch, in place.

    Args:
        shares: public numbers, by the names that `share_of` gives.

    Returns:
        Of each of these states, what a step takes from it. A norm that stands in two places takes
        twice, in their order.
    """
    names = {value: name for name, value in graph.inputs.items() if name in graph.states}
    taken: dict[str, list[ir.Value]] = {}
    for op in following(graph):
        running = statistics_of(op)
        if not all(value in names for value in running):
            continue
        with graph.before(op):
            y, found = _by_batch(op)
            for state, (statistic, share) in zip(running, found, strict=True):
                before = taken.setdefault(names[state], [])
                now = ops.Sub.build(state, total(before)) if before else state
                before.append(_less(op, now, statistic, share, shares))
        graph.replace(op, y)
    with graph.ahead_of_return("statistics/"):
        return {name: total(parts) for name, parts in taken.items()}


def _by_batch(op: ir.OpView) -> tuple[ir.Value, list[tuple[ir.Value, float]]]:
    """What the norm makes of its batch; the batch's mean and variance [C], and a factor of each."""
    x, gamma, beta, *_ = op.operation.operands
    named, shape = attributes(op), shape_of(x)
    axes = tuple(axis for axis in range(len(shape)) if axis != 1)
    column, channels = (1, shape[1], *(1,) * (len(shape) - 2)), shape_of(gamma)
    mean = ops.ReduceMean.build(x, axes=axes, keepdims=True)
    centred = ops.Sub.build(x, mean)
    square = ops.Mul.build(centred, centred)
    variance = ops.ReduceMean.build(square, axes=axes, keepdims=True)
    r = ops.Rsqrt.build(ops.Add.build(variance, constant(named["epsilon"], variance)))
    scale = ops.Mul.build(reshaped(gamma, column), r)
    y = ops.Add.build(ops.Mul.build(centred, scale), reshaped(beta, column))
    count = prod(shape[axis] for axis in axes)
    return y, [
        (reshaped(mean, channels), 1.0),
        (reshaped(variance, channels), count / (count - named["correction"])),
    ]


def _less(
    op: ir.OpView,
    running: ir.Value,
    found: ir.Value,
    factor: float,
    shares: Mapping[str, ir.Value],
) -> ir.Value:
    """momentum (running - factor found), with one rounding."""
    if (cumulative := share_of(op)) is not None:
        return ops.Mul.build(ops.Sub.build(running, scaled(found, factor)), shares[cumulative[0]])
    momentum = attributes(op)["momentum"]
    return ops.Sub.build(scaled(running, momentum), scaled(found, momentum * factor))


def unmoved_biases(graph: Graph) -> Iterator[str]:
    """Names of weights that are added to a layer's channels right in front of such a norm."""
    names = {value: name for name, value in graph.parameters.items()}
    for op in following(graph):
        x = op.operation.operands[0]
        bias = _bias(x, shape_of(x)[1])
        if bias in names and len(users(bias)) == 1:
            yield names[bias]


def _bias(x: ir.Value, channels: int) -> ir.Value | None:
    """What was last added to each channel of x [N, C, ...], where nothing else reads x."""
    op = defining(x)
    if op is None or len(users(x)) != 1:
        return None
    operands = list(op.operation.operands)
    if isinstance(op, ops.Reshape) and shape_of(operands[0])[:2] == shape_of(x)[:2]:
        return _bias(operands[0], channels)
    if isinstance(op, ops.Conv) and len(operands) == 3:
        return operands[2]
    if isinstance(op, ops.Add):
        return next((v for v in operands if _is_by_channel(v, len(shape_of(x)), channels)), None)
    return None


def _is_by_channel(value: ir.Value, rank: int, channels: int) -> bool:
    """Whether it is an argument that holds one number a channel of a tensor of this rank."""
    shape = (1,) * (rank - len(shape_of(value))) + shape_of(value)
    return defining(value) is None and shape == (1, channels, *(1,) * (rank - 2))

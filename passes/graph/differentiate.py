"""The backward pass: derivatives of losses by arguments, as operations behind the forward ones.

Reverse accumulation (Griewank and Walther, Evaluating Derivatives, 2008, chapter 3): from the
losses back, each operation's rule (derivatives/rules.py) hands the derivative by its result on to
its operands. Forward and backward pass are one program, so later passes find in it whatever both
compute: a comparison stands there as `step` of the number that the forward operation compares.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import Offender, UnsupportedError, UsageError
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.facts import Derivative
from veilgraph.ir.graph.program import Graph, kind_of, name_of
from veilgraph.passes.graph.derivatives.algebra import filled
from veilgraph.passes.graph.derivatives.maxima import TREES
from veilgraph.passes.graph.derivatives.rules import RULES

FREEZE = "Freeze the parameters in front of it, or replace it in the model."


def differentiate(graph: Graph, losses: Sequence[str], by: Sequence[str]) -> dict[str, str]:
    """Appends the derivatives of the sum of some losses by some arguments, as outputs.

    Before::

        func.func @main(%x: tensor<4x3xf32> {graph.name = "x", graph.role = "input"},
            %w: tensor<3x1xf32> {graph.name = "w", graph.role = "weight"})
            -> (tensor<1x1xf32> {graph.name = "loss"}) {
          %0 = "graph.matmul"(%x, %w) : (tensor<4x3xf32>, tensor<3x1xf32>) -> tensor<4x1xf32>
          %1 = "graph.relu"(%0) : (tensor<4x1xf32>) -> tensor<4x1xf32>
          %2 = "graph.mul"(%1, %1) : (tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x1xf32>
          %3 = "graph.reduce_sum"(%2) {axes = array<i64: 0>, keepdims = true}
              : (tensor<4x1xf32>) -> tensor<1x1xf32>
          return %3 : tensor<1x1xf32>
        }

    After::

        func.func @main(%x: tensor<4x3xf32> {graph.name = "x", graph.role = "input"},
            %w: tensor<3x1xf32> {graph.name = "w", graph.role = "weight"})
            -> (tensor<1x1xf32> {graph.name = "loss"}, tensor<3x1xf32> {graph.name = "w.grad"}) {
          %0 = "graph.matmul"(%x, %w) : (tensor<4x3xf32>, tensor<3x1xf32>) -> tensor<4x1xf32>
          %1 = "graph.relu"(%0) : (tensor<4x1xf32>) -> tensor<4x1xf32>
          %2 = "graph.mul"(%1, %1) : (tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x1xf32>
          %3 = "graph.reduce_sum"(%2) {axes = array<i64: 0>, keepdims = true}
              : (tensor<4x1xf32>) -> tensor<1x1xf32>
          %4 = "graph.add"(%1, %1) : (tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x1xf32>
          %5 = "graph.step"(%0) : (tensor<4x1xf32>) -> tensor<4x1xf32>
          %6 = "graph.mul"(%4, %5) : (tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x1xf32>
          %7 = "graph.transpose"(%x) {permutation = array<i64: 1, 0>}
              : (tensor<4x3xf32>) -> tensor<3x4xf32>
          %8 = "graph.matmul"(%7, %6) : (tensor<3x4xf32>, tensor<4x1xf32>) -> tensor<3x1xf32>
          return %3, %8 : tensor<1x1xf32>, tensor<3x1xf32>
        }

    A max pool and a maximum along axes on the way become trees of maxima of two, as protocols
    compute them: each comparison then has a value that both passes name. All else of the forward
    pass stays as it is. What no argument of `by` needs is not computed.

    Args:
        graph: changed in place.
        losses: outputs of one number each.
        by: inputs and weights.

    Returns:
        The name of the output that is the derivative by each argument, of the argument's shape:
        "NAME.grad".

    Raises:
        UsageError: a loss is no output or no single number, an argument is unknown or bears on no
            loss, an output has the name of a derivative.
        UnsupportedError: operations between an argument and a loss that have no derivative, all
            of them.
    """
    _arguments(graph, by)
    _require_losses(graph, losses)

    def seeds() -> dict[ir.Value, ir.Value]:
        return {v: filled(1.0, shape_of(v)) for n, v in graph.outputs.items() if n in losses}

    found = gradients(graph, by, seeds)
    named = {f"{name}.grad": value for name, value in found.items()}
    graph.replace_outputs(graph.outputs | named)
    return dict(zip(found, named, strict=True))


def gradients(
    graph: Graph, by: Sequence[str], seeds: Callable[[], Mapping[ir.Value, ir.Value]]
) -> dict[str, ir.Value]:
    """Builds derivatives by inputs and weights ahead of the return; no output is added.

    Args:
        graph: changed in place; its maxima are written out first.
        seeds: builds the derivative by each value that is differentiated, ahead of the return.

    Returns:
        The derivative by each argument, by name, of the argument's shape.

    Raises:
        UsageError: an argument is unknown, or bears on nothing that is differentiated.
        UnsupportedError: operations on the way that have no derivative, all of them.
    """
    arguments = _arguments(graph, by)
    write_out_maxima(graph, set(arguments.values()))
    with graph.ahead_of_return("loss.grad/"):
        given = seeds()
    found = backward(graph, given, set(arguments.values()))
    _require_found(graph, given, {n: v for n, v in arguments.items() if v not in found})
    return {name: found[value] for name, value in arguments.items()}


def write_out_maxima(graph: Graph, by: Collection[ir.Value]) -> dict[str, ir.Value]:
    """Puts trees of maxima of two in the place of pools and maxima that depend on `by`.

    Returns:
        What stands for each of them, by its name. A maximum of single numbers is its operand.
    """
    dependent = _dependent(graph, by)
    written: dict[str, ir.Value] = {}
    for op in graph.operations:
        tree = TREES.get(type(op))
        if tree is not None and op.operation.results[0] in dependent:
            name = name_of(op)
            with graph.before(op):
                written[name] = tree(op)
            graph.replace(op, written[name])
    return written


def backward(
    graph: Graph,
    seeds: Mapping[ir.Value, ir.Value],
    by: Collection[ir.Value],
    none_is_flat: bool = False,
) -> dict[ir.Value, ir.Value]:
    """Builds derivatives ahead of the return; nothing is erased, and no output added.

    Args:
        graph: a program whose maxima are written out.
        seeds: the derivative by each value that is differentiated, built before.
        by: values to differentiate by.
        none_is_flat: what has no derivative has a derivative of zero.

    Returns:
        The derivative by each value of `by`, and by those between; what no seed needs is not there.

    Raises:
        UnsupportedError: operations on the way that have no derivative, all of them.
    """
    dependent = _dependent(graph, by)
    found, offenders = dict(seeds), []
    operations = graph.operations
    with graph.ahead_of_return("backward/"):
        for op in reversed(operations):
            (y,) = op.operation.results
            derivative = ops.facts_of(op).derivative
            if y not in found or y not in dependent or derivative is Derivative.FLAT:
                continue
            if derivative is Derivative.NONE:
                offenders.append(op)
                continue
            with ir.Location.name(f"{name_of(op).rstrip('/') or kind_of(op)}.grad/"):
                _hand_on(op, found, dependent)
    if offenders and not none_is_flat:
        raise UnsupportedError([_offender(op) for op in reversed(offenders)], FREEZE)
    return found


def _hand_on(
    op: ir.OpView, found: dict[ir.Value, ir.Value], dependent: Collection[ir.Value]
) -> None:
    """Adds what an operation's operands get of the derivative by its result."""
    y, operands = op.operation.results[0], list(op.operation.operands)
    parts = RULES[type(op)](op, operands, y, found[y])
    for operand, part in zip(operands, parts, strict=True):
        if operand in dependent:
            is_first = operand not in found
            found[operand] = part if is_first else ops.Add.build(found[operand], part)


def _dependent(graph: Graph, by: Collection[ir.Value]) -> set[ir.Value]:
    """`by`, and what has a derivative by it, or would have if the operation had one."""
    dependent = set(by)
    for op in graph.operations:
        is_flat = ops.facts_of(op).derivative is Derivative.FLAT
        if not is_flat and any(value in dependent for value in op.operation.operands):
            dependent.add(op.operation.results[0])
    return dependent


def _arguments(graph: Graph, by: Sequence[str]) -> dict[str, ir.Value]:
    known = graph.inputs | graph.parameters
    for name in by:
        if name not in known:
            raise UsageError(
                f"The model has no input and no weight {name!r} to differentiate by.",
                f"It has {', '.join(known)}.",
            )
        if f"{name}.grad" in graph.outputs:
            raise UsageError(
                f"The model has an output '{name}.grad', the name of the derivative by {name!r}.",
                "Give the output another name.",
            )
    return {name: known[name] for name in by}


def _require_losses(graph: Graph, losses: Sequence[str]) -> None:
    for name in losses:
        if name not in graph.outputs:
            raise UsageError(
                f"The loss {name!r} is no output of the model.",
                f"The outputs are {', '.join(graph.outputs)}.",
            )
        shape = shape_of(graph.outputs[name])
        if prod(shape) != 1:
            raise UsageError(
                f"The loss {name!r} is no single number, but of shape {list(shape)}.",
                "Take the mean or the sum of it in the model.",
            )


def _require_found(
    graph: Graph, seeds: Collection[ir.Value], missing: Mapping[str, ir.Value]
) -> None:
    """That each argument has a derivative; what only comparisons read has none."""
    if not missing:
        return
    comparisons = _comparisons_between(graph, set(missing.values()), seeds)
    if comparisons:
        raise UnsupportedError([_offender(op) for op in comparisons], FREEZE)
    names = ", ".join(repr(name) for name in missing)
    raise UsageError(
        f"The loss does not depend on {names}.", "Leave out of training what no loss depends on."
    )


def _comparisons_between(
    graph: Graph, arguments: set[ir.Value], losses: Collection[ir.Value]
) -> list[ir.OpView]:
    """Operations without slope that read what depends on arguments, and that losses read."""
    before, behind = _dependent(graph, arguments), set(losses)
    for op in reversed(graph.operations):
        if op.operation.results[0] in behind:
            behind.update(op.operation.operands)
    return [
        op
        for op in graph.operations
        if op.operation.results[0] in behind
        and ops.facts_of(op).derivative is Derivative.FLAT
        and any(value in before for value in op.operation.operands)
    ]


def _offender(op: ir.OpView) -> Offender:
    source = f"a value of shape {list(shape_of(op.operation.results[0]))}"
    return Offender(name_of(op), kind_of(op), source, "It has no derivative.")

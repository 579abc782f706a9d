"""Rules of derivatives against torch and differences; what is refused, shared, left out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from derivative_cases import CASES, Case
from graph_examples import example
from numpy.typing import NDArray
from torch.nn import functional
from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import UnsupportedError, UsageError
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, attributes, kind_of
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.plan.tables import MAX_RANK
from veilgraph.passes.graph.approximate import Approximate
from veilgraph.passes.graph.derivatives.rules import RULES
from veilgraph.passes.graph.differentiate import differentiate, write_out_maxima

Array = NDArray[Any]


def test_docstring_example() -> None:
    before, after = example(differentiate.__doc__, context())
    assert differentiate(before, ["loss"], ["w"]) == {"w": "w.grad"}
    assert before.text(names=False) == after.text(names=False)


def test_each_rule_has_a_case() -> None:
    words = {case.name.split()[0] for case in CASES}
    assert {kind.OPERATION_NAME.partition(".")[2] for kind in RULES} <= words
    assert {"max_pool", "reduce_max"} <= words


def weighted(case: Case) -> tuple[Graph, dict[str, Array]]:
    """The sum of a case's result times given numbers, and operands for it."""
    generator = np.random.default_rng(5)
    inputs = {
        f"x{i}": np.asarray(case.offset + generator.standard_normal(shape))
        for i, shape in enumerate(case.shapes)
    }
    y = case.same(*(torch.from_numpy(array) for array in inputs.values()))
    shapes = {name: array.shape for name, array in inputs.items()}
    graph = Graph.create(context(), {**shapes, "seed": tuple(y.shape)}, {})
    *operands, seed = graph.inputs.values()
    with graph.end("y"):
        y_value = case.build(*operands)
    with graph.end("loss"):
        flat = ops.Reshape.build(ops.Mul.build(y_value, seed), shape=(y.numel(),))
        loss = ops.ReduceSum.build(flat, axes=(0,), keepdims=False)
    graph.finish({"loss": loss})
    return graph, inputs | {"seed": generator.standard_normal(tuple(y.shape))}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_rule_is_as_autograd_and_as_differences(case: Case) -> None:
    graph, inputs = weighted(case)
    names = [name for name in inputs if name != "seed"]
    before = evaluate(graph, inputs, dtype=np.float64)["loss"]
    found = differentiate(graph, ["loss"], names)
    graph.verify()
    assert max(len(shape_of(op.operation.results[0])) for op in graph.operations) <= MAX_RANK
    values = evaluate(graph, inputs, dtype=np.float64)
    assert values["loss"] == pytest.approx(before)
    tensors = {n: torch.tensor(a, requires_grad=n != "seed") for n, a in inputs.items()}
    (case.same(*(tensors[n] for n in names)) * tensors["seed"]).sum().backward()
    for name in names:
        wanted = tensors[name].grad
        assert wanted is not None
        np.testing.assert_allclose(values[found[name]], wanted.numpy(), rtol=2e-6, atol=2e-6)
        along = np.random.default_rng(6).standard_normal(inputs[name].shape)
        sides = [
            evaluate(graph, inputs | {name: inputs[name] + h * along}, dtype=np.float64)["loss"]
            for h in (1e-6, -1e-6)
        ]
        slope = float(sides[0] - sides[1]) / 2e-6
        assert np.sum(values[found[name]] * along) == pytest.approx(slope, rel=1e-4, abs=1e-5)


def program(build: Callable[..., ir.Value], *shapes: tuple[int, ...]) -> Graph:
    """The sum of what is built from inputs x0, x1, ... is the loss."""
    graph = Graph.create(context(), {f"x{i}": shape for i, shape in enumerate(shapes)}, {})
    with graph.end("node"):
        y = build(*graph.inputs.values())
    with graph.end("loss"):
        flat = ops.Reshape.build(y, shape=(math.prod(shape_of(y)),))
        loss = ops.ReduceSum.build(flat, axes=(0,), keepdims=False)
    graph.finish({"loss": loss})
    return graph


TIES: list[tuple[str, Callable[..., ir.Value], list[float], list[float]]] = [
    ("relu", ops.Relu.build, [0.0], [1.0]),
    ("abs", ops.Abs.build, [0.0], [1.0]),
    ("clip", lambda x: ops.Clip.build(x, min=-1.0, max=1.0), [-1.0, 1.0], [1.0, 0.0]),
    ("maximum", lambda x: ops.Maximum.build(x, ops.constant(2.0)), [2.0], [1.0]),
    ("minimum", lambda x: ops.Minimum.build(x, ops.constant(2.0)), [2.0], [0.0]),
    ("reduce_max", lambda x: ops.ReduceMax.build(x, axes=(0,), keepdims=False),
     [1.0, 3.0, 3.0, 2.0, 3.0], [0.0, 1.0, 0.0, 0.0, 0.0]),
]  # fmt: skip


@pytest.mark.parametrize("case", TIES, ids=lambda case: case[0])
def test_a_tie_belongs_to_the_side_that_its_comparison_chooses(
    case: tuple[str, Callable[..., ir.Value], list[float], list[float]],
) -> None:
    _, build, x, slope = case
    graph = program(build, (len(x),))
    differentiate(graph, ["loss"], ["x0"])
    assert evaluate(graph, {"x0": np.array(x)})["x0.grad"].tolist() == slope


def test_equal_numbers_in_overlapping_windows_have_the_derivative_of_torch() -> None:
    """The first of a window gets it, in order of rows."""
    named = {"kernel": (3, 3), "strides": (2, 1), "pads_low": (1, 1), "pads_high": (1, 1)}
    graph = program(lambda x: ops.MaxPool.build(x, dilations=(1, 1), **named), (2, 3, 7, 8))
    differentiate(graph, ["loss"], ["x0"])
    x = np.random.default_rng(1).integers(0, 3, (2, 3, 7, 8)).astype(np.float32)
    tensor = torch.tensor(x, requires_grad=True)
    functional.max_pool2d(tensor, 3, (2, 1), 1).sum().backward()
    assert tensor.grad is not None
    np.testing.assert_array_equal(evaluate(graph, {"x0": x})["x0.grad"], tensor.grad.numpy())


def compared(graph: Graph) -> Counter[str]:
    """How many elements are compared with zero, by what they are computed from.

    Operations of one kind, of the same attributes and operands, compute the same. A maximum of two
    compares their difference.
    """
    names = {value: name for name, value in graph.inputs.items()}
    names |= {value: name for name, value in graph.parameters.items()}
    found: dict[str, int] = {}
    for op in graph.operations:
        (result,) = op.operation.results
        given = [names[value] for value in op.operation.operands]
        named = {n: np.asarray(v).tolist() for n, v in attributes(op).items()}
        names[result] = f"{kind_of(op)}({', '.join(given)}, {named}, {shape_of(result)})"
        if isinstance(op, ops.Relu | ops.Step):
            found[given[0]] = int(np.prod(shape_of(result)))
        elif isinstance(op, ops.Maximum):
            shape = shape_of(result)
            found[f"sub({', '.join(given)}, {{}}, {shape})"] = int(np.prod(shape))
    return Counter(found)


COMPARING: list[tuple[str, tuple[int, ...], Callable[..., ir.Value]]] = [
    ("relu", (3, 4), ops.Relu.build),
    ("relu after relu", (3, 4), lambda x: ops.Relu.build(ops.Relu.build(x))),
    ("leaky_relu", (3, 4), lambda x: ops.LeakyRelu.build(x, alpha=0.1)),
    ("abs", (3, 4), ops.Abs.build),
    ("clip", (3, 4), lambda x: ops.Clip.build(x, min=-1.0, max=2.0)),
    ("clip from zero", (3, 4), lambda x: ops.Clip.build(x, min=0.0, max=6.0)),
    ("clip above", (3, 4), lambda x: ops.Clip.build(x, min=-math.inf, max=2.0)),
    ("hardsigmoid", (3, 4), ops.HardSigmoid.build),
    ("hardswish", (3, 4), ops.HardSwish.build),
    ("maximum", (3, 4), lambda x: ops.Maximum.build(x, ops.Sin.build(x))),
    ("minimum", (3, 4), lambda x: ops.Minimum.build(x, ops.Sin.build(x))),
    ("reduce_max", (3, 5), lambda x: ops.ReduceMax.build(x, axes=(0, 1), keepdims=True)),
    ("max_pool", (2, 3, 6, 6),
     lambda x: ops.MaxPool.build(x, kernel=(3, 3), strides=(2, 2), pads_low=(1, 1),
                                 pads_high=(0, 0), dilations=(1, 1))),
]  # fmt: skip


@pytest.mark.parametrize("case", COMPARING, ids=lambda case: case[0])
def test_the_backward_pass_compares_nothing_that_the_forward_pass_does_not(
    case: tuple[str, tuple[int, ...], Callable[..., ir.Value]],
) -> None:
    _, shape, build = case
    forward, both = program(build, shape), program(build, shape)
    write_out_maxima(forward, set(forward.inputs.values()))
    differentiate(both, ["loss"], ["x0"])
    alone = compared(Approximate().run(forward))
    assert alone
    assert compared(Approximate().run(both)) == alone


def test_a_pool_compares_as_often_as_its_protocol_does() -> None:
    """Six times an output for windows of 3 x 3 and stride 2, about: rows are shared by windows."""
    named = {"kernel": (3, 3), "strides": (2, 2), "pads_low": (0, 0), "pads_high": (0, 0)}
    graph = program(lambda x: ops.MaxPool.build(x, dilations=(1, 1), **named), (1, 1, 17, 17))
    differentiate(graph, ["loss"], ["x0"])
    assert compared(graph).total() == 17 * 8 * 2 + 8 * 8 * 2


def multiplications(graph: Graph) -> int:
    """Of its convolutions, padding included."""
    kernels = {
        op.operation.results[0]: shape_of(op.operation.operands[1])
        for op in graph.operations
        if isinstance(op, ops.Conv)
    }
    return sum(math.prod(shape_of(y)) * math.prod(w[1:]) for y, w in kernels.items())


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.name.startswith("conv")], ids=lambda case: case.name
)
def test_the_derivative_by_an_image_multiplies_no_more_than_the_forward_pass(case: Case) -> None:
    forward, _ = weighted(case)
    both, _ = weighted(case)
    differentiate(both, ["loss"], ["x0"])
    assert multiplications(both) <= 2 * multiplications(forward)


def test_what_nobody_asked_for_is_not_computed() -> None:
    """Of the first layer's weight alone: no derivative by the image nor by the second weight."""
    graph = program(lambda x, w, v: ops.Matmul.build(ops.Matmul.build(x, w), v),
                    (2, 3), (3, 4), (4, 5))  # fmt: skip
    differentiate(graph, ["loss"], ["x1"])
    assert sum(isinstance(op, ops.Matmul) for op in graph.operations) == 4
    assert list(graph.outputs) == ["loss", "x1.grad"]
    graph = program(lambda x, w, v: ops.Matmul.build(ops.Matmul.build(x, w), v),
                    (2, 3), (3, 4), (4, 5))  # fmt: skip
    differentiate(graph, ["loss"], ["x2"])
    assert sum(isinstance(op, ops.Matmul) for op in graph.operations) == 3


def test_several_losses_are_added_up() -> None:
    graph = Graph.create(context(), {"x": (3,)}, {})
    (x,) = graph.inputs.values()
    with graph.end("node"):
        first = ops.ReduceSum.build(ops.Mul.build(x, x), axes=(0,), keepdims=False)
        second = ops.ReduceMean.build(x, axes=(0,), keepdims=True)
    graph.finish({"first": first, "second": second, "x": x})
    differentiate(graph, ["first", "second"], ["x"])
    found = evaluate(graph, {"x": np.array([1.0, -2.0, 4.0])})["x.grad"]
    np.testing.assert_allclose(found, [2 + 1 / 3, -4 + 1 / 3, 8 + 1 / 3], rtol=1e-6)


def test_one_argument_of_two_uses_has_the_sum_of_both() -> None:
    graph = program(lambda x, w: ops.Matmul.build(ops.Matmul.build(x, w), w), (2, 3), (3, 3))
    differentiate(graph, ["loss"], ["x1"])
    x, w = np.random.default_rng(0).standard_normal((2, 3)), np.full((3, 3), 0.5)
    tensor = torch.tensor(w, requires_grad=True)
    (torch.tensor(x) @ tensor @ tensor).sum().backward()
    assert tensor.grad is not None
    found = evaluate(graph, {"x0": x, "x1": w}, dtype=np.float64)["x1.grad"]
    np.testing.assert_allclose(found, tensor.grad.numpy(), rtol=1e-9)


def test_operations_without_a_derivative_are_refused_all_at_once() -> None:
    graph = Graph.create(context(), {"x": (3,)}, {"w": np.ones(3, np.float32)})
    x, w = *graph.inputs.values(), *graph.parameters.values()
    with graph.end("steps/floor"):
        low = ops.Floor.build(ops.Mul.build(x, w))
    with graph.end("rounded"):
        both = ops.Add.build(low, ops.Round.build(w))
    with graph.end("harmless"):
        both = ops.Add.build(both, ops.Floor.build(x))
    with graph.end("loss"):
        loss = ops.ReduceSum.build(both, axes=(0,), keepdims=False)
    graph.finish({"loss": loss})
    with pytest.raises(UnsupportedError) as refused:
        differentiate(graph, ["loss"], ["w"])
    assert [(o.node, o.operator) for o in refused.value.offenders] == [
        ("steps/floor", "floor"),
        ("rounded/round", "round"),
    ]
    assert refused.value.offenders[0].source == "a value of shape [3]"
    assert refused.value.hint.startswith("Freeze the parameters in front of it")


def test_an_argument_that_only_comparisons_read_is_refused() -> None:
    graph = program(lambda x: ops.Step.build(x), (3,))
    with pytest.raises(UnsupportedError, match=r"node: step .*It has no derivative"):
        differentiate(graph, ["loss"], ["x0"])


def test_a_mask_is_no_way_back() -> None:
    """x [w >= 0] + w: what the comparison says of w counts for nothing, as in PyTorch."""
    graph = program(lambda x, w: ops.Add.build(ops.Mul.build(x, ops.Step.build(w)), w), (3,), (3,))
    differentiate(graph, ["loss"], ["x1"])
    found = evaluate(graph, {"x0": np.ones(3), "x1": np.array([1.0, 2.0, 3.0])})
    assert found["x1.grad"].tolist() == [1.0, 1.0, 1.0]


def two_inputs() -> Graph:
    graph = Graph.create(context(), {"x": (3,), "idle": (2,), "z": (2,)}, {})
    with graph.end("y"):
        y = ops.Neg.build(graph.inputs["x"])
    with graph.end("loss"):
        loss = ops.ReduceSum.build(y, axes=(0,), keepdims=True)
    graph.finish({"loss": loss, "y": y, "idle.grad": y})
    return graph


@pytest.mark.parametrize(
    ("losses", "by", "said"),
    [
        (["lost"], ["x"], "The loss 'lost' is no output of the model."),
        (["y"], ["x"], r"The loss 'y' is no single number, but of shape \[3\]."),
        (["loss"], ["w"], "The model has no input and no weight 'w' to differentiate by."),
        (["loss"], ["x", "z"], "The loss does not depend on 'z'."),
        (["loss"], ["idle"], "The model has an output 'idle.grad', the name of the derivative by"),
    ],
)
def test_what_makes_no_sense_is_refused(losses: list[str], by: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        differentiate(two_inputs(), losses, by)
    assert refused.value.hint

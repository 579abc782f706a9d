"""Aten text to the graph level: rows that ONNX doesn't reach, and forms that rows refuse."""

from __future__ import annotations

import numpy as np
import pytest
from torch_mlir import ir
from torch_mlir.dialects import torch as torch_dialect

from veilgraph.frontend.lowering.torch_mlir import Lowered
from veilgraph.frontend.lowering.translate import Untranslatable, translate
from veilgraph.ir.graph.program import Graph, attributes, kind_of, name_of
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context

IMAGE = "!torch.vtensor<[1,2,4,4],f32>"
HALF = "!torch.vtensor<[1,2,2,2],f32>"
PROLOGUE = """
  %none = torch.constant.none
  %false = torch.constant.bool false
  %true = torch.constant.bool true
  %c0 = torch.constant.int 0
  %c1 = torch.constant.int 1
  %c2 = torch.constant.int 2
  %c9 = torch.constant.int 9
  %two = torch.constant.float 2.0
  %ones = torch.prim.ListConstruct %c1, %c1 : (!torch.int, !torch.int) -> !torch.list<int>
  %twos = torch.prim.ListConstruct %c2, %c2 : (!torch.int, !torch.int) -> !torch.list<int>
  %zeros = torch.prim.ListConstruct %c0, %c0 : (!torch.int, !torch.int) -> !torch.list<int>
"""


def program(body: str, result: str = IMAGE, arguments: str = f"%x: {IMAGE}") -> Graph:
    """Translates a function whose last operation makes %y."""
    text = f'func.func @main({arguments}) -> {result} {{{PROLOGUE}{body} loc("node")\n'
    fresh = context()
    torch_dialect.register_dialect(fresh)
    module = ir.Module.parse(f"{text}  return %y : {result}\n}}", fresh)
    names = tuple(argument.strip()[1] for argument in arguments.split(", %"))
    return translate(Lowered(module, tuple(names), ("y",), ("node",)), {})


def unary(operator: str) -> str:
    return f"%y = torch.aten.{operator} %x : {IMAGE} -> {IMAGE}"


@pytest.mark.parametrize("operator", ["sign", "silu", "hardsigmoid"])
def test_unary_rows(operator: str) -> None:
    graph = program(unary(operator))
    assert [(name_of(op), kind_of(op)) for op in graph.operations] == [("node", operator)]
    evaluate(graph, {"x": np.ones((1, 2, 4, 4))})


def test_a_sum_over_no_named_axes_is_over_all() -> None:
    graph = program(
        f"%y = torch.aten.sum.dim_IntList %x, %none, %false, %none : {IMAGE}, !torch.none, "
        "!torch.bool, !torch.none -> !torch.vtensor<[],f32>",
        "!torch.vtensor<[],f32>",
    )
    assert attributes(graph.operations[0]) == {"axes": (0, 1, 2, 3), "keepdims": False}


POOL = "%x, %twos, %twos, %zeros"
INTS = "!torch.list<int>, !torch.list<int>, !torch.list<int>"
REFUSED = [
    (
        f'%y = "torch.operator"(%x) <{{name = "onnx.Fancy"}}> : ({IMAGE}) -> {IMAGE}',
        IMAGE,
        "The operator ONNX Fancy isn't supported.",
    ),
    (unary("log1p"), IMAGE, "The operator log1p isn't supported."),
    (
        f"%y = torch.aten.softplus %x, %two, %c9 : {IMAGE}, !torch.float, !torch.int -> {IMAGE}",
        IMAGE,
        "Softplus is supported with beta 1 only.",
    ),
    (
        f"%y = torch.aten.div.Scalar %x, %c0 : {IMAGE}, !torch.int -> {IMAGE}",
        IMAGE,
        "It divides by zero.",
    ),
    (
        f"%y = torch.aten.max_pool2d {POOL}, %ones, %true : "
        f"{IMAGE}, {INTS}, !torch.list<int>, !torch.bool -> {HALF}",
        HALF,
        "Its extents are rounded up.",
    ),
    (
        f"%y = torch.aten.avg_pool2d {POOL}, %true, %true, %none : "
        f"{IMAGE}, {INTS}, !torch.bool, !torch.bool, !torch.none -> {HALF}",
        HALF,
        "Its extents are rounded up.",
    ),
    (
        f"%y = torch.aten.transpose.int %x, %c9, %c1 : {IMAGE}, !torch.int, !torch.int -> {IMAGE}",
        IMAGE,
        "Axis 9 is outside rank 4.",
    ),
    (
        f"%n = torch.aten.size.int %x, %c1 : {IMAGE}, !torch.int -> !torch.int\n"
        f"%y = torch.aten.softmax.int %x, %n, %none : {IMAGE}, !torch.int, !torch.none -> {IMAGE}",
        IMAGE,
        "The operator size isn't supported.",
    ),
    (
        f"%y = torch.aten.to.dtype %x, %c1, %false, %false, %none : {IMAGE}, !torch.int, "
        "!torch.bool, !torch.bool, !torch.none -> !torch.vtensor<[1,2,4,4],f64>",
        "!torch.vtensor<[1,2,4,4],f64>",
        "It makes numbers of type float64, which no op takes.",
    ),
    (
        f"%y = torch.aten.relu %x : {IMAGE} -> !torch.vtensor<[1,?,4,4],f32>",
        "!torch.vtensor<[1,?,4,4],f32>",
        "The shape of its output depends on data: 1x?x4x4, with each ? unknown.",
    ),
    (
        f"%y = torch.aten.relu %x : {IMAGE} -> {HALF}",
        HALF,
        "It makes (1, 2, 4, 4), where the model says (1, 2, 2, 2).",
    ),
]

VECTOR = "!torch.vtensor<[2],f32>"
NORM = (
    "%y = torch.aten.batch_norm %x, %v, %v, %v, %v, %true, %two, %two, %false : "
    f"{IMAGE}, {VECTOR}, {VECTOR}, {VECTOR}, {VECTOR}, !torch.bool, !torch.float, !torch.float, "
    f"!torch.bool -> {IMAGE}"
)
INTEGERS = (
    "%n = torch.vtensor.literal(dense<[1, 2, 3, 4]> : tensor<4xsi64>) : !torch.vtensor<[4],si64>\n"
    f"%y = torch.aten.add.Tensor %x, %n, %c1 : {IMAGE}, !torch.vtensor<[4],si64>, !torch.int "
    f"-> {IMAGE}"
)


@pytest.mark.parametrize(("body", "result", "reason"), REFUSED)
def test_refused_forms(body: str, result: str, reason: str) -> None:
    with pytest.raises(Untranslatable) as caught:
        program(body, result)
    assert caught.value.refused[0].reason == reason


def test_norms_of_training_are_refused() -> None:
    with pytest.raises(Untranslatable, match="the batch's own statistics"):
        program(NORM, arguments=f"%x: {IMAGE}, %v: {VECTOR}")


def test_integers_of_the_model_are_weights() -> None:
    """They may be the owner's secret; what reads indices reads the literal itself."""
    graph = program(INTEGERS)
    (weight,) = graph.weights.values()
    assert weight.tolist() == [1, 2, 3, 4]
    assert kind_of(graph.operations[0]) == "add"


def test_a_single_integer_is_public() -> None:
    graph = program(
        INTEGERS.replace("[1, 2, 3, 4]", "7")
        .replace("4xsi64", "si64")
        .replace("[4],si64", "[],si64")
    )
    assert not graph.weights
    assert [kind_of(op) for op in graph.operations] == ["constant", "add"]


def test_what_reads_no_tensor_of_numbers_is_refused() -> None:
    body = (
        f"%n = torch.aten.size.int %x, %c1 : {IMAGE}, !torch.int -> !torch.int\n"
        "%i = torch.prim.NumToTensor.Scalar %c1 : !torch.int -> !torch.vtensor<[],f64>\n"
        f"%y = torch.aten.add.Tensor %x, %i, %c1 : {IMAGE}, !torch.vtensor<[],f64>, !torch.int "
        f"-> {IMAGE}"
    )
    with pytest.raises(Untranslatable) as caught:
        program(body)
    assert len(caught.value.refused) == 2


def test_what_reads_something_refused_is_not_told() -> None:
    with pytest.raises(Untranslatable) as caught:
        program(
            f"%a = torch.aten.log1p %x : {IMAGE} -> {IMAGE}\n{unary('relu').replace('%x', '%a')}"
        )
    assert len(caught.value.refused) == 1

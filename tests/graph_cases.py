"""Operations that may be encoded, one program each."""

from __future__ import annotations

from collections.abc import Callable

from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.mlir import context

GEOMETRY = {"strides": (2, 1), "pads_low": (1, 0), "pads_high": (1, 2), "dilations": (1, 2)}
POOL = {"kernel": (2, 3), "strides": (2, 1), "pads_low": (1, 0), "pads_high": (0, 2)}
IMAGE = (2, 4, 6, 5)
Build = Callable[..., ir.Value]


def of_positive(kind: type[ops.Unary]) -> Build:
    """Of 1 + x^2."""
    return lambda x: kind.build(ops.Add.build(ops.Mul.build(x, x), ops.constant(1.0)))


def one_hot(wraps: bool) -> Build:
    """Rows of 4 places, at integers near x."""
    return lambda x: ops.OneHot.build(ops.Round.build(x), depth=4, wraps=wraps)


SMOOTH: dict[str, Build] = {
    "sigmoid": ops.Sigmoid.build,
    "tanh": ops.Tanh.build,
    "erf": ops.Erf.build,
    "gelu": lambda x: ops.Gelu.build(x, approximate="none"),
    "silu": ops.Silu.build,
    "softplus": ops.Softplus.build,
    "atan": ops.Atan.build,
    "sin": ops.Sin.build,
    "cos": ops.Cos.build,
    "exp": ops.Exp.build,
    "log": of_positive(ops.Log),
    "sqrt": of_positive(ops.Sqrt),
    "rsqrt": of_positive(ops.Rsqrt),
    "reciprocal": of_positive(ops.Reciprocal),
}
# (operation, shapes of the operands, how it is built)
CASES: list[tuple[str, list[tuple[int, ...]], Build]] = [
    ("add", [(2, 3), (3,)], ops.Add.build),
    ("sub", [(2, 1), (1, 3)], ops.Sub.build),
    ("mul", [(2, 3), (1, 3)], ops.Mul.build),
    ("neg", [(2, 3)], ops.Neg.build),
    ("step", [(2, 3)], ops.Step.build),
    ("one_hot", [(2, 3)], one_hot(wraps=False)),
    ("one_hot", [(2, 3)], one_hot(wraps=True)),
    ("floor", [(2, 3)], ops.Floor.build),
    ("round", [(2, 3)], ops.Round.build),
    ("relu", [(2, 3)], ops.Relu.build),
    *((name, [(2, 3)], build) for name, build in SMOOTH.items()),
    ("softmax", [(2, 3, 4)], lambda x: ops.Softmax.build(x, axis=1)),
    ("log_softmax", [(2, 3)], lambda x: ops.LogSoftmax.build(x, axis=1)),
    ("maximum", [(2, 3), (3,)], ops.Maximum.build),
    ("matmul", [(5, 2, 3), (3, 4)], ops.Matmul.build),
    ("matmul", [(3,), (5, 3, 2)], ops.Matmul.build),
    ("matmul", [(2, 3), (3,)], ops.Matmul.build),
    (
        "conv",
        [IMAGE, (6, 2, 3, 2), (6,)],
        lambda x, w, b: ops.Conv.build(x, w, bias=b, groups=2, **GEOMETRY),
    ),
    ("conv", [IMAGE, (4, 1, 1, 3)], lambda x, w: ops.Conv.build(x, w, groups=4, **GEOMETRY)),
    ("max_pool", [IMAGE], lambda x: ops.MaxPool.build(x, dilations=(1, 1), **POOL)),
    ("sum_pool", [IMAGE], lambda x: ops.SumPool.build(x, **POOL)),
    ("reduce_sum", [(2, 3, 4)], lambda x: ops.ReduceSum.build(x, axes=(0, 2), keepdims=False)),
    ("reduce_max", [(2, 3, 4)], lambda x: ops.ReduceMax.build(x, axes=(1,), keepdims=True)),
    ("reshape", [(2, 6)], lambda x: ops.Reshape.build(x, shape=(3, 4))),
    ("transpose", [(2, 3, 4)], lambda x: ops.Transpose.build(x, permutation=(2, 0, 1))),
    ("slice", [(4, 5)], lambda x: ops.Slice.build(x, starts=(3, 0), steps=(-2, 2), shape=(2, 3))),
    ("pad", [(2, 3)], lambda x: ops.Pad.build(x, low=(1, 0), high=(0, 2), value=0.0)),
    ("expand", [(3, 1)], lambda x: ops.Expand.build(x, shape=(2, 3, 4))),
    ("expand", [(2, 1, 3)], lambda x: ops.Expand.build(x, shape=(2, 4, 3))),
    ("concat", [(2, 3), (2, 1)], lambda x, y: ops.concat([x, y], 1)),
]


def program(shapes: list[tuple[int, ...]], build: Build) -> Graph:
    graph = Graph.create(context(), {f"x{i}": shape for i, shape in enumerate(shapes)}, {})
    with graph.end("op"):
        y = build(*graph.inputs.values())
    graph.finish({"y": y})
    return graph

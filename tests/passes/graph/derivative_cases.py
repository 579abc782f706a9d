"""Operations of the graph level beside the same in PyTorch: rules of derivatives are held to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_mlir import ir

from veilgraph.ir.graph import ops

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Case:
    """One operation, or a few.

    Attributes:
        shapes: of its operands, normally distributed.
        offset: added to them.
    """

    name: str
    shapes: Shapes
    build: Callable[..., ir.Value]
    same: Callable[..., Tensor]
    offset: float = 0.0


ROW = ((3, 5),)
NO_PADS = ((0, 0), (0, 0))


def of_one(kind: type[ops.Unary], same: Callable[..., Tensor], offset: float = 0.0) -> Case:
    return Case(kind.OPERATION_NAME.partition(".")[2], ROW, kind.build, same, offset)


def normal_gelu(approximate: str) -> Case:
    return Case(
        f"gelu {approximate}",
        ROW,
        lambda x: ops.Gelu.build(x, approximate=approximate),
        partial(functional.gelu, approximate=approximate),
    )


ONE = [
    of_one(ops.Neg, torch.neg),
    of_one(ops.Abs, torch.abs),
    of_one(ops.Relu, torch.relu),
    of_one(ops.Exp, torch.exp),
    of_one(ops.Log, torch.log, 9.0),
    of_one(ops.Sqrt, torch.sqrt, 9.0),
    of_one(ops.Rsqrt, torch.rsqrt, 9.0),
    of_one(ops.Reciprocal, torch.reciprocal, 9.0),
    of_one(ops.Sigmoid, torch.sigmoid),
    of_one(ops.Tanh, torch.tanh),
    of_one(ops.Erf, torch.erf),
    of_one(ops.Sin, torch.sin),
    of_one(ops.Cos, torch.cos),
    of_one(ops.Atan, torch.atan),
    of_one(ops.Softplus, functional.softplus),
    of_one(ops.Silu, functional.silu),
    of_one(ops.HardSigmoid, functional.hardsigmoid),
    of_one(ops.HardSwish, functional.hardswish),
    normal_gelu("none"),
    normal_gelu("tanh"),
    Case("leaky_relu", ROW, lambda x: ops.LeakyRelu.build(x, alpha=0.1),
         lambda x: functional.leaky_relu(x, 0.1)),
]  # fmt: skip


def clip(low: float, high: float) -> Case:
    return Case(
        f"clip {low} {high}",
        ROW,
        lambda x: ops.Clip.build(x, min=low, max=high),
        lambda x: x.clamp(low, high),
    )


def by_channel(x: Tensor) -> Tensor:
    return x[:, None, None]


TWO = [
    clip(-0.5, 0.75),
    clip(0.0, 0.5),
    clip(-math.inf, 0.5),
    clip(-0.5, math.inf),
    clip(-math.inf, math.inf),
    Case("add", ((2, 3), (3,)), ops.Add.build, torch.add),
    Case("add itself", ((2, 3),), lambda x: ops.Add.build(x, x), lambda x: x + x),
    Case("sub", ((2, 1), (4, 1, 3)), ops.Sub.build, torch.sub),
    Case("mul", ((2, 3), (1, 3)), ops.Mul.build, torch.mul),
    Case("mul of one element", ((2, 3), (1,)), ops.Mul.build, torch.mul),
    Case("mul of rank 0", ((2, 3), ()), ops.Mul.build, torch.mul),
    Case("square", ROW, lambda x: ops.Mul.build(x, x), torch.square),
    Case("div", ((2, 3), (3,)), ops.Div.build, torch.div, 9.0),
    Case("maximum", ((2, 3), (3,)), ops.Maximum.build, torch.maximum),
    Case("minimum", ((3,), (2, 3)), ops.Minimum.build, torch.minimum),
    *(
        Case(f"matmul {a} {b}", (a, b), ops.Matmul.build, torch.matmul)
        for a, b in [((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)), ((3,), (3,)),
                     ((3,), (5, 3, 2)), ((2, 3), (3,)), ((5, 2, 3), (3,)), ((3,), (3, 4)),
                     ((4, 1, 2, 3), (5, 3, 2)), ((1, 1), (1, 1)), ((2, 5, 2, 3), (1, 3, 2))]
    ),
    Case("softmax", ((2, 3, 4),), lambda x: ops.Softmax.build(x, axis=1),
         lambda x: x.softmax(1)),
    Case("log_softmax", ((2, 3),), lambda x: ops.LogSoftmax.build(x, axis=1),
         lambda x: x.log_softmax(1)),
    Case("batch_norm", ((2, 3, 4, 5), (3,), (3,), (3,), (3,)),
         lambda *x: ops.BatchNorm.build(*x, epsilon=1e-3),
         lambda x, g, b, m, v: (
             (x - by_channel(m)) * by_channel(g / torch.sqrt(v + 1e-3)) + by_channel(b)
         ), 4.0),
]  # fmt: skip


def conv(
    name: str,
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    *,
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    pads: tuple[tuple[int, int], tuple[int, int]] = NO_PADS,
    groups: int = 1,
    biased: bool = False,
) -> Case:
    """A convolution; `pads` are those before, then those behind."""
    (top, left), (bottom, right) = pads

    def build(x: ir.Value, w: ir.Value, bias: ir.Value | None = None) -> ir.Value:
        return ops.Conv.build(x, w, bias=bias, strides=strides, pads_low=pads[0],
                              pads_high=pads[1], dilations=dilations, groups=groups)  # fmt: skip

    def same(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        wide = functional.pad(x, (left, right, top, bottom))
        return functional.conv2d(wide, w, bias, strides, 0, dilations, groups)

    shapes = (image, kernel, (kernel[0],)) if biased else (image, kernel)
    return Case(f"conv {name}", shapes, build, same)


CONVOLUTIONS = [
    conv("inside", (2, 3, 7, 6), (4, 3, 3, 2), biased=True),
    conv("padded", (2, 3, 7, 6), (4, 3, 3, 3), pads=((1, 1), (1, 1)), biased=True),
    conv("one by one", (2, 3, 4, 5), (4, 3, 1, 1)),
    conv("one by one, strided", (2, 3, 5, 6), (4, 3, 1, 1), strides=(2, 3)),
    conv("one window", (2, 3, 4, 5), (6, 3, 4, 5)),
    conv("strided", (1, 2, 9, 8), (3, 2, 3, 3), strides=(2, 2), pads=((1, 1), (1, 1))),
    conv("stride beyond the kernel", (1, 2, 11, 9), (3, 2, 2, 1), strides=(4, 3)),
    conv("windows end early", (2, 2, 10, 9), (3, 2, 3, 2), strides=(4, 2)),
    conv("dilated", (1, 2, 9, 8), (3, 2, 3, 2), dilations=(2, 3), pads=((2, 1), (2, 0))),
    conv("strided and dilated", (1, 2, 13, 12), (3, 2, 3, 3), strides=(4, 3), dilations=(2, 3),
         pads=((2, 3), (1, 3))),
    conv("uneven pads", (1, 2, 6, 5), (3, 2, 4, 3), pads=((3, 0), (1, 2)), strides=(2, 1)),
    conv("padded by more than the kernel", (1, 1, 3, 3), (2, 1, 2, 2), pads=((3, 2), (2, 4))),
    conv("groups", (2, 6, 7, 5), (4, 3, 3, 3), groups=2, pads=((1, 1), (1, 1)), biased=True),
    conv("groups inside, strided", (2, 4, 9, 7), (6, 2, 3, 2), groups=2, strides=(3, 2)),
    conv("depthwise", (3, 4, 6, 6), (8, 1, 3, 3), groups=4, strides=(2, 1), dilations=(1, 2)),
    conv("depthwise, one each", (1, 3, 5, 5), (3, 1, 3, 3), groups=3, pads=((1, 1), (1, 1))),
]  # fmt: skip


def max_pool(
    name: str, image: tuple[int, ...], pads: tuple[tuple[int, int], tuple[int, int]], **named: Any
) -> Case:
    (top, left), (bottom, right) = pads
    named = {"dilations": (1, 1), **named}

    def same(x: Tensor) -> Tensor:
        wide = functional.pad(x, (left, right, top, bottom), value=-math.inf)
        sizes = named["kernel"], named["strides"]
        return functional.max_pool2d(wide, *sizes, dilation=named["dilations"])

    return Case(
        f"max_pool {name}",
        (image,),
        lambda x: ops.MaxPool.build(x, pads_low=pads[0], pads_high=pads[1], **named),
        same,
    )


def sum_pool(name: str, pads: tuple[tuple[int, int], tuple[int, int]], **named: Any) -> Case:
    (top, left), (bottom, right) = pads

    def same(x: Tensor) -> Tensor:
        wide = functional.pad(x, (left, right, top, bottom))
        sizes = named["kernel"], named["strides"]
        return functional.avg_pool2d(wide, *sizes, divisor_override=1)

    return Case(
        f"sum_pool {name}",
        ((2, 3, 7, 6),),
        lambda x: ops.SumPool.build(x, pads_low=pads[0], pads_high=pads[1], **named),
        same,
    )


def avg_pool(include: bool) -> Case:
    named = {"kernel": (3, 2), "strides": (2, 1), "pads_low": (1, 1), "pads_high": (1, 1)}
    return Case(
        f"avg_pool {include}",
        ((2, 3, 7, 6),),
        lambda x: ops.AvgPool.build(x, count_include_pad=include, **named),
        lambda x: functional.avg_pool2d(x, (3, 2), (2, 1), (1, 1), False, include),
    )


POOLS = [
    max_pool("tiles", (2, 3, 6, 4), NO_PADS, kernel=(2, 2), strides=(2, 2)),
    max_pool("odd", (1, 2, 7, 5), NO_PADS, kernel=(2, 3), strides=(2, 2)),
    max_pool("overlapping", (1, 2, 8, 7), ((1, 1), (1, 1)), kernel=(3, 3), strides=(2, 2)),
    max_pool("steps of one", (1, 2, 5, 6), ((1, 1), (1, 1)), kernel=(3, 3), strides=(1, 1)),
    max_pool("dilated", (1, 2, 9, 8), ((1, 0), (0, 1)), kernel=(3, 2), strides=(1, 2),
             dilations=(2, 3)),
    max_pool("all", (2, 3, 5, 4), NO_PADS, kernel=(5, 4), strides=(1, 1)),
    sum_pool("tiles", NO_PADS, kernel=(2, 3), strides=(2, 3)),
    sum_pool("overlapping", ((1, 1), (0, 1)), kernel=(3, 3), strides=(2, 1)),
    sum_pool("all", NO_PADS, kernel=(7, 6), strides=(1, 1)),
    sum_pool("stride beyond the kernel", NO_PADS, kernel=(2, 1), strides=(3, 2)),
    avg_pool(True),
    avg_pool(False),
]  # fmt: skip


def cut(starts: tuple[int, ...], steps: tuple[int, ...], shape: tuple[int, ...]) -> Case:
    index = [
        torch.arange(start, start + count * step, step)
        for start, step, count in zip(starts, steps, shape, strict=True)
    ]
    return Case(
        f"slice {starts} {steps}",
        ((7, 6),),
        lambda x: ops.Slice.build(x, starts=starts, steps=steps, shape=shape),
        lambda x: x[index[0]][:, index[1]],
    )


MOVES = [
    Case("reduce_sum", ((2, 3, 4),), lambda x: ops.ReduceSum.build(x, axes=(0, 2), keepdims=False),
         lambda x: x.sum((0, 2))),
    Case("reduce_mean", ((2, 3, 4),), lambda x: ops.ReduceMean.build(x, axes=(1,), keepdims=True),
         lambda x: x.mean(1, keepdim=True)),
    Case("reduce_max", ((2, 5, 3),), lambda x: ops.ReduceMax.build(x, axes=(1,), keepdims=True),
         lambda x: x.amax(1, keepdim=True)),
    Case("reduce_max of two", ((2, 5, 3),),
         lambda x: ops.ReduceMax.build(x, axes=(0, 2), keepdims=False), lambda x: x.amax((0, 2))),
    Case("reshape", ((2, 6),), lambda x: ops.Reshape.build(x, shape=(3, 4)),
         lambda x: x.reshape(3, 4)),
    Case("transpose", ((2, 3, 4),), lambda x: ops.Transpose.build(x, permutation=(2, 0, 1)),
         lambda x: x.permute(2, 0, 1)),
    Case("pad", ((2, 3),), lambda x: ops.Pad.build(x, low=(1, 0), high=(0, 2), value=2.5),
         lambda x: functional.pad(x, (0, 2, 1, 0), value=2.5)),
    Case("expand", ((3, 1),), lambda x: ops.Expand.build(x, shape=(2, 3, 4)),
         lambda x: x.expand(2, 3, 4)),
    Case("concat", ((2, 3), (2, 1)), lambda x, y: ops.concat([x, y, x], 1),
         lambda x, y: torch.cat([x, y, x], 1)),
    Case("gather", ((4, 3),),
         lambda x: ops.concat([ops.Slice.build(x, starts=(i, 0), steps=(1, 1), shape=(1, 3))
                               for i in (2, 0, 2)], 0),
         lambda x: x[[2, 0, 2]]),
]  # fmt: skip


SLICES = [
    cut((1, 2), (1, 1), (3, 4)),
    cut((1, 0), (2, 3), (3, 2)),
    cut((6, 5), (-1, -2), (7, 3)),
    cut((5, 0), (-3, 1), (2, 1)),
]
CASES = [*ONE, *TWO, *CONVOLUTIONS, *POOLS, *MOVES, *SLICES]

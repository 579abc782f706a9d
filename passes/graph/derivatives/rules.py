"""The derivative of each operation that has one: what `Derivative.RULE` promises.

A rule takes the operation, its operands, its result and the derivative d of a loss by its result,
of the result's shape. It gives the derivative by each operand, of the operand's shape, and builds
it where building stands. What nobody reads is erased, so a rule need not ask who does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.passes.graph.derivatives import elements, moves, products, windows

Rule = Callable[[ir.OpView, Sequence[ir.Value], ir.Value, ir.Value], Sequence[ir.Value]]

RULES: Mapping[type[ir.OpView], Rule] = {
    ops.Neg: elements.neg,
    ops.Abs: elements.abs_,
    ops.Relu: elements.relu,
    ops.LeakyRelu: elements.leaky_relu,
    ops.Clip: elements.clip,
    ops.HardSigmoid: elements.hard_sigmoid,
    ops.HardSwish: elements.hard_swish,
    ops.Add: elements.add,
    ops.Sub: elements.sub,
    ops.Mul: elements.mul,
    ops.Div: elements.div,
    ops.Maximum: elements.maximum,
    ops.Minimum: elements.minimum,
    ops.Exp: elements.of_slope(lambda x, y: y),
    ops.Log: elements.of_slope(lambda x, y: ops.Reciprocal.build(x)),
    ops.Sqrt: elements.of_slope(elements.sqrt_slope),
    ops.Rsqrt: elements.of_slope(elements.rsqrt_slope),
    ops.Reciprocal: elements.of_slope(elements.reciprocal_slope),
    ops.Sigmoid: elements.of_slope(elements.sigmoid_slope),
    ops.Tanh: elements.of_slope(elements.tanh_slope),
    ops.Erf: elements.of_slope(elements.erf_slope),
    ops.Sin: elements.of_slope(lambda x, y: ops.Cos.build(x)),
    ops.Cos: elements.of_slope(elements.cos_slope),
    ops.Atan: elements.of_slope(elements.atan_slope),
    ops.Softplus: elements.of_slope(lambda x, y: ops.Sigmoid.build(x)),
    ops.Silu: elements.of_slope(elements.silu_slope),
    ops.Gelu: elements.gelu,
    ops.Softmax: elements.softmax,
    ops.LogSoftmax: elements.log_softmax,
    ops.Matmul: products.matmul,
    ops.BatchNorm: products.batch_norm,
    ops.Conv: windows.conv,
    ops.AvgPool: windows.avg_pool,
    ops.SumPool: windows.sum_pool,
    ops.ReduceSum: moves.reduce_sum,
    ops.ReduceMean: moves.reduce_mean,
    ops.Reshape: moves.reshape,
    ops.Transpose: moves.transpose,
    ops.Slice: moves.slice_,
    ops.Pad: moves.pad,
    ops.Expand: moves.expand,
    ops.Concat: moves.concat,
}

"""What each operation of the secret level computes: exact integers modulo 2^K, in NumPy.

The oracle of the suites' protocols, and the engine of `veilgraph check`. Integers are int64, the
representatives nearest to zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.ir.meaning import integers
from veilgraph.ir.meaning.integers import Floats, Integers, NumpyProducts, Products, Windows
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.function_forms import function_form, row_form
from veilgraph.ir.secret.ops import SecretOp, attributes_of
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import RangeSource, RealRange, Tensor

Observer = Callable[[SecretOp, Integers, Floats], None]
REFERENCE = NumpyProducts()


class Rounding(Enum):
    """Which tau of a truncation's [0, 2^bits) is taken, where it isn't drawn."""

    FLOOR = "floor"
    NEAREST = "nearest"


@dataclass(frozen=True)
class Excursion:
    """Values of one operation that left the range that it declares, margin included."""

    name: str
    op: str
    declared: RealRange
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        declared = f"[{self.declared.low:.6g}, {self.declared.high:.6g}]"
        values = f"{self.count} value{'s' if self.count > 1 else ''} in {self.op} {self.name!r}"
        return f"{values} left {declared}: they reach from {self.low:.6g} to {self.high:.6g}"


@dataclass
class Evaluation:
    """Real numbers and integers of each output, and what left its range on the way."""

    outputs: dict[str, Floats] = field(default_factory=dict)
    integers: dict[str, Integers] = field(default_factory=dict)
    excursions: list[Excursion] = field(default_factory=list)


def evaluate(
    program: SecretProgram,
    inputs: Mapping[str, NDArray[Any]],
    rounding: Rounding | np.random.Generator = Rounding.NEAREST,
    observe: Observer | None = None,
    products: Products = REFERENCE,
) -> Evaluation:
    """Runs the program on one set of inputs. Weights are encoded where they are first read.

    Args:
        inputs: by name, real numbers to encode, or integers that are encoded already.
        rounding: how truncations round; from a generator as the protocols do, at random.
        observe: called with each operation, its integers and the real numbers they stand for, in
            program order; the integers before they are taken modulo the ring, but for those of
            products.
        products: who multiplies.

    Raises:
        ValueError: an input is missing, unknown or of another shape.
        OverflowError: an input or weight doesn't fit its encoding.
    """
    values = _inputs(program, inputs)
    weights = _weights(program)
    outputs = program.outputs
    left = {value: sum(1 for _ in value.uses) for value in program.block.arguments}
    evaluation = Evaluation()
    for op in program.operations:
        operands, result = list(op.operation.operands), op.operation.results[0]
        for operand in operands:
            if operand not in values:
                values[operand] = _encoded_weight(program, weights[operand])
        whole = _whole(op, [values[v] for v in operands], rounding, products)
        ends, ring_bits = _ends(whole), Tensor.of(result).encoding.ring_bits
        fits = integers.fits(*ends, ring_bits)  # most often: then there is nothing to compute
        values[result] = whole if fits else integers.center(whole, ring_bits)
        left[result] = sum(1 for _ in result.uses)
        # What leaves a narrow ring may seem to be within its range, modulo the ring.
        seen = values[result] if isinstance(op, MODULAR) else whole
        ends = ends if seen is whole else _ends(seen)
        evaluation.excursions += _excursions(op, seen, ends, program.margin)
        if observe is not None:
            observe(op, seen, _decoded(result, values[result]))
        for operand in operands:
            left[operand] -= 1
            if not left[operand]:
                del values[operand]
    for value in outputs.values():
        if value not in values:
            values[value] = _encoded_weight(program, weights[value])
    evaluation.integers = {name: values[value] for name, value in outputs.items()}
    evaluation.outputs = {name: _decoded(v, values[v]) for name, v in outputs.items()}
    return evaluation


def _inputs(program: SecretProgram, inputs: Mapping[str, NDArray[Any]]) -> dict[ir.Value, Integers]:
    arguments = program.arguments
    wanted = {a.name: a.tensor.shape for a in arguments if not a.is_weight}
    given = {name: np.shape(array) for name, array in inputs.items()}
    if wanted != given:
        raise ValueError(f"inputs {given}, but the program takes {wanted}")
    return {
        value: encode(np.asarray(inputs[argument.name]), argument.tensor)
        for argument, value in zip(arguments, program.block.arguments, strict=True)
        if not argument.is_weight
    }


def _weights(program: SecretProgram) -> dict[ir.Value, Argument]:
    each = zip(program.block.arguments, program.arguments, strict=True)
    return {value: argument for value, argument in each if argument.is_weight}


def _encoded_weight(program: SecretProgram, argument: Argument) -> Integers:
    return encode(np.asarray(program.weights[argument.name]), argument.tensor)


def encode(array: NDArray[Any], tensor: Tensor) -> Integers:
    """Real numbers as `tensor` encodes them; integers as they are, modulo 2^K."""
    if np.issubdtype(array.dtype, np.integer):
        return integers.center(array.astype(np.int64), tensor.encoding.ring_bits)
    return integers.encode(array, tensor.encoding.frac_bits, tensor.encoding.ring_bits)


def _decoded(value: ir.Value, z: Integers) -> Floats:
    return integers.decode(z, Tensor.of(value).encoding.frac_bits)


def _ends(z: Integers) -> tuple[int, int]:
    """The least and the largest; (0, 0) of none."""
    return (int(z.min()), int(z.max())) if z.size else (0, 0)


def _excursions(op: SecretOp, z: Integers, ends: tuple[int, int], margin: float) -> list[Excursion]:
    """What left its range; one that is narrower than a unit in the last place reaches that far.

    Rounding takes what is proven of real numbers up to a unit further.
    """
    declared = RealRange.of(op)
    low, high = declared.widened(margin)
    unit = 2.0 ** -Tensor.of(op.operation.results[0]).encoding.frac_bits
    if max(-low, high) < unit:
        low, high = -unit, unit
    elif declared.source is RangeSource.PROVEN:
        low, high = low - unit, high + unit
    result = op.operation.results[0]
    # The least of the integers is the least of the numbers: most often no other is decoded.
    least, largest = (_decoded(result, np.asarray(end)) for end in ends)
    if not z.size or (least >= low and largest <= high):
        return []
    reals = _decoded(result, z)
    outside = int(np.count_nonzero((reals < low) | (reals > high)))
    kind = op.operation.name.partition(".")[2]
    extremes = float(reals.min()), float(reals.max())
    return [Excursion(op.location.name_str, kind, declared, *extremes, outside)]


class Tau:
    """The thresholds of truncations: `tau(bits, shape)` lies in [0, 2^bits)."""

    def __init__(self, rounding: Rounding | np.random.Generator) -> None:
        self._rounding = rounding

    def __call__(self, bits: int, shape: tuple[int, ...]) -> Integers | int:
        if bits == 0 or self._rounding is Rounding.FLOOR:
            return 0
        if isinstance(self._rounding, np.random.Generator):
            return self._rounding.integers(0, 1 << bits, shape, dtype=np.int64)
        return 1 << (bits - 1)


def apply(
    op: SecretOp,
    operands: list[Integers],
    rounding: Rounding | np.random.Generator = Rounding.NEAREST,
    products: Products = REFERENCE,
) -> Integers:
    """The integers of one operation for the integers of its operands."""
    ring_bits = Tensor.of(op.operation.results[0]).encoding.ring_bits
    return integers.center(_whole(op, operands, rounding, products), ring_bits)


def _whole(
    op: SecretOp,
    operands: list[Integers],
    rounding: Rounding | np.random.Generator,
    products: Products,
) -> Integers:
    """The same, before they are taken modulo the result's ring."""
    result, meaning = Tensor.of(op.operation.results[0]), MEANING[type(op)]
    value: Integers = meaning(Call(result, attributes_of(op), Tau(rounding), products), *operands)
    return value


@dataclass(frozen=True)
class Call:
    """What an operation's meaning may depend on besides its operands."""

    result: Tensor
    attributes: Mapping[str, Any]
    tau: Tau
    products: Products

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]

    def windows(self, kernel: tuple[int, ...]) -> Windows:
        """The windows that the attributes describe, of this kernel."""
        dilations = self.attributes.get("dilations", (1,) * len(kernel))
        return Windows(kernel, self["strides"], self["pads_low"], self["pads_high"], dilations)


def _matmul(call: Call, x: Integers, w: Integers) -> Integers:
    return call.products.matmul(x, w, call.result.encoding.ring_bits)


def _conv(call: Call, x: Integers, w: Integers) -> Integers:
    windows, ring_bits = call.windows(w.shape[2:]), call.result.encoding.ring_bits
    return call.products.conv(x, w, windows, call["groups"], ring_bits)


def _truncate(call: Call, z: Integers) -> Integers:
    return integers.truncate(z, call["bits"], call.tau(call["bits"], z.shape))


def _round_off(call: Call, z: Integers) -> Integers:
    return integers.truncate(z, call["bits"], 1 << (call["bits"] - 1))


def _step(call: Call, z: Integers) -> Integers:
    """1 where z + tau >= 0 for tau in [0, 2^dropped_bits), else 0."""
    return np.where(z + call.tau(call["dropped_bits"], z.shape) >= 0, 1, 0)


def _one_hot(call: Call, z: Integers) -> Integers:
    depth: int = call["depth"]
    place = np.where((z < 0) & (z >= -depth), z + depth, z) if call["wraps"] else z
    return np.asarray(place[..., None] == np.arange(depth), np.int64)


def _relu(call: Call, z: Integers) -> Integers:
    return _step(call, z) * z


def _truncate_relu(call: Call, z: Integers) -> Integers:
    return np.maximum(_truncate(call, z), 0)


def _truncate_relu_pool(call: Call, z: Integers) -> Integers:
    return integers.max_pool(_truncate_relu(call, z), call.windows(call["kernel"]))


def _maximum(call: Call, x: Integers, y: Integers) -> Integers:
    return y + _relu(call, integers.center(x - y, call.result.encoding.ring_bits))


def _function(call: Call, z: Integers) -> Integers:
    """As the form says, under the mask that tau says."""
    form = function_form(call["form"])
    bits = form.frac_bits - call.result.encoding.frac_bits
    total = form.values(z, np.asarray(call.tau(form.window_bits, z.shape), np.int64))
    return integers.truncate(total, bits, call.tau(bits, z.shape))


def _clipped_function(call: Call, z: Integers) -> Integers:
    """The function where z - edge + tau >= 0 for tau in [0, 2^dropped_bits), else `beyond`."""
    return np.where(_step(call, z - call["edge"]) == 1, _function(call, z), call["beyond"])


def _row_sums(call: Call, z: Integers) -> Integers:
    """As the form says, under the mask that tau says."""
    form = row_form(call["form"])
    return form.values(z, np.asarray(call.tau(form.window_bits, z.shape), np.int64))


def _reduce_sum(call: Call, x: Integers) -> Integers:
    total: Integers = x.sum(axis=call["axes"], keepdims=call["keepdims"], dtype=np.int64)
    return total


def _reduce_max(call: Call, x: Integers) -> Integers:
    largest: Integers = x.max(axis=call["axes"], keepdims=call["keepdims"])
    return largest


def _slice(call: Call, x: Integers) -> Integers:
    return x[integers.slices(call["starts"], call["steps"], call.result.shape)]


def _pad(call: Call, x: Integers) -> Integers:
    return np.pad(x, list(zip(call["low"], call["high"], strict=True)))


# What is reduced on purpose, and products, which are made modulo the ring.
MODULAR = (secret_ops.Reduce, secret_ops.Mul, secret_ops.Matmul, secret_ops.Conv)
MEANING: Mapping[type[SecretOp], Callable[..., Integers]] = {
    secret_ops.Constant: lambda call: call["value"],
    secret_ops.Add: lambda call, x, y: x + y,
    secret_ops.Sub: lambda call, x, y: x - y,
    secret_ops.Neg: lambda call, x: -x,
    secret_ops.Mul: lambda call, x, y: x * y,
    secret_ops.Matmul: _matmul,
    secret_ops.Conv: _conv,
    secret_ops.Scale: lambda call, x: x * np.int64(call["factor"]),
    secret_ops.Reinterpret: lambda call, x: x,
    secret_ops.Reduce: lambda call, x: x,
    secret_ops.Lift: lambda call, x: x,
    secret_ops.Truncate: _truncate,
    secret_ops.RoundOff: _round_off,
    secret_ops.Step: _step,
    secret_ops.OneHot: _one_hot,
    secret_ops.Relu: _relu,
    secret_ops.TruncateRelu: _truncate_relu,
    secret_ops.TruncateReluPool: _truncate_relu_pool,
    secret_ops.Maximum: _maximum,
    secret_ops.Function: _function,
    secret_ops.ClippedFunction: _clipped_function,
    secret_ops.RowSums: _row_sums,
    secret_ops.SumPool: lambda call, x: integers.sum_pool(x, call.windows(call["kernel"])),
    secret_ops.MaxPool: lambda call, x: integers.max_pool(x, call.windows(call["kernel"])),
    secret_ops.ReduceSum: _reduce_sum,
    secret_ops.ReduceMax: _reduce_max,
    secret_ops.Reshape: lambda call, x: x.reshape(call.result.shape),
    secret_ops.Transpose: lambda call, x: x.transpose(call["permutation"]),
    secret_ops.Concat: lambda call, x, y: np.concatenate([x, y], axis=call["axis"]),
    secret_ops.Slice: _slice,
    secret_ops.Pad: _pad,
    secret_ops.Broadcast: lambda call, x: np.broadcast_to(x, call.result.shape),
}

"""What real functions cost and how exact they are in compiled plans, for docs/operators.md.

A row is a model of one node, calibrated on numbers whose margin is the domain shown, compiled for
`rep3` in a ring of 64 bits and run in exact integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, helper

import veilgraph
from veilgraph.checks.checking import check
from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import VeilgraphError
from veilgraph.ir.mlir import context
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.facts import Compares
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import Secrecy, Tensor
from veilgraph.plans import Plan

Array = npt.NDArray[np.float32]
Samples = Mapping[str, Array]
SHAPE = (8, 64)
RING_BITS = 64
SEED = 1


@dataclass(frozen=True)
class Node:
    """A model of one node.

    Attributes:
        operator: ONNX's.
        domain: what ranges are found with, in words.
        samples: makes inputs of SHAPE, one sample, that ranges are found with and errors measured.
    """

    operator: str
    domain: str
    samples: Callable[[np.random.Generator], Samples]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def model(self, names: list[str]) -> ModelProto:
        inputs = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, self._shape_of(n)) for n in names
        ]
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        node = helper.make_node(self.operator, names, ["y"], name="node", **self.attributes)
        graph = helper.make_graph([node], "one", inputs, [output])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def _shape_of(self, name: str) -> tuple[int, ...]:
        return self.samples(np.random.default_rng(SEED))[name].shape[1:]


@dataclass(frozen=True)
class Cost:
    """Of a plan: rounds online, input and output included; the others an element of its input.

    A comparison that keeps a number or drops it, as a ReLU, is a product too.
    """

    rounds: int
    products: float
    comparisons: float

    def __str__(self) -> str:
        return f"{self.rounds}; {self.products:.3g}; {self.comparisons:.3g}"


def compiled(node: Node, frac_bits: int) -> tuple[Cost, float] | None:
    """What it costs, and its worst error; None where it is refused."""
    samples = node.samples(np.random.default_rng(SEED))
    model = node.model(list(samples))
    try:
        plan, weights = veilgraph.compile(
            model, calibrate=samples, ring=RING_BITS, frac_bits=frac_bits
        )
    except VeilgraphError:
        return None
    return cost(plan, weights), check(plan, weights, model, samples).outputs[0].worst


def cost(plan: Plan, weights: Samples) -> Cost:
    """Counted on the secret level that the plan carries."""
    program = SecretProgram.parse(context(), plan.ir["secret"], weights)
    elements = sum(prod(shape_of(value)) for value in program.block.arguments)
    products = comparisons = 0
    for op in program.operations:
        operands = list(op.operation.operands)
        secret = [Tensor.of(value).encoding.secrecy is Secrecy.SECRET for value in operands]
        size = prod(shape_of(op.operation.results[0]))
        if type(op) is secret_ops.Mul and all(secret):
            products += size
        if op.facts.compares is not Compares.NOTHING:
            read = max(prod(shape_of(value)) for value in operands)
            comparisons += read
            products += 0 if isinstance(op, secret_ops.Step) else read
    return Cost(plan.rounds(Phase.ONLINE), products / elements, comparisons / elements)


def between(low: float, high: float) -> Callable[[np.random.Generator], Samples]:
    """Uniform numbers, both ends among them."""

    def samples(generator: np.random.Generator) -> Samples:
        x = generator.uniform(low, high, (1, *SHAPE)).astype(np.float32)
        x.flat[:2] = low, high
        return {"x": x}

    return samples


def normal(generator: np.random.Generator) -> Samples:
    """Of deviation 2."""
    return {"x": generator.normal(0, 2, (1, *SHAPE)).astype(np.float32)}


def normal_with_scale(generator: np.random.Generator) -> Samples:
    scale = generator.uniform(0.5, 2, (1, SHAPE[-1])).astype(np.float32)
    return {**normal(generator), "scale": scale}


def pictures(generator: np.random.Generator) -> Samples:
    return {"x": generator.uniform(-1, 1, (1, 1, 8, 8, 8)).astype(np.float32)}


def quotients(generator: np.random.Generator) -> Samples:
    numerators = generator.uniform(-2, 2, (1, *SHAPE)).astype(np.float32)
    return {"x": numerators, "d": between(0.5, 2)(generator)["x"]}


LIKE = {"silu": "gelu none", "rsqrt": "sqrt"}  # those that no node of opset 21 is, and their kin
ALONE: Mapping[str, Node] = {  # by the names of targets/functions/catalogue.py
    "sigmoid": Node("Sigmoid", "", between(-4, 4)),
    "gelu none": Node("Gelu", "", between(-4, 4)),
    "gelu tanh": Node("Gelu", "", between(-4, 4), {"approximate": "tanh"}),
    "softplus": Node("Softplus", "", between(-4, 4)),
    "tanh": Node("Tanh", "", between(-2, 2)),
    "erf": Node("Erf", "", between(-2, 2)),
    "atan": Node("Atan", "", between(-2, 2)),
    "sin": Node("Sin", "", between(-4, 4)),
    "cos": Node("Cos", "", between(-4, 4)),
    "exp": Node("Exp", "", between(-8, 0.2)),
    "log": Node("Log", "", between(0.5, 2)),
    "sqrt": Node("Sqrt", "", between(0.5, 2)),
    "reciprocal": Node("Reciprocal", "", between(0.5, 2)),
}
COMPOSED: Mapping[str, Node] = {
    "Softmax of 64": Node("Softmax", "deviation 2", normal),
    "LogSoftmax of 64": Node("LogSoftmax", "deviation 2", normal),
    "LayerNormalization of 64": Node("LayerNormalization", "deviation 2", normal_with_scale),
    "LRN": Node("LRN", "[-1, 1]", pictures, {"size": 3}),
    "Div by one sign": Node("Div", "[-2, 2] by [0.5, 2]", quotients),
    "Elu": Node("Elu", "[-4, 4]", between(-4, 4)),
    "Mish": Node("Mish", "[-4, 4]", between(-4, 4)),
    "Sinh": Node("Sinh", "[-2, 2]", between(-2, 2)),
    "Cosh": Node("Cosh", "[-2, 2]", between(-2, 2)),
    "Tan": Node("Tan", "[-1, 1]", between(-1, 1)),
    "Acos": Node("Acos", "[-0.9, 0.9]", between(-0.9, 0.9)),
    "Asinh": Node("Asinh", "[-2, 2]", between(-2, 2)),
    "Acosh": Node("Acosh", "[1.5, 4]", between(1.5, 4)),
    "Atanh": Node("Atanh", "[-0.8, 0.8]", between(-0.8, 0.8)),
}

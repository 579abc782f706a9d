"""Rows of one ONNX node each, and the check that what we import computes what ONNX Runtime does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from models import model, run_onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper

from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.graph.program import kind_of
from veilgraph.ir.meaning.graph import evaluate

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64


@dataclass(frozen=True)
class Row:
    """One node: its operator, input shapes, attributes, and what else it needs.

    Attributes:
        initialisers: constant inputs by name; they follow the inputs, in order.
        kinds: graph operations that must be all there are; not checked where empty.
        positive: inputs are drawn from [0.5, 2) rather than from a normal distribution.
        gives: element type of the outputs, or of the first where `then` is that of the others.
        takes: element type of the inputs; integers are small ones, with many equal.
        public: whether every party knows the initialisers, and not their owner alone.
        domain: of the operator; its newest version that ONNX Runtime has, 3, is imported.
    """

    operator: str
    shapes: Sequence[tuple[int, ...]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    initialisers: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    opset: int = 21
    outputs: int = 1
    kinds: str = ""
    positive: bool = False
    gives: int = TensorProto.FLOAT
    takes: int = TensorProto.FLOAT
    then: int = 0
    public: bool = False
    domain: str = ""

    def __str__(self) -> str:
        named = "-".join(f"{name}={value}" for name, value in self.attributes.items())
        shapes = "-".join("x".join(map(str, shape)) for shape in self.shapes)
        return f"{self.operator}-{shapes}-{named}-{self.opset}".replace(" ", "")


def ints(*values: int) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def number(value: float) -> NDArray[np.float32]:
    return np.array(value, dtype=np.float32)


def model_of(row: Row) -> ModelProto:
    """The model of a row's node alone; its inputs are x0, x1..., its outputs y0, y1..."""
    names = [f"x{index}" for index in range(len(row.shapes))]
    outputs = [f"y{index}" for index in range(row.outputs)]
    node = helper.make_node(
        row.operator,
        [*names, *row.initialisers],
        outputs,
        name="node",
        domain=row.domain,
        **row.attributes,
    )
    inputs = dict(zip(names, row.shapes, strict=True))
    proto = model([node], inputs, outputs, row.initialisers, row.opset)
    if row.domain:
        proto.opset_import.append(helper.make_opsetid(row.domain, 3))
    for infos, element in ((proto.graph.input, row.takes), (proto.graph.output, row.gives)):
        for info in infos:
            info.type.tensor_type.elem_type = element
    for info in list(proto.graph.output)[1:] if row.then else ():
        info.type.tensor_type.elem_type = row.then
    return proto


def feeds_of(row: Row) -> dict[str, NDArray[np.generic]]:
    """Inputs for a row's model."""
    rng = np.random.default_rng(len(str(row)))
    return {f"x{index}": _draw(rng, shape, row) for index, shape in enumerate(row.shapes)}


def check_matches_onnxruntime(row: Row, atol: float = 2e-6) -> None:
    """The imported program computes what ONNX Runtime computes, and is made of what it should.

    Args:
        atol: how far off a number near zero may be; some of ONNX Runtime's own are less exact.
    """
    proto, feeds = model_of(row), feeds_of(row)
    graph = import_model(proto, public=row.initialisers if row.public else ())
    graph.verify()
    expected = run_onnx(proto, feeds)
    for name, value in evaluate(graph, feeds).items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-5, atol=atol)
        assert value.shape == expected[name].shape
    if row.kinds:
        assert " ".join(kind_of(op) for op in graph.operations) == row.kinds


def _draw(rng: np.random.Generator, shape: tuple[int, ...], row: Row) -> NDArray[np.generic]:
    if row.takes == BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if row.takes != TensorProto.FLOAT:
        return rng.integers(-3, 4, shape).astype(helper.tensor_dtype_to_np_dtype(row.takes))
    values = rng.uniform(0.5, 2, shape) if row.positive else rng.standard_normal(shape)
    return values.astype(np.float32)

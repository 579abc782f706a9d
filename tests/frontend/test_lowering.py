"""torch-mlir's lowering in two parts: together they are its pipeline, and shapes are all found."""

from __future__ import annotations

import numpy as np
import pytest
from models import model
from onnx import ModelProto, helper
from test_onnx_import import cnn
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.passmanager import PassManager

from veilgraph.frontend.lowering import torch_mlir
from veilgraph.frontend.onnx.importer import prepare
from veilgraph.frontend.onnx.prepare import Prepared
from veilgraph.ir.mlir import context


def test_the_parts_are_torch_mlirs_pipeline() -> None:
    fresh = context()
    torch_dialect.register_dialect(fresh)
    kept = ",".join(torch_mlir.KEPT_WHOLE)
    with fresh:
        own, theirs = (
            str(PassManager.parse(f"builtin.module({passes})"))
            for passes in (
                f"{torch_mlir.CONVERT},{torch_mlir.finish(find_shapes=True)}",
                f"torch-onnx-to-torch-backend-pipeline{{backend-legal-ops={kept}}}",
            )
        )
    assert own == theirs


def split_and_joined() -> ModelProto:
    """Several results, lists of tensors, and a mean that stays whole."""
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2),
        helper.make_node("Concat", ["b", "a"], ["c"], axis=1),
        helper.make_node("ReduceMean", ["c"], ["y"], keepdims=0),
    ]
    return model(nodes, {"x": (2, 4, 3)}, ["y"])


def lowered(prepared: Prepared, monkeypatch: pytest.MonkeyPatch, find_shapes: bool) -> str:
    monkeypatch.setattr(torch_mlir, "_has_all_types", lambda module: not find_shapes)
    return str(torch_mlir.lower(prepared).module)


def a_slice() -> ModelProto:
    """torch-mlir converts it to a step without a shape."""
    bounds = {"starts": np.array([0, 0]), "ends": np.array([1, 2])}
    return model([helper.make_node("Slice", ["x", *bounds], ["y"])], {"x": (2, 3)}, ["y"], bounds)


@pytest.mark.parametrize(
    ("proto", "shapes", "is_known"),
    [
        (cnn(21), {"x": (2, 1, 8, 8)}, True),
        (split_and_joined(), {}, True),
        (a_slice(), {}, False),
    ],
    ids=["cnn", "lists", "slice"],
)
def test_shapes_are_looked_for_where_there_are_any_to_find(
    proto: ModelProto,
    shapes: dict[str, tuple[int, ...]],
    is_known: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared = prepare(proto, shapes)
    chosen = str(torch_mlir.lower(prepared).module)
    assert chosen == lowered(prepared, monkeypatch, find_shapes=True)
    assert is_known == (chosen == lowered(prepared, monkeypatch, find_shapes=False))

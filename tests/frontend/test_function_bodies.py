"""Operators on trial are what ONNX's own body of theirs says."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.errors import UnsupportedError
from veilgraph.ir.meaning.graph import evaluate

SHAPE = (1, 2, 3, 4)
DOMAIN = "ai.onnx.preview"


def model(operator: str, **attributes: object) -> ModelProto:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in "qkv"]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)
    node = helper.make_node(operator, list("qkv"), ["y"], name="n", domain=DOMAIN, **attributes)
    graph = helper.make_graph([node], "g", infos, [y])
    opsets = [helper.make_opsetid("", 26), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets)


def doubled() -> object:
    """A modifier of scores: twice as much."""
    scores = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 3, 3]) for n in "st"]
    return helper.make_graph(
        [helper.make_node("Add", ["s", "s"], ["t"])], "twice", [scores[0]], [scores[1]]
    )


@pytest.mark.parametrize("attributes", [{}, {"scale": 0.3}, {"score_mod": doubled()}])
def test_flexible_attention(attributes: dict[str, object]) -> None:
    rng = np.random.default_rng(0)
    feeds = {name: rng.normal(size=SHAPE).astype(np.float32) for name in "qkv"}
    proto = model("FlexAttention", **attributes)
    (expected,) = ReferenceEvaluator(proto).run(None, feeds)
    np.testing.assert_allclose(evaluate(import_model(proto), feeds)["y"], expected, atol=1e-5)


def test_what_has_no_body_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"domain ai\.onnx\.preview aren't supported"):
        import_model(model("Nonsense"))

"""Classifiers whose words are secret indices, in private, against ONNX Runtime and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import veilgraph
from veilgraph.ir.plan.plan import Plan
from veilgraph.measuring.processes import simulate_processes

WORDS, WIDTH, TOPICS = 300, 8, 4
Array = npt.NDArray[Any]


def classifier(words: int = WORDS) -> onnx.ModelProto:
    """The mean of a message's five embeddings, a hidden layer and a number for each topic."""
    rng = np.random.default_rng(5)
    shapes = {"table": (words, WIDTH), "hidden": (WIDTH, WIDTH), "topic": (WIDTH, TOPICS)}
    weights = [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="embedding"),
        helper.make_node("ReduceMean", ["rows"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["mean", "hidden"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "topic"], ["y"]),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, TOPICS])
    graph = helper.make_graph(nodes, "classifier", [ids], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def expected(model: onnx.ModelProto, ids: Array) -> Array:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, {"ids": ids})[0])


def messages(count: int, words: int = WORDS) -> Array:
    """Some ids are the last word's, some count from the end."""
    ids = np.random.default_rng(1).integers(-words // 2, words, (count, 1, 5))
    ids[:, 0, 0] = words - 1
    return ids


PARTIES: dict[str, dict[str, Any]] = {
    "rep3": {},
    "additive": {"suite": "additive", "parties": ("alice", "bob"), "dealer": "carol"},
    "additive-3": {"suite": "additive", "parties": ("alice", "bob", "dan"), "dealer": "carol"},
    "client": {"clients": ("eve",), "owners": {"ids": "eve"}, "receivers": {"y": "eve"}},
    "public table": {"owners": {"weights": "public"}},
}


@pytest.mark.parametrize("who", PARTIES)
def test_a_classifier_of_words(who: str) -> None:
    model, ids = classifier(), messages(12)
    plan, weights = veilgraph.compile(model, calibrate={"ids": ids}, **PARTIES[who])
    for each in ids[:3]:
        y = veilgraph.simulate(plan, weights, {"ids": each}).outputs["y"]
        # In the mean a plan is off by 0.005 of its outputs at most; one number by twice that.
        np.testing.assert_allclose(y, expected(model, each), rtol=0.01, atol=0.02)
    assert any("point function" in each.why for each in plan.manifest.disclosures)


def one_hot_bytes(plan: Plan) -> list[float]:
    return [layer.online_bits / 8 for layer in plan.layers if layer.op == "one_hot"]


def test_three_processes_send_480_bytes_a_token_of_bert() -> None:
    model, ids = classifier(30522), messages(4, 30522)
    plan, weights = veilgraph.compile(model, calibrate={"ids": ids})
    assert one_hot_bytes(plan) == [5 * 480]
    answer, _ = simulate_processes(plan, weights, [{"ids": ids[0]}])
    np.testing.assert_allclose(answer.outputs["y"], expected(model, ids[0]), rtol=0.01, atol=0.02)
    assert answer.sent_bytes < 5 * 480 + 2000


def test_an_index_that_was_computed() -> None:
    """The word of the largest score, of which nobody knows which it is."""
    table = np.random.default_rng(3).normal(size=(20, WIDTH)).astype(np.float32)
    nodes = [
        helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
        helper.make_node("Gather", ["table", "best"], ["y"], name="embedding"),
    ]
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [3, 20])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, WIDTH])
    graph = helper.make_graph(
        nodes, "look_up", [scores], [y], [numpy_helper.from_array(table, "table")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    samples = np.random.default_rng(4).normal(size=(6, 3, 20)).astype(np.float32)
    for who in ("rep3", "additive", "additive-3"):
        plan, weights = veilgraph.compile(model, calibrate={"scores": samples}, **PARTIES[who])
        for x in samples[:2]:
            found = veilgraph.simulate(plan, weights, {"scores": x}).outputs["y"]
            np.testing.assert_allclose(found, table[x.argmax(1)], atol=0.02)


def test_an_index_out_of_range_gives_zeros() -> None:
    """ONNX Runtime refuses it. Here nobody may see that it is: its row adds nothing."""
    model, ids = classifier(), messages(4)
    ids[0, 0] = [0, 1, 2, 3, WORDS + 7]
    inside = np.array([[0, 1, 2, 3, 0]])
    samples = np.abs(messages(8)) % 300
    plan, weights = veilgraph.compile(model, calibrate={"ids": samples})
    y = veilgraph.simulate(plan, weights, {"ids": ids[0]}).outputs["y"]
    arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    mean = arrays["table"][inside[0, :4]].sum(0) / 5
    want = np.maximum(mean @ arrays["hidden"], 0) @ arrays["topic"]
    np.testing.assert_allclose(y[0], want, atol=0.02)


def test_an_embedding_of_pytorch() -> None:
    torch = pytest.importorskip("torch")

    class Words(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(WORDS, WIDTH)

        def forward(self, ids: Any) -> Any:
            return self.embedding(ids).mean(1)

    torch.manual_seed(1)
    network = Words().eval()
    ids = torch.randint(0, WORDS, (1, 5))
    plan, weights = veilgraph.compile(network, example_inputs=(ids,), calibrate=None)
    assert one_hot_bytes(plan) == [5 * 2 * 16 * 9]
    y = next(iter(veilgraph.simulate(plan, weights, {"ids": ids.numpy()}).outputs.values()))
    np.testing.assert_allclose(y, network(ids).detach().numpy(), atol=0.02)

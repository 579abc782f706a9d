"""ONNX models in training mode: batch norms follow their batches, dropouts drop by masks."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import parser
from torch.nn import functional
from training_cases import BATCH, DATA, RATE, ROWS, SUITES, X, Y

import veilgraph
from veilgraph.ir.errors import UnsupportedError, UsageError
from veilgraph.ir.training import Recipe
from veilgraph.training.batches import orders
from veilgraph.training.exact_rehearsal import rehearse
from veilgraph.training.masks import drawn
from veilgraph.training.simulated import simulated_id

STEPS, MOMENTUM, DROPPED, HIDDEN = 12, 0.8, 0.25, 8
GENERATOR = np.random.default_rng(4)
W = GENERATOR.uniform(-0.4, 0.4, (6, HIDDEN)).astype(np.float32)
V = GENERATOR.uniform(-0.4, 0.4, (HIDDEN, 3)).astype(np.float32)


def model(
    norm: str = "n, m, s = BatchNormalization <training_mode = 1, momentum = 0.8> "
    "(h, g, b, mean, var)",
    drop: str = "d, k = Dropout (r, ratio, mode)",
    outputs: str = "float[N, 3] output",
) -> onnx.ModelProto:
    eight = ", ".join(["{}"] * HIDDEN)
    ones, zeros = eight.format(*["1.0"] * HIDDEN), eight.format(*["0.0"] * HIDDEN)
    found = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        trains (float[N, 6] x) => ({outputs})
        <float ratio = {{{DROPPED}}}, bool mode = {{1}}, float[{HIDDEN}] g = {{{ones}}},
         float[{HIDDEN}] b = {{{zeros}}}, float[{HIDDEN}] mean = {{{zeros}}},
         float[{HIDDEN}] var = {{{ones}}}>
        {{ h = MatMul(x, w)
           {norm}
           r = Relu(n)
           {drop}
           output = MatMul(d, v) }}"""
    )
    found.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in (("w", W), ("v", V))
    )
    return found


def compiled(given: onnx.ModelProto, **options: Any) -> tuple[veilgraph.Plan, Any]:
    return veilgraph.compile_training(
        given, DATA, loss="cross_entropy", batch=BATCH, rate=RATE, steps=STEPS, **options
    )


def by_torch(recipe: Recipe) -> dict[str, np.ndarray]:
    """The same in float32, with ONNX's running variance: that of the batch itself."""
    names = {"w": W, "v": V, "g": np.ones(HIDDEN, np.float32), "b": np.zeros(HIDDEN, np.float32)}
    p = {name: torch.tensor(x, requires_grad=True) for name, x in names.items()}
    mean, variance = torch.zeros(HIDDEN), torch.ones(HIDDEN)
    optimizer = torch.optim.SGD(p.values(), RATE)
    for number, order in enumerate(islice(orders(ROWS, BATCH, 0), STEPS)):
        (mask,) = drawn(recipe.masks, simulated_id(0), number).values()
        optimizer.zero_grad()
        h = torch.tensor(X[order]) @ p["w"]
        n = functional.batch_norm(h, None, None, p["g"], p["b"], training=True)
        z = functional.relu(n) * torch.tensor(mask) @ p["v"]
        functional.cross_entropy(z, torch.tensor(Y[order])).backward()
        optimizer.step()
        with torch.no_grad():
            mean = MOMENTUM * mean + (1 - MOMENTUM) * h.mean(0)
            variance = MOMENTUM * variance + (1 - MOMENTUM) * h.var(0, correction=0)
    found = {name: x.detach().numpy() for name, x in p.items()}
    return found | {"mean": mean.numpy(), "var": variance.numpy()}


@pytest.mark.parametrize("suite", SUITES)
def test_layers_train_as_the_node_says(suite: str) -> None:
    """Statistics are states that follow, masks are drawn, and an evaluation has neither."""
    told = {"parameters": "alice", "output": "alice"}
    plan, weights = compiled(model(), reveal=told, **SUITES[suite])
    veilgraph.verify(plan)
    recipe = Recipe.of(plan.manifest.options)
    assert recipe.statistics == ("mean", "var")
    ((name, (dropped, shape)),) = recipe.masks.items()
    assert (name, dropped, shape) == ("d.mask", DROPPED, (BATCH, HIDDEN))
    found = veilgraph.simulate_training(
        plan, weights, DATA, rate=RATE, steps=STEPS, evaluate={"x": X[:BATCH]}
    )
    wanted = by_torch(recipe)
    assert found.parameters.keys() == wanted.keys()
    for name, array in wanted.items():
        assert np.abs(found.parameters[name] - array).max() < 0.03, name
    h = (X[:BATCH] @ wanted["w"] - wanted["mean"]) / np.sqrt(wanted["var"] + 1e-5)
    outputs = np.maximum(h * wanted["g"] + wanted["b"], 0) @ wanted["v"]
    assert np.abs(found.outputs[0]["output"] - outputs).max() < 0.1


def test_a_rehearsal_in_exact_integers() -> None:
    plan, weights = compiled(model())
    found = rehearse(plan, weights, model(), DATA, rate=RATE, epochs=1)
    assert found.status() is None


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        (model(outputs="float[N, 3] output, float[8] m"), UsageError, "reads what `n` makes"),
        (model(drop="d, k = Dropout (r, ratio, mode) e = Cast <to = 1> (k)",
               outputs="float[N, 3] output, float[N, 8] e"), UsageError, "reads what `d` makes"),
        (model(drop="all = Constant <value = float {1.0}> () d = Dropout (r, all, mode)"),
         UsageError, "Dropout `d` drops 1 of all numbers"),
        (model(norm="u = Add(mean, b) n, m, s = BatchNormalization <training_mode = 1> "
                    "(h, g, b, u, var)"), UsageError, "statistics of `n` are no initialisers"),
        (model(drop="c = ReduceSum(r) z = Greater(c, ratio) t = Squeeze(z) "
                    "d = Dropout (r, ratio, t)"),
         UnsupportedError, "training_mode is true, or"),
    ],
)  # fmt: skip
def test_what_cannot_be_mapped_is_refused(
    given: onnx.ModelProto, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        compiled(given)


def test_for_inference_such_models_stay_refused() -> None:
    with pytest.raises(UnsupportedError, match="normalises by its batch"):
        veilgraph.compile(model(), shapes={"x": (BATCH, 6)})

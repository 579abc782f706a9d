"""Losses and steps against torch; what is no training is refused."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from graph_examples import example
from torch.nn import functional

from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.training import LABELS, LOSS, SGD, Adam, AdamW, Optimizer
from veilgraph.passes.graph.training import programs
from veilgraph.passes.graph.training.checks import require_trainable
from veilgraph.passes.graph.training.losses import LOSSES
from veilgraph.passes.graph.training.programs import Training

ROWS, INSIDE = 5, 3
RATES = (0.5, 0.5, 0.25, 0.125)
OF_TORCH = {
    "cross_entropy": functional.cross_entropy,
    "binary_cross_entropy": functional.binary_cross_entropy_with_logits,
    "mse": functional.mse_loss,
}
GENERATOR = np.random.default_rng(4)
WEIGHTS = {
    "first.weight": GENERATOR.standard_normal((INSIDE, 4)).astype(np.float32),
    "first.bias": GENERATOR.standard_normal(4).astype(np.float32),
    "last.weight": GENERATOR.standard_normal((4, 2)).astype(np.float32),
    "last.bias": GENERATOR.standard_normal(2).astype(np.float32),
}
X = GENERATOR.standard_normal((len(RATES), ROWS, INSIDE))
LABELS_OF = {
    "cross_entropy": np.eye(2)[GENERATOR.integers(0, 2, (len(RATES), ROWS))],
    "binary_cross_entropy": GENERATOR.integers(0, 2, (len(RATES), ROWS, 2)).astype(float),
    "mse": GENERATOR.standard_normal((len(RATES), ROWS, 2)),
}


def forward(ending: type[Any] | None = None, loss: str = "") -> Graph:
    """Two dense layers; a softmax behind them, or a squared mean as output `loss`."""
    graph = Graph.create(context(), {"x": (ROWS, INSIDE)}, WEIGHTS)
    (x,), (w, b, v, c) = graph.inputs.values(), graph.parameters.values()
    with graph.end("first"):
        hidden = ops.Relu.build(ops.Add.build(ops.Matmul.build(x, w), b))
    with graph.end("last"):
        z = ops.Add.build(ops.Matmul.build(hidden, v), c)
        z = z if ending is None else ending.build(z, axis=1)
        outputs = {"z": z}
        if loss:
            squares = ops.Mul.build(z, z)
            outputs[loss] = ops.ReduceMean.build(squares, axes=(0, 1), keepdims=False)
    graph.finish(outputs)
    return graph


def as_torch(x: Any, parameters: Any) -> Any:
    w, b, v, c = parameters
    return functional.relu(torch.from_numpy(x) @ w + b) @ v + c


OPTIMIZERS = [
    SGD(),
    SGD(0.9),
    SGD(0.0, 0.01),
    SGD(0.8, 0.02),
    SGD(0.9, nesterov=True),
    SGD(0.8, 0.02, nesterov=True),
    Adam(eps=1e-13),
    Adam((0.8, 0.99), 1e-13, 0.02),
    AdamW((0.8, 0.99), 1e-13, 0.02),
]


@pytest.mark.parametrize("clip_norm", [None, 0.2, 100.0])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
@pytest.mark.parametrize("loss", [*LOSSES, "mean"])
def test_steps_are_those_of_torch(loss: str, optimizer: Optimizer, clip_norm: float | None) -> None:
    """Whatever the rates: four steps, and each step's loss; 0.2 shortens gradients, 100 none."""
    model = forward(loss="mean" if loss == "mean" else "")
    training = Training(model, loss, optimizer, clip_norm=clip_norm)
    require_trainable(training)
    step = training.step(reveals_loss=True)
    step.verify()
    parameters = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in WEIGHTS.values()]
    of_torch = getattr(torch.optim, type(optimizer).__name__)(parameters, **asdict(optimizer))
    state = {name: array.astype(np.float64) for name, array in WEIGHTS.items()}
    state |= {kept: np.zeros_like(state[name]) for kept, name in training.kept.items()}
    before = RATES[0]
    for number, rate in enumerate(RATES):
        given = {"x": X[number], **optimizer.values(rate, before, ROWS, number)}
        z, before = as_torch(X[number], parameters), rate
        if loss == "mean":
            value = (z * z).mean()
        else:
            given[LABELS] = LABELS_OF[loss][number]
            value = OF_TORCH[loss](z, torch.from_numpy(LABELS_OF[loss][number]))
        of_torch.param_groups[0]["lr"] = rate
        of_torch.zero_grad()
        value.backward()
        if clip_norm is not None:
            norm = torch.nn.utils.clip_grad_norm_(parameters, clip_norm)
            assert (norm > clip_norm) == (clip_norm == 0.2)
        of_torch.step()
        found = evaluate(step, given | state, dtype=np.float64)
        state = {name: found[after] for name, after in training.states.items()}
        assert found[LOSS].item() == pytest.approx(value.item())
        for name, parameter in zip(WEIGHTS, parameters, strict=True):
            off = 1e-9 if clip_norm is None else 1e-5  # torch adds 1e-6 to a norm
            assert state[name] == pytest.approx(parameter.detach().numpy(), abs=off)


def test_docstring_example() -> None:
    before, after = example(programs.__doc__, context())
    before.weights = {"w": np.zeros((3, 1), np.float32)}
    step = Training(before, "mse").step()
    assert step.text(names=False) == after.text(names=False)


def test_the_other_programs() -> None:
    """What begins, what is evaluated, and what is released."""
    training = Training(forward(), "mse", SGD(0.9), frozen=("first.*",))
    assert training.parameters == ("last.weight", "last.bias")
    assert training.states == {
        "last.weight": "last.weight.next",
        "last.bias": "last.bias.next",
        "last.weight.velocity": "last.weight.velocity.next",
        "last.bias.velocity": "last.bias.velocity.next",
    }
    step = training.step()
    assert [*step.weights] == ["first.weight", "first.bias"]
    assert set(step.states) == training.states.keys()
    began = evaluate(training.start(), {})
    assert np.array_equal(began["last.weight.next"], WEIGHTS["last.weight"])
    assert not began["last.bias.velocity.next"].any()
    evaluation, state = training.evaluation(), {n: WEIGHTS[n] for n in training.parameters}
    wanted = evaluate(training.forward, {"x": X[0]})["z"]
    assert evaluate(evaluation, {"x": X[0], **state})["z"] == pytest.approx(wanted)
    released = training.release()
    assert released.states == training.parameters
    assert np.array_equal(evaluate(released, state)["last.bias"], WEIGHTS["last.bias"])


def with_input(name: str) -> Graph:
    graph = Graph.create(context(), {name: (ROWS, INSIDE)}, {"w": np.ones((INSIDE, 2))})
    (x,), (w,) = graph.inputs.values(), graph.parameters.values()
    with graph.end("z"):
        z = ops.Matmul.build(x, w)
    graph.finish({"z": z})
    return graph


@pytest.mark.parametrize(
    ("training", "told"),
    [
        (lambda: Training(forward(), "hinge"), "There is no loss `hinge`"),
        (lambda: Training(forward(), "z"), "The loss `z` is no single number"),
        (lambda: Training(forward(loss="l"), "mse"), "is of one output, and the model has 2: z, l"),
        (lambda: Training(forward(ops.Softmax), "cross_entropy"), "has a softmax already"),
        (lambda: Training(forward(), "mse", frozen=("layer*",)), "No parameter is named like"),
        (lambda: Training(forward(), "mse", frozen=("*",)), "has no parameter to train"),
        (lambda: Training(with_input("labels"), "mse"), "an input `labels`, a name that"),
        (lambda: Training(with_input("step_size"), "mse"), "an input `step_size`, a name that"),
    ],
)
def test_what_is_no_training_is_refused(training: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        require_trainable(training())


def test_a_loss_of_rows_takes_rows_of_classes() -> None:
    graph = Graph.create(context(), {"x": (ROWS, 2, 3)}, {"w": np.ones((3, 4))})
    with graph.end("z"):
        z = ops.Matmul.build(*graph.inputs.values(), *graph.parameters.values())
    graph.finish({"z": z})
    with pytest.raises(UsageError, match=r"takes an output of shape \(rows, classes\)"):
        require_trainable(Training(graph, "cross_entropy"))


def test_a_parameter_that_the_loss_does_not_read() -> None:
    graph = forward(loss="l")
    with graph.ahead_of_return("other/"):
        other = ops.Neg.build(graph.add_weights({"free": np.ones(2)})["free"])
    graph.replace_outputs({**graph.outputs, "other": other})
    with pytest.raises(UsageError, match="The loss does not depend on 'free'"):
        Training(graph, "l").step()


@pytest.mark.parametrize("numbers", [(1.0, 0.0), (-0.1, 0.0), (0.5, 1.0), (0.5, float("nan"))])
def test_factors_of_an_optimizer_make_sense(numbers: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="makes no sense"):
        SGD(*numbers)


@pytest.mark.parametrize(
    "numbers", [{"betas": (1.0, 0.9)}, {"betas": (0.9, -0.1)}, {"eps": 0.0}, {"weight_decay": 1.0}]
)
def test_numbers_of_adam_make_sense(numbers: dict[str, Any]) -> None:
    for kind in (Adam, AdamW):
        with pytest.raises(UsageError, match="makes no sense"):
            kind(**numbers)


def test_nesterov_takes_a_momentum() -> None:
    with pytest.raises(UsageError, match="Nesterov's momentum of 0 is none"):
        SGD(nesterov=True)

"""Batch norms that train, in double precision against torch: parameters and running statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from veilgraph.ir.graph import ops
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.training import LOSS, SGD, Adam, Optimizer
from veilgraph.passes.graph.training.checks import require_trainable
from veilgraph.passes.graph.training.programs import Training
from veilgraph.training.models import forward_of

ROWS, STEPS, RATE = 6, 4, 0.05
GENERATOR = np.random.default_rng(5)


class Dense(nn.Module):
    """A norm of rows, behind a layer with a bias."""

    shape = (4,)

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(4, 5, bias=bias), nn.BatchNorm1d(5, momentum=0.3)
        self.last = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))


class Images(nn.Module):
    """Norms of channels, one without a scale, one of another epsilon and a momentum of 0."""

    shape = (2, 5, 5)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 3, 3), nn.Conv2d(3, 3, 1)
        self.norm, self.plain = nn.BatchNorm2d(3), nn.BatchNorm2d(3, affine=False)
        self.still, self.last = nn.BatchNorm2d(3, eps=1e-2, momentum=0.0), nn.Linear(27, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.plain(self.second(torch.tanh(self.norm(self.first(x)))))
        return self.last(torch.flatten(self.still(y * y), 1))


class Twice(nn.Module):
    """One norm that stands in two places, and a third axis."""

    shape = (3, 4)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv1d(3, 3, 1), nn.BatchNorm1d(3), nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.first(torch.tanh(self.norm(x))))
        return self.last(torch.flatten(y, 1))


def made(kind: type[Any], *options: Any) -> Any:
    """A module whose statistics have left where they begin."""
    torch.manual_seed(1)
    module = kind(*options).train()
    for _ in range(2):
        module(torch.randn(ROWS, *module.shape))
    return module


def training_of(module: Any, x: Any, optimizer: Optimizer, *frozen: str) -> Training:
    labels = np.zeros(ROWS)
    graph = forward_of(module, {"x": x, "labels": labels}, ROWS)
    training = Training(graph, "mse", optimizer, frozen)
    require_trainable(training)
    return training


OPTIMIZERS: list[tuple[Optimizer, Any]] = [
    (SGD(), lambda p: torch.optim.SGD(p, RATE)),
    (SGD(0.9), lambda p: torch.optim.SGD(p, RATE, momentum=0.9)),
    (Adam(eps=1e-13), lambda p: torch.optim.Adam(p, RATE, eps=1e-13)),
]


@pytest.mark.parametrize(
    ("kind", "options"),
    [(Dense, ()), (Dense, (False,)), (Images, ()), (Twice, ())],
    ids=["biased", "dense", "images", "twice"],
)
@pytest.mark.parametrize(("optimizer", "of_torch"), OPTIMIZERS, ids=["sgd", "momentum", "adam"])
def test_steps_and_statistics_are_those_of_torch(
    optimizer: Optimizer, of_torch: Any, kind: Any, options: Any
) -> None:
    module, x = made(kind, *options), GENERATOR.standard_normal((STEPS, ROWS, *kind.shape))
    y = GENERATOR.standard_normal((STEPS, ROWS, 3))
    training = training_of(module, x[0], optimizer)
    step = training.step(reveals_loss=True)
    step.verify()
    module = module.double()
    begun = {n: a.astype(np.float64) for n, a in training.forward.weights.items()}
    state = begun | {n: np.zeros_like(begun[of]) for n, of in training.kept.items()}
    moved = [p for n, p in module.named_parameters() if n in training.moved]
    by_torch = of_torch(moved)
    for number in range(STEPS):
        given = {"x": x[number], "labels": y[number]}
        given |= optimizer.values(RATE, RATE, ROWS, number)
        found = evaluate(step, given | state, dtype=np.float64)
        state = {name: found[after] for name, after in training.states.items()}
        by_torch.zero_grad()
        loss = functional.mse_loss(module(torch.from_numpy(x[number])), torch.from_numpy(y[number]))
        module.zero_grad()
        loss.backward()
        by_torch.step()
        assert found[LOSS].item() == pytest.approx(loss.item(), rel=1e-5)
        for name in training.begun:
            wanted = module.state_dict()[name].numpy()
            assert state[name] == pytest.approx(wanted, rel=1e-4, abs=1e-5)
    for name in {*training.parameters} - {*training.moved}:
        assert module.get_parameter(name).grad.abs().max() < 1e-12, "a bias that moves nothing"
    wanted = module.eval()(torch.from_numpy(x[0])).detach().numpy()
    known = {name: state[name] for name in training.begun}
    answer = evaluate(training.evaluation(), {"x": x[0], **known}, dtype=np.float64)
    assert answer["output"] == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def test_which_biases_move_nothing() -> None:
    """Those that a norm takes away; not those that something else reads, or other axes have."""
    x = GENERATOR.standard_normal((ROWS, 4))
    biased = training_of(made(Dense), x, SGD(0.5))
    assert {*biased.parameters} - {*biased.moved} == {"first.bias"}
    assert "first.bias.velocity" not in biased.kept
    assert "first.bias" in biased.states
    frozen = training_of(made(Dense), x, SGD(), "norm.*")
    assert frozen.moved == frozen.parameters
    images = training_of(made(Images), GENERATOR.standard_normal((ROWS, 2, 5, 5)), SGD())
    assert {*images.parameters} - {*images.moved} == {"first.bias", "second.bias"}

    class ReadTwice(Dense):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            return self.last(self.norm(y) + y)

    twice = training_of(made(ReadTwice), x, SGD())
    assert twice.moved == twice.parameters


def test_frozen_norms_go_on_normalising_by_their_statistics() -> None:
    x = GENERATOR.standard_normal((ROWS, 4))
    module = made(Dense)
    training = training_of(module, x, SGD(), "norm.running_*")
    assert not training.statistics
    assert not training.norms
    step = training.step(reveals_loss=True)
    assert any(isinstance(op, ops.BatchNorm) for op in step.operations)
    weights = {name: training.forward.weights[name] for name in training.parameters}
    y = GENERATOR.standard_normal((ROWS, 3))
    given = {"x": x, "labels": y, "step_size": np.float64(RATE / ROWS), **weights}
    wanted = functional.mse_loss(module.eval().double()(torch.from_numpy(x)), torch.from_numpy(y))
    found = evaluate(step, given, dtype=np.float64)
    assert found[LOSS].item() == pytest.approx(wanted.item(), rel=1e-5)


def test_the_count_of_norms_and_the_derivative_by_each_place() -> None:
    x = GENERATOR.standard_normal((ROWS, 3, 4))
    training = training_of(made(Twice), x, SGD())
    assert training.norms == {"norm.running_mean": 2, "norm.running_var": 2}
    assert {*training.statistics} == {*training.norms}
    assert {*training.updates} >= {*training.statistics}

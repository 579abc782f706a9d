"""Batch norms in training, from a module to what is revealed: against torch, in both suites."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from training_cases import (
    BATCH,
    DATA,
    INPUTS,
    RATE,
    ROWS,
    STEPS,
    SUITES,
    Normed,
    X,
    Y,
    by_torch,
    trained,
)

import veilgraph
from veilgraph.ir.errors import UsageError
from veilgraph.ir.training import Recipe
from veilgraph.training.batches import orders
from veilgraph.training.exact_rehearsal import rehearse


@pytest.mark.parametrize("suite", SUITES)
def test_running_statistics_follow_as_torch_has_them(suite: str) -> None:
    """Momentum, weight decay; what is revealed loads, and evaluates as the parties did."""
    plan, weights = trained("normed", suite)
    veilgraph.verify(plan)
    found = veilgraph.simulate_training(
        plan, weights, DATA, rate=RATE, steps=STEPS, evaluate={"x": X[: 2 * BATCH]}
    )
    losses, wanted = by_torch("normed", [RATE] * STEPS)
    assert np.abs(np.array(found.losses) - losses).max() < 0.1
    assert found.parameters.keys() == wanted.keys()
    assert found.parameters["norm.num_batches_tracked"] == STEPS
    for name, array in wanted.items():
        assert np.abs(found.parameters[name] - array).max() < 0.045
    module = Normed().eval()
    module.load_state_dict({name: torch.tensor(x) for name, x in found.parameters.items()})
    outputs = module(torch.from_numpy(X[: 2 * BATCH])).detach().numpy()
    told = np.concatenate([outputs["output"] for outputs in found.outputs])
    assert np.abs(told - outputs).max() < 0.05


def test_who_receives_running_statistics() -> None:
    """Whom `parameters` names; nobody by default."""
    told = {r.what: r.to for r in veilgraph.verify(trained("normed", "rep3")[0]).revealed}
    assert told["output norm.running_mean"] == told["output hidden.weight"] == ("alice",)
    plan, _ = trained("normed", "rep3", told=False)
    told = {r.what: r.to for r in veilgraph.verify(plan).revealed}
    assert "output norm.running_mean" not in told
    assert {"norm.running_mean", "norm.running_var"} <= set(plan.manifest.states)


def test_a_rehearsal_in_exact_integers() -> None:
    plan, weights = trained("normed", "rep3")
    found = rehearse(plan, weights, Normed().train(), DATA, rate=RATE, epochs=2)
    assert found.status() is None
    _, wanted = by_torch("normed", [RATE] * (2 * ROWS // BATCH))
    assert found.parameters["norm.running_var"] == pytest.approx(
        wanted["norm.running_var"], abs=0.01
    )
    real, fixed = found.epochs[-1]
    assert abs(real.right - fixed.right) <= 2


class Images(nn.Module):
    """Convolutions with biases that their norms take away; a norm without a scale."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.norm = nn.Conv2d(1, 3, 3, stride=2), nn.BatchNorm2d(3)
        self.second, self.plain = nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4, affine=False)
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norm(self.first(x)))
        return self.last(functional.relu(self.plain(self.second(y))).mean((2, 3)))


@pytest.mark.parametrize("suite", SUITES)
def test_norms_of_channels_behind_biases(suite: str) -> None:
    """The biases stay, which changes no output; counts begin where the module has them."""
    images = np.random.default_rng(2).standard_normal((64, 1, 7, 7)).astype(np.float32)
    labels = images.reshape(64, 7, 7)[:, :, :6].reshape(64, 3, 14).mean(2).argmax(1)
    module, data = Images().train(), {"x": images, "labels": labels}
    module(torch.from_numpy(images))
    begun = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    plan, weights = veilgraph.compile_training(
        module,
        data,
        loss="cross_entropy",
        batch=16,
        rate=RATE,
        steps=8,
        reveal={"parameters": "alice"},
        **SUITES[suite],
    )
    veilgraph.verify(plan)
    found = veilgraph.simulate_training(plan, weights, data, rate=RATE, steps=8)
    module.load_state_dict(begun)
    optimizer = torch.optim.SGD(module.parameters(), RATE)
    for order in islice(orders(64, 16, 0), 8):
        optimizer.zero_grad()
        z = module(torch.from_numpy(images[order]))
        functional.cross_entropy(z, torch.tensor(labels[order])).backward()
        optimizer.step()
    wanted = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    assert found.parameters.keys() == wanted.keys()
    assert found.parameters["norm.num_batches_tracked"] == 9
    for name, array in wanted.items():
        assert np.abs(found.parameters[name] - array).max() < 0.045


class Twice(Normed):
    """One norm in two places."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(torch.tanh(self.norm(self.hidden(x)))))


def test_a_norm_in_two_places_counts_twice_a_step() -> None:
    plan, weights = veilgraph.compile_training(
        Twice().train(),
        DATA,
        loss="cross_entropy",
        batch=BATCH,
        rate=RATE,
        steps=3,
        reveal={"parameters": "alice"},
    )
    found = veilgraph.simulate_training(plan, weights, DATA, rate=RATE, steps=3).parameters
    assert found["norm.num_batches_tracked"] == 6
    Twice().load_state_dict({name: torch.tensor(array) for name, array in found.items()})


def test_a_frozen_norm() -> None:
    """A frozen norm normalises by what it has; none of its numbers is a state."""
    plan, weights = veilgraph.compile_training(
        Normed().train(),
        DATA,
        loss="cross_entropy",
        batch=BATCH,
        steps=3,
        freeze=["norm.*"],
        reveal={"parameters": "alice"},
    )
    assert set(plan.manifest.states) == {"hidden.weight", "last.weight", "last.bias"}
    found = veilgraph.simulate_training(plan, weights, DATA, rate=RATE, steps=3).parameters
    module = Normed().eval()
    optimizer = torch.optim.SGD([*module.hidden.parameters(), *module.last.parameters()], RATE)
    for order in islice(orders(ROWS, BATCH, 0), 3):
        optimizer.zero_grad()
        z = module(torch.from_numpy(X[order]))
        functional.cross_entropy(z, torch.tensor(Y[order])).backward()
        optimizer.step()
    assert np.abs(found["hidden.weight"] - module.hidden.weight.detach().numpy()).max() < 0.015


class Again(nn.Module):
    """One norm by two names, in a container too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.first = nn.BatchNorm1d(8)
        self.rest = nn.Sequential(nn.Linear(8, 8, bias=False), self.first, nn.ReLU())
        self.hidden, self.last = nn.Linear(INPUTS, 8, bias=False), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.rest(functional.relu(self.first(self.hidden(x)))))


class Cumulative(Normed):
    """Statistics that are means over all batches, of three batches as it begins."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8, momentum=None)
        with torch.no_grad():
            for _ in range(3):
                self.norm(torch.linspace(-1, 1, 64).reshape(8, 8))


@pytest.mark.parametrize("kind", [Again, Cumulative])
@pytest.mark.parametrize("suite", SUITES)
def test_norms_of_several_names_and_of_all_batches(kind: type[nn.Module], suite: str) -> None:
    """As torch; all names are revealed, and the module that was compiled is as it was."""
    module, reference = kind().train(), kind().train()
    before = {name: x.clone() for name, x in module.state_dict().items()}
    plan, weights = veilgraph.compile_training(
        module,
        DATA,
        loss="cross_entropy",
        batch=BATCH,
        rate=RATE,
        steps=STEPS,
        max_error=0.01,
        reveal={"parameters": "alice"},
        **SUITES[suite],
    )
    veilgraph.verify(plan)
    found = veilgraph.simulate_training(plan, weights, DATA, rate=RATE, steps=STEPS).parameters
    optimizer = torch.optim.SGD(reference.parameters(), RATE)
    for order in islice(orders(ROWS, BATCH, 0), STEPS):
        optimizer.zero_grad()
        z = reference(torch.from_numpy(X[order]))
        functional.cross_entropy(z, torch.tensor(Y[order])).backward()
        optimizer.step()
    wanted = reference.state_dict()
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert np.abs(found[name] - array.numpy()).max() < 0.03, name
    module.load_state_dict({name: torch.tensor(x) for name, x in found.items()})
    module.load_state_dict(before)
    for own, other in zip(module.modules(), reference.modules(), strict=True):
        assert type(own) is type(other)
        assert getattr(own, "momentum", 0) == getattr(other, "momentum", 0)


def test_shares_of_all_batches_are_held_by_all_parties() -> None:
    """A public number a step, as the rate is; exact integers train alike."""
    plan, weights = veilgraph.compile_training(
        Cumulative().train(), DATA, loss="cross_entropy", batch=BATCH, rate=RATE, steps=STEPS
    )
    assert Recipe.of(plan.manifest.options).shares == {"mean_share_3": 3}
    told = {r.what: r.to for r in veilgraph.verify(plan).revealed}
    assert told["output mean_share_3"] == ("bob", "carol")
    found = rehearse(plan, weights, Cumulative().train(), DATA, rate=RATE, epochs=1)
    assert found.status() is None


def refused(model: nn.Module, **options: Any) -> Any:
    given = {"loss": "cross_entropy", "batch": BATCH, "steps": 2} | options
    return veilgraph.compile_training(model, DATA, **given)


def test_what_is_refused() -> None:
    class CumulativeTwice(Twice):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(8, momentum=None)

    class Far(Normed):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(8, momentum=-0.5)

    class Kept(Normed):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.hidden(x)
            self.seen.add_(y.mean(0))
            return self.last(self.norm(y))

    with pytest.raises(UsageError, match="is of several places of a model: norm"):
        refused(CumulativeTwice().train())
    with pytest.raises(UsageError, match=r"momentum of -0\.5 makes no sense"):
        refused(Far().train())
    with pytest.raises(UsageError, match="The model changes seen, which it keeps"):
        refused(Kept().train())
    plan, _ = refused(Normed().train(), freeze=["norm.running_mean"])  # a buffer stays as it is
    assert not any("running" in name for name in plan.manifest.states)
    with pytest.raises(UsageError, match="Expected more than 1 value per channel"):
        refused(Normed().train(), batch=1)

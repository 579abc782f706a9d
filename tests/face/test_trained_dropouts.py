"""Dropouts in training: by public masks, against torch with the same ones, in both suites."""

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
    STEPS,
    SUITES,
    Dropped,
    X,
    dropped_by_torch,
    trained,
)

import veilgraph
from veilgraph.ir.errors import UsageError
from veilgraph.ir.training import Recipe
from veilgraph.training.batches import orders
from veilgraph.training.exact_rehearsal import rehearse
from veilgraph.training.masks import drawn
from veilgraph.training.simulated import simulated_id


@pytest.mark.parametrize("suite", SUITES)
def test_steps_are_those_of_torch_with_the_same_masks(suite: str) -> None:
    """And an evaluation drops nothing."""
    plan, weights = trained("dropped", suite)
    veilgraph.verify(plan)
    recipe = Recipe.of(plan.manifest.options)
    assert recipe.masks == {"drop.mask": (0.3, (BATCH, 8))}
    found = veilgraph.simulate_training(
        plan, weights, DATA, rate=RATE, steps=STEPS, evaluate={"x": X[: 2 * BATCH]}
    )
    masks = [drawn(recipe.masks, simulated_id(0), i)["drop.mask"] for i in range(STEPS)]
    losses, wanted = dropped_by_torch(masks)
    assert np.abs(np.array(found.losses) - losses).max() < 0.1
    assert found.parameters.keys() == wanted.keys()
    for name, array in wanted.items():
        assert np.abs(found.parameters[name] - array).max() < 0.045
    module = Dropped().eval()
    module.load_state_dict({name: torch.tensor(x) for name, x in found.parameters.items()})
    outputs = module(torch.from_numpy(X[: 2 * BATCH])).detach().numpy()
    told = np.concatenate([outputs["output"] for outputs in found.outputs])
    assert np.abs(told - outputs).max() < 0.05


def test_masks_are_sent_to_nobody() -> None:
    """Each party that computes has them; a step sends what it would send without a dropout."""
    plan, _ = trained("dropped", "rep3", told=False)
    found = veilgraph.verify(plan)
    assert not any("mask" in each.what for each in found.revealed)
    given = {s.name: s.owner for s in found.secrets if "mask" in s.name}
    assert given == {f"drop.mask@{who}": who for who in ("alice", "bob", "carol")}
    assert "drop.mask" not in plan.manifest.states
    (layer,) = (layer for layer in plan.layers if layer.name == "drop.mask")
    assert (layer.online_bits, layer.offline_bits, layer.rounds) == (0, 0, 0)


def test_a_client_has_no_masks() -> None:
    """They are for those who compute; rows may be another's."""
    plan, weights = veilgraph.compile_training(
        Dropped().train(),
        DATA,
        loss="cross_entropy",
        batch=BATCH,
        rate=RATE,
        steps=5,
        owners={"x": "dave"},
        clients=["dave"],
        reveal={"loss": "dave"},
    )
    veilgraph.verify(plan)
    assert [tensor.name for tensor in plan.party("dave").inputs] == ["x"]
    found = veilgraph.simulate_training(plan, weights, DATA, rate=RATE, steps=5)
    masks = Recipe.of(plan.manifest.options).masks
    assert len(found.losses) == 5
    assert masks


def test_masks_are_drawn_afresh_and_drop_their_share() -> None:
    masks = {"a": (0.3, (40, 50)), "b": (0.3, (40, 50)), "c": (0.0, (4,))}
    first = drawn(masks, b"session", 0)
    assert {*np.unique(first["a"])} == {np.float32(0), np.float32(1 / 0.7)}
    assert abs((first["a"] == 0).mean() - 0.3) < 0.05
    assert (first["c"] == 1).all()
    others = [first["b"], drawn(masks, b"session", 1)["a"], drawn(masks, b"other", 0)["a"]]
    for other in others:
        assert 0.3 < (other == first["a"]).mean() < 0.7
    assert np.array_equal(first["a"], drawn(masks, b"session", 0)["a"])


def test_a_rehearsal_in_exact_integers() -> None:
    plan, weights = trained("dropped", "rep3")
    found = rehearse(plan, weights, Dropped().train(), DATA, rate=RATE, epochs=2)
    assert found.status() is None
    real, fixed = found.epochs[-1]
    assert abs(real.right - fixed.right) <= 3


class Channels(nn.Module):
    """Channels that are dropped, and numbers in passing."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.drop = nn.Conv2d(1, 3, 3), nn.Dropout2d(0.25)
        self.last = nn.Linear(48, 3)

    def forward(self, x: torch.Tensor, *masks: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.first(x))
        y = torch.flatten(y * masks[0] if masks else self.drop(y), 1)
        return self.last(y * masks[1] if masks else functional.dropout(y, 0.5, self.training))


def test_channels_and_functions_drop() -> None:
    images = np.random.default_rng(2).standard_normal((64, 1, 6, 6)).astype(np.float32)
    labels = images[:, 0, :, :3].mean(1).argmax(1)
    data = {"x": images, "labels": labels}
    plan, weights = veilgraph.compile_training(
        Channels().train(),
        data,
        loss="cross_entropy",
        batch=16,
        rate=RATE,
        steps=8,
        reveal={"parameters": "alice"},
    )
    veilgraph.verify(plan)
    recipe = Recipe.of(plan.manifest.options)
    assert sorted(recipe.masks.values()) == [(0.25, (16, 3, 1, 1)), (0.5, (16, 48))]
    found = veilgraph.simulate_training(plan, weights, data, rate=RATE, steps=8).parameters
    module, by_share = Channels(), sorted(recipe.masks, key=recipe.masks.__getitem__)
    optimizer = torch.optim.SGD(module.parameters(), RATE)
    for number, order in enumerate(islice(orders(64, 16, 0), 8)):
        masks = drawn(recipe.masks, simulated_id(0), number)
        optimizer.zero_grad()
        z = module(torch.from_numpy(images[order]), *(torch.from_numpy(masks[n]) for n in by_share))
        functional.cross_entropy(z, torch.tensor(labels[order])).backward()
        optimizer.step()
    for name, array in module.state_dict().items():
        assert np.abs(found[name] - array.numpy()).max() < 0.03


class Attention(nn.Module):
    """Attention whose weights are dropped; by a mask that is given, or torch's."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.joined, self.last = nn.Linear(8, 24), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        q, k, v = self.joined(x).chunk(3, -1)
        if mask is None:
            share = 0.25 if self.training else 0.0
            y = functional.scaled_dot_product_attention(q, k, v, None, share)
            return self.last(y.mean(1))
        shares = (q @ k.transpose(-2, -1) / 8**0.5).softmax(-1)
        return self.last((shares * mask @ v).mean(1))


def test_attention_drops_its_weights() -> None:
    x = np.random.default_rng(2).standard_normal((64, 5, 8)).astype(np.float32)
    data = {"x": x, "labels": x.mean(1)[:, :3].argmax(1)}
    plan, weights = veilgraph.compile_training(
        Attention().train(),
        data,
        loss="cross_entropy",
        batch=16,
        rate=RATE,
        steps=4,
        max_error=0.01,
        reveal={"parameters": "alice", "output": "alice"},
    )
    veilgraph.verify(plan)
    recipe = Recipe.of(plan.manifest.options)
    assert [*recipe.masks.values()] == [(0.25, (16, 5, 5))]
    found = veilgraph.simulate_training(
        plan, weights, data, rate=RATE, steps=4, evaluate={"x": x[:16]}
    )
    module = Attention()
    optimizer = torch.optim.SGD(module.parameters(), RATE)
    for number, order in enumerate(islice(orders(64, 16, 0), 4)):
        (mask,) = drawn(recipe.masks, simulated_id(0), number).values()
        optimizer.zero_grad()
        z = module(torch.from_numpy(x[order]), torch.from_numpy(mask))
        functional.cross_entropy(z, torch.tensor(data["labels"][order])).backward()
        optimizer.step()
    for name, array in module.state_dict().items():
        assert np.abs(found.parameters[name] - array.numpy()).max() < 0.03
    outputs = module.eval()(torch.from_numpy(x[:16])).detach().numpy()
    assert np.abs(found.outputs[0]["output"] - outputs).max() < 0.05


def test_what_drops_everything_is_refused() -> None:
    model: Any = nn.Sequential(nn.Linear(INPUTS, 3), nn.Dropout(1.0))
    with pytest.raises(UsageError, match="Dropout `1` drops everything"):
        veilgraph.compile_training(
            model.train(),
            {"input": X, "labels": DATA["labels"]},
            loss="cross_entropy",
            batch=BATCH,
            steps=2,
        )

"""Noise that each party adds a part of to a step's updates, without a message."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from training_cases import BATCH, DATA, RATE, ROWS, WITH_CLEARTEXT, Perceptron, X

import veilgraph
from veilgraph.ir.errors import AccuracyError, SecurityAbort, UsageError
from veilgraph.ir.plan.tables import Tensor
from veilgraph.ir.training import Noise, Recipe
from veilgraph.runtime.discrete_gaussian import Sampler
from veilgraph.runtime.encoding import Integers, encode
from veilgraph.training import simulated
from veilgraph.training.exact_rehearsal import rehearse
from veilgraph.training.noise.noises import parts_of
from veilgraph.training.plan_steps import inputs_of

SPREAD, STEPS = 0.5, 12
HONEST = {"rep3": 2, "additive": 1, "cleartext": 1}


@cache
def noisy(suite: str, **options: Any) -> tuple[veilgraph.Plan, Any]:
    """A plan, made once for all tests, and the parameters as they begin."""
    given: dict[str, Any] = {
        "optimizer": veilgraph.SGD(),
        "noise": SPREAD,
        "reveal": {"parameters": "alice"},
    }
    return veilgraph.compile_training(
        Perceptron().train(),
        DATA,
        loss="cross_entropy",
        batch=BATCH,
        rate=RATE,
        steps=STEPS,
        **{**given, **WITH_CLEARTEXT[suite], **options},
    )


@pytest.mark.parametrize("spread", [0.001, 0.02, 0.05])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_noise_of_any_size_is_as_fine_as_what_it_is_added_to(
    spread: float, momentum: float
) -> None:
    plan, _ = noisy("rep3", noise=spread, optimizer=veilgraph.SGD(momentum=momentum))
    veilgraph.verify(plan)


@pytest.mark.parametrize("suite", WITH_CLEARTEXT)
def test_updates_are_off_by_as_much_as_was_asked_for(suite: str) -> None:
    """Of all parties together: n parts, each of variance sigma^2 / (n - t)."""
    plan, weights = noisy(suite)
    veilgraph.verify(plan)
    recipe = Recipe.of(plan.manifest.options)
    assert recipe.noise == Noise(SPREAD, HONEST[suite])
    parties = len(plan.manifest.computing)
    found = [
        veilgraph.simulate_training(plan, weights, DATA, rate=RATE, steps=1).parameters
        for _ in range(8)
    ]
    flat = np.array([np.concatenate([x.ravel() for x in run.values()]) for run in found])
    wanted = RATE * SPREAD * np.sqrt(parties / HONEST[suite])
    measured = np.sqrt(flat.var(axis=0, ddof=1).mean())
    assert abs(measured / wanted - 1) < 6 / np.sqrt(2 * 7 * flat.shape[1])


@pytest.mark.parametrize("suite", ["rep3", "additive"])
def test_noise_is_sent_to_nobody(suite: str) -> None:
    """Its layers send nothing, and it goes to no output but by the parameters."""
    plan, _ = noisy(suite)
    layers = [layer for layer in plan.layers if layer.name.endswith(".noise")]
    assert len(layers) == 4
    assert all(layer.online_bits == layer.offline_bits == 0 for layer in layers)
    for who in plan.manifest.computing:
        own = {t.name for t in inputs_of(plan, "step", who) if "noise" in t.name}
        assert own == {
            f"{layer}.{kind}.noise@{who}"
            for layer in ("hidden", "last")
            for kind in ("weight", "bias")
        }


@pytest.mark.parametrize("clip_norm", [None, 1.0])
@pytest.mark.parametrize("suite", ["rep3", "additive"])
def test_noise_is_as_fine_as_what_it_is_added_to(suite: str, clip_norm: float | None) -> None:
    """Else the lowest bits of an update would be the rows' own."""
    plan, _ = noisy(suite, clip_norm=clip_norm, optimizer=veilgraph.SGD(momentum=0.5))
    text = plan.ir["secret.step"]
    given = re.findall(r'(%arg\d+): tensor<([^>]*)> \{secret.name = "[^"]*\.noise"', text)
    assert len(given) == 4
    for argument, kind in given:
        (line,) = (each for each in text.splitlines() if re.search(rf"{argument}[,)]", each))
        assert '"secret.add"' in line
        (bits,) = set(re.findall(r"frac_bits = (\d+)", line))
        assert f"frac_bits = {bits} " in kind


def test_it_trains_with_noise() -> None:
    """A little of it, and rows shared once; exact integers do too."""
    plan, weights = noisy("rep3", noise=0.02, share_once=True)
    found = veilgraph.simulate_training(plan, weights, DATA, rate=RATE, epochs=6)
    module = Perceptron()
    module.load_state_dict({name: torch.tensor(x) for name, x in found.parameters.items()})
    right = (module(torch.from_numpy(X)).argmax(1).numpy() == DATA["labels"]).mean()
    assert right > 0.7
    rehearsed = rehearse(plan, weights, Perceptron().train(), DATA, rate=RATE, epochs=2)
    assert rehearsed.status() is None


def test_the_variance_is_rounded_up() -> None:
    noise = Noise(0.3, 2)
    for rate in (0.1, 0.05, 1e-3):
        exact = (rate * 0.3 * 2**20) ** 2 / 2
        assert 0 <= noise.variance(rate, 20) - exact < 1 + 1e-6 * exact


def test_noise_is_by_the_rate_that_a_step_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not by the one asked for, of which one unit in some steps is up to sixteen times."""
    plan, weights = noisy("cleartext")
    unit = {t.name: 2.0**-t.frac_bits for t in inputs_of(plan, "step")}["step_size"]
    asked, rates = 0.3 * unit * BATCH, list[float]()

    def seen(recipe: Any, inputs: Any, party: str, rate: float, sampler: Sampler) -> Any:
        rates.append(rate)
        found = parts_of(recipe, inputs, party, rate, sampler)
        assert all(np.any(part.values) == (rate > 0) for part in found.values())
        return found

    monkeypatch.setattr(simulated, "parts_of", seen)
    veilgraph.simulate_training(plan, weights, DATA, rate=asked, steps=20)
    assert set(rates) == {0.0, unit * BATCH}
    assert rates.count(unit * BATCH) in (5, 6, 7)


def test_noise_that_is_too_fine_for_the_plan() -> None:
    plan, _ = noisy("rep3")
    recipe, inputs = Recipe.of(plan.manifest.options), inputs_of(plan, "step", "alice")
    with pytest.raises(UsageError, match="is too small for this plan's numbers"):
        parts_of(recipe, inputs, "alice", 1e-12, Sampler())


def test_integers_outside_of_their_range_are_refused() -> None:
    tensor = Tensor("w.noise@alice", (2,), 32, 20, "alice", 0, -1.0, 1.0)
    assert encode(Integers(np.array([-1, 5])), tensor).tolist() == [2**32 - 1, 5]
    with pytest.raises(AccuracyError, match="outside the range"):
        encode(Integers(np.array([0, 2**21])), tensor)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"noise": 0.0}, "Noise of 0.0 makes no sense"),
        ({"noise": float("nan")}, "makes no sense"),
        ({"optimizer": veilgraph.Adam()}, "this optimizer makes two numbers of a gradient"),
        ({"optimizer": veilgraph.SGD(0.9, nesterov=True)}, "Take SGD without nesterov|two numbers"),
    ],
)
def test_noise_that_makes_no_sense(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        noisy("rep3", **options)


@pytest.mark.parametrize("honest", [1_000_000, 2, None])
def test_a_plan_that_states_other_noise_is_refused(honest: int | None) -> None:
    """Of too many honest parties; of some, where steps add none; of none, where they do."""
    plan, weights = noisy("rep3", noise=None) if honest == 2 else noisy("rep3")
    stated = {**plan.manifest.options["training"]}
    stated["noise"] = honest and {"spread": SPREAD, "honest": honest}
    options = {**plan.manifest.options, "training": stated}
    changed = replace(plan, manifest=replace(plan.manifest, options=options))
    with pytest.raises(SecurityAbort, match="states other noise than its steps add"):
        veilgraph.simulate_training(changed, weights, DATA, rate=RATE, steps=1)


def test_statistics_that_would_tell_without_noise() -> None:
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 3)).train()
    rows = {"input": X[:ROWS], "labels": DATA["labels"]}
    with pytest.raises(UsageError, match="Running statistics would tell of rows without noise"):
        veilgraph.compile_training(
            model, rows, loss="cross_entropy", batch=BATCH, rate=RATE, steps=2, noise=0.1
        )

"""Updates of a step are right in the mean: their bias is within its standard error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from training_cases import BATCH, CLASSES, DATA, RATE, Perceptron, X, Y, trained

import veilgraph
from veilgraph.checks.plan_programs import PlanPrograms
from veilgraph.ir.meaning.secret import evaluate
from veilgraph.ir.training import STEP, STEP_SIZE, VELOCITY, schedule
from veilgraph.training.batches import RowOrder, orders
from veilgraph.training.plan_steps import Batches

TIMES = 200


def batches(rate: float) -> tuple[Batches, Any, Any]:
    plan, weights = trained("perceptron", "rep3")
    order = RowOrder.of_all(len(X), BATCH, 0)
    return Batches.of(plan, order, schedule(rate)), plan, weights


@pytest.mark.parametrize("rate", [RATE, 0.0837, 0.0412])
def test_the_mean_of_rates_is_the_rate(rate: float) -> None:
    """Whatever the encoding holds of each; and the first step has the nearest."""
    found = batches(rate)[0]
    whole = found.factors(0)
    for name, unit in found.units.items():
        told = np.array([found.told(number)[name] for number in range(TIMES)])
        assert np.all(np.abs(told - whole[name]) < unit)
        assert np.all(told / unit == np.rint(told / unit))
        for many in (5, 20, TIMES):
            means = np.convolve(told, np.full(many, 1 / many), "valid")
            assert np.abs(means - whole[name]).max() < 2 * unit / many + 1e-12
        assert abs(told[0] - whole[name]) <= unit / 2
    assert found.told(7) == found.told(7)


def test_what_the_encoding_holds_is_told_as_it_is() -> None:
    found = batches(0.125)[0]
    exact = found.factors(0)
    held = [name for name, unit in found.units.items() if (exact[name] / unit).is_integer()]
    assert "momentum" in held
    for name in held:
        assert {found.told(number)[name] for number in range(TIMES)} == {exact[name]}


def updates(
    start: dict[str, Any], order: Any, rate: float, decay: float
) -> dict[str, np.ndarray[Any, Any]]:
    """In float64, of velocities that begin at 0."""
    model = Perceptron().double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(start[name]))
    found = model(torch.from_numpy(X[order]).double())
    torch.nn.functional.cross_entropy(found, torch.from_numpy(Y[order])).backward()
    return {
        name: rate * (x.grad.numpy() + decay * start[name]) for name, x in model.named_parameters()
    }


def test_the_bias_of_updates_is_within_its_standard_error() -> None:
    """From one start, on other batches and with other roundings each time.

    The rate lies between what its encoding holds: the nearest would be 4% less, in each step.
    """
    unit = batches(RATE)[0].units[STEP_SIZE]
    rate = 10.45 * unit * BATCH
    steps, plan, weights = batches(rate)
    programs = PlanPrograms.of(plan, weights, plan.manifest.entries.index(STEP))
    bits = {a.name: a.tensor.encoding.frac_bits for a in programs.secret.arguments}
    start = {
        name: np.rint(x.detach().numpy().astype(np.float64) * 2.0 ** bits[name]) / 2.0 ** bits[name]
        for name, x in Perceptron().named_parameters()
    }
    still = {f"{name}{VELOCITY}": np.zeros_like(x) for name, x in start.items()}
    rng = np.random.default_rng(0)
    errors: dict[str, list[Any]] = {name: [] for name in start}
    sizes: dict[str, list[Any]] = {name: [] for name in start}
    for number in range(TIMES):
        order = rng.permutation(len(X))[:BATCH]
        rows = {"x": X[order], "labels": np.eye(CLASSES, dtype=np.float32)[Y[order]]}
        given = {**rows, **start, **still, **steps.told(number)}
        told = evaluate(programs.secret, given, rng).outputs
        real = updates(start, order, rate, 0.01)
        for name, after in plan.manifest.states.items():
            if name in start:
                errors[name].append(start[name] - told[after] - real[name])
                sizes[name].append(real[name])
    for name, each in errors.items():
        found = np.array(each)
        bias = np.mean(found.mean(0) ** 2)
        of_bias = np.mean(found.var(0, ddof=1)) / TIMES
        real = np.array(sizes[name])
        assert bias < 3 * of_bias + 0.015**2 * np.mean(real**2), name


def test_a_schedule_may_begin_and_end_with_nothing_and_fall_far() -> None:
    """What AdamW has by default, and rates of a five-hundredth, have factors below one unit."""
    for optimizer, highest in ((veilgraph.SGD(momentum=0.9), RATE), (veilgraph.AdamW(), RATE / 10)):
        rates = [0.0, *np.geomspace(highest, highest / 500, 18), 0.0]
        plan, weights = veilgraph.compile_training(
            Perceptron().train(),
            DATA,
            loss="cross_entropy",
            batch=BATCH,
            optimizer=optimizer,
            rate=lambda step, rates=rates: float(rates[step]),
            steps=len(rates),
            reveal={"parameters": "alice"},
            audit=False,
        )
        found = veilgraph.simulate_training(
            plan, weights, DATA, rate=lambda step, rates=rates: float(rates[step]), steps=len(rates)
        )
        wanted = by_torch(optimizer, rates)
        for name, parameter in found.parameters.items():
            np.testing.assert_allclose(parameter, wanted[name], atol=0.01)


def by_torch(how: Any, rates: list[float]) -> dict[str, Any]:
    """As many steps in float32; PyTorch's SGD keeps a velocity of the first step, which has no
    rate, so it is left out.
    """
    model = Perceptron().train()
    if isinstance(how, veilgraph.SGD):
        optimizer: Any = torch.optim.SGD(model.parameters(), 1.0, how.momentum)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), 1.0, how.betas, how.eps, how.weight_decay)
    for number, (rate, order) in enumerate(zip(rates, orders(len(X), BATCH, 0), strict=False)):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            model(torch.from_numpy(X[order])), torch.from_numpy(Y[order])
        )
        loss.backward()
        optimizer.param_groups[0]["lr"] = rate
        if number or isinstance(how, veilgraph.AdamW):
            optimizer.step()
    return {name: x.detach().numpy() for name, x in model.named_parameters()}

"""What a step changes of a PyTorch module: parameters that ask for a gradient, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from training_cases import SUITES

import veilgraph
from veilgraph.ir.errors import UsageError
from veilgraph.ir.training import Recipe
from veilgraph.training.batches import orders

BATCH, STEPS, RATE = 20, 20, 0.05
GENERATOR = np.random.default_rng(1)
X = GENERATOR.standard_normal((200, 4, 8)).astype(np.float32)
LABELS = (X.sum((1, 2)) > 0).astype(int) + (X[:, 0, 0] > 1)
DATA = {"x": X, "labels": LABELS}
NUMBERS = GENERATOR.integers(0, 5, (200, 4)).astype(np.float32)
COUNTED = {"numbers": NUMBERS, "labels": (NUMBERS == 0).sum(1).clip(0, 2)}
OPTIONS: dict[str, Any] = {"loss": "cross_entropy", "batch": BATCH, "rate": RATE, "steps": STEPS}
FAST = {**OPTIONS, "rate": 0.5}


class Attention(nn.Module):
    """Queries, keys with a bias, whose gradient is zero, and values; each row sees those before."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.last = nn.Linear(32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.query(x), self.key(x), self.value(x)
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.last(mixed.flatten(1))  # type: ignore[no-any-return]


class Fixed(nn.Module):
    """A buffer, a parameter without a gradient, and one that is used as what is computed of it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("scale", torch.tensor([1.0, 0.5, 2.0, 1.0, 1.0, 0.5, 1.0, 2.0]))
        self.backbone = nn.Linear(8, 8).requires_grad_(False)
        self.gain = nn.Parameter(torch.linspace(0.5, 1.5, 8))
        self.last = nn.Linear(32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.backbone(x * self.scale)) * (2 * self.gain)
        return self.last(hidden.flatten(1))  # type: ignore[no-any-return]


def trained_by_torch(
    module: nn.Module, data: dict[str, Any] = DATA, rate: float = RATE, momentum: float = 0.0
) -> dict[str, np.ndarray]:
    """The parameters after as many steps, on the same rows."""
    taken = [each for each in module.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(taken, rate, momentum=momentum)
    given, labels = map(torch.from_numpy, data.values())
    for order in islice(orders(len(given), BATCH, 0), STEPS):
        optimizer.zero_grad()
        functional.cross_entropy(module(given[order]), labels[order]).backward()
        optimizer.step()
    return {name: tensor.detach().numpy() for name, tensor in module.named_parameters()}


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize(
    ("module", "trained"),
    [
        (Attention, {n for n, _ in Attention().named_parameters()}),
        (Fixed, {"gain", "last.weight", "last.bias"}),
    ],
)
def test_parameters_alone_are_trained(
    module: type[nn.Module], trained: set[str], suite: str
) -> None:
    """Against torch, parameter by parameter. A causal mask is a constant, and a buffer stays."""
    plan, weights = veilgraph.compile_training(
        module().train(),
        DATA,
        optimizer=veilgraph.SGD(momentum=0.9),
        **OPTIONS,
        **SUITES[suite],
        owners={"labels": "bob"},
        reveal={"parameters": "alice"},
    )
    found = veilgraph.simulate_training(plan, weights, DATA, rate=RATE, steps=STEPS)
    wanted = trained_by_torch(module(), momentum=0.9)
    assert found.parameters.keys() == trained
    for name in trained:
        assert np.abs(found.parameters[name] - wanted[name]).max() < 0.02, name


class Tempered(nn.Module):
    """Scores times a learned temperature, which has no axes; as a rate has none."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.last = nn.Linear(32, 3)
        self.temperature = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(x.flatten(1)) * self.temperature
        return scores


def test_a_parameter_without_axes_has_the_bits_of_others() -> None:
    plan, weights = veilgraph.compile_training(
        Tempered().train(),
        DATA,
        **{**OPTIONS, "rate": 0.001},
        optimizer=veilgraph.SGD(momentum=0.9),
        reveal={"parameters": "alice"},
    )
    found = veilgraph.simulate_training(plan, weights, DATA, rate=0.001, steps=STEPS)
    wanted = trained_by_torch(Tempered(), rate=0.001, momentum=0.9)["temperature"] - 2.0
    assert np.abs(found.parameters["temperature"] - 2.0 - wanted) < 0.25 * np.abs(wanted)


def test_parameters_may_begin_next_to_zero() -> None:
    """As biases of layers that were trained for a short time do."""
    module = Fixed().train()
    torch.nn.init.uniform_(module.last.bias, -0.0002, 0.0002)
    begun = module.last.bias.detach().numpy().copy()
    plan, weights = veilgraph.compile_training(
        module,
        DATA,
        **OPTIONS,
        owners={"labels": "bob"},
        reveal={"parameters": "alice"},
    )
    found = veilgraph.simulate_training(plan, weights, DATA, rate=RATE, steps=STEPS)
    wanted = trained_by_torch(module)["last.bias"]
    moved = np.abs(wanted - begun).mean()
    assert np.abs(found.parameters["last.bias"] - wanted).mean() < 0.05 * moved


def without_gradients(backbone: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return backbone(x)  # type: ignore[no-any-return]


def in_a_region(backbone: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """torch.export keeps the region, and forgets that there are no gradients in it."""
    with torch.autocast("cpu", enabled=False):
        return without_gradients(backbone, x)


def cut_in_part(backbone: nn.Module, x: torch.Tensor) -> torch.Tensor:
    hidden = backbone(x)
    return hidden - hidden.detach().amax()  # type: ignore[no-any-return]


Look = Callable[[nn.Module, torch.Tensor], torch.Tensor]
CUTS: dict[str, Look] = {
    "detach": lambda backbone, x: backbone(x).detach(),
    "detach_": lambda backbone, x: (backbone(x) * 2).detach_(),
    "no_grad": without_gradients,
    "one path": cut_in_part,
    "autocast": in_a_region,
}


class Cut(nn.Module):
    """A backbone from which a gradient is cut off, one way or the other."""

    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.way = way
        self.backbone, self.last = nn.Linear(8, 8), nn.Linear(32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = CUTS[self.way](self.backbone, x)
        return self.last(torch.relu(hidden).flatten(1))  # type: ignore[no-any-return]


class Padded(nn.Module):
    """Rows of a table, whose first pads."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.last = nn.Embedding(5, 8, padding_idx=0), nn.Linear(8, 3)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.last(self.table(numbers.long()).sum(1))  # type: ignore[no-any-return]


class Tied(Padded):
    """The same table under the scores, which move its first row."""

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.table(numbers.long()).sum(1) @ self.table.weight.t()


@pytest.mark.parametrize("way", CUTS)
def test_a_gradient_that_is_cut_off_is_refused(way: str) -> None:
    told = r"`.*(cuts off a gradient|computes) of backbone\.weight, backbone\.bias"
    with pytest.raises(UsageError, match=told):
        veilgraph.compile_training(Cut(way).train(), DATA, **FAST)


@pytest.mark.parametrize("way", ["detach", "no_grad", "autocast"])
def test_what_asks_for_no_gradient_may_be_cut_off(way: str) -> None:
    module = Cut(way).train()
    module.backbone.requires_grad_(False)
    plan, _ = veilgraph.compile_training(module, DATA, **FAST)
    assert Recipe.of(plan.manifest.options).parameters == ("last.weight", "last.bias")


class FrozenTable(Padded):
    """A table that was there before, whose padding is a row like any other."""

    def __init__(self, look_up: Look) -> None:
        super().__init__()
        self.look_up = look_up
        self.table.weight.data[0] = 1.0
        self.table.requires_grad_(False)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        found = self.look_up(self.table, numbers.long())
        return self.last(found.sum(1))  # type: ignore[no-any-return]


@pytest.mark.parametrize("look_up", [nn.Module.__call__, without_gradients, in_a_region])
def test_a_frozen_row_that_pads_is_looked_up(look_up: Look) -> None:
    plan, weights = veilgraph.compile_training(
        FrozenTable(look_up).train(), COUNTED, reveal={"parameters": "alice"}, **FAST
    )
    found = veilgraph.simulate_training(plan, weights, COUNTED, rate=FAST["rate"], steps=STEPS)
    wanted = trained_by_torch(FrozenTable(look_up).train(), COUNTED, FAST["rate"])
    last = found.parameters["last.weight"]
    np.testing.assert_allclose(last, wanted["last.weight"], atol=0.05)


def test_a_row_that_pads_stays_zero() -> None:
    plan, weights = veilgraph.compile_training(
        Padded().train(), COUNTED, reveal={"parameters": "alice"}, **FAST
    )
    found = veilgraph.simulate_training(plan, weights, COUNTED, rate=FAST["rate"], steps=STEPS)
    wanted = trained_by_torch(Padded().train(), COUNTED, FAST["rate"])
    table = found.parameters["table.weight"]
    assert not table[0].any()
    np.testing.assert_allclose(table, wanted["table.weight"], atol=0.05)


def test_a_row_that_pads_and_is_not_zero_is_refused() -> None:
    module = Padded().train()
    module.table.weight.data[0] = 1.0
    with pytest.raises(UsageError, match=r"Row 0 of `table\.weight` is a padding"):
        veilgraph.compile_training(module, COUNTED, **FAST)


def test_a_row_that_pads_and_is_read_otherwise_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Row 0 of `table\.weight` is a padding"):
        veilgraph.compile_training(Tied().train(), COUNTED, **FAST)


class Bag(Padded):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(5, 8, mode="sum", scale_grad_by_freq=True)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.last(self.bag(numbers.long()))  # type: ignore[no-any-return]


def test_gradients_by_count_are_refused() -> None:
    with pytest.raises(UsageError, match="how often a row is looked up"):
        veilgraph.compile_training(Bag().train(), COUNTED, **FAST)
    module = Padded().train()
    module.table = nn.Embedding(5, 8, scale_grad_by_freq=True)
    with pytest.raises(UsageError, match="how often a row is looked up"):
        veilgraph.compile_training(module, COUNTED, **FAST)

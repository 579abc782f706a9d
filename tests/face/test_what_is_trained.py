"""What a step changes of a PyTorch module: parameters that ask for a gradient, and nothing else."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from training_cases import SUITES

import veilgraph
from veilgraph.training.batches import orders

BATCH, STEPS, RATE = 20, 20, 0.05
GENERATOR = np.random.default_rng(1)
X = GENERATOR.standard_normal((200, 4, 8)).astype(np.float32)
LABELS = (X.sum((1, 2)) > 0).astype(int) + (X[:, 0, 0] > 1)
DATA = {"x": X, "labels": LABELS}


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


def trained_by_torch(module: nn.Module, momentum: float = 0.9) -> dict[str, np.ndarray]:
    taken = [each for each in module.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(taken, RATE, momentum=momentum)
    for order in islice(orders(len(X), BATCH, 0), STEPS):
        optimizer.zero_grad()
        found = module(torch.from_numpy(X[order]))
        functional.cross_entropy(found, torch.from_numpy(LABELS[order])).backward()
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
        loss="cross_entropy",
        batch=BATCH,
        optimizer=veilgraph.SGD(momentum=0.9),
        rate=RATE,
        steps=STEPS,
        **SUITES[suite],
        owners={"labels": "bob"},
        reveal={"parameters": "alice"},
    )
    found = veilgraph.simulate_training(plan, weights, DATA, rate=RATE, steps=STEPS)
    wanted = trained_by_torch(module())
    assert found.parameters.keys() == trained
    for name in trained:
        assert np.abs(found.parameters[name] - wanted[name]).max() < 0.02, name


def test_parameters_may_begin_next_to_zero() -> None:
    """As biases of layers that were trained for a short time do."""
    module = Fixed().train()
    torch.nn.init.uniform_(module.last.bias, -0.0002, 0.0002)
    begun = module.last.bias.detach().numpy().copy()
    plan, weights = veilgraph.compile_training(
        module,
        DATA,
        loss="cross_entropy",
        batch=BATCH,
        rate=RATE,
        steps=STEPS,
        owners={"labels": "bob"},
        reveal={"parameters": "alice"},
    )
    found = veilgraph.simulate_training(plan, weights, DATA, rate=RATE, steps=STEPS)
    wanted = trained_by_torch(module, momentum=0.0)["last.bias"]
    moved = np.abs(wanted - begun).mean()
    assert np.abs(found.parameters["last.bias"] - wanted).mean() < 0.05 * moved

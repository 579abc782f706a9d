"""A small model that is trained, its rows, and plans of it: made once for all tests."""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, parser
from torch import nn
from torch.nn import functional

import veilgraph
from veilgraph.training.batches import orders

ROWS, BATCH, INPUTS, CLASSES = 160, 16, 6, 3
RATE, STEPS = 0.1, 20
GENERATOR = np.random.default_rng(8)
X = GENERATOR.standard_normal((ROWS, INPUTS)).astype(np.float32)
Y = (X @ GENERATOR.standard_normal((INPUTS, CLASSES))).argmax(axis=1)
DATA = {"x": X, "labels": Y}
SUITES: dict[str, dict[str, Any]] = {
    "rep3": {"suite": "rep3"},
    "additive": {"suite": "additive", "parties": ["alice", "bob"], "dealer": "carol"},
}
WITH_CLEARTEXT: dict[str, dict[str, Any]] = {**SUITES, "cleartext": {"suite": "cleartext"}}
TOLD = {"parameters": "alice", "loss": ["alice", "bob"], "output": "bob"}
TOLD_ALONE = dict.fromkeys(TOLD, "alice")


def logistic() -> ModelProto:
    """x w + b, zero at first."""
    zeros = ", ".join(["0.0"] * INPUTS * CLASSES)
    return parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        logistic (float[N, {INPUTS}] x) => (float[N, {CLASSES}] output)
        <float[{INPUTS}, {CLASSES}] w = {{{zeros}}}, float[{CLASSES}] b = {{0.0, 0.0, 0.0}}>
        {{ output = Gemm(x, w, b) }}"""
    )


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.hidden, self.last = nn.Linear(INPUTS, 8), nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(functional.relu(self.hidden(x)))


class Normed(nn.Module):
    """A batch norm between two layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.hidden, self.norm = nn.Linear(INPUTS, 8, bias=False), nn.BatchNorm1d(8)
        self.last = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(functional.relu(self.norm(self.hidden(x))))


class Dropped(nn.Module):
    """Numbers that are dropped between two layers; by a mask that is given, or torch's."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.hidden, self.drop = nn.Linear(INPUTS, 8), nn.Dropout(0.3)
        self.last = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        y = functional.relu(self.hidden(x))
        return self.last(self.drop(y) if mask is None else y * mask)


MODULES = {"perceptron": Perceptron, "normed": Normed, "dropped": Dropped}


@cache
def trained(
    kind: str, suite: str, *, told: bool = True, audit: bool = True, share_once: bool = False
) -> tuple[veilgraph.Plan, Any]:
    """A plan with momentum and weight decay, and the parameters as they begin."""
    return veilgraph.compile_training(
        logistic() if kind == "logistic" else MODULES[kind]().train(),
        DATA,
        loss="cross_entropy",
        batch=BATCH,
        optimizer=veilgraph.SGD(momentum=0.5, weight_decay=0.01),
        rate=RATE,
        steps=STEPS,
        reveal=(TOLD_ALONE if suite == "cleartext" else TOLD) if told else None,
        audit=audit,
        share_once=share_once,
        owners=None if suite == "cleartext" else {"labels": "bob"},
        **WITH_CLEARTEXT[suite],
    )


def dropped_by_torch(masks: list[Any]) -> tuple[list[float], dict[str, Any]]:
    """Losses and parameters of as many steps in float32 with these masks."""
    model, losses = Dropped().train(), []
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.5, weight_decay=0.01)
    for mask, order in zip(masks, orders(ROWS, BATCH, 0), strict=False):
        optimizer.zero_grad()
        z = model(torch.from_numpy(X[order]), torch.from_numpy(mask))
        loss = functional.cross_entropy(z, torch.tensor(Y[order]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.numpy() for name, value in model.state_dict().items()}


def by_torch(kind: str, rates: list[float]) -> tuple[list[float], dict[str, Any]]:
    """Losses of as many steps in float32, on the same rows; and what a module's state_dict has."""
    if kind == "logistic":
        w, b = torch.zeros(INPUTS, CLASSES), torch.zeros(CLASSES)
        parameters = {"w": w.requires_grad_(), "b": b.requires_grad_()}

        def model(x: torch.Tensor) -> torch.Tensor:
            return x @ parameters["w"] + parameters["b"]
    else:
        model = MODULES[kind]().train()
        parameters = dict(model.named_parameters())
    optimizer = torch.optim.SGD(parameters.values(), 1.0, momentum=0.5, weight_decay=0.01)
    losses = []
    for rate, order in zip(rates, orders(ROWS, BATCH, 0), strict=False):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(torch.from_numpy(X[order])), torch.tensor(Y[order]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    kept = parameters if isinstance(model, FunctionType) else model.state_dict()
    return losses, {name: value.detach().numpy() for name, value in kept.items()}

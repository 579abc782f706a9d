"""Gradients of whole networks against autograd, from loss to parameters, as PyTorch traces them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from veilgraph.frontend.torch.importer import import_torch
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.passes.graph.differentiate import differentiate


class Losing(nn.Module):
    """A network and its loss."""

    def __init__(self, network: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.network = network
        self.loss = loss

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return self.loss(self.network(x), target)


def cross_entropy(z: Tensor, target: Tensor) -> Tensor:
    return -(target * functional.log_softmax(z, -1)).sum(-1).mean()


def one_hot(count: int, classes: int) -> Tensor:
    return functional.one_hot(torch.arange(count) % classes, classes).float()


class Block(nn.Module):
    """A transformer's block: attention and two dense layers, layer norms in front."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.dense = nn.Sequential(nn.Linear(width, 24), nn.GELU(), nn.Linear(24, width))
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        images, length, width = x.shape
        shape = (images, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(self.norms[0](x)).view(shape).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.joined(mixed.transpose(1, 2).reshape(images, length, width))
        return self.head((x + self.dense(self.norms[1](x))).mean(1))


class Tied(nn.Module):
    """One matrix that encodes and, turned, decodes; rows of a table that are taken twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(6, 4))
        self.matrix = nn.Parameter(torch.randn(4, 3))
        self.scale = nn.Parameter(torch.randn(1))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.table[torch.tensor([5, 0, 5])].flip(0)
        return torch.tanh((x + rows) @ self.matrix) @ self.matrix.T * self.scale


def lenet(pool: type[nn.MaxPool2d | nn.AvgPool2d]) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 5), nn.ReLU(), pool(2), nn.Conv2d(4, 6, 5), nn.ReLU(), pool(2)),
        *(nn.Flatten(), nn.Linear(96, 20), nn.ReLU(), nn.Linear(20, 10)),
    )


def mobile() -> nn.Module:
    """Strides, groups, dilations, overlapping pools, hard functions, in eval mode batch norm."""
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish()),
        *(nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1, groups=8), nn.ReLU6()),
        *(nn.Conv2d(8, 12, 3, 1, 2, dilation=2, groups=4), nn.LeakyReLU(0.1)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 4), nn.Sigmoid()),
    )


Shape = tuple[int, ...]
Network = tuple[
    str, Callable[[], nn.Module], Callable[[Tensor, Tensor], Tensor], Shape, Callable[[], Tensor]
]
NETWORKS: list[Network] = [
    ("lenet, max pools", lambda: lenet(nn.MaxPool2d), cross_entropy, (2, 1, 28, 28),
     lambda: one_hot(2, 10)),
    ("lenet, average pools", lambda: lenet(nn.AvgPool2d), cross_entropy, (3, 1, 28, 28),
     lambda: one_hot(3, 10)),
    ("mobile", mobile, functional.mse_loss, (2, 3, 24, 20), lambda: torch.rand(2, 4)),
    ("transformer", Block, cross_entropy, (2, 6, 16), lambda: one_hot(2, 5)),
    ("tied", Tied, functional.mse_loss, (3, 4), lambda: torch.rand(3, 4)),
    ("logistic", lambda: nn.Linear(7, 1), functional.binary_cross_entropy_with_logits, (5, 7),
     lambda: torch.rand(5, 1)),
    ("linear", lambda: nn.Linear(3, 1), lambda z, y: functional.smooth_l1_loss(z, y), (5, 3),
     lambda: torch.rand(5, 1)),
]  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network[0])
def test_gradients_are_those_of_autograd(network: Network) -> None:
    _, build, loss, shape, draw = network
    torch.manual_seed(3)
    module = Losing(build(), loss).eval()
    x, target = torch.randn(shape), draw()
    value = module(x, target)
    value.backward()
    graph = import_torch(module, (x, target))
    wanted = {n: p.grad.numpy() for n, p in module.named_parameters() if p.grad is not None}
    assert wanted.keys() <= graph.parameters.keys()
    found = differentiate(graph, list(graph.outputs), list(wanted))
    graph.verify()
    values = computed(graph, x, target)
    assert float(next(iter(values.values())).item()) == pytest.approx(value.item(), rel=1e-5)
    for name, gradient in wanted.items():
        assert values[found[name]].shape == gradient.shape
        size = max(float(np.abs(gradient).max()), 1e-6)
        np.testing.assert_allclose(values[found[name]], gradient, rtol=0, atol=2e-5 * size)


def computed(graph: Graph, x: Tensor, target: Tensor) -> dict[str, np.ndarray]:
    feeds = dict(zip(graph.inputs, (x.numpy(), target.numpy()), strict=True))
    return evaluate(graph, feeds, dtype=np.float64)

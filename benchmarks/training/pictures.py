"""Made pictures of CIFAR's size, and AlexNet and VGG-16 as PyTorch modules that learn them.

A picture is a wave across 32 x 32 pixels: its class says how fast and which way it runs, and how
far apart red, green and blue are in it. Where it begins, how strong it is, and the noise on it are
random. A fifth of the labels is drawn anew: no network's loss gets to zero.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.harness.workloads import Network, Node, alexnet_cifar, vgg16_cifar
from benchmarks.training.digits import Digits

SIZE, CLASSES = 32, 10
LEAST_TURNS, MOST_TURNS = 2.0, 5.0  # of a wave from side to side
NOISE = 0.5  # standard deviation, beside waves of 0.5 to 1
MISLABELLED = 0.2
TESTED = 500

NETWORKS: dict[str, Callable[[int], Network]] = {"alexnet": alexnet_cifar, "vgg16": vgg16_cifar}


def pictures(count: int, seed: int = 0) -> Digits:
    """So many to train on, [N, 3, 32, 32], and others to test on."""
    rng, total = np.random.default_rng(seed), count + TESTED
    labels = rng.integers(CLASSES, size=total)
    angles = np.pi * labels / CLASSES
    turns = np.where(labels % 2, LEAST_TURNS, MOST_TURNS) + 0.2 * rng.standard_normal(total)
    y, x = np.meshgrid(*[np.linspace(0, 1, SIZE)] * 2, indexing="ij")
    along = np.cos(angles)[:, None, None] * x + np.sin(angles)[:, None, None] * y
    begun = rng.uniform(0, 2 * np.pi, total)[:, None] + np.outer(labels, np.arange(3)) * 2 / 3
    phase = 2 * np.pi * (turns[:, None, None] * along)[:, None] + begun[:, :, None, None]
    strength = rng.uniform(0.5, 1.0, total)[:, None, None, None]
    found = strength * np.sin(phase) + NOISE * rng.standard_normal(phase.shape)
    images, is_wrong = found.astype(np.float32), rng.random(count) < MISLABELLED
    told = np.where(is_wrong, rng.integers(CLASSES, size=count), labels[:count])
    return Digits(images[:count], told, images[count:], labels[count:])


class Chain(nn.Module):
    """The layers of a network one after another, its weights as parameters."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.nodes = network.nodes
        weights = {name: nn.Parameter(torch.tensor(x)) for name, x in network.weights.items()}
        self.weights = nn.ParameterDict(weights)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        x = input
        for node in self.nodes:
            x = self._applied(node, x)
        return x

    def _applied(self, node: Node, x: torch.Tensor) -> torch.Tensor:
        weights, size = [self.weights[name] for name in node.inputs[1:]], node.size
        match node.op:
            case "conv":
                return functional.conv2d(x, *weights, stride=size["stride"], padding=size["pad"])
            case "average_pool":
                return functional.avg_pool2d(x, size["kernel"], size["stride"], size["pad"])
            case "dense":
                return functional.linear(x, *weights)
            case "relu":
                return torch.relu(x)
        assert node.op == "flatten", f"no layer {node.op}"
        return x.flatten(1)


def begun(network: str, batch: int) -> nn.Module:
    """As it begins: He's weights, biases of 0.1."""
    return Chain(NETWORKS[network](batch)).train()

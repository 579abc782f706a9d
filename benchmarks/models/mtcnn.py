"""The three networks of MTCNN with the weights that the package facenet-pytorch carries.

Zhang et al., Joint Face Detection and Alignment using Multitask Cascaded Convolutional Networks,
2016. Rebuilt here from the shapes of their weights: the package itself pins old versions of others.
The first looks for faces everywhere in a picture, the others look at squares.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from benchmarks.models.pictures import Array, photographs, random_square, resized
from benchmarks.models.recipe import CNN_ERROR, Case, Recipe, Sources, exported, largest

FACE = (175, 65, 270, 190)  # of the astronaut: left, top, right, bottom
SHIFT = 0.25  # of a square beside the face, as a part of its side
CALIBRATIONS, TESTS = 24, 24


def _stage(inputs: int, outputs: int, kernel: int, pool: int) -> list[nn.Module]:
    """A convolution with its rectifier, and a pool of stride two where `pool` is not 0."""
    made: list[nn.Module] = [nn.Conv2d(inputs, outputs, kernel), nn.PReLU(outputs)]
    return [*made, nn.MaxPool2d(pool, 2, ceil_mode=True)] if pool else made


class _Dense(nn.Module):
    """Columns, then rows, then channels, as the networks were trained."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear, self.rectifier = nn.Linear(inputs, outputs), nn.PReLU(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rectified: torch.Tensor = self.rectifier(self.linear(x.permute(0, 3, 2, 1).flatten(1)))
        return rectified


class _Network(nn.Module):
    """A trunk, and heads beside each other: face or none, then boxes and landmarks."""

    def __init__(self, trunk: list[nn.Module], heads: list[nn.Module]) -> None:
        super().__init__()
        self.trunk, self.heads = nn.Sequential(*trunk), nn.ModuleList(heads)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        seen = self.trunk(x)
        first, *others = (head(seen) for head in self.heads)
        return torch.softmax(first, 1), *others


def pnet() -> nn.Module:
    trunk = [*_stage(3, 10, 3, 2), *_stage(10, 16, 3, 0), *_stage(16, 32, 3, 0)]
    return _Network(trunk, [nn.Conv2d(32, 2, 1), nn.Conv2d(32, 4, 1)])


def rnet() -> nn.Module:
    trunk = [*_stage(3, 28, 3, 3), *_stage(28, 48, 3, 3), *_stage(48, 64, 2, 0)]
    return _Network([*trunk, _Dense(576, 128)], [nn.Linear(128, 2), nn.Linear(128, 4)])


def onet() -> nn.Module:
    trunk = [*_stage(3, 32, 3, 3), *_stage(32, 64, 3, 3), *_stage(64, 64, 3, 2)]
    trunk += [*_stage(64, 128, 2, 0), _Dense(1152, 256)]
    return _Network(trunk, [nn.Linear(256, 2), nn.Linear(256, 4), nn.Linear(256, 10)])


NETWORKS = {"pnet": (pnet, 96), "rnet": (rnet, 24), "onet": (onet, 48)}
OUTPUTS = ["face", "box", "landmarks"]


def _weighted(name: str, sources: Sources) -> nn.Module:
    """A network with its weights, which the file has in the order of its layers."""
    content = sources.wheels.read("facenet-pytorch", f"facenet_pytorch/data/{name}.pt")
    stored = torch.load(io.BytesIO(content), weights_only=True)
    network = NETWORKS[name][0]()
    own = network.state_dict()
    network.load_state_dict(dict(zip(own, stored.values(), strict=True)))
    return network


def _squares(sources: Sources, size: int, count: int) -> Array:
    """Squares [count, 1, 3, size, size]: every other one on or beside the face."""
    images = photographs(sources.wheels)
    rng = np.random.default_rng(0)
    others = [name for name in images if name != "astronaut"]
    made = []
    for i in range(count):
        name = others[i // 2 % len(others)] if i % 2 else "astronaut"
        box = random_square(images[name], rng, 0.1, 0.6) if i % 2 else _beside_the_face(rng)
        made.append((resized(images[name], box, size, size) - 127.5) / 128)
    return np.stack(made)[:, None].astype(np.float32)


def _beside_the_face(rng: np.random.Generator) -> tuple[int, int, int, int]:
    left, top, right, bottom = FACE
    side = max(right - left, bottom - top) * rng.uniform(0.8, 1.4)
    x = (left + right) / 2 + rng.uniform(-SHIFT, SHIFT) * side
    y = (top + bottom) / 2 + rng.uniform(-SHIFT, SHIFT) * side
    return int(x - side / 2), int(y - side / 2), int(x + side / 2), int(y + side / 2)


def _case(name: str) -> Callable[[Sources], Case]:
    def make(sources: Sources) -> Case:
        network, size = _weighted(name, sources), NETWORKS[name][1]
        outputs = OUTPUTS[: 3 if name == "onet" else 2]
        model = exported(network, torch.zeros(1, 3, size, size), outputs)
        squares = _squares(sources, size, CALIBRATIONS + TESTS)
        return Case(model, {"input": squares[:CALIBRATIONS]}, {"input": squares[CALIBRATIONS:]})

    return make


RECIPES = tuple(
    Recipe(
        name=name,
        title=f"MTCNN {name[0].upper()}-Net",
        weights="pretrained",
        inputs=f"squares of photographs, 3x{size}x{size}",
        most_error=CNN_ERROR,
        make=_case(name),
        agree=largest(1, "face"),
        decisions="faces or none",
        checked=TESTS,
    )
    for name, (_, size) in NETWORKS.items()
)

"""A BERT-like encoder and a ViT: small and trained here, and of their usual size for cost.

The encoder (Devlin et al., 2019: norms after each block, a pooler) reads secret tokens and says
which one comes most often. The ViT (Dosovitskiy et al., 2021: norms before) reads the
digits of scikit-learn. The large ones have random weights; BERT-base takes embedded tokens, as it
does where others measure it: looking up 30,522 words in secret is another matter.
"""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from benchmarks.models.recipe import TRANSFORMER_ERROR, Case, Recipe, Sources, exported, largest
from benchmarks.models.wheels import Wheels

SEED = 0
CALIBRATIONS, TESTS = 32, 32
LETTERS, LENGTH = 8, 24  # tokens, and one more that stands first
DIGITS = "sklearn/datasets/data/digits.csv.gz"
LARGE_DEPTH, LARGE_WIDTH, LARGE_HEADS = 12, 768, 12
LARGE_CALIBRATIONS, LARGE_TESTS = 8, 2


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        parts = [f(x).reshape(split).transpose(1, 2) for f in (self.query, self.key, self.value)]
        mixed = functional.scaled_dot_product_attention(*parts)
        made: torch.Tensor = self.output(mixed.transpose(1, 2).reshape(batch, length, width))
        return made


class _Block(nn.Module):
    """Attention and a perceptron, each with a norm: before it, or after its sum."""

    def __init__(self, width: int, heads: int, norm_first: bool, epsilon: float) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention = _Attention(width, heads)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width, epsilon) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, part in zip(self.norms, (self.attention, self.perceptron), strict=True):
            x = x + part(norm(x)) if self.norm_first else norm(x + part(x))
        return x


class Bert(nn.Module):
    """Embedded tokens [batch, length, width] to class scores, by way of the first one's pooler."""

    def __init__(self, length: int, width: int, heads: int, depth: int, classes: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))
        self.norm = nn.LayerNorm(width, 1e-12)
        self.blocks = nn.Sequential(*(_Block(width, heads, False, 1e-12) for _ in range(depth)))
        self.pooler = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(
            self.pooler(self.blocks(self.norm(x + self.positions))[:, 0])
        )
        return scores


class Vit(nn.Module):
    """Images [batch, channels, size, size] to class scores, by way of a class token."""

    def __init__(
        self, channels: int, size: int, patch: int, width: int, heads: int, depth: int, classes: int
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn((size // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(_Block(width, heads, True, 1e-6) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        seen = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(seen.shape[0], -1, -1), seen], 1) + self.positions
        scores: torch.Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return scores


@dataclass(frozen=True)
class _Examples:
    inputs: torch.Tensor
    labels: torch.Tensor


def _train(network: nn.Module, examples: _Examples, steps: int) -> None:
    """Adam on batches of 64, warmed up over a tenth of the steps and then let down to nothing.

    On one thread: on a machine that others use, threads of so small products wait for each other.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    optimiser = torch.optim.Adam(network.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-3, steps, pct_start=0.1)
    for _ in range(steps):
        batch = torch.randint(len(examples.labels), (64,))
        found = network(examples.inputs[batch])
        optimiser.zero_grad()
        functional.cross_entropy(found, examples.labels[batch]).backward()
        optimiser.step()
        schedule.step()
    torch.set_num_threads(threads)


def _case(network: nn.Module, inputs: torch.Tensor) -> Case:
    """Calibrated on the first inputs, tested on the next, one a sample."""
    samples = inputs[: CALIBRATIONS + TESTS].numpy()[:, None]
    model = exported(network, inputs[:1], ["scores"])
    return Case(model, {"input": samples[:CALIBRATIONS]}, {"input": samples[CALIBRATIONS:]})


def _counted(count: int) -> _Examples:
    """Letters behind a first token that the pooler reads, as rows with one 1; the most frequent."""
    letters = torch.randint(LETTERS, (2 * count, LENGTH - 1))
    counts = functional.one_hot(letters, LETTERS).sum(1)
    first, second = counts.topk(2).values.T
    alone = (first > second).nonzero().ravel()[:count]
    tokens = functional.pad(letters[alone], (1, 0), value=LETTERS)
    return _Examples(functional.one_hot(tokens, LETTERS + 1).float(), counts[alone].argmax(1))


def _small_bert(sources: Sources) -> Case:
    torch.manual_seed(SEED)
    width = 64
    embedding = nn.Linear(LETTERS + 1, width, bias=False)  # of rows with one 1: a table's rows
    nn.init.normal_(embedding.weight)
    network = nn.Sequential(embedding, Bert(LENGTH, width, 4, 3, LETTERS))
    _train(network, _counted(10_000), 500)
    return _case(network, _counted(CALIBRATIONS + TESTS).inputs)


def _digits(wheels: Wheels) -> _Examples:
    """All 1,797, in random order: pixels of 0 to 1."""
    text = gzip.decompress(wheels.read("scikit-learn", DIGITS)).decode()
    rows = np.array(list(csv.reader(io.StringIO(text))), np.float32)
    rows = rows[np.random.default_rng(SEED).permutation(len(rows))]
    images = torch.from_numpy(rows[:, :64].reshape(-1, 1, 8, 8) / 16)
    return _Examples(images, torch.from_numpy(rows[:, 64].astype(np.int64)))


def _small_vit(sources: Sources) -> Case:
    digits = _digits(sources.wheels)
    torch.manual_seed(SEED)
    network, held_out = Vit(1, 8, 2, 64, 4, 4, 10), CALIBRATIONS + TESTS
    _train(network, _Examples(digits.inputs[held_out:], digits.labels[held_out:]), 800)
    return _case(network, digits.inputs)


def _large_case(network: nn.Module, shape: tuple[int, ...]) -> Case:
    count = LARGE_CALIBRATIONS + LARGE_TESTS
    samples: npt.NDArray[np.float32] = torch.randn(count, 1, *shape).numpy()
    model = exported(network, torch.zeros(1, *shape), ["scores"])
    calibrate, test = samples[:LARGE_CALIBRATIONS], samples[LARGE_CALIBRATIONS:]
    return Case(model, {"input": calibrate}, {"input": test})


def _bert_base(sources: Sources) -> Case:
    torch.manual_seed(SEED)
    network = Bert(128, LARGE_WIDTH, LARGE_HEADS, LARGE_DEPTH, 2)
    return _large_case(network, (128, LARGE_WIDTH))


def _vit_b16(sources: Sources) -> Case:
    torch.manual_seed(SEED)
    network = Vit(3, 224, 16, LARGE_WIDTH, LARGE_HEADS, LARGE_DEPTH, 1000)
    return _large_case(network, (3, 224, 224))


RECIPES = (
    Recipe(
        name="bert_small",
        title="BERT-like encoder, 3 layers of 64",
        weights="trained here",
        inputs=f"{LENGTH} tokens, each as a row with one 1 of {LETTERS + 1}",
        most_error=TRANSFORMER_ERROR,
        make=_small_bert,
        agree=largest(1),
        decisions="most frequent tokens",
        checked=TESTS,
    ),
    Recipe(
        name="vit_small",
        title="ViT, 4 layers of 64, 2x2 patches",
        weights="trained here",
        inputs="digits of scikit-learn, 1x8x8",
        most_error=TRANSFORMER_ERROR,
        make=_small_vit,
        agree=largest(1),
        decisions="digits",
        checked=TESTS,
    ),
    Recipe(
        name="bert_base",
        title="BERT-base, sequence 128",
        weights="random",
        inputs="noise as embedded tokens, 128x768",
        most_error=TRANSFORMER_ERROR,
        make=_bert_base,
        agree=largest(1),
        decisions="classes",
        checked=1,
    ),
    Recipe(
        name="vit_b16",
        title="ViT-B/16",
        weights="random",
        inputs="noise, 3x224x224",
        most_error=TRANSFORMER_ERROR,
        make=_vit_b16,
        agree=largest(1),
        decisions="classes",
        checked=1,
    ),
)

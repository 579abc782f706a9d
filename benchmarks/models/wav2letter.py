"""Wav2Letter (Collobert et al., 2016) at the shape that CrypTen's paper measured, for its cost.

torchaudio's twelve convolutions over one second of sound at 16 kHz. Random weights (He et al.,
2015): what is trained is not to be had in a package.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from benchmarks.models.recipe import CNN_ERROR, Array, Case, Recipe, Sources, exported, largest

RATE = 16_000
SOUNDS = (3, 3)  # to calibrate on, and to test


def wav2letter() -> nn.Module:
    """Sound [batch, 1, samples] to scores of 29 letters [batch, 29, time]."""
    widths = [(1, 250, 250, 160, 45), (250, 250, 48, 2, 23), *[(250, 250, 7, 1, 3)] * 7]
    widths += [(250, 2000, 32, 1, 16), (2000, 2000, 1, 1, 0), (2000, 29, 1, 1, 0)]
    layers: list[nn.Module] = []
    for inputs, outputs, kernel, stride, padding in widths:
        convolution = nn.Conv1d(inputs, outputs, kernel, stride, padding)
        nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        layers += [convolution, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _sounds(count: int) -> Array:
    """[count, 1, 1, RATE]: tones that glide, a few at a time, and some noise."""
    rng = np.random.default_rng(0)
    seconds = np.arange(RATE) / RATE
    made = []
    for _ in range(count):
        starts, glides = rng.uniform(80, 2000, 5), rng.uniform(-500, 500, 5)
        turns = np.outer(starts, seconds) + np.outer(glides, seconds**2) / 2
        sound = np.sin(2 * np.pi * turns).mean(0) + 0.05 * rng.standard_normal(RATE)
        made.append(sound / sound.std())
    return np.array(made, np.float32)[:, None, None]


def _case(sources: Sources) -> Case:
    torch.manual_seed(0)
    model = exported(wav2letter(), torch.zeros(1, 1, RATE), ["letters"])
    sounds = _sounds(sum(SOUNDS))
    return Case(model, {"input": sounds[: SOUNDS[0]]}, {"input": sounds[SOUNDS[0] :]})


RECIPES = (
    Recipe(
        name="wav2letter",
        title="Wav2Letter",
        weights="random",
        inputs="a second of gliding tones, 1x16000",
        most_error=CNN_ERROR,
        make=_case,
        agree=largest(1),
        decisions="columns' letters",
        checked=1,
    ),
)

"""Float32 against itself: how far a loss curve strays that is off by next to nothing.

A curve in secret can be held to float32's as far as float32 holds it: the same rows, the same start
but for a part in a million, and gradients with the noise that a plan allows its rounding.
"""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.training.digits import Digits, in_float
from benchmarks.training.pictures import begun

OFF = 1e-6  # of each parameter at the start
KEPT = 0.9  # of what is known of a variance, at each step


class GradientNoise:
    """Gives each gradient normal noise of a share of its variance between batches.

    Half of what two batches in turn differ by, squared, is that variance; it is averaged over
    steps and over the parameter's elements.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._last: dict[str, torch.Tensor] = {}
        self._variance: dict[str, float] = {}

    def __call__(self, module: nn.Module) -> None:
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None
            gradient = parameter.grad.clone()
            if name in self._last:
                now = float(((gradient - self._last[name]) ** 2).mean()) / 2
                before = self._variance.get(name, now)
                self._variance[name] = KEPT * before + (1 - KEPT) * now
                spread = (self._share * self._variance[name]) ** 0.5
                parameter.grad.add_(spread * torch.randn_like(gradient))
            self._last[name] = gradient


def again(
    network: str, batch: int, rows: Digits, steps: int, rate: float, seed: int, noise: float
) -> list[float]:
    """The losses in float32 of a network of pictures.py whose start and gradients are off."""
    module = begun(network, batch)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1 + OFF * torch.randn_like(parameter))
    changed = GradientNoise(noise) if noise else None
    return in_float(module, rows, steps, 0, batch, rate, changed)

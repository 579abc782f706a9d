"""Batch norms as torch.export can trace them in training: each under one name, with a number as
its momentum.

torch takes one buffer under two names for two, and can't tell which of them changes. And a momentum
of None reads how many batches there were, a number of the data to torch. So while a module is
traced, a norm's further names lead to its first, and such a momentum is a number that stands for
it: less than zero, by which a count of batches is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.program import Following

Norm = torch.nn.modules.batchnorm._NormBase
OF_POPULATION = 1  # what PyTorch takes from the count that a running variance is over


class _Again(torch.nn.Module):  # type: ignore[misc]  # torch has no types
    """A module by another name; it has nothing of its own."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._first = [module]  # in a list, which torch does not look into

    def forward(self, *args: Any, **named: Any) -> Any:
        return self._first[0](*args, **named)


@contextmanager
def as_traced(model: torch.nn.Module) -> Iterator[None]:
    """While this lasts, each norm has one name, and a number as its momentum.

    Raises:
        UsageError: a momentum that is no share.
    """
    seen: set[int] = set()
    momenta: list[tuple[Any, float | None]] = []
    names: list[tuple[torch.nn.Module, str, torch.nn.Module]] = []
    try:
        for parent in list(model.modules()):
            for name, part in list(parent._modules.items()):
                if not isinstance(part, Norm):
                    continue
                if id(part) in seen:
                    names.append((parent, name, part))
                    parent._modules[name] = _Again(part)
                    continue
                seen.add(id(part))
                momenta.append((part, part.momentum))
                part.momentum = _as_number(part)
        yield
    finally:
        for norm, momentum in momenta:
            norm.momentum = momentum
        for parent, name, part in names:
            parent._modules[name] = part


def _as_number(norm: Any) -> float:
    if norm.momentum is None:
        return -1.0 - int(norm.num_batches_tracked or 0)
    if not 0 <= norm.momentum <= 1:
        raise UsageError(
            f"A batch norm's momentum of {norm.momentum!r} makes no sense.",
            "Give a number in [0, 1], or None for the mean over all batches.",
        )
    return float(norm.momentum)


def following_of(momentum: float) -> Following:
    """How statistics follow, by the momentum that was traced."""
    if momentum < 0:
        return Following(0.0, OF_POPULATION, round(-momentum) - 1)
    return Following(momentum, OF_POPULATION)

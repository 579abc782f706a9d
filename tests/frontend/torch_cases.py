"""A module of PyTorch against the graph that it is imported as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from veilgraph.frontend.torch.importer import import_torch
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.meaning.graph import evaluate


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *operands: torch.Tensor) -> Any:
        return self.function(*operands)


def assert_as_torch(made: nn.Module, inputs: Sequence[torch.Tensor], within: float) -> Graph:
    """That the graph's first output is the module's, in numbers and in shape; the graph."""
    graph = import_torch(made, tuple(inputs))
    graph.verify()
    with torch.no_grad():
        wanted = made(*(x.clone() for x in inputs))
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    feeds = {name: x.numpy() for name, x in zip(graph.inputs, inputs, strict=True)}
    found = next(iter(evaluate(graph, feeds).values()))
    np.testing.assert_allclose(found, wanted.float().numpy(), rtol=2e-5, atol=within)
    assert found.shape == tuple(wanted.shape)
    return graph

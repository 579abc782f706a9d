"""A model that runs in real numbers: the interface that ONNX Runtime and torch are behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Feeds = Mapping[str, npt.NDArray[np.float32]]


class Reference(Protocol):
    """A model that runs in real numbers, every node's output within reach.

    Attributes:
        nodes: the tensor that each node computes, by the node's name, in the model's order.
        outputs: names of the model's own outputs.
    """

    @property
    def nodes(self) -> Mapping[str, str]: ...

    @property
    def outputs(self) -> tuple[str, ...]: ...

    def run(self, sample: Feeds) -> dict[str, Array]:
        """Every tensor by name, for one array an input."""
        ...

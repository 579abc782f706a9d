"""Numbers of classical models that are the owner's: weights, named after what they are."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from veilgraph.frontend.onnx.nodes import Steps


def owned(s: Steps, what: str, values: ArrayLike) -> str:
    """A weight of the model, called after its node and what it is there."""
    name = f"{s.node.name}.{what}"
    s.facts.weights[name] = np.asarray(values, np.float32)
    return name

"""The masks of dropouts: public draws, afresh in each step, the same at all parties.

A mask tells nothing of data or parameters, and hides nothing: whoever knows a session's id can
compute it. So every party that computes does, and nobody sends it.
"""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from veilgraph.ir.training import Masks
from veilgraph.runtime import randomness

Array = npt.NDArray[np.float32]
LANE_BITS = 32
USE = "dropout"


def drawn(masks: Masks, public: bytes, number: int) -> dict[str, Array]:
    """The masks of one step: 0 for the share p that is dropped, and else 1 / (1 - p), as torch's.

    Args:
        public: what all parties have, and no other training: a session's id.
        number: of the step.
    """
    key, found = randomness.public_key(public, USE), {}
    for draw, (name, (dropped, shape)) in enumerate(masks.items()):
        uniform = randomness.elements(key, number, draw, prod(shape), LANE_BITS)
        kept = uniform >= round(dropped * 2**LANE_BITS)
        found[name] = np.where(kept, np.float32(1 / (1 - dropped)), np.float32(0)).reshape(shape)
    return found

"""The noise that a party adds to the updates of a step: its own part, which nobody else knows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.tables import Tensor
from veilgraph.ir.roles import given_by
from veilgraph.ir.training import NOISE, Recipe
from veilgraph.runtime.discrete_gaussian import Sampler
from veilgraph.runtime.encoding import Integers

LEAST_VARIANCE = 16  # of a part, so that the sum of several is a discrete Gaussian to 10^-60


def parts_of(
    recipe: Recipe, inputs: Sequence[Tensor], party: str, rate: float, sampler: Sampler
) -> dict[str, Integers]:
    """This party's part of the noise of a step, by input.

    Args:
        inputs: that this party gives to a step.
        rate: of the step.

    Raises:
        UsageError: noise so small that the plan's numbers are too coarse for it.
    """
    if recipe.noise is None:
        return {}
    names = {given_by(f"{name}{NOISE}", party) for name in recipe.parameters}
    found = {}
    for tensor in (tensor for tensor in inputs if tensor.name in names):
        variance = recipe.noise.variance(rate, tensor.frac_bits)
        if variance < LEAST_VARIANCE:
            raise UsageError(
                f"The noise at a rate of {rate:.4g} is too small for this plan's numbers.",
                "Compile with this rate too, or with more noise.",
            )
        drawn = sampler.gaussian(variance, tensor.elements)
        found[tensor.name] = Integers(drawn.astype(np.int64))
    return found

"""The noise that a party adds to the updates of a step: its own part, which nobody else knows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.plan.tables import Tensor
from veilgraph.ir.roles import given_by
from veilgraph.ir.training import NOISE, STEP, Recipe
from veilgraph.plans import Plan
from veilgraph.runtime.discrete_gaussian import Sampler
from veilgraph.runtime.encoding import Integers
from veilgraph.targets.target import target_of_roles
from veilgraph.training.plan_steps import inputs_of

LEAST_VARIANCE = 16  # of a part, so that the sum of several is a discrete Gaussian to 10^-60


def require_stated(plan: Plan, recipe: Recipe) -> None:
    """SecurityAbort for a plan that states noise and has another, or none, or none that it states.

    How large noise is follows from the plan's scales too, which only its author vouches for.
    """
    manifest = plan.manifest
    target = target_of_roles(manifest.suite, manifest.roles, manifest.owners, manifest.receivers)
    stated = set(recipe.parameters) if recipe.noise else set[str]()
    honest = len(target.parties) - target.coalition
    is_sound = recipe.noise is None or recipe.noise.honest == honest
    for who in manifest.computing:
        wanted = {given_by(f"{name}{NOISE}", who) for name in stated}
        has = {t.name for t in inputs_of(plan, STEP, who) if t.name.endswith(given_by(NOISE, who))}
        is_sound = is_sound and has == wanted
    if not is_sound:
        raise SecurityAbort(
            "The plan states other noise than its steps add.",
            "Don't run it: ask who compiled it for another.",
        )


def parts_of(
    recipe: Recipe, inputs: Sequence[Tensor], party: str, rate: float, sampler: Sampler
) -> dict[str, Integers]:
    """This party's part of the noise of a step, by input.

    Args:
        inputs: that this party gives to a step.
        rate: of the step, as it is told; a step of none takes no gradient, and has no noise.

    Raises:
        UsageError: noise so small that the plan's numbers are too coarse for it.
    """
    if recipe.noise is None:
        return {}
    names = {given_by(f"{name}{NOISE}", party) for name in recipe.parameters}
    found = {}
    for tensor in (tensor for tensor in inputs if tensor.name in names):
        variance = recipe.noise.variance(rate, tensor.frac_bits)
        if 0 < variance < LEAST_VARIANCE:
            raise UsageError(
                f"The noise at a rate of {rate:.4g} is too small for this plan's numbers.",
                "Compile with this rate too, or with more noise.",
            )
        count = tensor.elements
        drawn = sampler.gaussian(variance, count) if variance else np.zeros(count)
        found[tensor.name] = Integers(drawn.astype(np.int64))
    return found

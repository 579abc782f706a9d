"""How another plan that trains keeps its states, for one that goes on from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from veilgraph.checks.plan_programs import states_of
from veilgraph.ir.errors import UsageError
from veilgraph.ir.secret.types import Encoding, RealRange
from veilgraph.ir.training import STEP
from veilgraph.plans import Plan
from veilgraph.runtime.store.state_files import saved_parts
from veilgraph.targets.target import Target

HINT = "Compile it of the same model, with the same optimizer, frozen parts, suite and parties."


def kept_in(
    plan: Plan, shapes: Mapping[str, tuple[int, ...]], target: Target
) -> dict[str, Encoding]:
    """The encoding of each state that a checkpoint of `plan` holds.

    Args:
        shapes: of the states of the plan that is made.
        target: of that plan.

    Raises:
        UsageError: other states, or other parties that keep them.
    """
    if (plan.manifest.suite, plan.manifest.computing) != (target.suite.name, target.parties):
        there, here = ", ".join(plan.manifest.computing), ", ".join(target.parties)
        raise UsageError(
            f"The other plan's states are kept by {there} in suite {plan.manifest.suite}, and "
            f"this one's by {here} in {target.suite.name}.",
            HINT,
        )
    every = [part for program in plan.programs.values() for part in program.states]
    found = {part.name: part for part in saved_parts(plan, every)}
    for name in {**found, **shapes}:
        if name not in shapes:
            raise UsageError(f"The other plan keeps `{name}`, and this one does not.", HINT)
        if name not in found:
            raise UsageError(f"The other plan does not keep `{name}`, and this one does.", HINT)
        if tuple(found[name].shape) != tuple(shapes[name]):
            raise UsageError(
                f"`{name}` is of shape {list(found[name].shape)} in the other plan, and of "
                f"{list(shapes[name])} here.",
                HINT,
            )
    return {name: Encoding(part.ring_bits, part.frac_bits) for name, part in found.items()}


def require_fine(
    kept: Mapping[str, Encoding], allowed: Mapping[str, float], states: Mapping[str, str]
) -> None:
    """Holds that rounding states in each step adds no more noise than all rounding may.

    Args:
        kept: how states are kept.
        allowed: the variance that rounding may add to an update, by parameter.
        states: of each state that goes with a parameter, the parameter.

    Raises:
        UsageError: steps of this training are too small for these encodings.
    """
    for name, encoding in kept.items():
        parameter = states.get(name, name)
        if parameter not in allowed:
            continue
        variance = 4.0**-encoding.frac_bits / 6  # up or down by chance, of an even spread
        if variance > allowed[parameter]:
            raise UsageError(
                f"The other plan keeps `{name}` with {encoding.frac_bits} fraction bits: rounding "
                f"it adds {variance / allowed[parameter]:.3g} times the noise allowed here.",
                "Allow more noise (`max_noise`), train with a larger rate, or begin anew.",
            )


def require_reached(
    plan: Plan, ranges: Mapping[str, RealRange], parameters: Collection[str]
) -> None:
    """Holds that a rehearsal saw parameters as far out as the other plan's did, margin included.

    Else nothing would be known of what is computed from them.

    Args:
        plan: the other plan.
        ranges: where states lay in this rehearsal.

    Raises:
        UsageError: parameters that may lie further out.
    """
    margin = float(str(plan.manifest.options["margin"]))
    for state in states_of(plan, plan.manifest.entries.index(STEP)):
        if state.name not in parameters:
            continue
        seen, here = max(-state.low, state.high) / margin, ranges[state.name].bound
        if seen > here * margin:
            raise UsageError(
                f"`{state.name}` was seen up to {seen:.4g} where the other plan was rehearsed, and "
                f"up to {here:.4g} here: what is computed from it is not known to fit.",
                "Give the model with the parameters that `rehearse` of the other plan found.",
            )

"""What a user asks of a run that trains, each refused in a sentence where it makes no sense."""

from __future__ import annotations

from numbers import Real
from operator import index
from typing import Any

from veilgraph.ir.errors import UsageError
from veilgraph.ir.training import Rate, Schedule, require_rate, schedule


def whole_number(given: Any) -> int | None:
    """A whole number of any type; None for what is none."""
    try:
        return index(given)
    except TypeError:
        return None


def require_count(given: Any, what: str) -> int:
    """A whole number of 1 or more.

    Args:
        what: the sentence's subject, with `{}` for the number.

    Raises:
        UsageError: what is none.
    """
    found = whole_number(given)
    if found is None or found < 1:
        raise UsageError(
            f"{what.format(given)} makes no sense.", "Give a whole number of 1 or more."
        )
    return found


def require_seed(given: Any) -> int:
    """A seed, which is a whole number of 0 or more; UsageError for what is none."""
    found = whole_number(given)
    if found is None or found < 0:
        raise UsageError(f"A seed of {given} makes no sense.", "Give a whole number of 0 or more.")
    return found


def rate_of(rate: Rate) -> Schedule:
    """The learning rate by the number of a step; UsageError for one that is none, when asked.

    A constant is looked at now.
    """
    if callable(rate):
        return schedule(lambda step: _number(rate(step), f" in step {step}"))
    return schedule(require_rate(_number(rate)))


def _number(rate: Any, when: str = "") -> Any:
    """A real number of any type; UsageError for anything else."""
    found = rate.item() if getattr(rate, "ndim", None) == 0 else rate
    if not isinstance(found, Real):
        raise UsageError(
            f"A learning rate of {rate!r}{when} makes no sense.",
            "Give a number above 0, or a function of the step that gives one.",
        )
    return found

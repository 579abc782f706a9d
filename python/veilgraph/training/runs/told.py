"""What a party that trains holds a plan, its peers and its user to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.plan.tables import Tensor
from veilgraph.ir.roles import given_by
from veilgraph.ir.training import AUDIT, OVERFLOW, STEP, Recipe
from veilgraph.plans import Plan
from veilgraph.training.batches import Rows
from veilgraph.training.plan_steps import inputs_of
from veilgraph.training.runs.asked import require_count

HINT = "Take one that compile_training made: it tells every party that computes."


def require_told(plan: Plan, recipe: Recipe, party: str) -> None:
    """SecurityAbort where a factor, or what an audit finds, is kept from one that computes."""
    if party not in plan.manifest.computing:
        return
    told = _outputs(plan, STEP, party) | {tensor.name for tensor in inputs_of(plan, STEP, party)}
    public = (*recipe.announced, *(given_by(name, party) for name in recipe.masks))
    if hidden := [name for name in public if name not in told]:
        raise SecurityAbort(f"This plan does not tell {party} what {hidden[0]} is in a step.", HINT)
    if AUDIT in plan.manifest.entries and OVERFLOW not in _outputs(plan, AUDIT, party):
        raise SecurityAbort(
            f"This plan does not tell {party} whether a parameter overflowed.", HINT
        )


def _outputs(plan: Plan, entry: str, party: str) -> set[str]:
    number = plan.manifest.entries.index(entry)
    return {tensor.name for tensor in plan.party(party).outputs if tensor.entry == number}


def require_factors(
    expected: Mapping[str, float], told: Mapping[str, Any], outputs: Sequence[Tensor], party: str
) -> None:
    """SecurityAbort where a step was made with other public factors than this party's."""
    for name, number in expected.items():
        if name not in told:
            continue
        unit = 2.0 ** -next(t for t in outputs if t.name == name).frac_bits
        found = float(told[name].item())
        if abs(found - number) > unit / 2:  # whole units are told, and as many by all
            raise SecurityAbort(
                f"This step was made with {name} {found:.6g}, and {party} expects {number:.6g}.",
                "Agree on the rates of all steps.",
            )


def count_of(recipe: Recipe, party: str, data: Rows, rows: int | None) -> int:
    """How many rows a party has; or there are, at one that has none.

    Args:
        data: its rows, by input.
        rows: what its user says.

    Raises:
        UsageError: nothing is known of rows, other numbers, or too few for a step.
    """
    if rows is not None:
        rows = require_count(rows, "A number of {} rows")
    own = min(map(len, data.values()), default=rows)
    if recipe.batch.rows:
        if rows is not None:
            raise UsageError(
                f"{party} was told that there are {rows} rows, and their owners say it.",
                "Leave out `rows`.",
            )
        return own or 0
    if own is None:
        raise UsageError(
            f"{party} has no rows, and was not told how many there are.",
            "Give `rows`, the number that the others have.",
        )
    if rows not in (None, own):
        raise UsageError(
            f"There are {rows} rows, and {party} has {own}.", "Give a row of each example."
        )
    if own < recipe.rows:
        raise UsageError(
            f"There are {own} rows, and a step takes {recipe.rows}.",
            "Give more, or compile for a smaller batch.",
        )
    return own

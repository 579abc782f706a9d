"""model.histograms: how large each layer's values were on the samples, for whoever compiled.

They say more about samples and weights than the ranges in the plan do, so they are no part of it:
a file of their own, mode 0600, with the plan's digest, which stays beside the plan where that was
compiled.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from veilgraph.commands.files import replacing
from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan import Magnitudes, Plan
from veilgraph.ir.plan_checks import typed

MOST_BYTES = 256 << 20
HINT = "Remove it, or compile again."


def histograms_file(plan_file: Path) -> Path:
    """Where they are, beside the plan."""
    return plan_file.with_suffix(".histograms")


def save_histograms(plan: Plan, path: Path) -> None:
    """Writes the magnitudes of a plan that was compiled here.

    Raises:
        UsageError: a place that can't be written to.
    """
    content = {"plan": plan.digest, "magnitudes": [asdict(each) for each in plan.magnitudes]}
    with replacing(path) as file:
        file.write(json.dumps(content).encode())


def load_histograms(plan: Plan, path: Path) -> tuple[Magnitudes, ...]:
    """The magnitudes that were kept for this plan; none if there is no file, or another plan's.

    Raises:
        UsageError: a file that holds something else.
    """
    if not path.exists():
        return ()
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError("too large")
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["plan"] != plan.digest:
            return ()
        found: tuple[Magnitudes, ...] = typed(
            tuple[Magnitudes, ...], content["magnitudes"], "magnitudes"
        )
        return found
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path} holds no histograms, or damaged ones.", HINT) from error

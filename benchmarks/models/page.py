"""MODELS.md, made from the reports of all models that were ever measured."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.reporting import markdown
from benchmarks.models.measuring import Report
from veilgraph.reports import units
from veilgraph.reports.tables import Table

HERE = Path(__file__).parent
REPORTS = HERE / "reports"
PAGE = HERE.parent / "MODELS.md"
REFUSED = re.compile(r"\s+[^:]+: ([\w.]+) \(output ")  # a node: its operator
ACCURACY = (
    "model|weights|run on|#samples|decisions equal|#mean error|#at most|#worst error|#left range"
)
COST = (
    "model|#parameters|#compile|#its memory|#rounds offline|#online|"
    "#sent in setup|#offline|#online|#setup|#offline|#online|#memory, a party"
)
INTRODUCTION = """# Real models, end to end

Made by `python -m benchmarks.models --write` from the reports in
[models/reports](models/reports), which have the errors layer by layer.
`python -m benchmarks.models mtcnn --write` measures a family or a model again; the rows of the
others stay.

Each model is compiled for rep3 and calibrated on samples of its own; then three processes over TLS
on loopback compute other samples in one session, with real randomness, on one thread each, all on
one machine. Errors are those of the parties' answers beside ONNX Runtime's, of the output where
they are largest: the **mean** error is the sum of all differences over the sum of all sizes, the
**worst** one the largest difference over the largest size. **Left range** counts values of the plan
that `check`, in exact integers, saw beyond their calibrated range and its margin: there must be
none, because an answer may be wrong there without a word. Bytes are those of all parties together,
seconds those of the slowest, the median of all samples but the first; memory is that of the largest
party's process. Compiling is `veilgraph.compile` on the model's file, in a process that does
nothing else, imports apart; its memory is all of that process's. Random weights are there for
errors and costs, and say nothing about what a model decides. What was not run has the cost that
`veilgraph inspect` predicts on a LAN, and its errors come from `check` alone.
"""


def save(report: Report) -> None:
    """Keeps a report, in place of an older one of the model in this ring."""
    REPORTS.mkdir(exist_ok=True)
    (REPORTS / f"{report['name']}-{report['ring']}.json").write_text(text_of(report))


def text_of(report: Report) -> str:
    """A report as JSON, a field a line and a layer a line."""
    lines = [f'"{key}": {json.dumps(value)}' for key, value in report.items() if key != "checked"]
    if "checked" in report:
        checked = dict(report["checked"])
        layers = ",\n   ".join(json.dumps(layer) for layer in checked.pop("layers"))
        inner = [f'"{key}": {json.dumps(value)}' for key, value in checked.items()]
        inner.append(f'"layers": [\n   {layers}\n  ]')
        lines.append('"checked": {\n  ' + ",\n  ".join(inner) + "\n }")
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def write(order: Sequence[str]) -> None:
    """Makes the page again from all reports, models in this order."""
    PAGE.write_text(text(order))


def text(order: Sequence[str]) -> str:
    """The page."""
    kept = [json.loads(path.read_text()) for path in sorted(REPORTS.glob("*.json"))]
    known = [report for report in kept if report["name"] in order]
    known.sort(key=lambda report: order.index(report["name"]))
    rings = sorted({report["ring"] for report in known}, key=lambda ring: (ring == "auto", ring))
    parts = [INTRODUCTION.rstrip()]
    for ring in rings:
        title = "Rings chosen by the compiler" if ring == "auto" else f"Rings of {ring} bits"
        here = [report for report in known if report["ring"] == ring]
        parts += [f"## {title}", *(markdown(table) for table in tables(here)), *notes(here)]
    parts += ["## Where and when", markdown(_places(known))]
    return "\n\n".join(parts) + "\n"


def printed(report: Report) -> str:
    """A report's rows, for people who watch."""
    return "\n\n".join([*(table.plain() for table in tables([report])), *notes([report])])


def tables(reports: Iterable[Report]) -> list[Table]:
    """Accuracy, cost, and the cost of what was not run; those that have rows."""
    done = [report for report in reports if "stopped" not in report]
    run = [report for report in done if "seconds" in report]
    rest = [report for report in done if "seconds" not in report]
    found = [
        Table.of(ACCURACY, [_accuracy(report) for report in done], "Beside ONNX Runtime"),
        Table.of(COST, [_cost(report) for report in run], "Cost of one inference, measured"),
        Table.of(COST, [_cost(report) for report in rest], "The same, not run: predicted"),
    ]
    return [table for table in found if table.rows]


def notes(reports: Iterable[Report]) -> list[str]:
    """What stopped short, and why."""
    return [
        f"{r['title']}: left out. {_shortened(r['stopped'])}" for r in reports if "stopped" in r
    ]


def _shortened(reason: str) -> str:
    """The first line of a reason; of a list of nodes, which operators there are, most of all."""
    first, *lines = reason.splitlines()
    counts = Counter(found[1] for line in lines if (found := REFUSED.match(line)))
    listed = ", ".join(f"{operator} ({count})" for operator, count in counts.most_common())
    return f"{first} {listed}." if listed else first


def _accuracy(report: Report) -> list[str]:
    ran = "outputs" in report
    outputs: dict[str, dict[str, float]] = (report if ran else report["checked"])["outputs"]
    worst = max(outputs.values(), key=lambda error: error["mean_relative"])
    decided = (
        f"{report['equal_decisions']} of {report['decisions']} {report['task']}"
        if "decisions" in report
        else ""
    )
    return [
        report["title"],
        report["weights"],
        report["inputs"],
        f"{report['inferences']}" if ran else f"{report['checked']['samples']}, in integers",
        decided,
        f"{worst['mean_relative']:.4%}",
        f"{report['most_error']:.1%}",
        f"{max(error['worst_relative'] for error in outputs.values()):.4%}",
        str(len(report["checked"]["excursions"])),
    ]


def _cost(report: Report) -> list[str]:
    seconds: dict[str, float] = report.get("seconds") or report["predicted_seconds"]
    memory = max(report.get("party_peak_bytes", {"": report["arena_bytes"]}).values())
    return [
        report["title"],
        units.amount(report["parameters"]),
        units.seconds(report["compile_seconds"]),
        units.size(report["compile_peak_bytes"]),
        str(report["rounds"]["offline"]),
        str(report["rounds"]["online"]),
        *(units.size(report["sent_bytes"][phase]) for phase in ("setup", "offline", "online")),
        *(units.seconds(seconds[phase]) for phase in ("setup", "offline", "online")),
        units.size(memory),
    ]


def _places(reports: Iterable[Report]) -> Table:
    """Machines, commits and dates, and what was measured there."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for report in reports:
        place = (report["date"], report["commit"], report["processor"], report["cores"])
        groups.setdefault(place, []).append(f"{report['title']} ({report['ring']})")
    rows = [[*map(str, place), ", ".join(names)] for place, names in sorted(groups.items())]
    return Table.of("date|commit|processor|#cores|models (ring)", rows)

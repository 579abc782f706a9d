"""What all benchmarks share: options, where and when they ran, tables, and RESULTS.md."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from veilgraph.measuring.spread import Spread
from veilgraph.reports import units
from veilgraph.reports.tables import Table

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
Given = ParamSpec("Given")
Found = TypeVar("Found")


@dataclass
class Findings:
    """Tables for people, the same figures for programs, and what was left out and why."""

    tables: list[Table] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def parser(description: str | None) -> argparse.ArgumentParser:
    """A benchmark's options; its docstring is its help."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--quick", action="store_true", help="the smallest cases, few runs")
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument("--write", action="store_true", help="put the tables into RESULTS.md")
    return made


def apart(work: Callable[Given, Found], *args: Given.args, **named: Given.kwargs) -> Found:
    """A call in a process of its own: its memory is the call's, and goes with it."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn) as pool:
        return pool.submit(work, *args, **named).result()


def report(name: str, options: argparse.Namespace, measure: Callable[[], Findings]) -> None:
    """Measures, prints, and with --write replaces the benchmark's part of RESULTS.md."""
    if options.quick and options.write:
        raise SystemExit("RESULTS.md takes full runs: leave out --quick or --write")
    found = measure()
    place = {**machine(), "commit": commit(), "date": date.today().isoformat()}
    if options.json:
        print(json.dumps({"benchmark": name, **place, **found.figures, "notes": found.notes}))
    else:
        print("\n\n".join([*(table.plain() for table in found.tables), *found.notes]))
    if options.write:
        where = f"{place['processor']}, {place['cores']} cores; {place['commit']}; {place['date']}"
        content = "\n\n".join([where, *map(markdown, found.tables), *found.notes])
        RESULTS.write_text(replaced(RESULTS.read_text(), name, content))


def replaced(text: str, name: str, content: str) -> str:
    """`text` with `content` between the markers of `name`, which it must have."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    assert found, f"no marker before {name}"
    assert closed, f"no marker after {name}"
    return f"{head}{begin}\n{content}\n{end}{tail}"


def markdown(table: Table) -> str:
    """A table as Markdown, under its title."""
    rule = ["---:" if column.is_number else "---" for column in table.columns]
    lines = [[column.heading for column in table.columns], rule, *table.rows]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"**{table.title}**\n\n{body}" if table.title else body


def machine() -> dict[str, Any]:
    """The processor's name and how many cores this process may use."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    facts = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
    model = facts.get("model name", platform.processor() or platform.machine())
    family = f" (family {facts['cpu family']}, model {facts['model']})" if "model" in facts else ""
    return {"processor": model + family, "cores": len(os.sched_getaffinity(0))}


def commit() -> str:
    """The checkout's commit, marked where files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "no commit"


def spread(value: Spread) -> str:
    """Median and, in brackets, least and most."""
    return f"{units.seconds(value.median)} ({units.seconds(value.min)}, {units.seconds(value.max)})"


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """How many times ours is faster, median by median."""
    return Spread.of(theirs).median / Spread.of(ours).median

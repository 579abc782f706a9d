"""`veilgraph compile --profile`: where a compilation's seconds and memory go, pass by pass."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from veilgraph.reports.tables import Table
from veilgraph.reports.units import percent, seconds, size

LOG = logging.getLogger("veilgraph.compile")  # of compilation/steps.py, which imports MLIR
HEADINGS = "pass|#seconds|#of all|#processor|#memory|#at most so far|#trials"


@dataclass(frozen=True)
class Row:
    """A step that has ended.

    Attributes:
        processor_seconds: of all threads of this process.
        held_bytes: that this process held when it ended.
        peak_bytes: the most that it had held until then.
        trials: that it gave up.
    """

    name: str
    seconds: float
    processor_seconds: float
    held_bytes: int
    peak_bytes: int
    trials: int


class Profile(logging.Handler):
    """Keeps what the log of a compilation says of its steps (compilation/steps.py)."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self._trials = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Counts a trial, or keeps a step that has ended."""
        said: dict[str, Any] = vars(record)
        if "seconds_left" not in said:
            self._trials += "step" in said
            return
        spent, used = said["seconds"], said["processor_seconds"]
        row = Row(said["doing"], spent, used, said["held_bytes"], said["peak_bytes"], self._trials)
        self.rows.append(row)
        self._trials = 0

    def table(self) -> Table:
        """A row a step, in order, and one of all."""
        spent = sum(row.seconds for row in self.rows)
        used = sum(row.processor_seconds for row in self.rows)
        last = self.rows[-1]
        tried = sum(row.trials for row in self.rows)
        total = Row("all", spent, used, last.held_bytes, last.peak_bytes, tried)
        return Table.of(HEADINGS, [_cells(row, spent) for row in (*self.rows, total)])


def _cells(row: Row, spent: float) -> list[str]:
    return [
        row.name,
        seconds(row.seconds),
        percent(row.seconds / spent),
        seconds(row.processor_seconds),
        size(row.held_bytes),
        size(row.peak_bytes),
        str(row.trials or ""),
    ]


@contextmanager
def profiled() -> Iterator[Profile]:
    """Keeps the steps of what is compiled while the block runs."""
    profile = Profile()
    LOG.addHandler(profile)
    try:
        yield profile
    finally:
        LOG.removeHandler(profile)

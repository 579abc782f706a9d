"""What the loggers of `veilgraph` say, as lines on standard error: text, or JSON on request.

    alice owns x; bob owns weights
    {"time": "2026-11-24T20:10:03.125+00:00", "level": "info", "logger": "veilgraph.compile",
     "message": "15 of 31, ranges: 3.2 s, 4.0 s so far", "step": 15, "steps": 31, ...}

Warnings and errors are shown; INFO with -v, DEBUG with -vv. Steps of a compilation (steps.py) are
shown without asking where no terminal shows them as they go, once it has taken `slow` seconds: then
the log has a line for each step, those before included.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from veilgraph.ir.harmless import harmless
from veilgraph.reports.tables import is_terminal, say

NAME = "veilgraph"  # of the logger, and of those below it
_USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime"}


def line_of(level: str, message: str, *, logger: str = NAME, **more: object) -> str:
    """A line of a log as a JSON object."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    said = {"time": now, "level": level, "logger": logger, "message": message, **more}
    return json.dumps(said, default=str)  # ASCII


class ShownLog(logging.Handler):
    """Shows records on standard error.

    Args:
        as_json: as objects.
        slow: seconds after which the steps of a compilation are shown without asking.
    """

    def __init__(self, as_json: bool, slow: float) -> None:
        super().__init__()
        self._as_json = as_json
        self._slow = math.inf if is_terminal(sys.stderr) else slow
        self._least = logging.WARNING
        self._is_quiet = False
        self._held: list[logging.LogRecord] = []

    def adjust(self, verbose: int, quiet: bool) -> None:
        """What -v, -vv and -q ask for, before the verb or behind it; -q wins."""
        if verbose:
            wanted = logging.INFO if verbose == 1 else logging.DEBUG
            self._least = min(self._least, wanted)
        self._is_quiet |= quiet

    def emit(self, record: logging.LogRecord) -> None:
        """Shows a record, or keeps it until it is known whether the compilation is slow.

        A log that can't be written, on a full disk, ends nothing of what it tells of.
        """
        with suppress(OSError):
            if record.levelno >= (logging.ERROR if self._is_quiet else self._least):
                self._show(record)
            elif hasattr(record, "step") and not self._is_quiet:
                self._hold(record)

    def _hold(self, record: logging.LogRecord) -> None:
        if getattr(record, "step", 0) == 1:
            self._held = []  # of a compilation that was quick
        self._held.append(record)
        if getattr(record, "seconds_so_far", 0.0) < self._slow:
            return
        for each in self._held:
            self._show(each)
        self._held = []

    def _show(self, record: logging.LogRecord) -> None:
        if not self._as_json:
            say(record.getMessage())
            return
        more = {key: value for key, value in vars(record).items() if key not in _USUAL}
        message = harmless(record.getMessage())
        print(
            line_of(record.levelname.lower(), message, logger=record.name, **more), file=sys.stderr
        )


@contextmanager
def shown_log(as_json: bool, slow: float) -> Iterator[ShownLog]:
    """Shows what the library says on its loggers while the block runs.

    Once: importing torch may give the root logger a handler of its own, which would say it again.
    """
    logger = logging.getLogger(NAME)
    before, propagated = logger.level, logger.propagate
    handler = ShownLog(as_json, slow)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield handler
    finally:
        logger.setLevel(before)
        logger.propagate = propagated
        logger.removeHandler(handler)

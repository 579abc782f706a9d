"""The steps of a compilation as they go by: n of m for who watches, and seconds for the log.

Each step that ends is a record of the logger `veilgraph.compile`, at INFO, with its `seconds`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LOG = logging.getLogger("veilgraph.compile")


class Steps:
    """Counts steps and times them.

    Args:
        total: how many there are.
        tell: called as each begins, with its number and name: "3 of 24, simplify".
    """

    def __init__(self, total: int, tell: Callable[[str], None] | None) -> None:
        self._total, self._tell = total, tell
        self._number, self._name, self._start = 0, "", 0.0

    def begin(self, name: str) -> None:
        """Ends the step before, and begins one."""
        self.end()
        self._number, self._name, self._start = self._number + 1, name, time.perf_counter()
        if self._tell is not None:
            self._tell(f"{self._number} of {self._total}, {name}")

    def end(self) -> None:
        """Ends the step that is under way, if there is one."""
        if not self._name:
            return
        seconds = time.perf_counter() - self._start
        LOG.info(
            "%d of %d, %s: %.1f s",
            self._number,
            self._total,
            self._name,
            seconds,
            extra={"seconds": seconds},
        )
        self._name = ""

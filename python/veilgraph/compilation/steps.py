"""The steps of a compilation as they go by: n of m for who watches, and seconds for the log.

Each step that ends is a record of the logger `veilgraph.compile`, at INFO: "17 of 31,
verify_accuracy: 3.2 s, 12.0 s so far, about 40 s left". Its attributes say the same as numbers:
`step`, `steps`, `doing`, `seconds`, `processor_seconds`, `seconds_so_far`, `held_bytes` and
`peak_bytes` (memory.py), and `seconds_left`, None while unknown. What a step tries on the way, such
as an encoding that was not exact enough, is a record too, with the same attributes but the last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

from veilgraph.measuring.memory import Memory
from veilgraph.passes.program import Watch

LOG = logging.getLogger("veilgraph.compile")
# What a step takes of a compilation, in percent: medians of the five networks of tests/decisions,
# on 64 samples. Others take next to nothing, or nobody knows how much.
USUAL = {
    "import": 4.2,
    "ranges": 9.2,
    "encode_fixed_point": 16.9,
    "verify_accuracy": 4.0,
    "choose_protocols": 21.2,
    "expand_protocols": 6.4,
    "batch_rounds": 1.5,
    "verify_masking": 1.7,
    "emit_plan": 15.3,
}
LEAST_SHARE = 0.2  # of all steps that have to be done before it is said how long the rest takes


class Steps(Watch):
    """Counts steps and times them.

    Args:
        names: of all steps, in order.
        tell: called as each begins, with its number and name, and as it goes on: "3 of 24,
            simplify", "17 of 31, verify_accuracy: sample 2 of 4; about 40 s left".
        clock: seconds, from any start.
    """

    def __init__(
        self,
        names: Sequence[str],
        tell: Callable[[str], None] | None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._shares = [USUAL.get(name, 0.0) for name in names]
        self._tell, self._clock = tell, clock
        self._number, self._name = 0, ""
        self._first = self._start = clock()
        self._used = time.process_time()  # when the step that is under way began
        self._spent = 0.0  # seconds of the steps that have a share

    def begin(self, name: str) -> None:
        """Ends the step before, and begins one."""
        self.end()
        self._number, self._name, self._start = self._number + 1, name, self._clock()
        self._used = time.process_time()
        self.at("")

    def end(self) -> None:
        """Ends the step that is under way, if there is one."""
        if not self._name:
            return
        now = self._clock()
        if self._shares[self._number - 1]:
            self._spent += now - self._start
        if LOG.isEnabledFor(logging.INFO):  # memory is read from a file
            self._log_end(now)
        self._name = ""

    def _log_end(self, now: float) -> None:
        left = self._left(self._number)
        more = _told(left, ", ")
        seconds, so_far = now - self._start, now - self._first
        LOG.info(
            "%s: %.1f s, %.1f s so far%s",
            self._named(),
            *(seconds, so_far, more),
            extra={**self._attributes(now), "seconds_left": left},
        )

    def at(self, doing: str) -> None:
        """Tells who watches; nothing for the log."""
        if self._tell is None:
            return
        left = self._left(self._number - 1)
        if left is not None and self._shares[self._number - 1]:
            left = max(0.0, left - (self._clock() - self._start))
        more = _told(left, "; ")
        self._tell(f"{self._named()}{': ' if doing else ''}{doing}{more}")

    def tried(self, what: str) -> None:
        """Tells the log."""
        if LOG.isEnabledFor(logging.INFO):
            LOG.info("%s: %s", self._named(), what, extra=self._attributes(self._clock()))

    def _named(self) -> str:
        return f"{self._number} of {len(self._shares)}, {self._name}"

    def _attributes(self, now: float) -> dict[str, object]:
        return {
            "step": self._number,
            "steps": len(self._shares),
            "doing": self._name,
            "seconds": now - self._start,
            "processor_seconds": time.process_time() - self._used,
            "seconds_so_far": now - self._first,
            **asdict(Memory.now()),
        }

    def _left(self, done: int) -> float | None:
        """Seconds that the rest takes if the steps that are done say how slow all are."""
        before, after = sum(self._shares[:done]), sum(self._shares[done:])
        if before < LEAST_SHARE * (before + after):
            return None
        return self._spent * after / before


def _told(left: float | None, joint: str) -> str:
    """Nothing of less than a second, which is over before it is read."""
    return "" if left is None or left < 1 else f"{joint}about {left:.0f} s left"

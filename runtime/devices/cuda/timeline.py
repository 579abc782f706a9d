"""When what ran on a GPU: events around steps, put on the host's clock.

A trace has events around each step. Without one there is a pair around each range of steps, and
its time is that of "cuda" as a whole: an event a step would cost as much as a small launch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from veilgraph.runtime.devices.cuda.drivers.interface import Driver, Event, Stream

WHOLE = "cuda"


@dataclass(frozen=True)
class _Ran:
    first: int
    last: int
    start: Event
    end: Event


class Timeline:
    """Times of steps, by the events that a device takes from here and records.

    Args:
        names: of each step's kernel.
    """

    def __init__(self, driver: Driver, compute: Stream, names: Sequence[str]) -> None:
        self._driver, self._compute, self._names = driver, compute, names
        self._events: list[Event] = []  # used again after each `reset`
        self._used = 0
        self._ran: list[_Ran] = []
        self._spans: list[tuple[int, int, int]] = []
        self._profile: dict[str, tuple[int, int]] = {}
        self._zero, self._zero_ns = driver.event(), 0
        self.traces = False
        self.reset()

    def mark(self) -> Event:
        """An event of its own, recorded where the steps are now."""
        if self._used == len(self._events):
            self._events.append(self._driver.event())
        event = self._events[self._used]
        self._used += 1
        self._compute.record(event)
        return event

    def add(self, first: int, last: int, start: Event, end: Event) -> None:
        """Steps [first, last) ran between two marks."""
        self._ran.append(_Ran(first, last, start, end))

    def note(self, step: int, start: int, end: int) -> None:
        """A step that ran on the host, in nanoseconds of its clock."""
        if self.traces:
            self._spans.append((step, start, end))

    def trace(self) -> None:
        self._settle()
        self._spans.clear()
        self.traces = True

    def reset(self) -> None:
        """Counts from 0 again; the clocks are compared anew, since events count in float32."""
        self._settle()
        self._profile.clear()
        before = time.perf_counter_ns()
        self._compute.record(self._zero)
        self._zero.synchronize()
        self._zero_ns = (before + time.perf_counter_ns()) // 2

    @property
    def profile(self) -> dict[str, tuple[int, int]]:
        self._settle()
        return dict(self._profile)

    @property
    def spans(self) -> list[tuple[int, int, int]]:
        self._settle()
        return sorted(self._spans, key=lambda span: span[1])

    def _settle(self) -> None:
        """Waits for all marks, and turns them into times."""
        if self._ran:
            self._ran[-1].end.synchronize()
        for ran in self._ran:
            whole = ran.last - ran.first > 1 or not self.traces
            name = WHOLE if whole else self._names[ran.first]
            start, end = self._nanoseconds(ran.start), self._nanoseconds(ran.end)
            calls, spent = self._profile.get(name, (0, 0))
            self._profile[name] = calls + ran.last - ran.first, spent + end - start
            if self.traces:
                self._spans.append((ran.first, start, end))
        self._ran.clear()
        self._used = 0

    def _nanoseconds(self, event: Event) -> int:
        return self._zero_ns + round(event.seconds_since(self._zero) * 1e9)

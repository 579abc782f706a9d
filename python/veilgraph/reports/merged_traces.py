"""Traces of several parties on one time line, though each party has a clock of its own.

A message can't be received before it was sent. So if a party sends from its time s on, and another
has received all of that by its time e, the first clock is behind the second by e - s at most. Each
round gives such bounds, and bounds add up along a path of parties. Where they leave an interval the
middle of it is taken, as NTP does with one exchange.

A trace is a JSON object of Chrome's trace event format, as `run --trace` writes it (tracing.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.reports.tracing import EXCHANGE, FACTS

_SAME = ("plan", "session", "inference")
Trace = Mapping[str, Any]


@dataclass(frozen=True)
class Merged:
    """All parties' events, and by how much each clock was moved, in microseconds.

    `uncertain` says how far that may be wrong; infinite where messages go one way alone.
    """

    trace: dict[str, Any]
    moved: dict[str, float]
    uncertain: dict[str, float]

    def in_seconds(self) -> dict[str, dict[str, float | None]]:
        """Both by party; None for what is unbounded."""
        return {
            "moved_seconds": {party: by / 1e6 for party, by in self.moved.items()},
            "uncertain_seconds": {
                party: by / 1e6 if math.isfinite(by) else None
                for party, by in self.uncertain.items()
            },
        }


def merged(traces: Sequence[Trace]) -> Merged:
    """Traces of one inference, of a party each.

    Raises:
        UsageError: what is no trace of `run`, fewer than two, or a party twice.
        SecurityAbort: traces of different plans, sessions or inferences, or some in which a message
            was received before it was sent, however clocks are moved.
    """
    by_party = _by_party(traces)
    bounds = _closed(_bounds(by_party), list(by_party))
    moved, uncertain = _placed(bounds, list(by_party))
    events: list[dict[str, Any]] = []
    for number, (party, trace) in enumerate(by_party.items(), start=1):
        for event in trace["traceEvents"]:
            at = {"ts": event["ts"] + moved[party]} if "ts" in event else {}
            events.append({**event, **at, "pid": number})
    first = min((event["ts"] for event in events if "ts" in event), default=0.0)
    for event in events:
        if "ts" in event:
            event["ts"] -= first
    facts = {name: next(iter(by_party.values()))[FACTS][name] for name in _SAME}
    stated = {**facts, "moved_microseconds": moved}
    return Merged({"displayTimeUnit": "ms", "traceEvents": events, FACTS: stated}, moved, uncertain)


def _by_party(traces: Sequence[Trace]) -> dict[str, Trace]:
    for trace in traces:
        _require_trace(trace)
    found = {trace[FACTS]["party"]: trace for trace in traces}
    if len(found) < max(2, len(traces)):
        raise UsageError("Traces of two or more parties are put together.", "Give one of each.")
    for fact in _SAME:
        if len({trace[FACTS][fact] for trace in found.values()}) > 1:
            raise SecurityAbort(
                f"The traces are of different {fact}s.", "Give those of one inference."
            )
    return found


def _require_trace(trace: Trace) -> None:
    try:
        texts = [trace[FACTS]["party"], *(trace[FACTS][name] for name in _SAME[:2])]
        times = [e[name] for e in trace["traceEvents"] if e["ph"] == "X" for name in ("ts", "dur")]
        rounds = [e["args"] for e in trace["traceEvents"] if e.get("cat") == EXCHANGE]
        peers = [each[way] for each in rounds for way in ("sent_bytes", "received_bytes")]
        is_one = (
            all(isinstance(text, str) for text in texts)
            and type(trace[FACTS]["inference"]) is int
            and all(isinstance(t, int | float) and math.isfinite(t) for t in times)
            and all(isinstance(each, dict) for each in peers)
        )
    except (KeyError, TypeError, AttributeError):
        is_one = False
    if not is_one:
        raise UsageError("A file is no trace of a party.", "`run --trace FILE.json` writes one.")


def _bounds(traces: Mapping[str, Trace]) -> dict[tuple[str, str], float]:
    """By sender and receiver, how far the sender's clock may be moved beyond the receiver's."""
    found: dict[tuple[str, str], float] = {}
    begins, ends = dict[tuple[str, str, str], float](), dict[tuple[str, str, str], float]()
    for party, trace in traces.items():
        for event in trace["traceEvents"]:
            if event.get("cat") != EXCHANGE:
                continue
            for peer in event["args"]["sent_bytes"]:
                begins[event["name"], party, peer] = event["ts"]
            for peer in event["args"]["received_bytes"]:
                ends[event["name"], peer, party] = event["ts"] + event["dur"]
    for message in begins.keys() & ends.keys():
        pair = message[1:]
        found[pair] = min(found.get(pair, math.inf), ends[message] - begins[message])
    return found


def _closed(
    bounds: Mapping[tuple[str, str], float], parties: Sequence[str]
) -> dict[tuple[str, str], float]:
    """The bounds along all paths (Floyd and Warshall); SecurityAbort where none can hold."""
    found = {
        (a, b): 0.0 if a == b else bounds.get((a, b), math.inf)
        for a, b in product(parties, repeat=2)
    }
    for by, a, b in product(parties, repeat=3):
        found[a, b] = min(found[a, b], found[a, by] + found[by, b])
    for party in parties:
        if found[party, party] < 0:
            raise SecurityAbort(
                f"By these traces a message of {party}'s was received before it was sent.",
                "Give those of one inference, as `run --trace` wrote them.",
            )
    return found


def _placed(
    bounds: Mapping[tuple[str, str], float], parties: Sequence[str]
) -> tuple[dict[str, float], dict[str, float]]:
    """A place for each clock, one after another; and how far from it the bounds would let it be."""
    first, *rest = parties
    moved, uncertain = {first: 0.0}, {first: 0.0}
    for party in rest:
        high = min(place + bounds[party, other] for other, place in moved.items())
        low = max(place - bounds[other, party] for other, place in moved.items())
        if math.isfinite(high - low):
            moved[party] = (high + low) / 2
        else:
            moved[party] = next((end for end in (high, low) if math.isfinite(end)), 0.0)
        at = moved[party]
        uncertain[party] = max(bounds[party, first] - at, at + bounds[first, party])
    return moved, uncertain

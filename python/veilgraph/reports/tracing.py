"""When each step of an inference ran at each party, for https://ui.perfetto.dev.

The file is in Chrome's trace event format (JSON): a process a party, with a row for kernels, named
by the layer they compute, and one for rounds, with what is sent and received. Parties of a machine
share a clock, so their rows fit together; merged_traces.py puts those of several hosts together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from veilgraph.ir.plan.tables import ROUND, Direction, PartyPlan, Phase, rows_of
from veilgraph.kernels import KERNELS
from veilgraph.plans import Plan
from veilgraph.runtime.transcript import Transcript

_KERNELS, _ROUNDS = 1, 2  # rows of a party
EXCHANGE = "round"  # the category of what was exchanged; a kernel's is its name
FACTS = "otherData"  # what a trace is of, in that format
Event = dict[str, Any]


def chrome_trace(plan: Plan, transcripts: Mapping[str, Transcript]) -> dict[str, Any]:
    """The trace of one inference; times count from its first step.

    Args:
        transcripts: by party, with spans.
    """
    starts = [start for t in transcripts.values() for _, start, _ in t.spans]
    origin = min(starts, default=0)
    events: list[Event] = []
    for number, (party, transcript) in enumerate(transcripts.items(), start=1):
        events += _names(number, party)
        events += _spans(plan, plan.party(party), transcript, number, origin)
    return {"displayTimeUnit": "ms", "traceEvents": events}


def party_trace(
    plan: Plan, party: str, session: bytes, inference: int, transcript: Transcript
) -> dict[str, Any]:
    """One party's trace of an inference, for `veilgraph trace` to put together with others."""
    facts = {"party": party, "plan": plan.digest, "session": session.hex(), "inference": inference}
    return {**chrome_trace(plan, {party: transcript}), FACTS: facts}


def _names(number: int, party: str) -> Iterator[Event]:
    yield {"ph": "M", "pid": number, "name": "process_name", "args": {"name": party}}
    for row, name in ((_KERNELS, "kernels"), (_ROUNDS, "rounds")):
        fields = {"ph": "M", "pid": number, "tid": row, "name": "thread_name"}
        yield {**fields, "args": {"name": name}}


def _spans(
    plan: Plan, program: PartyPlan, transcript: Transcript, number: int, origin: int
) -> Iterator[Event]:
    for step, start, end in transcript.spans:
        row = program.steps[step]
        phase = Phase(int(row["phase"]))
        described = (
            _round(plan, program, row)
            if row["kernel"] == ROUND
            else _kernel(plan, int(row["kernel"]), int(row["layer"]))
        )
        described["args"] |= {"step": step, "phase": phase.name.lower()}
        times = {"ts": (start - origin) / 1e3, "dur": (end - start) / 1e3}  # microseconds
        yield {"ph": "X", "pid": number, **times, **described}


def _kernel(plan: Plan, kernel: int, layer: int) -> Event:
    name = KERNELS[kernel]
    of = plan.layers[layer]
    arguments = {"kernel": name, "op": of.op}
    return {"tid": _KERNELS, "name": of.name or name, "cat": name, "args": arguments}


def _round(plan: Plan, program: PartyPlan, step: np.void) -> Event:
    phase, number = Phase(int(step["phase"])), int(step["round"])
    rows = rows_of(program.messages, phase, int(step["entry"]))
    rows = rows[rows["round"] == number]
    moved: dict[str, dict[str, int]] = {"sent_bytes": {}, "received_bytes": {}}
    for row in rows:
        way = "sent_bytes" if row["direction"] == Direction.SEND else "received_bytes"
        peer = plan.manifest.parties[int(row["peer"])]
        moved[way][peer] = moved[way].get(peer, 0) + int(row["bytes"])
    name = f"{phase.name.lower()} round {number + 1}"
    return {"tid": _ROUNDS, "name": name, "cat": EXCHANGE, "args": moved}

"""What inferences took: seconds, rounds, bytes and memory, measured, as values and as tables.

All parties run on this machine: as threads of this process, whose links are queues, or as
processes that speak TLS on loopback. The first inferences warm up caches and pages and don't count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.plan.tables import Phase, Tensor
from veilgraph.measuring.processes import simulate_processes
from veilgraph.measuring.spread import Spread
from veilgraph.plans import Plan
from veilgraph.reports import time_split as timesplit
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.reports.text import plan_inputs
from veilgraph.reports.time_split import TimeSplit
from veilgraph.runtime import randomness
from veilgraph.runtime.links.shaping import Shape
from veilgraph.runtime.simulate import Answer, Devices, Run, simulate_many

WARM_UP_RUNS = 1
COUNTED = (Phase.OFFLINE, Phase.ONLINE)  # of an inference; setup is once a session
UNBOUNDED = 1.0  # what stands for a bound that the plan does not state, if the encoding holds it
Arrays = dict[str, npt.NDArray[np.float64]]


@dataclass(frozen=True, repr=False)
class Measurement:
    """What a session with several inferences took.

    Attributes:
        runs: the inferences that count.
        setup_seconds: sharing the weights, once.
        peak_memory_bytes: of each party: its process, or its arena where all share a process.
        processes: whether each party had one.
    """

    plan: Plan
    runs: tuple[Run, ...]
    setup_seconds: float
    peak_memory_bytes: Mapping[str, int]
    processes: bool

    def __repr__(self) -> str:
        online, offline = (
            units.seconds(self.seconds(p).median) for p in (Phase.ONLINE, Phase.OFFLINE)
        )
        done = units.counted(len(self.runs), "inference")
        return f"<Measurement of {done}: {online} online, {offline} offline, median>"

    @property
    def outputs(self) -> dict[str, npt.NDArray[np.float32]]:
        """Of the last inference."""
        return self.runs[-1].outputs

    @property
    def entry(self) -> int:
        """The number of the entry that all runs are of."""
        return self.runs[-1].entry

    def seconds(self, *phases: Phase) -> Spread:
        """Of the slowest party in these phases together, over the runs."""
        return Spread.of([run.seconds(*phases) for run in self.runs])

    def waiting(self, party: str) -> Spread:
        """Seconds that a party spent in its links, offline and online."""
        return Spread.of(
            [
                sum(record.network_seconds for record in run.transcripts[party].phases.values())
                for run in self.runs
            ]
        )

    def splits(self) -> dict[str, TimeSplit]:
        """Where a run's seconds went, by party: the run whose seconds are the (lower) median."""
        run = sorted(self.runs, key=lambda run: run.seconds(*COUNTED))[(len(self.runs) - 1) // 2]
        return {party: TimeSplit.of(t) for party, t in run.transcripts.items()}

    def sent_bytes(self) -> dict[str, dict[str, int]]:
        """By phase and link, as the last inference's transcripts counted them."""
        names = self.plan.manifest.parties
        sent: dict[str, dict[str, int]] = {"setup": self.plan.sent_bytes(Phase.SETUP)}
        for phase in (Phase.OFFLINE, Phase.ONLINE):
            sent[phase.name.lower()] = {
                f"{party}->{names[peer]}": count
                for party, transcript in self.runs[-1].transcripts.items()
                for peer, count in sorted(transcript.phases[phase].sent_bytes.items())
            }
        return sent


def measure(
    plan: Plan,
    weights: Mapping[str, npt.ArrayLike],
    inputs: Mapping[str, npt.ArrayLike] | Sequence[Mapping[str, npt.ArrayLike]],
    *,
    iterations: int = 1,
    warm_up: int = 0,
    processes: bool = False,
    device: Devices = "cpu",
    threads: int = 1,
    isa: str | None = None,
    cubins: Path | None = None,
    trace: bool = False,
    shape: Shape | None = None,
    entry: str | None = None,
) -> Measurement:
    """Runs `warm_up` inferences that don't count, then `iterations` that do, in one session.

    Args:
        weights: all weights by name.
        inputs: all inputs by name, the same for every inference; or those of each, all of which
            count.
        processes: a process a party, over TLS on loopback, rather than threads of this one.
        device: where all parties compute, or where each does, by name.
        cubins: a folder of the GPU's kernels that `prepare` compiled.
        trace: whether the last run's transcripts say when each step ran.
        shape: of a network to imitate; processes alone can.
        entry: which of the plan's entries is run; the first if None. States begin as zero, and each
            inference goes on from the one before.

    Raises:
        VeilgraphError: whatever is wrong at a party, as in `simulate`.
    """
    if isinstance(inputs, Mapping):
        batches = [inputs] * (warm_up + iterations)
    else:
        batches, warm_up = list(inputs), 0
    where: dict[str, Any] = {"device": device, "threads": threads, "isa": isa, "cubins": cubins}
    entries = None if entry is None else [entry] * len(batches)
    options = {**where, "trace": trace, "entries": entries}
    answer: Answer
    if processes:
        arrays = {name: np.asarray(w, np.float32) for name, w in weights.items()}
        answer, reports = simulate_processes(plan, arrays, batches, shape=shape, **options)
        memory = {party: report.peak_bytes for party, report in reports.items()}
    else:
        assert shape is None, "links of threads have no shape"
        answer = simulate_many(plan, weights, batches, **options)
        memory = {party: program.arena_bytes for party, program in plan.programs.items()}
    return Measurement(plan, answer.runs[warm_up:], answer.setup_seconds, memory, processes)


# Inputs where nobody gave any: no protocol's time depends on values


def random_inputs(plan: Plan, entry: int = 0) -> Arrays:
    """Uniform numbers in the range that the plan declares for each input of an entry."""
    return {tensor.name: _random(tensor) for tensor in plan_inputs(plan, entry)}


def random_weights(plan: Plan) -> Arrays:
    """Uniform numbers in place of the weights."""
    return {tensor.name: _random(tensor) for tensor in plan.secret_weights}


def _random(tensor: Tensor) -> npt.NDArray[Any]:
    """As its owner would give it."""
    key = randomness.fresh_seed()
    lanes = randomness.elements(key, 0, 0, tensor.elements, 32)
    unit = lanes.astype(np.float64).reshape(tensor.shape) / 2**32
    tables = tensor.given.categories
    if tables:
        texts = [np.asarray(t)[(unit * len(t)).astype(np.int64)] for t in tables]
        columns = [texts[n][..., n] for n in range(len(tables))]
        return texts[0] if len(tables) == 1 else np.stack(columns, axis=-1)
    if tensor.given.is_hashed:
        return lanes.reshape(tensor.shape)[..., : tensor.given_shape[-1]].astype(str)
    largest = min(UNBOUNDED, 2.0 ** (tensor.ring_bits - tensor.frac_bits - 2))
    low = tensor.low if np.isfinite(tensor.low) else -largest
    high = tensor.high if np.isfinite(tensor.high) else largest
    drawn = low + unit * (high - low)
    # The bounds are of what is encoded, which an owner divides by these powers of two first.
    exponents = tensor.column_exponents
    drawn = np.ldexp(drawn, exponents) if exponents else drawn
    width = (*tensor.given_shape, 0)[len(tensor.shape) - 1]
    return drawn[..., :width] if tensor.given.flagged else drawn


# What is reported


def values(measured: Measurement) -> dict[str, Any]:
    """The figures of `bench --json`, whose names scripts rely on: they stay."""
    plan, splits = measured.plan, measured.splits()
    return {
        "runs": len(measured.runs),
        "setup_seconds": vars(Spread.of([measured.setup_seconds])),
        "offline_seconds": vars(measured.seconds(Phase.OFFLINE)),
        "online_seconds": vars(measured.seconds(Phase.ONLINE)),
        "total_seconds": vars(measured.seconds(Phase.OFFLINE, Phase.ONLINE)),
        "rounds": plan.rounds(Phase.ONLINE, measured.entry),
        "sent_bytes": measured.sent_bytes(),
        "peak_memory_bytes": dict(measured.peak_memory_bytes),
        "network_seconds": {p: vars(measured.waiting(p)) for p in plan.manifest.parties},
        "kernel_seconds": {party: dict(split.kernels) for party, split in splits.items()},
        "encryption_seconds": {party: split.encryption for party, split in splits.items()},
        "waiting_seconds": {party: split.waiting for party, split in splits.items()},
        "other_seconds": {party: split.other for party, split in splits.items()},
    }


def tables(measured: Measurement) -> list[Table | str]:
    """The figures of `bench` for people."""
    split = timesplit.table(measured.splits())
    return [_seconds(measured), _links(measured), _parties(measured), split]


def _seconds(measured: Measurement) -> Table:
    plan, entry = measured.plan, measured.entry
    rows: list[tuple[str, Spread, object]] = [
        (
            "setup, once a session",
            Spread.of([measured.setup_seconds]),
            plan.rounds(Phase.SETUP),
        ),
        ("offline", measured.seconds(Phase.OFFLINE), plan.rounds(Phase.OFFLINE, entry)),
        ("online", measured.seconds(Phase.ONLINE), plan.rounds(Phase.ONLINE, entry)),
        ("offline and online", measured.seconds(Phase.OFFLINE, Phase.ONLINE), ""),
    ]
    if len(measured.runs) == 1:  # median, least and most are one
        return Table.of(
            "phase|#seconds|#rounds", [(name, units.seconds(x.median), n) for name, x, n in rows]
        )
    return Table.of(
        "phase|#median|#min|#max|#rounds",
        [
            (name, *(units.seconds(s) for s in (x.median, x.min, x.max)), rounds)
            for name, x, rounds in rows
        ],
    )


def _links(measured: Measurement) -> Table:
    sent = measured.sent_bytes()
    links = sorted({link for phase in sent.values() for link in phase})
    rows = [[link, *(units.size(sent[phase].get(link, 0)) for phase in sent)] for link in links]
    rows.append(["all", *(units.size(sum(sent[phase].values())) for phase in sent)])
    return Table.of("link|#setup|#offline|#online", rows)


def _parties(measured: Measurement) -> Table:
    memory = "peak memory" if measured.processes else "arena"
    rows = [
        (
            party,
            units.size(measured.peak_memory_bytes[party]),
            units.seconds(measured.waiting(party).median),
        )
        for party in measured.plan.manifest.parties
    ]
    return Table.of(f"party|#{memory}|#in links, median", rows)

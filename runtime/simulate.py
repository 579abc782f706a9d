"""All parties of a plan in one process, each on a thread of its own, with real randomness.

Tables, interpreter and rounds are those of separate hosts; only the links are queues. It shows
what a plan computes and sends. It protects nothing: one process sees all secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import PeerError, UsageError
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import Phase
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.names import DeviceName
from veilgraph.runtime.links.links import Links
from veilgraph.runtime.links.loopback import loopback
from veilgraph.runtime.party import Party
from veilgraph.runtime.randomness import fresh_nonce
from veilgraph.runtime.session.handshake import NO_DEALING, Terms, open_session
from veilgraph.runtime.session.keys import holders_of
from veilgraph.runtime.store.share_files import deal
from veilgraph.runtime.transcript import Transcript

Arrays = Mapping[str, npt.ArrayLike]
Devices = str | Mapping[str, str]
T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """One inference of all parties.

    Attributes:
        outputs: by name, float32.
        transcripts: of the inference, by party.
        entry: the number of the entry that was run.
    """

    outputs: dict[str, npt.NDArray[np.float32]]
    transcripts: dict[str, Transcript]
    entry: int = 0

    def seconds(self, *phases: Phase) -> float:
        """Of the slowest party, in these phases together."""
        return max(sum(t.phases[p].seconds for p in phases) for t in self.transcripts.values())


@dataclass(frozen=True, repr=False)
class Answer:
    """Outputs of one inference (or the last of several), and what all of them took.

    Attributes:
        outputs: by name, float32.
        rounds: of the last run's online phase.
        sent_bytes: of the last run, offline and online, by all parties together; setup apart.
        setup_seconds: once a session; sharing the weights.
        runs: every inference.
    """

    plan: Plan
    outputs: dict[str, npt.NDArray[np.float32]]
    setup_seconds: float
    runs: tuple[Run, ...]

    def __repr__(self) -> str:
        found = ", ".join(f"{name} {array.shape}" for name, array in self.outputs.items())
        return f"<Answer {found}: {self.rounds} rounds, {self.online_seconds:.3g} s online>"

    @property
    def rounds(self) -> int:
        return self.plan.rounds(Phase.ONLINE, self.runs[-1].entry)

    @property
    def sent_bytes(self) -> int:
        phases, entry = (Phase.OFFLINE, Phase.ONLINE), self.runs[-1].entry
        return sum(sum(self.plan.sent_bytes(phase, entry).values()) for phase in phases)

    @property
    def online_seconds(self) -> float:
        """Median over the runs, of the slowest party."""
        return float(np.median([run.seconds(Phase.ONLINE) for run in self.runs]))

    @property
    def offline_seconds(self) -> float:
        """Median over the runs, of the slowest party."""
        return float(np.median([run.seconds(Phase.OFFLINE) for run in self.runs]))


def entry_of(plan: Plan, name: str | None) -> int:
    """The number of an entry; the first one's if nobody names it.

    Raises:
        UsageError: the plan has none of this name.
    """
    entries = plan.manifest.entries
    if name is not None and name not in entries:
        near = get_close_matches(name, entries)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        raise UsageError(
            f"The plan has no entry `{name}`.", f"Its entries: {', '.join(entries)}.{meant}"
        )
    return entries.index(name) if name is not None else 0


def split_inputs(plan: Plan, inputs: Arrays, entry: int = 0) -> dict[str, dict[str, npt.ArrayLike]]:
    """Each party's own inputs to an entry.

    Raises:
        UsageError: a name that is no input of the model, or an input of other entries alone.
    """
    programs = plan.programs.items()
    owners = {t.name: party for party, p in programs for t in p.inputs if t.entry == entry}
    for name in inputs:
        if name not in plan.manifest.owners:
            known = ", ".join(n for n in plan.manifest.owners if n != "weights")
            raise UsageError(f"The model has no input `{name}`.", f"Its inputs are {known}.")
        if name not in owners and any(t.name == name for _, p in programs for t in p.inputs):
            raise UsageError(
                f"Entry `{plan.manifest.entries[entry]}` has no input `{name}`.",
                f"Its inputs are {', '.join(owners) or 'none'}.",
            )
    return {
        party: {name: x for name, x in inputs.items() if owners.get(name) == party}
        for party in plan.manifest.parties
    }


def devices_of(plan: Plan, device: Devices) -> dict[str, str]:
    """Each party's device: one for all, or by name, `cpu` for those that are not named.

    Raises:
        UsageError: no party of the plan, or no device.
    """
    parties = plan.manifest.parties
    by_name = dict.fromkeys(parties, device) if isinstance(device, str) else dict(device)
    for name, each in by_name.items():
        DeviceName.parse(each)
        if name not in parties:
            raise UsageError(
                f"{name} is no party of this plan.", f"Its parties are {', '.join(parties)}."
            )
    return {name: by_name.get(name, "cpu") for name in parties}


def simulate(
    plan: Plan,
    weights: Arrays,
    inputs: Arrays,
    *,
    iterations: int = 1,
    device: Devices = "cpu",
    threads: int = 1,
    isa: str | None = None,
    cubins: Path | None = None,
    entry: str | None = None,
) -> Answer:
    """Runs a plan with all parties in this process.

    Args:
        weights: all weights by name; those that are shared from files are dealt for this session.
        inputs: all inputs by name.
        iterations: inferences in one session, on the same inputs.
        device: where all parties compute, or where each does, by name; see devices/choose.py.
        threads: that each party's kernels may use.
        cubins: a folder of the GPU's kernels that `prepare` compiled.
        entry: which of the plan's entries is run; the first if None. States begin as zero, and each
            inference goes on from the one before.

    Raises:
        UsageError: no such entry, or an input that it does not have.
        UsageError, AccuracyError: as `Party.infer` and `Party.share_weights`.
    """
    return simulate_many(
        plan,
        weights,
        [inputs] * iterations,
        device=device,
        threads=threads,
        isa=isa,
        cubins=cubins,
        entries=None if entry is None else [entry] * iterations,
    )


def simulate_many(
    plan: Plan,
    weights: Arrays,
    batches: Sequence[Arrays],
    *,
    device: Devices = "cpu",
    threads: int = 1,
    isa: str | None = None,
    cubins: Path | None = None,
    trace: bool = False,
    entries: Sequence[str] | None = None,
    ahead: Callable[[Party, int], None] = lambda party, number: None,
) -> Answer:
    """One session in which every one of `batches` is an inference; see `simulate`.

    With `trace` the transcripts of the last one say when each step ran. `entries` names that of
    each batch; None stands for the plan's first. `ahead` is called at each party, on its thread,
    before each of them with its number.
    """
    named: Sequence[str | None] = entries or [None] * len(batches)
    numbers = [entry_of(plan, name) for name in named]
    own = [split_inputs(plan, x, number) for x, number in zip(batches, numbers, strict=True)]
    dealt = deal(plan, weights)
    places = {
        name: ready(each, plan, name, threads=threads, isa=isa, cubins=cubins)
        for name, each in devices_of(plan, device).items()
    }

    def work(
        links: Links,
    ) -> tuple[float, list[tuple[dict[str, npt.NDArray[np.float32]], Transcript]]]:
        name = plan.manifest.parties[links.party]
        with links:
            mine = dealt.get(name)
            dealing = mine.dealing if mine else NO_DEALING
            digest, ring_bits = bytes.fromhex(plan.digest), plan.manifest.ring_bits
            terms = Terms(digest, ring_bits, len(batches), dealing=dealing)
            # Parties of one process have no private keys: each has a secret of this run alone.
            session = open_session(links, terms, None, fresh_nonce(), holders_of(plan))
            with Party(plan, name, links, session.keys, places[name]) as party:
                setup = party.share_weights(weights, mine)
                done = []
                for number, inputs in enumerate(own):
                    if trace and number == len(own) - 1:
                        party.trace()
                    ahead(party, number)
                    done.append(party.infer(inputs[name], entry=numbers[number]))
            return setup.phases[Phase.SETUP].seconds, done

    results = in_threads(work, loopback(len(plan.manifest.parties), plan.manifest.parties))
    runs = []
    for number in range(len(batches)):
        outputs: dict[str, npt.NDArray[np.float32]] = {}
        for _, done in results:
            outputs.update(done[number][0])
        transcripts = {
            name: done[number][1]
            for name, (_, done) in zip(plan.manifest.parties, results, strict=True)
        }
        runs.append(Run(outputs, transcripts, numbers[number]))
    return Answer(plan, runs[-1].outputs, max(s for s, _ in results), tuple(runs))


def in_threads(work: Callable[[Links], T], links: Sequence[Links]) -> list[T]:
    """`work` for each party at once; raises the first cause, not the parties it stopped."""
    with ThreadPoolExecutor(len(links)) as pool:
        futures = [pool.submit(work, link) for link in links]
        errors = [error for f in futures if (error := f.exception()) is not None]
    causes = [error for error in errors if not isinstance(error, PeerError)]
    if errors:
        raise (causes or errors)[0]
    return [future.result() for future in futures]

"""A party of a session, in the shape of `onnxruntime.InferenceSession`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import SecurityAbort, UsageError, VeilgraphError
from veilgraph.ir.plan.tables import Phase, Tensor
from veilgraph.plans import Plan
from veilgraph.reports.units import counted
from veilgraph.runtime.devices.dataflow import replacing
from veilgraph.runtime.encoding import Words
from veilgraph.runtime.links.shaping import Shape
from veilgraph.runtime.session.handshake import MAX_INFERENCES, NO_DEALING, Origin
from veilgraph.runtime.session.keys import derive
from veilgraph.runtime.session.private_keys import secret_of
from veilgraph.runtime.session.setup import (
    FromStore,
    config_of,
    join,
    join_from_store,
    open_store,
    prepare,
    require_store,
    store_at,
)
from veilgraph.runtime.simulate import entry_of
from veilgraph.runtime.store.share_files import DealtShares, load_shares
from veilgraph.runtime.store.state_files import SavedState, load_state, save_state
from veilgraph.runtime.store.stored_runs import StoredRuns
from veilgraph.runtime.store.weights import load_weights
from veilgraph.runtime.transcript import Transcript
from veilgraph.training.runs.reveals import count_run, telling
from veilgraph.verification.consent import require_accepted
from veilgraph.verification.receipts import receipt_of, write_receipt
from veilgraph.verification.signatures import signature_file

LOG = logging.getLogger("veilgraph.session")
FACT_BYTES = 8  # of the digest of a fact that parties compare
Given = str | Path | Mapping[str, npt.ArrayLike] | DealtShares | None


@dataclass(frozen=True)
class _Weights:
    """What a party brings to the setup: weights of its own by name, or its shares of them."""

    arrays: Mapping[str, npt.ArrayLike] = field(default_factory=dict)
    dealt: DealtShares | None = None

    @property
    def dealing(self) -> bytes:
        return self.dealt.dealing if self.dealt else NO_DEALING

    @staticmethod
    def of(plan: Plan, party: str, given: Given, key: Path) -> _Weights:
        """What a user gives; UsageError or SecurityAbort where it is not what the plan needs."""
        program = plan.party(party)
        if program.shares:
            return _Weights(dealt=_dealt(plan, party, given, key))
        if isinstance(given, DealtShares):
            raise UsageError(f"{party} loads no shares of weights.", "Leave out its weights.")
        if program.weights and given is None:
            raise UsageError(
                f"{party} owns the weights, and none were given.",
                "Give model.weights, which `compile` wrote beside the plan, with --weights.",
            )
        if isinstance(given, str | Path):
            return _Weights(load_weights(given, plan.digest))
        return _Weights(given or {})


def _dealt(plan: Plan, party: str, given: Given, key: Path) -> DealtShares:
    if isinstance(given, str | Path):
        return load_shares(given, plan, party, key)
    if isinstance(given, DealtShares):
        given.check(plan, party)
        return given
    raise UsageError(
        f"{party} loads its shares of the weights, and they were not given.",
        f"Give model.{party}.shares, which `compile` wrote beside the plan, with --weights.",
    )


def require_party(plan: Plan, party: str) -> None:
    """UsageError for a party that the plan does not have."""
    if party not in plan.manifest.parties:
        names = ", ".join(plan.manifest.parties)
        raise UsageError(f"{party} is no party of this plan.", f"Its parties are {names}.")


class Session:
    """One party, connected with the others; weights are shared once, then it runs inferences.

    Args:
        plan: a plan, or the path of model.plan; the same at every party.
        party: this party's name.
        config: path of this party's parties.yaml.
        weights: path of model.weights, or arrays by name; the owner of the weights gives them. Of
            weights that are shared from files, this party's file, or what `deal` made for it.
        inferences: to run or prepare in this session, the same number at every party; 0 leaves it
            open, at every party too.
        device: where to compute, `cpu` or `cuda:0`; parties.yaml's if None.
        cubins: a folder of the GPU's kernels that `prepare` compiled; parties.yaml's if None.
        threads: that kernels may use.
        isa: instruction set of the kernels; the best of this CPU if None.
        insecure_plaintext: no TLS, for measurements; refused beyond loopback.
        timeout_seconds: how long a peer may be silent, in place of parties.yaml's.
        shape: of a network to imitate, for measurements; refused beyond loopback.
        store: a folder that `prepare` filled: weights and offline phases come from there.
        stored_entry: the entry that alone takes its offline phases from `store`; others run theirs
            in this session, so weights are given and who only deals is there. All parties name it,
            who has no store too; with no store at any all is live.
        resume: a file that this party saved with `save_state`: states begin as they were then, and
            else as zero. All parties go on from what the same run left, or all from zero. A list
            says from what this party can go on, newest first, None being zero: two at most. All
            take the first that all have. A file of it that can't be read counts as not there, and a
            warning says so, where another can.
        trust_author: don't verify the plan before this party takes part. That trusts whoever
            compiled it, or changed it since, with all that this party gives.
        signature: the file of the plan's signature, for a party whose parties.yaml says which
            plans it consents to; of a plan's path, PLAN.sig if None.

    Attributes:
        id: of this session, 32 bytes, public.
        resumed: the file from which all parties went on; None from zero.
        note: what goes with the states: what `save_state` was told to keep in the file, and empty
            once a run has replaced them, unless it is set anew. Of a checkpoint of training it says
            where that stands: so runs that tell somebody something are counted in `state_dir`.
        transcripts: of each run so far.

    Raises:
        UsageError: a file, a name or an option that makes no sense.
        PeerError: a peer that is lost, silent or shows another certificate.
        SecurityAbort: plans, weights, dealings, states or sessions that differ, a replay, or a plan
            that does not do what it says, less than its suite promises, or what this party's
            configuration does not consent to.
    """

    def __init__(
        self,
        plan: Plan | str | Path,
        party: str,
        config: str | Path,
        *,
        weights: Given = None,
        inferences: int = 0,
        device: str | None = None,
        threads: int = 1,
        isa: str | None = None,
        cubins: str | Path | None = None,
        insecure_plaintext: bool = False,
        timeout_seconds: float | None = None,
        shape: Shape | None = None,
        store: str | Path | None = None,
        stored_entry: str | None = None,
        resume: str | Path | list[str | Path | None] | None = None,
        trust_author: bool = False,
        signature: str | Path | None = None,
    ) -> None:
        if not isinstance(plan, Plan):
            signature = signature or signature_file(Path(plan))
        self.plan = plan if isinstance(plan, Plan) else Plan.load(plan)
        self._config = config_of(config, party).waiting(timeout_seconds)
        if not 0 <= inferences <= MAX_INFERENCES:
            raise UsageError(
                f"A session can't run {inferences} inferences.",
                f"Give a number up to {MAX_INFERENCES}, or 0 to leave it open.",
            )
        self._inferences = inferences
        options: dict[str, Any] = {
            "inferences": inferences,
            "device": device,
            "threads": threads,
            "isa": isa,
            "cubins": None if cubins is None else Path(cubins),
            "insecure_plaintext": insecure_plaintext,
            "shape": shape,
        }
        require_party(self.plan, party)
        start = time.perf_counter()
        signed = None if signature is None else Path(signature)
        require_accepted(self.plan, self._config, signed, trust_author=trust_author)
        if not trust_author:
            self._tell("the plan is verified", time.perf_counter() - start)
        begins = resume if isinstance(resume, list) else [resume]
        files = self._origins(begins) if self._keeps(begins) else {}
        options["origins"] = tuple(files)
        self._began = datetime.now(UTC)
        self.transcripts: list[Transcript] = []
        self.note = b""
        self._from_store: FromStore | None = None
        self._stored: StoredRuns | None = None
        number = entry_of(self.plan, stored_entry)
        opened = None
        if store is not None and stored_entry is not None:
            opened = open_store(self.plan, self._config, Path(store), number)
        start = time.perf_counter()
        if store is not None and opened is None:
            self._from_store = join_from_store(self.plan, self._config, Path(store), **options)
            self._party, self.id = self._from_store.party, self._from_store.session_id
            self._tell("connected with all parties", time.perf_counter() - start)
            self._begin_from(files.get(self._from_store.origin))
            return
        own = _Weights.of(self.plan, party, weights, self._config.key)
        joined = join(self.plan, self._config, dealing=own.dealing, **options)
        self._party, self.id = joined.party, joined.session_id
        self._tell("connected with all parties", time.perf_counter() - start)
        try:
            self._party.share_weights(own.arrays, own.dealt)
            self._tell("weights are shared", self.setup_seconds)
            self._begin_from(files.get(joined.origin))
            if stored_entry is not None:
                self._stored = StoredRuns.agreed(self._party, opened, number)
        except BaseException as error:
            self._party.__exit__(type(error), error, error.__traceback__)
            raise

    def _loaded(self, path: str | Path) -> SavedState:
        me = self._config.me.name
        return load_state(path, self.plan, me, secret_of(self._config.key))

    def _keeps(self, begins: list[str | Path | None]) -> bool:
        """Whether this party has states; a file that is given says why not."""
        return bool(self.plan.party(self._config.me.name).states) or begins != [None]

    def _origins(self, begins: list[str | Path | None]) -> dict[Origin, str | Path | None]:
        """From where this party can go on.

        A damaged file may be passed over: all go on from what all have, and where they have less
        in common than they should, they stop.
        """
        found: dict[Origin, str | Path | None] = {}
        damaged: list[VeilgraphError] = []
        for path in begins:
            try:
                found[self._origin(path)] = path
            except (SecurityAbort, UsageError) as error:
                damaged.append(error)
        if damaged and not any(path is not None for path in found.values()):
            raise damaged[0]
        for each in damaged:
            LOG.warning("%s It is passed over.", each.message)
        return found

    def _origin(self, path: str | Path | None) -> Origin:
        """What a file says, all of which is read, so that no damaged one is agreed on."""
        return Origin.zero() if path is None else self._loaded(path).origin

    def _begin_from(self, path: str | Path | None) -> None:
        self.resumed = None if path is None else Path(path)
        if path is not None:
            saved = self._loaded(path)
            self.note = saved.note
            self._party.put_state(saved.words)

    def own_number(self, use: str, context: bytes) -> int:
        """A number that no other party can compute, the same in each session; of 256 bits.

        Args:
            use: what it is for, and for nothing else.
            context: what else it depends on.
        """
        return int.from_bytes(derive(secret_of(self._config.key), use, context))

    def state(self, names: Collection[str]) -> dict[str, Words]:
        """This party's parts of these states, by `Share.key`, as the last run left them.

        Raises:
            SecurityAbort: a run that broke off has lost the states.
        """
        return self._party.state(names)

    def put_state(self, words: Mapping[str, Words]) -> None:
        """Lets the next run find these parts, of states that all parties put alike."""
        self._party.put_state(words)

    def save_state(self, path: str | Path, note: bytes | None = None) -> None:
        """Writes this party's parts of all states, as the last run left them, encrypted.

        A file that is there becomes `path` with .before behind it. Another session goes on from it
        with `resume`, if all parties saved after the same run.

        Args:
            note: what else the file keeps, for the other session's `note`; this one's if None.

        Raises:
            UsageError: a plan without states, or a place that can't be written to.
            SecurityAbort: a run that broke off has lost the states.
            ResourceLimitError: no room; what was there before is whole.
        """
        note = self.note if note is None else note
        saved = SavedState(self._party.state(), self.id, self._party.done, note)
        me = self._config.me.name
        save_state(path, self.plan, me, saved, secret_of(self._config.key))

    def write_receipt(self, path: str | Path) -> None:
        """Writes and signs what this party did so far: digests, names, times, counts; no value.

        Raises:
            UsageError: a place that can't be written to.
        """
        receipt = receipt_of(
            self._config.me.name,
            self._party.links.names,
            self.plan.digest,
            self.id,
            (self._began, datetime.now(UTC)),
            self._party.setup,
            self.transcripts,
        )
        write_receipt(receipt, self._config.key, Path(path))

    @property
    def state_dir(self) -> Path:
        """The party's folder for what outlives a session."""
        return self._config.state_dir

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What this party gives to each run."""
        return self._party.program.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """What this party gets from each run."""
        return self._party.program.outputs

    @property
    def setup_seconds(self) -> float:
        setup = self._party.setup.phases.get(Phase.SETUP)
        return setup.seconds if setup else 0.0

    def trace(self) -> None:
        """From here on `transcripts` say when each step ran."""
        self._party.trace()

    def run(
        self, inputs: Mapping[str, npt.ArrayLike], entry: str | None = None
    ) -> dict[str, npt.NDArray[np.float32]]:
        """One inference together with all other parties.

        Args:
            inputs: this party's own, by name; {} for one that has none.
            entry: which of the plan's entries is run, the same at all parties; the first if None.

        Returns:
            This party's outputs by name, float32; {} where it receives none.

        Raises:
            UsageError: an input that does not fit, no such entry, another one than the store was
                prepared for, or more inferences than the session is for.
            ResourceLimitError: a store that is used up; nothing was run.
            SecurityAbort: another entry than a peer's, or states that were lost.
        """
        self._require_left(1)
        number = entry_of(self.plan, entry)
        name = self.plan.manifest.entries[number]
        if self.note and name in self._telling:
            count_run(name, self.note, self.state_dir, self._config.me.name)
        if self._from_store is not None:
            outputs, transcript = self._from_store.infer(inputs, number, self._to_come())
        elif self._stored is not None and self._stored.entry == number:
            outputs, transcript = self._stored.infer(inputs)
        else:
            if self._stored is not None:
                self._stored.go_live()
            outputs, transcript = self._party.infer(inputs, entry=number)
        self.transcripts.append(transcript)
        self._tell_run("inference")
        if self.note and number in self.replacing:
            self.note = b""
        return outputs

    @cached_property
    def _telling(self) -> set[str]:
        return telling(self.plan)

    @cached_property
    def replacing(self) -> set[int]:
        """Numbers of the plan's entries whose runs replace states."""
        return replacing(self.plan)

    @property
    def left_in_store(self) -> int | None:
        """Runs of `stored_entry` that all parties have left; None where none has a store."""
        return None if self._stored is None else self._stored.left

    def answers(self, own: bytes, topic: str) -> dict[str, bytes]:
        """What each peer says where this party says `own`: as many bytes, which are public."""
        told = self._party.answers(own, topic)
        return {self._party.links.names[peer]: content for peer, content in told.items()}

    def differing(self, facts: Mapping[str, str]) -> list[tuple[str, str]]:
        """Which peers say other than this party, and of which of these facts, which are public.

        Every party asks at the same time, with facts of the same names.
        """
        own = [sha256(fact.encode()).digest()[:FACT_BYTES] for fact in facts.values()]
        found = []
        for peer, told in self.answers(b"".join(own), "facts").items():
            each = (told[i : i + FACT_BYTES] for i in range(0, len(told), FACT_BYTES))
            alike = zip(facts, own, each, strict=True)
            found += [(peer, fact) for fact, ours, theirs in alike if ours != theirs]
        return found

    def prepare(
        self,
        store: str | Path | None,
        count: int,
        entry: str | None = None,
        progress: Callable[[str], None] = lambda doing: None,
    ) -> None:
        """Runs `count` offline phases together with all parties, into a folder for later sessions.

        Args:
            store: the folder; None at a party that takes no part online, and keeps nothing.
            count: inferences to prepare.
            entry: which of the plan's entries they run, the same at all parties; the first if None.
            progress: called as each inference ends: "3 of 100 prepared".

        Raises:
            UsageError: the folder holds a store already, no folder at a party that takes part
                online or one at another, no such entry, or this session runs on a store itself.
            ResourceLimitError: no room; what was stored before is whole.
            SecurityAbort: another entry than a peer's.
        """
        if self._from_store is not None or self._stored is not None:
            raise UsageError("This session runs on a store.", "Prepare in a session without one.")
        self._require_left(count)
        folder = None if store is None else Path(store)
        require_store(self.plan, self._config.me.name, folder)
        kept = None if folder is None else store_at(folder, self._config)
        number = entry_of(self.plan, entry)
        done = len(self.transcripts)

        def ended(transcript: Transcript) -> None:
            self.transcripts.append(transcript)
            self._tell_run("offline phase")
            progress(f"{len(self.transcripts) - done} of {count} prepared")

        prepare(self._party, self.id, kept, count, number, ended)

    def _tell(self, what: str, seconds: float) -> None:
        """Tells the log what this party has done."""
        told = {"party": self._config.me.name, "seconds": seconds}
        LOG.info("%s: %s, %.3f s", told["party"], what, seconds, extra=told)

    def _tell_run(self, what: str) -> None:
        """Of the last run of this session."""
        of = f" of {self._inferences}" if self._inferences else ""
        seconds = sum(phase.seconds for phase in self.transcripts[-1].phases.values())
        self._tell(f"{what} {len(self.transcripts)}{of}", seconds)

    def _to_come(self) -> int:
        """Inferences that this session has still to run, as far as it was told: one or more."""
        return max(1, self._inferences - len(self.transcripts))

    def _require_left(self, count: int) -> None:
        """UsageError for more inferences than this party told the others."""
        if self._inferences and len(self.transcripts) + count > self._inferences:
            raise UsageError(
                f"This session is for {counted(self._inferences, 'inference')}, and has done "
                f"{len(self.transcripts)} already.",
                "Open another, or leave their number open at every party.",
            )

    def close(self) -> None:
        self._party.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._party.__exit__(kind, error, trace)

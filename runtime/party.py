"""One party of a session: its device, its links, and the plan's steps in order.

The setup phase runs once and shares the weights; then each inference runs the offline phase and the
online one. Nothing here knows a protocol: what is computed, drawn and sent is in the plan.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import PartyPlan, Phase, Tensor, rows_of
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.interface import MemoryRange, Ready
from veilgraph.runtime.encoding import Words, decode, encode, word_dtype
from veilgraph.runtime.links.links import Links
from veilgraph.runtime.phases import PhaseLoop, phase_loop, step_ranges
from veilgraph.runtime.randomness import fresh_seed, require_number
from veilgraph.runtime.session.keys import DrawKeys, Ratchet, SessionKeys
from veilgraph.runtime.store.share_files import DealtShares
from veilgraph.runtime.transcript import PhaseRecord, Transcript, predict

Array = npt.NDArray[np.float32]


@dataclass(eq=False)
class Prepared:
    """An inference whose offline phase is done: its number, its keys, and what that left.

    `memory` is empty while what the phase left is where it left it, in the party's own memory; and
    before that phase, of one that `Party.reserve` gave. `store` is the id of the store that it
    waited in, whose numbers are its own; empty for this session's.
    """

    number: int
    keys: DrawKeys
    memory: bytes = b""
    store: bytes = b""


def encoded_inputs(
    program: PartyPlan, inputs: Mapping[str, npt.ArrayLike], entry: int = 0
) -> list[tuple[Tensor, Words]]:
    """A party's own inputs to an entry as ring elements; see `Party.infer` for what is refused."""
    own = [tensor for tensor in program.inputs if tensor.entry == entry]
    names = [tensor.name for tensor in own]
    for name in inputs:
        if name not in names:
            owned = ", ".join(f"`{n}`" for n in names) or "none"
            raise UsageError(f"{program.party} has no input `{name}`.", f"Its inputs: {owned}.")
    for name in names:
        if name not in inputs:
            raise UsageError(
                f"{program.party} owns input `{name}`, and it was not given.",
                f"Give it with --input {shlex.quote(f'{name}=@FILE.npy')}.",
            )
    return [(t, encode(inputs[t.name], t)) for t in own]


class Party:
    """A party's part in one session.

    Args:
        plan: the plan, already compared with the other parties'.
        party: this party's name.
        links: open links to the others.
        keys: this session's keys; None where all inferences are prepared, and bring their own.
        device: where to compute, made ready before; the processor, on one thread, if None.
    """

    def __init__(
        self,
        plan: Plan,
        party: str,
        links: Links,
        keys: SessionKeys | None,
        device: Ready | None = None,
    ) -> None:
        self.plan = plan
        self.program: PartyPlan = plan.party(party)
        self.links = links
        index = {name: i for i, name in enumerate(plan.manifest.parties)}
        self._holders = [frozenset(index[n] for n in holders) for holders in self.program.keys]
        self._ratchet = None if keys is None else keys.ratchet()
        if keys is None:  # till then some that nobody shares: no draw is ever under a known key
            table = b"".join(fresh_seed() for _ in self._holders)
        else:
            table = keys.setup().table(self._holders)
        self.device = (device or ready("cpu", plan, party)).open(table)
        # By phase and entry: loops are made when first run, as not all links may be there before.
        self._loops: dict[tuple[Phase, int], tuple[PhaseLoop, PhaseRecord]] = {}
        self._places: dict[tuple[Phase, int], list[MemoryRange]] = {}
        self.setup = Transcript()
        self.runs = 0  # the latest inference that was begun with this session's keys
        self.done = 0  # inferences that ended, with whatever keys
        self._of_stores: dict[bytes, int] = {}  # the latest that was begun, by the store's id
        self._number = 0  # the one whose draws are made now
        self._reserved: set[int] = set()  # whose keys are made, and nothing was drawn with them
        self._ahead: set[int] = set()  # prepared here, and not run
        self._left: tuple[Prepared, int] | None = None  # still in memory, and its entry
        self._traces = False
        self._state_is_whole = True

    def share_weights(
        self, weights: Mapping[str, npt.ArrayLike], dealt: DealtShares | None = None
    ) -> Transcript:
        """The setup phase; `weights` are this party's own, by name.

        Args:
            dealt: this party's shares of weights that nobody owns, checked to fit the plan.

        Raises:
            UsageError: a weight that is missing or has another shape.
        """
        for tensor in self.program.weights:
            if tensor.name not in weights:
                raise UsageError(
                    f"{self.program.party} owns weight `{tensor.name}`, and it is not there.",
                    "Give the weights file that was written beside the plan.",
                )
            self._write(tensor, encode(weights[tensor.name], tensor))
        for share in self.program.shares:
            assert dealt is not None, "shares are loaded before a session begins"
            self._write(share, dealt.words[share.key])
        self._run(Phase.SETUP, self.setup)
        return self.setup

    def infer(
        self,
        inputs: Mapping[str, npt.ArrayLike],
        prepared: Prepared | None = None,
        entry: int = 0,
        *,
        is_agreed: bool = False,
    ) -> tuple[dict[str, Array], Transcript]:
        """One run of an entry: this party's outputs by name, and what it took.

        States are replaced when all of it is done; one that breaks off online leaves them lost.

        Args:
            inputs: this party's own, by name.
            prepared: its offline phase, run before; None runs it now.
            entry: its number in the plan; the same at all parties.
            is_agreed: whether `agree_on` said so already.

        Raises:
            UsageError: an input that is missing, unknown, of another shape or not finite.
            AccuracyError: an input outside its declared range.
            SecurityAbort: an inference that was run before; another entry than a peer's; or states
                that a run before has lost.
        """
        start = time.perf_counter()
        self._require_state()
        encoded = encoded_inputs(self.program, inputs, entry)
        if not is_agreed:
            self.agree_on(entry)
        own_seconds = time.perf_counter() - start
        transcript = Transcript()
        if prepared is None:
            self._run_offline(transcript, self._own(), entry)
        else:
            is_left = self._left == (prepared, entry)
            if self._traces and not is_left:
                self.device.trace()  # what ran last was not this inference's
            self._begin_prepared(prepared, is_left=is_left)
            if not is_left:
                self.restore(Phase.OFFLINE, prepared.memory, entry)
            transcript.phases[Phase.OFFLINE] = PhaseRecord()
        for tensor, words in encoded:
            self._write(tensor, words)
        self._state_is_whole = False
        self._run(Phase.ONLINE, transcript, entry)
        self._state_is_whole = True
        self.done += 1
        start = time.perf_counter()
        own = (t for t in self.program.outputs if t.entry == entry)
        outputs = {t.name: decode(self._words(t), t) for t in own}
        own_seconds += time.perf_counter() - start
        transcript.phases[Phase.ONLINE].seconds += own_seconds
        if self._traces:
            transcript.spans = self.device.spans
            self.device.trace()
        return outputs, transcript

    def stand_by(self) -> Transcript:
        """One run in which this party does nothing: its peers have the offline phase already."""
        self.done += 1
        return Transcript({Phase.OFFLINE: PhaseRecord(), Phase.ONLINE: PhaseRecord()})

    def _require_state(self) -> None:
        """SecurityAbort where a run broke off: some parties may have the states after it."""
        if self.plan.manifest.states and not self._state_is_whole:
            raise SecurityAbort(
                "A run broke off online, and its states are lost: peers may be a run ahead.",
                "Begin another session, from the states that all parties saved last.",
            )

    def agree_on(self, entry: int) -> None:
        """That all parties are about to run the same entry; said only where there are several.

        Raises:
            SecurityAbort: a peer is about to run another one.
        """
        names = self.plan.manifest.entries
        if len(names) == 1:
            return
        for peer, content in self.answers(bytes([entry]), "entry").items():
            if content[0] != entry:
                other = names[content[0]] if content[0] < len(names) else "another"
                raise SecurityAbort(
                    f"{self.links.names[peer]} runs entry `{other}`, and this party "
                    f"`{names[entry]}`.",
                    "Let all parties run the same entries, in the same order.",
                )

    def answers(self, own: bytes, topic: str) -> dict[int, bytes]:
        """What each peer says where this party says `own`: as many bytes, which are public."""
        peers = self.links.sent_bytes  # who only deals is away
        received = {peer: bytearray(len(own)) for peer in peers}
        self.links.exchange(dict.fromkeys(received, own), received, topic)
        return {peer: bytes(content) for peer, content in received.items()}

    def state(self, names: Collection[str] | None = None) -> dict[str, Words]:
        """This party's parts of states as the last run left them, by `Share.key`.

        Args:
            names: of these states alone; of all if None.

        Raises:
            SecurityAbort: a run that broke off has lost them.
        """
        self._require_state()
        parts = self.program.states
        return {p.key: self._words(p) for p in parts if names is None or p.name in names}

    def put_state(self, words: Mapping[str, Words]) -> None:
        """Goes on from what `state` gave, of all parties after the same run; others stay."""
        for part in self.program.states:
            if part.key in words:
                self._write(part, words[part.key])

    def trace(self) -> None:
        """From here on transcripts of inferences say when each step ran; of those before, none."""
        self._traces = True
        self.device.trace()

    def branch(self) -> Ratchet:
        """The keys of inferences that are prepared from here on; all parties branch at once."""
        return self._own().branch()

    def prepare(self, ratchet: Ratchet, entry: int = 0) -> tuple[Prepared, Transcript]:
        """The next inference's offline phase alone, and what it leaves for the online one.

        Args:
            ratchet: a branch, at this inference.
            entry: the number of the entry that the inference runs; see `agree_on`.

        Raises:
            SecurityAbort: an inference that was run before.
        """
        transcript = Transcript()
        keys = self._run_offline(transcript, ratchet, entry)
        return Prepared(self.runs, keys, self.kept(Phase.OFFLINE, entry)), transcript

    def reserve(self) -> Prepared:
        """The next inference's number and keys, for `prepare_ahead` and `infer` in this session.

        Those that are reserved are prepared and run in any order; `forget` one that never is.
        """
        ratchet = self._own()
        self._ratchet = ratchet.next()  # whatever happens, keys are used once
        self._reserved.add(ratchet.number)
        self.runs = max(ratchet.number, self.runs)
        return Prepared(ratchet.number, ratchet.keys())

    def prepare_ahead(self, reserved: Prepared, entry: int = 0) -> Transcript:
        """The offline phase of an inference that was reserved, alone and once.

        What is prepared here goes into no store, so it can't be run twice. What the phase left is
        copied when something else is about to run: a large network leaves 100 MB.

        Raises:
            SecurityAbort: an inference that was not reserved, or was prepared before.
        """
        transcript = Transcript()
        if self._traces:
            self.device.trace()
        self._begin(reserved.number, reserved.keys, self._reserved)
        self._run(Phase.OFFLINE, transcript, entry)
        self._ahead.add(reserved.number)
        self._left = reserved, entry
        return transcript

    def forget(self, reserved: Prepared) -> None:
        """An inference that was reserved is never run; what its offline phase left goes too."""
        self._reserved.discard(reserved.number)
        self._ahead.discard(reserved.number)
        if self._left is not None and self._left[0] is reserved:
            self._left = None

    def _run_offline(self, transcript: Transcript, ratchet: Ratchet, entry: int = 0) -> DrawKeys:
        if self._traces:
            self.device.trace()
        start = time.perf_counter()
        keys = ratchet.keys()
        self._begin(ratchet.number, keys, self._ahead)
        self._ratchet = self._own().at(ratchet.number + 1)  # whatever happens, keys are used once
        spent = time.perf_counter() - start
        self._run(Phase.OFFLINE, transcript, entry)
        transcript.phases[Phase.OFFLINE].seconds += spent
        return keys

    def _own(self) -> Ratchet:
        assert self._ratchet is not None, "this party's inferences are prepared ones"
        return self._ratchet

    def _begin(
        self, number: int, keys: DrawKeys, among: set[int], *, is_left: bool = False
    ) -> None:
        """From here on draws are those of an inference that was never run.

        Args:
            among: numbers that may begin though later ones did; this one is taken out.
            is_left: what its offline phase left is in memory; else that of another is copied first.
        """
        if number not in among:
            _require_later(number, self.runs)
        self._draw_as(number, keys, is_left=is_left)
        among.discard(number)
        self.runs = max(number, self.runs)

    def _begin_prepared(self, prepared: Prepared, *, is_left: bool) -> None:
        """The same, of one that was prepared: numbers of each store are counted by themselves."""
        number, store = prepared.number, prepared.store
        if not store:
            self._begin(number, prepared.keys, self._ahead, is_left=is_left)
            return
        _require_later(number, self._of_stores.get(store, 0))
        self._draw_as(number, prepared.keys, is_left=is_left)
        self._of_stores[store] = number

    def _draw_as(self, number: int, keys: DrawKeys, *, is_left: bool) -> None:
        require_number(number, 1 << 32)
        if self._left is not None and not is_left:
            left, entry = self._left
            left.memory = self.kept(Phase.OFFLINE, entry)
        self._left = None
        self._number = number
        self.device.rekey(keys.table(self._holders))

    def kept(self, phase: Phase, entry: int = 0) -> bytes:
        """What a phase left in memory for the phases after it."""
        places = self._kept(phase, entry)
        return b"".join(self.device.copy_out(place).data for place in places)

    def restore(self, phase: Phase, memory: bytes, entry: int = 0) -> None:
        """Puts back what `kept` gave."""
        places, start, whole = self._kept(phase, entry), 0, memoryview(memory)
        assert sum(count for _, count in places) == len(memory), "a store of another plan"
        for offset, count in places:
            self.device.copy_in(offset, whole[start : start + count])
            start += count

    def _kept(self, phase: Phase, entry: int) -> list[MemoryRange]:
        if (phase, entry) not in self._places:
            rows = rows_of(self.program.kept, phase, entry)
            found = [(int(row["offset"]), int(row["bytes"])) for row in rows]
            self._places[phase, entry] = found
        return self._places[phase, entry]

    def close(self) -> None:
        """Wipes the memory and closes the links."""
        self.wipe()
        self.links.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.wipe()
        self.links.__exit__(kind, error, trace)

    def wipe(self) -> None:
        """Overwrites the memory, and leaves the links as they are; nothing can be run any more."""
        self._loops.clear()  # its rounds hold memory of the device
        self._left = None
        self.device.close()

    # Steps

    def _run(self, phase: Phase, transcript: Transcript, entry: int = 0) -> None:
        record = transcript.phases[phase] = PhaseRecord()
        if (phase, entry) not in self._loops:
            ranges = step_ranges(self.program, phase, entry)
            made = phase_loop(self.device, self.links, ranges)
            self._loops[phase, entry] = made, predict(self.program, phase, entry)
        loop, predicted = self._loops[phase, entry]
        self.links.reset_counters()
        self.device.reset_profile()
        start = time.perf_counter()
        loop.run(self._number, record)
        record.seconds = time.perf_counter() - start
        record.kernels = {name: spent for name, spent in self.device.profile.items() if spent[0]}
        record.sent_bytes = {p: n for p, n in self.links.sent_bytes.items() if n}
        record.received_bytes = {p: n for p, n in self.links.received_bytes.items() if n}
        transcript.check(self.program.party, phase, predicted)

    # Tensors

    def _words(self, tensor: Tensor) -> Words:
        dtype = word_dtype(tensor.ring_bits)
        content = self.device.copy_out((tensor.offset, tensor.elements * dtype.itemsize))
        return content.view(dtype).reshape(tensor.shape)

    def _write(self, tensor: Tensor, words: Words) -> None:
        content = np.ascontiguousarray(words).reshape(-1).view(np.uint8)
        self.device.copy_in(tensor.offset, content)


def _require_later(number: int, latest: int) -> None:
    """SecurityAbort for an inference of numbers that began already."""
    if number <= latest:
        raise SecurityAbort(
            f"Inference {number} comes after inference {latest}: its randomness was used.",
            "Begin another session.",
        )

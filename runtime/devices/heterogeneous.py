"""A device of two: each step on the one where a partition has it, over a memory each.

Both memories have the whole arena. Which of its segments are good where is kept while steps run:
what a step reads is copied over first if the other has it, and what it writes is good on its side
alone. So any partition computes what one device does; a bad one is slow. Messages, inputs and
outputs are the host's: the first device's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

import numpy as np
import numpy.typing as npt

from veilgraph.ir.plan.tables import PartyPlan
from veilgraph.runtime.devices.dataflow import Access, Segments, accesses
from veilgraph.runtime.devices.interface import Device, MemoryRange, Piece, Places, Ready, Round
from veilgraph.runtime.devices.partition import GPU, HOST
from veilgraph.runtime.links.links import Buffer, byte_view

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class HeterogeneousReady:
    """See device.Ready.

    Attributes:
        partition: HOST or GPU for each step of the program; of rounds it is ignored.
    """

    program: PartyPlan
    host: Ready
    gpu: Ready
    partition: Sequence[int]

    @property
    def product(self) -> str:
        return f"{self.host.product} and {self.gpu.product}"

    def open(self, keys: bytes) -> HeterogeneousDevice:
        host = self.host.open(keys)
        try:
            gpu = self.gpu.open(keys)
        except BaseException:
            host.close()
            raise
        return HeterogeneousDevice(self.program, host, gpu, self.partition)


@dataclass(frozen=True)
class _Run:
    """Steps [first, last) on one side: segments that have to be good there before, and those that
    are good nowhere else after."""

    side: int
    first: int
    last: int
    reads: Numbers
    writes: Numbers


class MixedRound:
    """A round of the host; see device.Round. Segments are `kept` whose bytes stay in part."""

    def __init__(
        self, device: HeterogeneousDevice, made: Round, kept: Numbers, came: Numbers
    ) -> None:
        self._device, self._made, self._kept, self._came = device, made, kept, came

    @property
    def sends(self) -> Mapping[int, Buffer]:
        return self._made.sends

    @property
    def receives(self) -> Mapping[int, Buffer]:
        return self._made.receives

    def fetch(self) -> None:
        self._device.bring(HOST, self._kept)
        self._made.fetch()

    def deliver(self) -> None:
        self._made.deliver()
        self._device.wrote(HOST, self._came)


class HeterogeneousDevice:
    """See device.Device, and above."""

    def __init__(
        self, program: PartyPlan, host: Device, gpu: Device, partition: Sequence[int]
    ) -> None:
        assert len(partition) == len(program.steps), "a partition of another program"
        self._sides = host, gpu
        self._partition = partition
        self._accesses = accesses(program)
        self._segments = Segments(program, self._accesses)
        self._good = np.ones((2, len(self._segments)), np.bool_)  # zeros on both
        self._runs: dict[tuple[int, int], list[_Run]] = {}

    @property
    def native(self) -> None:
        """None: steps take turns between two devices."""

    def rekey(self, keys: bytes) -> None:
        for side in self._sides:
            side.rekey(keys)

    def run(self, first: int, last: int, run: int) -> None:
        for part in self._parts(first, last):
            self.bring(part.side, part.reads)
            self._sides[part.side].run(part.first, part.last, run)
            self.wrote(part.side, part.writes)

    def _parts(self, first: int, last: int) -> list[_Run]:
        if (first, last) not in self._runs:
            grouped = groupby(range(first, last), key=lambda step: self._partition[step])
            self._runs[first, last] = [self._part(side, list(steps)) for side, steps in grouped]
        return self._runs[first, last]

    def _part(self, side: int, steps: Sequence[int]) -> _Run:
        reads, writes = (np.zeros(len(self._segments), np.bool_) for _ in range(2))
        for step in steps:
            access: Access = self._accesses[step]
            for place in access.reads:
                where = self._segments.touching(place)
                reads[where] |= ~writes[where]
            for place in access.writes:
                writes[self._segments.touching(place)] = True
        found = np.flatnonzero(reads), np.flatnonzero(writes)
        return _Run(side, steps[0], steps[-1] + 1, *found)

    # Two memories

    def bring(self, side: int, segments: Numbers) -> None:
        """Copies to one side what of these segments is good on the other alone."""
        missing = segments[~self._good[side, segments]]
        to, source = self._sides[side], self._sides[1 - side]
        for place in self._segments.places(missing):
            content = source.copy_out(place)
            to.copy_in(place[0], content)
            content[:] = 0  # shares: nothing of them stays in the host's free memory
        self._good[side, missing] = True

    def wrote(self, side: int, segments: Numbers) -> None:
        """These segments are good on one side alone."""
        self._good[side, segments] = True
        self._good[1 - side, segments] = False

    def _touching(self, places: Iterable[MemoryRange]) -> Numbers:
        found = np.zeros(len(self._segments), np.bool_)
        for place in places:
            found[self._segments.touching(place)] = True
        return np.flatnonzero(found)

    def round(self, sends: Mapping[int, Places], receives: Mapping[int, Places]) -> MixedRound:
        sent, came = ([*chain(*each.values())] for each in (sends, receives))
        kept = self._touching([*sent, *came])
        for place in came:
            kept = np.setdiff1d(kept, np.arange(len(self._segments))[self._segments.inside(place)])
        kept = np.union1d(kept, self._touching(sent))
        made = self._sides[HOST].round(sends, receives)
        return MixedRound(self, made, kept, self._touching(came))

    def long_round(
        self, first: int, last: int, sends: Sequence[Piece], receives: Sequence[Piece]
    ) -> None:
        """None: what is sent is brought to the host when all steps are done."""

    def copy_in(self, offset: int, content: Buffer) -> None:
        segments = self._touching([(offset, len(byte_view(content)))])
        self.bring(HOST, segments)
        self._sides[HOST].copy_in(offset, content)
        self.wrote(HOST, segments)

    def copy_out(self, place: MemoryRange) -> npt.NDArray[np.uint8]:
        self.bring(HOST, self._touching([place]))
        return self._sides[HOST].copy_out(place)

    # Both

    def finish(self) -> None:
        for side in self._sides:
            side.finish()

    @property
    def profile(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for side in self._sides:
            for name, (calls, spent) in side.profile.items():
                before = found.get(name, (0, 0))
                found[name] = before[0] + calls, before[1] + spent
        return found

    def reset_profile(self) -> None:
        for side in self._sides:
            side.reset_profile()

    @property
    def spans(self) -> list[tuple[int, int, int]]:
        found = chain(*(side.spans for side in self._sides))
        return sorted(found, key=lambda span: span[1])

    def trace(self) -> None:
        for side in self._sides:
            side.trace()

    def note(self, step: int, start: int, end: int) -> None:
        self._sides[HOST].note(step, start, end)

    def close(self) -> None:
        try:
            self._sides[GPU].close()
        finally:
            self._sides[HOST].close()

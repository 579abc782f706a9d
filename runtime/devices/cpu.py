"""The device `cpu`: a native interpreter, whose memory the links read and write in place."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import ResourceLimitError, UsageError
from veilgraph.ir.plan.tables import PartyPlan
from veilgraph.kernels.native import library
from veilgraph.runtime._native import Interpreter
from veilgraph.runtime.devices.interface import MemoryRange, Piece, Places
from veilgraph.runtime.links.links import Buffer, byte_view

Bytes = npt.NDArray[np.uint8]


class InPlace:
    """A round whose messages are the interpreter's own memory; see device.Round.

    A message of several pieces goes by way of a copy.
    """

    def __init__(
        self, sends: Mapping[int, Sequence[Bytes]], receives: Mapping[int, Sequence[Bytes]]
    ) -> None:
        self.sends = {peer: _whole(pieces) for peer, pieces in sends.items()}
        self.receives = {peer: _whole(pieces) for peer, pieces in receives.items()}
        self._joined = {peer: pieces for peer, pieces in sends.items() if len(pieces) > 1}
        self._split = {peer: pieces for peer, pieces in receives.items() if len(pieces) > 1}

    def fetch(self) -> None:
        for peer, pieces in self._joined.items():
            np.concatenate(pieces, out=self.sends[peer])

    def deliver(self) -> None:
        for peer, pieces in self._split.items():
            start = 0
            for piece in pieces:
                piece[:] = self.receives[peer][start : start + len(piece)]
                start += len(piece)


def _whole(pieces: Sequence[Bytes]) -> Bytes:
    return pieces[0] if len(pieces) == 1 else np.empty(sum(map(len, pieces)), np.uint8)


@dataclass(frozen=True)
class CpuReady:
    """See device.Ready; the interpreter is made with the keys, since that takes no time."""

    program: PartyPlan
    constants: bytes
    threads: int
    isa: str | None

    @property
    def product(self) -> str:
        return "the processor"

    def open(self, keys: bytes) -> CpuDevice:
        return CpuDevice(self.program, self.constants, keys, self.threads, self.isa)


class CpuDevice:
    """A party's program on this machine's processor; see device.Device."""

    def __init__(
        self,
        program: PartyPlan,
        constants: bytes,
        keys: bytes,
        threads: int = 1,
        isa: str | None = None,
    ) -> None:
        self.interpreter = _interpreter(program, constants, keys, threads, isa)

    @property
    def native(self) -> Interpreter:
        return self.interpreter

    def rekey(self, keys: bytes) -> None:
        self.interpreter.rekey(keys)

    def run(self, first: int, last: int, run: int) -> None:
        self.interpreter.run(first, last, run)

    def round(self, sends: Mapping[int, Places], receives: Mapping[int, Places]) -> InPlace:
        return InPlace(
            {peer: [self._view(place) for place in places] for peer, places in sends.items()},
            {peer: [self._view(place) for place in places] for peer, places in receives.items()},
        )

    def long_round(
        self, first: int, last: int, sends: Sequence[Piece], receives: Sequence[Piece]
    ) -> None:
        """None: messages are where they have to be, and native phases overlap by themselves."""

    def copy_in(self, offset: int, content: Buffer) -> None:
        view = byte_view(content)
        self._view((offset, len(view)))[:] = np.frombuffer(view, np.uint8)

    def copy_out(self, place: MemoryRange) -> Bytes:
        return self._view(place).copy()

    def finish(self) -> None:
        """Nothing to wait for: steps are done when they return."""

    @property
    def profile(self) -> dict[str, tuple[int, int]]:
        return self.interpreter.profile

    def reset_profile(self) -> None:
        self.interpreter.reset_profile()

    @property
    def spans(self) -> list[tuple[int, int, int]]:
        return self.interpreter.spans

    def trace(self) -> None:
        self.interpreter.trace()

    def note(self, step: int, start: int, end: int) -> None:
        self.interpreter.note(step, start, end)

    def close(self) -> None:
        self.interpreter.wipe()

    def _view(self, place: MemoryRange) -> Bytes:
        offset, count = place
        arena = self.interpreter.arena
        assert 0 <= offset <= offset + count <= len(arena), "a place beyond the party's memory"
        return arena[offset : offset + count]


def _interpreter(
    program: PartyPlan, constants: bytes, keys: bytes, threads: int, isa: str | None
) -> Interpreter:
    """The native interpreter of a program.

    Raises:
        UsageError: a plan with a step that is out of bounds.
        ResourceLimitError: more memory than this machine has.
    """
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needs = ResourceLimitError(
        f"{program.party} needs {program.arena_bytes / 2**30:.2f} GiB for this plan, and this "
        f"machine has {memory_bytes / 2**30:.2f} GiB.",
        "Compile for a smaller batch with --shape, or a narrower --ring.",
    )
    if program.arena_bytes > memory_bytes:
        raise needs
    tables = (program.steps, program.buffers, program.params)
    steps, buffers, params = (np.ascontiguousarray(table).view(np.uint8) for table in tables)
    kernels = str(library(isa))
    size = program.arena_bytes
    try:
        return Interpreter(kernels, steps, buffers, params, constants, size, keys, threads)
    except MemoryError as error:
        raise needs from error
    except ValueError as error:
        raise UsageError(
            f"The plan can't be run: {error}.", "It may be damaged: compile it again."
        ) from error

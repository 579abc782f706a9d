"""Where a party computes: its memory and the kernels that work on it.

A device is never part of the wire: steps, messages and randomness are the same bits on each. There
is one now, `cpu`; `cuda` has its place here and in each kernel's folder.
"""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import ResourceLimitError, UsageError
from veilgraph.ir.plan import PartyPlan
from veilgraph.kernels.native import library
from veilgraph.runtime._native import Machine


class Device(Protocol):
    """A party's arena and its table of steps."""

    @property
    def arena(self) -> npt.NDArray[np.uint8]:
        """The party's memory, as the host sees it."""

    @property
    def profile(self) -> dict[str, tuple[int, int]]:
        """Calls and nanoseconds by kernel since `reset_profile`."""

    def run(self, first: int, last: int, run: int) -> None:
        """Steps [first, last), none of them a round, as inference number `run`."""

    def reset_profile(self) -> None: ...

    @property
    def spans(self) -> list[tuple[int, int, int]]:
        """Step, start and end of all that ran since `trace`, by `time.perf_counter_ns`."""

    def trace(self) -> None:
        """From here on keeps when each step ran, and forgets those before."""

    def note(self, step: int, start: int, end: int) -> None:
        """A step that ran elsewhere: a round."""

    def wipe(self) -> None:
        """Overwrites the arena with zeros."""


def open_device(
    name: str,
    program: PartyPlan,
    constants: bytes,
    keys: bytes,
    threads: int = 1,
    isa: str | None = None,
) -> Device:
    """A device with the program of one party, every step of it checked.

    Args:
        name: "cpu".
        keys: the session's keys in the plan's order.
        threads: that kernels may use.
        isa: instruction set of the kernels; the best of this CPU if None.

    Raises:
        UsageError: no such device, or a plan with a step that is out of bounds.
        ResourceLimitError: more memory than this machine has.
    """
    if name != "cpu":
        raise UsageError(f"There is no device `{name}`.", "Use cpu.")
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
        return Machine(kernels, steps, buffers, params, constants, size, keys, threads)
    except MemoryError as error:
        raise needs from error
    except ValueError as error:
        raise UsageError(
            f"The plan can't be run: {error}.", "It may be damaged: compile it again."
        ) from error

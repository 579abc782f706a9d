"""A party's steps as launches of CUDA kernels, once every step is proven to stay in its memory.

A plan is untrusted: the CPU library proves its tables before a launch is made of any of them, and
nothing of the sizes that they state is allocated for that.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan import ROUND, PartyPlan
from veilgraph.kernels import KERNELS
from veilgraph.kernels.cuda import DeviceShape, Launch, Source, buffers_of, launches
from veilgraph.kernels.native import library
from veilgraph.runtime._native import check_program

KEY_BYTES = 16


def check(program: PartyPlan, constants_bytes: int) -> None:
    """The proof that each step stays inside the party's memory and its parameters.

    Raises:
        UsageError: a step, a buffer or a table that is wrong, by name.
    """
    tables = (program.steps, program.buffers, program.params)
    steps, buffers, params = (np.ascontiguousarray(table).view(np.uint8) for table in tables)
    size, keys = program.arena_bytes, len(program.keys)
    try:
        check_program(str(library()), steps, buffers, params, size, constants_bytes, keys)
    except ValueError as error:
        raise UsageError(
            f"The plan can't be run: {error}.", "It may be damaged: compile it again."
        ) from error


def step_launches(program: PartyPlan, shape: DeviceShape) -> list[tuple[Launch, ...]]:
    """The launches of each step of a program that was checked, in order; none for rounds."""
    return [
        () if row["kernel"] == ROUND else _launches(program, row, shape) for row in program.steps
    ]


def _launches(program: PartyPlan, row: np.void, shape: DeviceShape) -> tuple[Launch, ...]:
    first, count = int(row["first_buffer"]), int(row["buffer_count"])
    start, length = int(row["first_param"]), int(row["param_count"])
    params: list[int] = program.params[start : start + length].tolist()
    buffers = buffers_of(program.buffers[first : first + count])
    return launches(KERNELS[int(row["kernel"])], buffers, params, shape)


def sources(program: PartyPlan, constants_bytes: int) -> list[Source]:
    """All that is compiled for a program on any card, each once."""
    check(program, constants_bytes)
    return distinct_sources(step_launches(program, DeviceShape(multiprocessors=1)))


def distinct_sources(steps: Iterable[Iterable[Launch]]) -> list[Source]:
    """The sources of all launches, each once, in the order of their digests."""
    by_digest = {each.source.digest: each.source for step in steps for each in step}
    return [by_digest[digest] for digest in sorted(by_digest)]

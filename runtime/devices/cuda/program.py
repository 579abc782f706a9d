"""A party's steps as launches of CUDA kernels, once every step is proven to stay in its memory.

A plan is untrusted: the CPU library proves its tables before a launch is made of any of them, and
nothing of the sizes that they state is allocated for that.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from veilgraph.ir.errors import DeviceError, ResourceLimitError, UsageError
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import ROUND, PartyPlan, Phase
from veilgraph.kernels import KERNELS
from veilgraph.kernels.cuda import (
    Buffer,
    DeviceShape,
    Launch,
    Placed,
    Source,
    buffers_of,
    placed,
)
from veilgraph.kernels.cuda.launch import SCHEDULE_BYTES
from veilgraph.kernels.cuda.steps import launches
from veilgraph.kernels.native import library
from veilgraph.runtime._native import check_program
from veilgraph.runtime.devices.cuda.drivers.interface import Driver, DriverFault
from veilgraph.runtime.devices.cuda.epilogues import Epilogue, candidates, epilogues
from veilgraph.runtime.devices.cuda.packing import fixed_buffers
from veilgraph.runtime.devices.cuda.prologues import Prologue, prologues
from veilgraph.runtime.devices.dataflow import Access, accesses
from veilgraph.runtime.devices.interface import MemoryRange

GIB = 2**30
# No GPU has more: with so many every depth is cut that any GPU cuts, and with one none is.
MOST_MULTIPROCESSORS = 256
NUMBER_BYTES = 16  # of an inference's number on the GPU: 8, and room to align what follows


@dataclass(frozen=True)
class CudaProgram:
    """A party's program for a GPU: proven, known to fit, laid out in launches, compiled.

    `laid` has the launches of each step, in order, none for rounds, and those that pack what lies
    at the places `packed` of the arena; `prologues` and `epilogues` may stand for several of its
    steps.
    """

    plan: Plan
    program: PartyPlan
    driver: Driver
    laid: Placed
    packed: tuple[MemoryRange, ...]
    prologues: tuple[Prologue, ...]
    epilogues: tuple[Epilogue, ...]

    @staticmethod
    def laid_out(
        plan: Plan, party: str, driver: Driver, fixed: Mapping[int, MemoryRange | None]
    ) -> CudaProgram:
        """In launches, of a program that was checked, with these buffers packed."""
        program = plan.party(party)
        shape = DeviceShape(driver.gpu.multiprocessors, driver.gpu.arch)
        found = accesses(program)
        laid, before = step_launches(program, found, shape, fixed)
        left_out = {step for made in before for step in made.sums}
        every = epilogues(program, found, _open_ended(laid, before), shape)
        after = tuple(each for each in every if each.follower not in left_out)
        places = tuple(place for place in fixed.values() if place is not None)
        return CudaProgram(plan, program, driver, laid, places, before, after)

    @property
    def sources(self) -> list[Source]:
        """All that is compiled, each once."""
        return _distinct_sources(self.laid, self.prologues, self.epilogues)

    @staticmethod
    def prepared(plan: Plan, party: str, driver: Driver) -> CudaProgram:
        """All that takes long or may be refused, before anybody waits for this party.

        Raises:
            UsageError: a plan with a step that is out of bounds, or kernels without machine code.
            ResourceLimitError: more memory than the GPU has free.
            DeviceError: the GPU failed.
        """
        program = plan.party(party)
        check(program, len(plan.constants))
        try:
            found = _fitting(plan, party, driver)
            require_memory(plan, program, driver, found.laid.beside_bytes)
            with driver.current():
                driver.prepare(found.sources)
        except DriverFault as fault:
            raise DeviceError(
                f"The {driver.gpu.name} failed: {fault}.", "`veilgraph doctor` looks at it."
            ) from fault
        return found


def _fitting(plan: Plan, party: str, driver: Driver) -> CudaProgram:
    """With operands packed if there is memory for it; without, kernels lay them out each time."""
    program = plan.party(party)
    packed = CudaProgram.laid_out(plan, party, driver, fixed_buffers(program))
    if needed_bytes(plan, program, packed.laid.beside_bytes) <= free_bytes(driver):
        return packed
    return CudaProgram.laid_out(plan, party, driver, {})


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


def step_launches(
    program: PartyPlan, found: Sequence[Access], shape: DeviceShape, fixed: Container[int]
) -> tuple[Placed, tuple[Prologue, ...]]:
    """The launches of each step of a program that was checked, in order, none for rounds; and what
    stands for sums and the products that read them. `found` are its steps' accesses, and `fixed`
    the rows of its buffer table that may be packed."""
    buffers = partial(_buffers, program, fixed)
    steps = [
        () if row["kernel"] == ROUND else _launches(program, row, buffers(row), shape)
        for row in program.steps
    ]
    before = prologues(program, found, steps, buffers, shape)
    laid = placed([*steps, *(each for made in before for each in made.products.values())])
    first, rest = laid.steps[: len(steps)], laid.steps[len(steps) :]
    return replace(laid, steps=first), _bound(before, rest)


def _open_ended(laid: Placed, before: Iterable[Prologue]) -> list[tuple[Launch, ...]]:
    """The launches of each step, where a product that makes sums takes no program at its end: that
    would read what the step of the sum has stored."""
    steps = list(laid.steps)
    for step in (step for made in before for step in made.products):
        *others, last = steps[step]
        steps[step] = (*others, replace(last, ending=None))
    return steps


def _bound(
    made: Sequence[Prologue], launches: Sequence[tuple[Launch, ...]]
) -> tuple[Prologue, ...]:
    """With the launches of all their products, in order."""
    rest = iter(launches)
    return tuple(
        replace(each, products={step: next(rest) for step in each.products}) for each in made
    )


def _buffers(program: PartyPlan, fixed: Container[int], row: np.void) -> list[Buffer]:
    return [
        replace(buffer, is_fixed=number in fixed)
        for number, buffer in enumerate(
            buffers_of(program.buffers_of(row)), int(row["first_buffer"])
        )
    ]


def _launches(
    program: PartyPlan, row: np.void, buffers: Sequence[Buffer], shape: DeviceShape
) -> tuple[Launch, ...]:
    params: list[int] = program.params_of(row).tolist()
    return launches(KERNELS[int(row["kernel"])], buffers, params, shape)


def sources(program: PartyPlan, constants_bytes: int, arch: str) -> list[Source]:
    """All that is compiled for a program on GPUs of an architecture, each once, however many
    multiprocessors they have."""
    check(program, constants_bytes)
    found, fixed = accesses(program), fixed_buffers(program)
    every: list[Source] = []
    for multiprocessors in (1, MOST_MULTIPROCESSORS):
        shape = DeviceShape(multiprocessors, arch)
        laid, before = step_launches(program, found, shape, fixed)
        after = candidates(program, found, _open_ended(laid, before), shape)
        every += _distinct_sources(laid, before, after)
    by_digest = {each.digest: each for each in every}
    return [by_digest[digest] for digest in sorted(by_digest)]


def _distinct_sources(
    laid: Placed, before: Iterable[Prologue], after: Iterable[Epilogue]
) -> list[Source]:
    """The sources of all launches, each once, in the order of their digests."""
    of_products = (step for made in before for step in made.products.values())
    of_steps = (launch for step in (*laid.steps, *of_products) for launch in step)
    every = (*laid.fills, *of_steps, *(each.launch for each in after))
    by_digest = {each.source.digest: each.source for each in every}
    return [by_digest[digest] for digest in sorted(by_digest)]


def free_bytes(driver: Driver) -> int:
    """Of the GPU's memory, now."""
    with driver.current():
        return driver.free_bytes()


def needed_bytes(plan: Plan, program: PartyPlan, beside: int) -> int:
    """Arena, constants, keys, and what the kernels want beside them."""
    return program.arena_bytes + len(plan.constants) + session_bytes(program) + beside


def require_memory(plan: Plan, program: PartyPlan, driver: Driver, beside: int) -> None:
    """ResourceLimitError unless arena, constants, keys and what kernels want `beside` them fit what
    the GPU has free."""
    free, needed = free_bytes(driver), needed_bytes(plan, program, beside)
    if needed > free:
        raise ResourceLimitError(
            f"{program.party} needs {needed / GIB:.2f} GiB for this plan, and the "
            f"{driver.gpu.name} has {free / GIB:.2f} GiB free.",
            _smaller(plan, program, needed - program.arena_bytes, free),
        )


def session_bytes(program: PartyPlan) -> int:
    """Of what the session has on the GPU: an inference's number, then the key schedules."""
    return NUMBER_BYTES + SCHEDULE_BYTES * len(program.keys)


def _smaller(plan: Plan, program: PartyPlan, beside: int, free: int) -> str:
    """What to do about too little memory: the largest batch that could fit, if any does.

    What setup keeps stays as it is, and so does what lies `beside` the arena; all else in the arena
    is taken to grow with the batch. What does not makes the number too large.
    """
    batches = {t.shape[0] if t.shape else 1 for p in plan.programs.values() for t in p.inputs}
    kept = int(program.kept["bytes"][program.kept["phase"] == Phase.SETUP].sum())
    if len(batches) == 1:
        batch = batches.pop()
        fits = (free - kept - beside) * batch // max(program.arena_bytes - kept, 1)
        if 1 <= fits < batch:
            return f"Compile for a batch of at most {fits} with --shape, or a narrower --ring."
    return "Compile for a narrower --ring, or take a GPU with more memory."

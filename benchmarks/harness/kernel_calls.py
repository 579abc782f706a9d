"""One kernel over random memory, timed on a device: no protocol, no message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import (
    BUFFER,
    KEPT,
    MESSAGE,
    STEP,
    BufferKind,
    Manifest,
    PartyPlan,
    Phase,
)
from veilgraph.kernels import KERNELS
from veilgraph.kernels.fused.declaration import instruction, program
from veilgraph.runtime.devices.choose import ready

KEY = bytes(range(16))
ALIGNMENT = 64
PARTY = "alice"
MANIFEST = Manifest(
    veilgraph_version="",
    lowering=0,
    suite="",
    security="",
    parties=(PARTY,),
    roles={PARTY: "computing"},
    owners={},
    receivers={},
    network={},
    ring_bits=64,
    encoding="",
)


@dataclass(frozen=True)
class Words:
    """A contiguous buffer of 32- or 64-bit words."""

    shape: tuple[int, ...]
    bits: int

    @property
    def size_bytes(self) -> int:
        return int(np.prod(self.shape)) * self.bits // 8


class Call:
    """A kernel on buffers that lie one after another in an arena of random bytes.

    Args:
        device: where, by name; see veilgraph.runtime.devices.choose.
        isa: instruction set of a processor's kernels; its best if None.
    """

    def __init__(
        self,
        kernel: str,
        buffers: Sequence[Words],
        params: Sequence[int] | npt.NDArray[np.int64],
        device: str = "cpu",
        isa: str | None = None,
    ) -> None:
        program = one_step(kernel, buffers, params)
        plan = Plan(MANIFEST, {PARTY: program}, ())
        self._device = ready(device, plan, PARTY, isa=isa).open(KEY)
        random = np.random.default_rng(0).integers(0, 256, program.arena_bytes, np.uint8)
        self._device.copy_in(0, random)
        self._number = 0

    def seconds(self) -> float:
        """Of one call."""
        self._device.reset_profile()
        self._number += 1
        self._device.run(0, 1, self._number)
        ((_, nanoseconds),) = (each for each in self._device.profile.values() if each[0])
        return nanoseconds / 1e9

    def median_seconds(self, runs: int) -> float:
        """Of `runs` calls after one that isn't counted."""
        self.seconds()
        return median(self.seconds() for _ in range(runs))


def one_step(
    kernel: str, buffers: Sequence[Words], params: Sequence[int] | npt.NDArray[np.int64]
) -> PartyPlan:
    """The program of a party that only calls this kernel, and knows one key."""
    table, end = np.zeros(len(buffers), BUFFER), 0
    for row, buffer in zip(table, buffers, strict=True):
        rank = len(buffer.shape)
        row["offset"], row["bits"], row["rank"] = end, buffer.bits, rank
        row["kind"] = BufferKind.WORDS64 if buffer.bits == 64 else BufferKind.WORDS32
        row["shape"][:rank] = buffer.shape
        row["strides"][:rank] = [int(np.prod(buffer.shape[axis + 1 :])) for axis in range(rank)]
        end += -(-buffer.size_bytes // ALIGNMENT) * ALIGNMENT
    step = np.zeros(1, STEP)
    step["kernel"], step["phase"] = KERNELS.index(kernel), Phase.ONLINE
    step["buffer_count"], step["param_count"] = len(buffers), len(params)
    return PartyPlan(
        party=PARTY,
        steps=step,
        buffers=table,
        messages=np.zeros(0, MESSAGE),
        params=np.asarray(params, np.int64),
        kept=np.zeros(0, KEPT),
        arena_bytes=end,
        keys=((PARTY,),),
    )


def fused(
    elements: int, words: int, bits: int, instructions: Sequence[dict[str, int]]
) -> npt.NDArray[np.int64]:
    """Parameters of a fused program; fields that an instruction leaves out are 0."""
    return program(elements, words, bits, [instruction(**each) for each in instructions])

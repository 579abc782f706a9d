"""Where a party computes: the door to devices, which are found by name.

    cpu              this machine's processor (cpu_device.py)

A device holds one party's memory and runs its steps. It is never part of the wire: steps, messages
and randomness are the same bits on each, so parties on different devices compute together.
"""

from __future__ import annotations

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan import PartyPlan
from veilgraph.runtime.cpu_device import CpuDevice
from veilgraph.runtime.device import Device


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
    return CpuDevice(program, constants, keys, threads, isa)

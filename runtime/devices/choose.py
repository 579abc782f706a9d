"""Where a party computes: the door to devices, which are found by name (`names.py`).

| name | device |
| --- | --- |
| `cpu` | this machine's processor (`cpu.py`) |
| `cuda`, `cuda:N` | its GPU number N, or 0 (`cuda/`) |
| `auto`, `auto:N` | both, each step where it is cheaper by a table of costs (`minimum_cut.py`) |
| `host-emulator` | the GPU's code on the processor: for tests, where parties are threads |

Behind a GPU's name, `,no-graphs` has every kernel launched by itself: for debugging.

A device holds one party's memory and runs its steps. It is never part of the wire: steps, messages
and randomness are the same bits on each, so parties on different devices compute together.
"""

from __future__ import annotations

from pathlib import Path

from veilgraph.ir.plan.plan import Plan
from veilgraph.runtime.devices.cpu import CpuReady
from veilgraph.runtime.devices.interface import Ready
from veilgraph.runtime.devices.names import AUTO, CPU, HOST_EMULATOR, NO_GRAPHS, DeviceName


def ready(
    name: str,
    plan: Plan,
    party: str,
    *,
    threads: int = 1,
    isa: str | None = None,
    cubins: Path | None = None,
) -> Ready:
    """A device that is ready for the program of one party.

    Whatever takes long is done here, so that no peer waits for it: a GPU's kernels are compiled.

    Args:
        name: as in the table above.
        threads: that kernels may use on the processor.
        isa: instruction set of the processor's kernels; its best if None.
        cubins: a folder of the GPU's kernels that `prepare` compiled; this user's cache comes next.

    Raises:
        UsageError: no such device, or a plan with a step that is out of bounds.
        ResourceLimitError: more memory than the device has.
        DeviceError: a device that fails.
    """
    found = DeviceName.parse(name)
    if found.kind == CPU:
        return CpuReady(plan.party(party), plan.constants, threads, isa)
    if found.kind == AUTO:
        from veilgraph.runtime.devices.minimum_cut import by_costs

        gpu = found.gpu + ("" if found.graphs else NO_GRAPHS)
        host = CpuReady(plan.party(party), plan.constants, threads, isa)
        return by_costs(
            plan, party, found.gpu, host, lambda: ready(gpu, plan, party, cubins=cubins)
        )
    # Most parties have no GPU, and what one takes is a fifth of all that they would load.
    from veilgraph.runtime.devices.cuda.opening import on_emulator, on_gpu

    if found.kind == HOST_EMULATOR:
        return on_emulator(plan, party, found.graphs)
    return on_gpu(plan, party, found.index, cubins, found.graphs)

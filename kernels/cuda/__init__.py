"""The CUDA side of the kernels: what a device compiles and launches for each step of a plan.

    launches(kernel, buffers, params, device) -> Launch(source, entry, grid, block, arguments), ...

A device compiles each `Source` once (equal ones have equal digests), binds a launch's arguments to
addresses, and launches it. Nothing here needs a GPU, a driver or a compiler: printed programs and
`kernels/*/cuda.cu` are text. `kernels/cuda/emulator` runs the same text on the host.

| file | holds |
| --- | --- |
| `source.py` | `Source`: a translation unit, its headers, its digest |
| `launch.py` | `Launch` and its arguments; the layout of key schedules |
| `packed.py` | places of what launches want laid out once a session |
| `buffers.py` | `Buffer`: a row of a plan's buffer table |
| `strided.py` | walks over strided arrays, as the kernels take them |
| `steps.py` | `launches`: it imports all kernels, and they the rest, so it goes by its own name |
| `emulator/` | the host's stand-in for a GPU |
"""

from veilgraph.kernels.cuda.buffers import Buffer, Kind, buffers_of
from veilgraph.kernels.cuda.launch import (
    Argument,
    DeviceShape,
    Ending,
    Keys,
    Launch,
    Pointer,
    Run,
    Sums,
    key_schedules,
)
from veilgraph.kernels.cuda.packed import Placed, placed
from veilgraph.kernels.cuda.source import FLAGS, ROOT, Source

__all__ = [
    "FLAGS",
    "ROOT",
    "Argument",
    "Buffer",
    "DeviceShape",
    "Ending",
    "Keys",
    "Kind",
    "Launch",
    "Placed",
    "Pointer",
    "Run",
    "Source",
    "Sums",
    "buffers_of",
    "key_schedules",
    "placed",
]

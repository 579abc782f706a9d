"""The memory of this process, as Linux counts it: resident pages, now and at most so far."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Memory:
    """Bytes that a process holds, and the most that it ever held."""

    held_bytes: int
    peak_bytes: int

    @staticmethod
    def now() -> Memory:
        """Of this process alone; getrusage would count its parent's, before exec."""
        lines = Path("/proc/self/status").read_text().splitlines()
        kilobytes = {
            name: rest.split()[0]
            for name, _, rest in (x.partition(":") for x in lines)
            if name in ("VmRSS", "VmHWM")
        }
        return Memory(int(kilobytes["VmRSS"]) << 10, int(kilobytes["VmHWM"]) << 10)

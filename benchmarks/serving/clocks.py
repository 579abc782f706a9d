"""A clock of a process that is moved while it runs: moved_clock.c, compiled when it is used."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("moved_clock.c")
_MOVED = struct.Struct("<qq")  # ns: the time of day, and monotonic clocks


class Clock:
    """Of all processes that are started with its environment.

    Args:
        folder: where its files go.
        name: of them.
        moves_timers: whether waits end by the moved clock too.

    Raises:
        SystemExit: no C compiler here.
    """

    def __init__(self, folder: Path, name: str, *, moves_timers: bool = False) -> None:
        path = folder / f"{name}.clock"
        path.write_bytes(bytes(_MOVED.size))
        with path.open("r+b") as file:
            self._moved = mmap.mmap(file.fileno(), _MOVED.size)
        self.environment = {"LD_PRELOAD": str(_library(folder)), "MOVED_CLOCK": str(path)}
        if moves_timers:
            self.environment["MOVED_TIMERS"] = "1"

    def move(self, day_seconds: float, monotonic_seconds: float = 0.0) -> None:
        """So far from the host's clocks, from now on; not from where they were moved to."""
        both = (round(1e9 * each) for each in (day_seconds, monotonic_seconds))
        _MOVED.pack_into(self._moved, 0, *both)


def _library(folder: Path) -> Path:
    made = folder / "moved_clock.so"
    if not made.exists():
        compiler = shutil.which("cc")
        if compiler is None:
            raise SystemExit("moving clocks takes a C compiler, `cc`, and none is here")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", made, SOURCE], check=True)
    return made

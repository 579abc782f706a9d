"""Types of the native module; runtime/native/bindings.cpp is its source."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

# Contiguous memory of any kind.
Bytes: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[Any]

class Machine:
    """A party's memory and its table of steps, every step checked before anything runs.

    Args:
        library: path of a kernel library (`veilgraph.kernels.native.library`).
        steps: STEP records of veilgraph.ir.plan; copied, as are the next four.
        buffers: BUFFER records.
        params: int64 parameters of the kernels.
        constants: the plan's public constants; read-only for kernels.
        arena_bytes: size of the party's memory, zeroed at first.
        keys: AES-128 keys, 16 bytes each.
        threads: that kernels may use, the caller's included.
        max_arena_bytes: larger arenas are refused.

    Raises:
        ValueError: a table, a buffer or a step is wrong; the message names it and says why.
        RuntimeError: `library` is no kernel library.
        MemoryError: the system does not have the memory.
    """

    def __init__(
        self,
        library: str,
        steps: Bytes,
        buffers: Bytes,
        params: Bytes,
        constants: Bytes,
        arena_bytes: int,
        keys: Bytes,
        threads: int = 1,
        *,
        max_arena_bytes: int = ...,
    ) -> None: ...
    def run(self, first: int, last: int, run: int) -> None:
        """Run the kernel steps [first, last) as inference number `run`, without Python's lock.

        Raises:
            ValueError: the steps do not exist, or one of them is a round.
            RuntimeError: a step failed (named with its kernel), or the machine is running already.
        """

    def wipe(self) -> None:
        """Overwrite the arena and all scratch memory with zeros."""

    def reset_profile(self) -> None: ...
    def __len__(self) -> int:
        """The number of steps, rounds included."""

    @property
    def arena(self) -> npt.NDArray[np.uint8]:
        """The party's memory, writable; the view keeps the machine alive."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the library's kernels, in the order of their numbers."""

    @property
    def profile(self) -> dict[str, tuple[int, int]]:
        """Calls and nanoseconds by kernel, since the start or `reset_profile`."""

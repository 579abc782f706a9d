"""One kernel launch, and what its arguments are bound to.

Every kernel parameter is 64 bits wide, or a struct of such: the arguments of a launch, one 64-bit
word each and in order, are the kernel's parameter buffer as the driver takes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from veilgraph.kernels.cuda.source import Source
from veilgraph.kernels.fused.aes import expand_key

KEY_BYTES = 16
SCHEDULE_BYTES = 176  # 11 round keys
SCRATCH = 2  # the region that launches of one step leave each other something in
PACKED = 3  # the region of what is laid out once a session


@dataclass(frozen=True)
class Pointer:
    """An address: `offset` bytes into a region (0: the arena, 1: the public constants, SCRATCH,
    PACKED)."""

    region: int
    offset: int


@dataclass(frozen=True)
class Keys:
    """The address of the session's key schedules, as `key_schedules` lays them out."""


@dataclass(frozen=True)
class Run:
    """The address of the inference's number in the session, 64 bits; the number is 0 in setup.

    Kernels read it when they run, so a launch's parameters are the same in every inference.
    """


_SHARED_KIB = {"sm_80": 163, "sm_87": 163, "sm_90": 227, "sm_100": 227, "sm_103": 227}
_LEAST_SHARED_KIB = 99  # of sm_86, sm_89 and sm_120


@dataclass(frozen=True)
class Packed:
    """The address of `bytes` bytes that `launches` write once setup is done, and nothing later.

    In these launches Pointer(PACKED, 0) is where the bytes begin. What is equal is written once;
    kernels/cuda/packed.py gives each its place.
    """

    bytes: int
    launches: tuple[Launch, ...]


Argument: TypeAlias = Pointer | Packed | Keys | Run | int


@dataclass(frozen=True)
class DeviceShape:
    """What the shape of a launch depends on. Results never do.

    Attributes:
        multiprocessors: how many blocks work at a time; what is compiled doesn't depend on it.
        arch: the architecture, as nvcc calls it.
    """

    multiprocessors: int
    arch: str = "sm_80"

    @property
    def shared_bytes(self) -> int:
        """The most that a block gets (CUDA C++ Programming Guide, "Compute Capabilities")."""
        return _SHARED_KIB.get(self.arch, _LEAST_SHARED_KIB) << 10


@dataclass(frozen=True)
class Sums:
    """What a launch stores to a buffer, in words a printed program can make in place of loading.

    Attributes:
        place: the buffer, contiguous.
        word_bits: of its elements.
        elements: of it.
        header: what the program's unit includes and defines.
        parameters: of its kernel, in C++, a type and a name each.
        arguments: theirs.
        expression: the `Words` of a `Tile tile` of the buffer; kernels/fused/words.cuh.
    """

    place: Pointer
    word_bits: int
    elements: int
    header: str
    parameters: tuple[str, ...]
    arguments: tuple[Argument, ...]
    expression: str


@dataclass(frozen=True)
class Ending:
    """How a launch that stores sums takes a program of words in place of its stores.

    Attributes:
        place, word_bits, elements: of the buffer that it stores to, as in Sums.
        name, entry: of the source and the kernel with the program.
        header, kernel: the source before and after the program, which is `veil::Program`.
        stored: how many of the launch's last arguments the program's take the place of.
    """

    place: Pointer
    word_bits: int
    elements: int
    name: str
    entry: str
    header: str
    kernel: str
    stored: int


@dataclass(frozen=True)
class Launch:
    """A kernel `entry` of `source` over a grid of blocks of threads.

    `shared_bytes` is dynamic shared memory, `scratch_bytes` what the region SCRATCH has to hold:
    junk before a step, and secret. Launches of a step run in order, and so do steps: each sees what
    those before it wrote. `cluster` is how many neighbouring blocks see each other's shared memory,
    as the source says too (`__cluster_dims__`). A launch that does
    nothing but store what it makes of scratch memory says so in `sums`, and one that could hand its
    sums to a program instead in `ending`.
    """

    source: Source
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    scratch_bytes: int = 0
    cluster: int = 1
    sums: Sums | None = None
    ending: Ending | None = None

    def bind(self, regions: Sequence[int], keys: int, run: int) -> npt.NDArray[np.uint64]:
        """The parameter buffer, given the addresses of the regions, of the key schedules and of
        the inference's number; what is packed has its place."""

        def word(argument: Argument) -> int:
            assert not isinstance(argument, Packed), "what is packed has no place yet"
            if isinstance(argument, Pointer):
                return regions[argument.region] + argument.offset
            if isinstance(argument, Keys):
                return keys
            return run if isinstance(argument, Run) else argument

        return np.array([word(a) % (1 << 64) for a in self.arguments], np.uint64)


def key_schedules(keys: bytes) -> npt.NDArray[np.uint8]:
    """The schedules of AES-128 keys of 16 bytes each, as [keys, 176] (FIPS 197, section 5.2)."""
    count = len(keys) // KEY_BYTES
    assert len(keys) == count * KEY_BYTES
    out = np.empty((count, SCHEDULE_BYTES), np.uint8)
    for i in range(count):
        out[i] = expand_key(keys[KEY_BYTES * i : KEY_BYTES * (i + 1)]).reshape(-1)
    return out


THREADS = 256  # of a block, where nothing asks for another number
_BLOCKS_PER_MULTIPROCESSOR = 8  # 2048 threads, all that a multiprocessor holds


def grid_stride(items: int, device: DeviceShape) -> tuple[int, int, int]:
    """Blocks of THREADS that walk over `items`, a thread each, in strides of the whole grid."""
    most = device.multiprocessors * _BLOCKS_PER_MULTIPROCESSOR
    return min(-(-items // THREADS), most), 1, 1

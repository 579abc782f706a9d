"""The host's stand-in for a GPU: compiles a `Source` with a C++ compiler and runs its kernels.

For tests of index arithmetic where there is no GPU, and for the runtime's logic around a device:
the text is what a GPU runs, thread for thread (`fibers.cuh`), and nothing is fast.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.kernels.cuda.launch import Launch, key_schedules
from veilgraph.kernels.cuda.source import FLAGS, ROOT, Source

# A GPU takes vectors from multiples of their size alone, and ends a program that takes others. So
# does this: by a trap, of which faulthandler tells where Python was. A test launches a text a few
# times: what -O1 does beyond -Og takes longer than it saves.
_COMPILE: tuple[str, ...] = (
    *FLAGS, "-Og", "-fno-strict-aliasing", "-fPIC", "-U_FORTIFY_SOURCE",
    "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error",
)  # fmt: skip
# The emulator's own code states what must be aligned. A trap between products would keep them from
# being made as vectors, and they are most of the time.
_FAST = ("-O3", "-fno-semantic-interposition", "-fno-plt", "-fno-sanitize=alignment")
# All that stands in for a GPU, which each source includes some of; and its own code, which each
# source is linked with.
_COMMON = Source("emulator", '#include "kernels/cuda/emulator/hopper.cuh"\n', ())
_BODIES = Source(
    "emulator_bodies",
    "".join(
        f'#include "kernels/cuda/emulator/{name}.cu"\n'
        for name in ("fibers", "tensor_core", "hopper")
    ),
    (),
)

_schedules = lru_cache(maxsize=16)(key_schedules)


class EmulatorRunner:
    """Runs launches over host memory.

    Args:
        folder: where compiled sources are kept, by digest; of this user alone, for what lies there
            is loaded as code.
        compiler: a C++ compiler's command.
    """

    def __init__(self, folder: Path, compiler: str = "g++") -> None:
        self._folder = folder
        self._compiler = compiler
        self._libraries: dict[str, ctypes.CDLL] = {}

    def library(self, source: Source) -> ctypes.CDLL:
        """The compiled source, from the folder where it has been compiled before.

        Raises:
            subprocess.CalledProcessError: the compiler refuses it.
        """
        digest = source.digest
        if digest not in self._libraries:
            bodies, path = self._bodies, self._path(source)
            if not path.exists():
                self._compile(source, path, bodies)
            self._libraries[digest] = ctypes.CDLL(str(path))
        return self._libraries[digest]

    def _path(self, source: Source) -> Path:
        return self._folder / f"{source.name}-{source.digest[:32]}.so"

    def _compile(self, source: Source, path: Path, bodies: Path) -> None:
        entries = "".join(f"VEIL_EMULATOR_ENTRY({entry})\n" for entry in source.entries)
        text = f"{source.text}\n{entries}"
        beside = (str(bodies), "-Wl,-rpath,$ORIGIN")  # where it is found by what is linked with it
        self._make(text, path, "-include", str(self._precompiled()), "-shared", *beside)

    @cached_property
    def _bodies(self) -> Path:
        """What sources have in common, compiled once: it would be half of what each is."""
        path = self._path(_BODIES)
        if not path.exists():
            self._make(_BODIES.text, path, *_FAST, "-shared", f"-Wl,-soname,{path.name}")
        return path

    def _precompiled(self) -> Path:
        """A header that the compiler has read before: with it a source takes a third of the time.

        Compilers look for `NAME.gch` where `NAME` is included, and take `NAME` where that is of
        another compiler or of other flags.
        """
        header = self._folder / f"{_COMMON.name}-{_COMMON.digest[:32]}.h"
        compiled = header.with_name(f"{header.name}.gch")
        if not compiled.exists():
            header.write_text(_COMMON.text, encoding="utf-8")
            self._make(_COMMON.text, compiled, "-x", "c++-header")
        return header

    def _make(self, text: str, path: Path, *flags: str) -> None:
        """Compiles a text to a file that is there whole or not at all, once for all processes."""
        with self._alone(path), TemporaryDirectory(dir=self._folder) as folder:
            if path.exists():
                return  # another process has made it meanwhile
            unit, out = Path(folder, "source.cpp"), Path(folder, "source.out")
            unit.write_text(text, encoding="utf-8")
            command = [self._compiler, *_COMPILE, *flags, "-I", str(ROOT), str(unit), "-o"]
            subprocess.run([*command, str(out)], check=True)
            os.replace(out, path)

    @contextmanager
    def _alone(self, path: Path) -> Iterator[None]:
        """Holds off other processes that would compile the same file; a byte of `lock` each."""
        with (self._folder / "lock").open("ab") as file:
            fcntl.lockf(file, fcntl.LOCK_EX, 1, zlib.crc32(path.name.encode()))
            yield

    def run(
        self,
        launch: Launch,
        regions: Sequence[npt.NDArray[Any]],
        keys: bytes = b"",
        run: int = 0,
    ) -> None:
        """One launch over regions of host memory (contiguous arrays, the arena first).

        `keys` are AES-128 keys of 16 bytes each, `run` is the inference's number.
        """
        schedules = _schedules(keys)
        addresses = [region.ctypes.data for region in regions]
        number = np.array([run], np.uint64)
        self.call(launch, launch.bind(addresses, schedules.ctypes.data, number.ctypes.data))

    def call(self, launch: Launch, words: npt.NDArray[np.uint64]) -> None:
        """One launch with its parameter buffer, as `Launch.bind` lays it out."""
        entry = self.library(launch.source)[f"emulator_{launch.entry}"]
        entry.restype = ctypes.c_bool
        shape = (np.array(s, np.uint32) for s in (launch.grid, launch.block))
        grid, block = shape
        done = entry(
            grid.ctypes.data_as(ctypes.c_void_p),
            block.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_uint32(launch.cluster),
            ctypes.c_uint64(launch.shared_bytes),
            words.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_int64(len(words)),
        )
        assert done, f"{launch.entry}: arguments are not the kernel's parameters"

"""Machine code of kernels, by content: from a folder made ahead of time, from this user's cache, or
made now by nvcc.

A plan never brings any: files are named by the digest of the kernel's source, and lie in folders
that nobody but this user (or root) can write to.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from veilgraph.ir.errors import UsageError
from veilgraph.kernels.cuda import FLAGS, ROOT, Source
from veilgraph.runtime.devices.cuda.archs import build_flag, gpu_arch
from veilgraph.runtime.store.caches import user_cache

COMPILE_SECONDS = 600
T = TypeVar("T")


def cache_folder() -> Path:
    """Where this user's machine code is kept."""
    return user_cache() / "cubins"


@dataclass(frozen=True)
class Cubins:
    """Where machine code is looked for, in order, and kept.

    Attributes:
        cache: of this user; made when first written to.
        prepared: a folder that `prepare --gpu-arch` filled, if the user names one.
        nvcc: the compiler for what is in neither, if there is one.
    """

    cache: Path
    prepared: Path | None = None
    nvcc: Path | None = None

    def make(self, sources: Iterable[Source], arch: str) -> None:
        """Compiles those sources that there is no machine code of, several at a time.

        Raises:
            UsageError: as `cubin`.
        """
        missing = [source for source in sources if self._place(source, arch) is None]
        if not missing:
            return
        nvcc = self._require_nvcc(missing[0], arch)
        prepare(missing, [arch], self.cache, nvcc)

    def cubin(self, source: Source, arch: str) -> bytes:
        """The machine code of a source for an architecture.

        Raises:
            UsageError: there is none and no compiler, or a folder that others can write to.
        """
        folder = self._place(source, arch)
        if folder is None:
            self.make([source], arch)
            folder = self.cache
        require_own(folder)
        require_own(folder / _name(source, arch))
        return (folder / _name(source, arch)).read_bytes()

    def _place(self, source: Source, arch: str) -> Path | None:
        folders = [folder for folder in (self.prepared, self.cache) if folder is not None]
        return next((each for each in folders if (each / _name(source, arch)).exists()), None)

    def _require_nvcc(self, source: Source, arch: str) -> Path:
        if self.nvcc is None:
            raise UsageError(
                f"There is no machine code of kernel `{source.name}` for {arch}, and no nvcc here.",
                f"Run `veilgraph prepare PLAN --gpu-arch {arch} --cubins DIR` where CUDA's "
                "compiler is, and give --cubins DIR.",
            )
        return self.nvcc


def prepare(sources: Iterable[Source], archs: Iterable[str], folder: Path, nvcc: Path) -> int:
    """Writes the machine code of all sources for all architectures; how many files there are then.

    Parties that need the same kernels at the same time wait for who came first.

    Raises:
        UsageError: the folder can't be written, or the compiler refuses an architecture.
    """
    wanted = {_name(s, arch): (s, arch) for s in sources for arch in archs}

    def make(name: str) -> None:
        source, arch = wanted[name]
        store(folder, name, compiled(source, arch, nvcc))

    with alone(folder):
        missing = [name for name in wanted if not (folder / name).exists()]
        in_parallel(make, missing)
    return len(wanted)


def in_parallel(make: Callable[[T], object], each: Sequence[T]) -> None:
    """Calls on all of this machine's cores; the first error ends those that have not begun."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(make, one) for one in each]:
            try:
                done.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """While nobody else, in this process or another, is in here for the same folder.

    Raises:
        UsageError: as `make_own`.
    """
    make_own(folder)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def compiled(source: Source, arch: str, nvcc: Path) -> bytes:
    """What nvcc makes of a source.

    Raises:
        UsageError: nothing: an architecture that this nvcc does not know, or no host compiler; or
            nothing within COMPILE_SECONDS.
    """
    with TemporaryDirectory(prefix="veilgraph-nvcc-") as folder:
        text, cubin = Path(folder, f"{source.name}.cu"), Path(folder, "kernel.cubin")
        text.write_text(source.text, encoding="utf-8")
        command = [str(nvcc), *FLAGS, "-cubin", build_flag(arch), "-I", str(ROOT)]
        command += [str(text), "-o", str(cubin)]
        done = _ran(command, f"kernel `{source.name}` for {arch}", arch)
        if done.returncode != 0:
            said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            raise UsageError(
                f"nvcc makes nothing of kernel `{source.name}` for {arch}: "
                f"{said[0] if said else 'it does not say why'}.",
                "Use nvcc 12 or newer, one that knows this GPU, beside a C++ compiler of its list.",
            )
        return cubin.read_bytes()


def _ran(command: Sequence[str], what: str, arch: str) -> subprocess.CompletedProcess[str]:
    """A run of nvcc with what it said; UsageError where it is not done in COMPILE_SECONDS."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as running:
        try:
            said = running.communicate(timeout=COMPILE_SECONDS)
        except BaseException as error:
            os.killpg(running.pid, signal.SIGKILL)  # its passes are processes of their own
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise UsageError(
                f"nvcc is not done with {what} after {COMPILE_SECONDS} s.",
                f"Run `veilgraph prepare PLAN --gpu-arch {arch} --cubins DIR` on a machine that is "
                "less busy, and give --cubins DIR here.",
            ) from error
    return subprocess.CompletedProcess(command, running.returncode, *said)


def store(folder: Path, name: str, content: bytes) -> None:
    """Writes a file whole or not at all, in a folder made for this user alone.

    Raises:
        UsageError: the folder can't be written, or others can write to it too.
    """
    make_own(folder)
    try:
        with TemporaryDirectory(prefix=".partial-", dir=folder) as inside:
            partial = Path(inside, name)
            partial.write_bytes(content)
            partial.chmod(0o600)
            partial.replace(folder / name)
    except OSError as error:
        raise UsageError(f"{folder} can't be written: {error.strerror}.") from error


def make_own(folder: Path) -> None:
    """Makes a folder for this user alone, or finds that it is one.

    Raises:
        UsageError: it can't be made, or others can write to it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} can't be made: {error.strerror}.") from error
    require_own(folder)


def _name(source: Source, arch: str) -> str:
    return f"{source.name}-{source.digest}-{gpu_arch(arch)}.cubin"


def require_own(path: Path) -> None:
    """UsageError where somebody else could have put machine code."""
    status = path.stat()
    if status.st_uid not in (os.getuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"{path} holds machine code, and others can write to it.",
            f"Make it your own: chmod go-w {path}",
        )

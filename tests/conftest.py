"""What tests share. Being here puts this folder on the path: `from models import light_model`."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Callable  # noqa: UP035 (it keeps what it is asked for)

import pytest
from gpus import pycuda_or_skip
from hypothesis import settings

from veilgraph.kernels.cuda import emulator

ROOT = Path(__file__).parents[1]
# Objects that are made before Python looks for cycles among them, and how often it then looks at
# older ones. Its own 700 and 10 have it go through all that lives, modules and plans, for a seventh
# of the processor's time.
CYCLES = 20_000, 20, 50
KEPT_SECONDS = 14 * 86400  # that a compiled kernel is kept which nobody reads

SETTINGS = {
    # One thread each for products of NumPy and PyTorch: threads wait by turning, on cores that
    # other workers need.
    **{f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")},
    # The C library keeps what arrays leave, and does not ask the system for it page by page.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}

# A shell that starts the tests in the background has them ignore interrupts, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples each time, however long they take: what lands is not a matter of luck.
# `--hypothesis-profile=default` looks for new ones.
settings.register_profile("pinned", derandomize=True, print_blob=True, deadline=None)
settings.load_profile("pinned")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the golden files with what is found"
    )


def pytest_configure(config: pytest.Config) -> None:
    """What workers inherit: folders of what compilers have made, and the settings above."""
    gc.set_threshold(*CYCLES)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        os.environ["EMULATOR_FOLDER"] = str(_emulator_folder())
        if shutil.which("nvcc"):
            os.environ["NVCC_FOLDER"] = str(_nvcc_folder())


def _emulator_folder() -> Path:
    """Where kernels compiled for the host are kept.

    A file's name has the digest of its source. The folder's has that of all else that a compiled
    kernel is made of: the compiler, and the emulator with its flags.
    """
    own = Path(emulator.__file__)
    headers = sorted(own.parents[1].rglob("*.cuh"))
    bodies = sorted(own.parent.glob("*.cu"))
    return _kept_folder(ROOT / "build" / "emulator", "g++", [own, *headers, *bodies])


def _nvcc_folder() -> Path:
    """Where is kept what nvcc reports of a text: of nvcc, and of all that a text may include."""
    kernels = Path(emulator.__file__).parents[2]
    files = (file for file in kernels.rglob("*") if file.suffix in (".cu", ".cuh", ".h"))
    return _kept_folder(ROOT / "build" / "nvcc", "nvcc", sorted(files))


def _kept_folder(above: Path, compiler: str, files: Iterable[Path]) -> Path:
    """A folder for all workers and for later runs, of this compiler and of these files."""
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    parts = [version, *(file.read_bytes() for file in files)]
    digest = sha256(b"".join(sha256(part).digest() for part in parts)).hexdigest()
    folder = above / digest[:32]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in above.glob("*/*"):
        if file.is_file() and time.time() - file.stat().st_atime > KEPT_SECONDS:
            file.unlink(missing_ok=True)
    return folder


def pytest_collection_finish() -> None:
    """What there is of tests stays: the collector need not look through it again and again."""
    if "torch" in sys.modules:
        _list_operators_once()
        _name_types_once()
    gc.collect()
    gc.freeze()


def _list_operators_once() -> None:
    """torch.export asks C++ for all operators a dozen times an export, a thirteenth of the time of
    tests of its programs. No test adds one there.
    """
    utils = import_module("torch._export.utils")
    utils._materialize_cpp_cia_ops = cache(utils._materialize_cpp_cia_ops)


def _name_types_once() -> None:
    """torch.export registers 11,000 functions an export, each defined with annotations in which
    `collections.abc.Callable[...]` is made anew: a fifth of its time. `typing.Callable` keeps them.
    """
    import_module("torch._ops").__dict__["Callable"] = Callable


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that needs a GPU is skipped before it prepares what the GPU would compute."""
    if item.get_closest_marker("gpu"):
        pycuda_or_skip()


@pytest.fixture(scope="session")
def emulator_folder() -> Path:
    """Where kernels compiled for the host are kept, for all workers of all runs."""
    return Path(os.environ["EMULATOR_FOLDER"])  # of pytest_configure


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether a test rewrites its golden file before it compares."""
    return bool(request.config.getoption("--update-golden"))

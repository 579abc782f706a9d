"""A translation unit of CUDA C++: its text, the headers it includes, and a digest of both."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from veilgraph.kernels.cpp import cuda_struct
from veilgraph.kernels.declared import DECLARED

# What `#include "kernels/..."` counts from, in a checkout and in an installed package alike.
ROOT = Path(__file__).resolve().parents[2]

# Of every compilation, besides the architecture.
FLAGS: tuple[str, ...] = ("-std=c++20",)

_INCLUDE = re.compile(r'^#include "(kernels/[a-z0-9_/]+\.cuh?)"$', re.MULTILINE)


@cache
def _read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def _digest(path: str) -> str:
    return hashlib.sha256(_read(path).encode()).hexdigest()


@cache
def _included(path: str) -> frozenset[str]:
    """A header and all that it includes."""
    return frozenset({path}).union(*map(_included, _INCLUDE.findall(_read(path))))


@dataclass(frozen=True)
class Source:
    """CUDA C++ that a compiler takes as it is, with ROOT among its include folders.

    `name` is for people (logs, files, errors); `entries` are the kernels in it.
    """

    name: str
    text: str
    entries: tuple[str, ...]

    @cached_property
    def headers(self) -> tuple[str, ...]:
        """Paths below ROOT of all of our headers that the text includes, directly or not."""
        return tuple(sorted(set().union(*map(_included, _INCLUDE.findall(self.text)))))

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hex of text, headers and flags: what a compiled module is cached under."""
        parts = [*FLAGS, *(part for h in self.headers for part in (h, _digest(h))), self.text]
        lengths = " ".join(str(len(part)) for part in parts)
        return hashlib.sha256("\n".join((lengths, *parts)).encode()).hexdigest()


@cache
def file_source(path: str, *entries: str) -> Source:
    """The source in a file below ROOT, such as "kernels/copy/cuda.cu": the parameters of the kernel
    whose folder it is in, if they have names, and the file."""
    name = path.split("/")[1]
    return Source(name, params_struct(name) + _read(path), entries)


def params_struct(kernel: str) -> str:
    """What the source of a kernel that reads its parameters by name begins with."""
    return cuda_struct(kernel) if kernel in DECLARED else ""

"""The declarations of all kernels, by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from veilgraph.kernels import KERNELS
from veilgraph.kernels.kernel import Kernel


def _declared(name: str) -> Kernel:
    kernel = import_module(f"veilgraph.kernels.{name}.declaration").KERNEL
    assert isinstance(kernel, Kernel), name
    assert kernel.name == name, name
    return kernel


DECLARED: Mapping[str, Kernel] = {name: _declared(name) for name in KERNELS}

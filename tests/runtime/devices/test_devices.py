"""Devices by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from veilgraph.ir.errors import UsageError
from veilgraph.runtime.devices.names import DeviceName, require_device


@pytest.mark.parametrize(
    ("text", "kind", "index"),
    [
        ("cpu", "cpu", 0),
        ("cuda", "cuda", 0),
        ("cuda:0", "cuda", 0),
        ("cuda:12", "cuda", 12),
        ("auto", "auto", 0),
        ("auto:3", "auto", 3),
    ],
)
def test_names(text: str, kind: str, index: int) -> None:
    assert DeviceName.parse(text) == DeviceName(kind, index)
    require_device(text)


@pytest.mark.parametrize(
    ("text", "kind"), [("cuda:3,no-graphs", "cuda"), ("cuda,no-graphs", "cuda")]
)
def test_graphs_may_be_left_out(text: str, kind: str) -> None:
    found = DeviceName.parse(text)
    assert (found.kind, found.graphs) == (kind, False)
    assert DeviceName.parse(text.removesuffix(",no-graphs")).graphs
    require_device(text)


@pytest.mark.parametrize(
    "text",
    [
        "cpu,no-graphs",
        "cuda,graphs",
        "cuda:1,no-graphs,no-graphs",
        "",
        "gpu",
        "CPU",
        "cuda:",
        "cuda:x",
        "cuda:-1",
        "cuda:1024",
        "cpu:0",
        "host-emulator:0",
    ],
)
def test_no_names(text: str) -> None:
    with pytest.raises(UsageError, match=f"There is no device `{text}`") as caught:
        require_device(text)
    assert caught.value.hint == "Use cpu, cuda, cuda:N, auto or auto:N."


def test_the_emulator_is_for_tests() -> None:
    assert DeviceName.parse("host-emulator").kind == "host-emulator"
    with pytest.raises(UsageError, match="imitates a GPU, for tests"):
        require_device("host-emulator")


def test_a_party_on_the_processor_loads_nothing_of_gpus() -> None:
    """It would be a fifth of the time that `run` takes to load."""
    wanted = (
        "import sys, veilgraph.commands.run; "
        "print([m for m in sys.modules if '.cuda.' in m and not m.endswith('archs')])"
    )
    done = subprocess.run([sys.executable, "-c", wanted], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr

"""The calls for graphs, on a library of the driver's signatures that keeps what it is asked."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from veilgraph.runtime.devices.cuda.drivers.interface import DriverFault
from veilgraph.runtime.devices.cuda.drivers.libcuda import GraphCalls

# Streams 1, 2 and on can be captured; from a capture of stream 3 no graph can be made.
DRIVER = """
#include <cstdio>
using Handle = void*;
static char said[4096];
static size_t at = 0;
static Handle number(unsigned long long n) { return reinterpret_cast<Handle>(n); }
template <class... Values> static int note(const char* form, Values... values) {
  at += snprintf(said + at, sizeof(said) - at, form, values...);
  return 0;
}
extern "C" {
const char* noted() { return said; }
void forget() { said[at = 0] = 0; }
int cuStreamBeginCapture_v2(Handle stream, int mode) { return note("begin %p %d;", stream, mode); }
int cuStreamEndCapture(Handle stream, Handle* graph) {
  *graph = number(0x123456789000 + reinterpret_cast<unsigned long long>(stream));
  return note("end %p;", stream);
}
int cuGraphInstantiateWithFlags(Handle* made, Handle graph, unsigned long long flags) {
  if (graph == number(0x123456789003)) return 801;
  *made = number(0xfedcba987654);
  return note("instantiate %p %llu;", graph, flags);
}
int cuGraphLaunch(Handle graph, Handle stream) { return note("launch %p %p;", graph, stream); }
int cuGraphDestroy(Handle graph) { return note("destroy %p;", graph); }
int cuGraphExecDestroy(Handle made) { return note("end of %p;", made); }
int cuGetErrorString(int code, const char** text) {
  *text = code == 801 ? "operation not supported" : nullptr;
  return 0;
}
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libcuda")
    source, made = folder / "driver.cpp", folder / "driver.so"
    source.write_text(DRIVER)
    subprocess.run(["g++", "-shared", "-fPIC", str(source), "-o", str(made)], check=True)
    return made


def noted(library: Path) -> str:
    """What was asked of the library since it was looked at last."""
    loaded = ctypes.CDLL(str(library))
    loaded.noted.restype = ctypes.c_char_p
    found: bytes = loaded.noted()
    text = found.decode()
    loaded.forget()
    return text


def test_a_capture_becomes_a_graph(library: Path) -> None:
    calls = GraphCalls(str(library))
    calls.begin(2)
    graph = calls.end(2)
    assert graph == 0xFEDCBA987654  # handles are 64 bits wide
    calls.launch(graph, 7)
    calls.destroy(graph)
    assert noted(library) == (
        "begin 0x2 1;end 0x2;instantiate 0x123456789002 0;destroy 0x123456789002;"
        "launch 0xfedcba987654 0x7;end of 0xfedcba987654;"
    )


def test_a_capture_that_is_given_up(library: Path) -> None:
    calls = GraphCalls(str(library))
    calls.begin(1)
    calls.abandon(1)
    assert noted(library) == "begin 0x1 1;end 0x1;destroy 0x123456789001;"


def test_a_graph_that_can_not_be_made(library: Path) -> None:
    """The driver says why, and the capture is let go of."""
    with pytest.raises(DriverFault, match="cuGraphInstantiateWithFlags failed: operation not supp"):
        GraphCalls(str(library)).end(3)
    assert noted(library) == "end 0x3;destroy 0x123456789003;"


def test_no_such_library() -> None:
    with pytest.raises(DriverFault, match=r"libnothing\.so has no graphs: "):
        GraphCalls("libnothing.so")


def test_a_library_without_graphs() -> None:
    with pytest.raises(DriverFault, match=r"libc\.so\.6 has no graphs: .*cuStreamBeginCapture_v2"):
        GraphCalls("libc.so.6")

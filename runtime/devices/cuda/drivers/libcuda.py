"""CUDA graphs by the driver's own library: PyCUDA (2026.1) has no call for them.

A graph is made of launches that a stream captures instead of running them (CUDA Driver API, "Stream
Management" and "Graph Management"). Only what that takes is bound here, by ctypes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from veilgraph.runtime.devices.cuda.drivers.interface import DriverFault

LIBRARY = "libcuda.so.1"
_OF_THIS_THREAD = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: what other threads call is no matter

_POINTER, _PLACE = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
_CALLS: Mapping[str, Sequence[Any]] = {
    "cuStreamBeginCapture_v2": (_POINTER, ctypes.c_int),
    "cuStreamEndCapture": (_POINTER, _PLACE),
    "cuGraphInstantiateWithFlags": (_PLACE, _POINTER, ctypes.c_ulonglong),
    "cuGraphLaunch": (_POINTER, _POINTER),
    "cuGraphDestroy": (_POINTER,),
    "cuGraphExecDestroy": (_POINTER,),
    "cuGetErrorString": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
}


class GraphCalls:
    """The driver's calls for graphs; streams and graphs are its handles.

    All of them are made in the context of the streams.

    Raises:
        DriverFault: by any call, and where the library is absent or lacks one.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            loaded = ctypes.CDLL(library)
            self._calls = {name: getattr(loaded, name) for name in _CALLS}
        except (OSError, AttributeError) as error:
            raise DriverFault(f"{library} has no graphs: {error}") from error
        for name, call in self._calls.items():
            call.argtypes, call.restype = list(_CALLS[name]), ctypes.c_int

    def begin(self, stream: int) -> None:
        """From here on a stream keeps the launches that this thread gives it, and runs none."""
        self._do("cuStreamBeginCapture_v2", stream, _OF_THIS_THREAD)

    def end(self, stream: int) -> int:
        """What was kept, ready to be launched."""
        graph, made = ctypes.c_void_p(), ctypes.c_void_p()
        self._do("cuStreamEndCapture", stream, ctypes.byref(graph))
        try:
            self._do("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, 0)
        finally:
            self._do("cuGraphDestroy", graph)
        assert made.value is not None
        return made.value

    def abandon(self, stream: int) -> None:
        """Ends keeping after a launch was refused, whose fault is told: no other is."""
        graph = ctypes.c_void_p()
        with suppress(DriverFault):
            self._do("cuStreamEndCapture", stream, ctypes.byref(graph))
        if graph.value is not None:
            with suppress(DriverFault):
                self._do("cuGraphDestroy", graph)

    def launch(self, graph: int, stream: int) -> None:
        self._do("cuGraphLaunch", graph, stream)

    def destroy(self, graph: int) -> None:
        self._do("cuGraphExecDestroy", graph)

    def _do(self, name: str, *arguments: Any) -> None:
        code = self._calls[name](*arguments)
        if code != 0:
            said = ctypes.c_char_p()
            self._calls["cuGetErrorString"](code, ctypes.byref(said))
            reason = (said.value or f"error {code}".encode()).decode(errors="replace")
            raise DriverFault(f"{name} failed: {reason}")

"""Veilgraph compiles ONNX and PyTorch models to plans for multi-party computation, and runs them.

plan, weights = veilgraph.compile("model.onnx", suite="rep3", calibrate="samples.npz")
answer = veilgraph.simulate(plan, weights, {"x": x})         # all parties here
veilgraph.check(plan, weights, "model.onnx", "samples.npz")  # how exact each layer is
with veilgraph.Session(plan, party="alice", config="parties.yaml") as session:
    outputs = session.run({"x": x})                           # one party of several hosts
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veilgraph.checks.library import check
    from veilgraph.compilation.compile import compile
    from veilgraph.ir.errors import VeilgraphError
    from veilgraph.ir.training import SGD, Adam, AdamW
    from veilgraph.library import bench, inspect, load_weights, save_weights, simulate
    from veilgraph.plans import Plan
    from veilgraph.runtime.store.share_files import deal
    from veilgraph.serving.client import Client
    from veilgraph.serving.service import Service
    from veilgraph.session import Session
    from veilgraph.training.compiling import compile_training
    from veilgraph.training.exact_rehearsal import rehearse
    from veilgraph.training.simulated import simulate_training
    from veilgraph.training.trainer import Trainer
    from veilgraph.verification.verify import verify

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Client",
    "Plan",
    "Service",
    "Session",
    "Trainer",
    "VeilgraphError",
    "bench",
    "check",
    "compile",
    "compile_training",
    "deal",
    "inspect",
    "load_weights",
    "rehearse",
    "save_weights",
    "simulate",
    "simulate_training",
    "verify",
]


def _version() -> str:
    try:
        return version("veilgraph")
    except PackageNotFoundError:
        return version("veilgraph-client")


__version__ = _version()

# Loaded where they are used: a party host has no compiler, and the command line starts fast.
_PLACES = {
    "bench": "veilgraph.library",
    "check": "veilgraph.checks.library",
    "compile": "veilgraph.compilation.compile",
    "compile_training": "veilgraph.training.compiling",
    "inspect": "veilgraph.library",
    "load_weights": "veilgraph.library",
    "rehearse": "veilgraph.training.exact_rehearsal",
    "Plan": "veilgraph.plans",
    "save_weights": "veilgraph.library",
    "Client": "veilgraph.serving.client",
    "Service": "veilgraph.serving.service",
    "Session": "veilgraph.session",
    "SGD": "veilgraph.ir.training",
    "Adam": "veilgraph.ir.training",
    "AdamW": "veilgraph.ir.training",
    "simulate_training": "veilgraph.training.simulated",
    "Trainer": "veilgraph.training.trainer",
    "deal": "veilgraph.runtime.store.share_files",
    "VeilgraphError": "veilgraph.ir.errors",
    "simulate": "veilgraph.library",
    "verify": "veilgraph.verification.verify",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'veilgraph' has no attribute {name!r}")
    try:
        return getattr(import_module(_PLACES[name]), name)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("veilgraph."):
            raise
        raise AttributeError(
            f"veilgraph-client has no {name}: install veilgraph, which has all that it has and more"
        ) from error


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

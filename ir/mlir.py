"""The MLIR context that knows our dialects."""

from __future__ import annotations

from torch_mlir import ir
from torch_mlir._mlir_libs import _mlir

from veilgraph.ir.graph.ops import GraphDialect
from veilgraph.ir.secret.ops import SecretDialect

# Without this each look-up of an operation tries to import `torch_mlir.dialects.<ours>`, in vain
# and uncached: everything would be ten to thirty times slower.
_mlir.globals.append_dialect_search_prefix("veilgraph.ir")

DIALECTS = (GraphDialect, SecretDialect)
# MLIR's own that are there before a text or a pass asks for more: what dialects and graphs are made
# of. All that torch-mlir has take longer to load than ours to make.
BUILDING = ("irdl", "func", "tensor")


def context() -> ir.Context:
    """A fresh context with the dialects `graph` and `secret` loaded (a few milliseconds)."""
    fresh = ir.Context(load_on_create_dialects=BUILDING)
    with fresh:
        for dialect in DIALECTS:
            dialect.load()
    return fresh

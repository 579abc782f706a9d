"""Where in a module a traced node comes from."""

from __future__ import annotations

import re

from torch import fx


def path_of(node: fx.Node) -> str:
    """The path of the innermost module that made a node; "" in the model's own forward."""
    entries = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(entries[-1][0]) if entries else ""
    return re.sub(r"[^\w.]+", ".", path).strip(".")

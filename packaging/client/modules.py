"""What the wheel of veilgraph-client holds: its roots, and all that importing them loads.

An import inside a function is left out: it is of what a client has no use for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path(__file__).parents[2] / "python"


class Modules(BuildHookInterface[Any]):
    """Puts the modules into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        found = closure(self.config["roots"])
        placed = {str(path.resolve()): str(path.relative_to(SOURCES)) for path in found.values()}
        marker = SOURCES / "veilgraph" / "py.typed"
        build_data["force_include"] = {**placed, str(marker): "veilgraph/py.typed"}


def closure(roots: Sequence[str]) -> dict[str, Path]:
    """The modules that importing `roots` loads, packages with them, and where each lies.

    Raises:
        ModuleNotFoundError: a root that is none, or an import of native code.
    """
    found: dict[str, Path] = {}
    waiting = [*roots]
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        path = place(module)
        if path is None:
            raise ModuleNotFoundError(f"{module} is no module of Python's in this tree")
        found[module] = path
        waiting += [module.rpartition(".")[0]] if "." in module else []
        waiting += imported(path)
    return found


def place(module: str) -> Path | None:
    """The source of a module; None if it is none."""
    path = SOURCES.joinpath(*module.split("."))
    choices = (path.with_suffix(".py"), path / "__init__.py")
    return next((each for each in choices if each.exists()), None)


def imported(path: Path) -> Iterator[str]:
    """Modules of ours that a file imports as it is loaded."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module and is_ours(node.module):
            yield node.module
            inner = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name for name in inner if place(name))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if is_ours(alias.name))


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "veilgraph"

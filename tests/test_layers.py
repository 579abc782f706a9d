"""Who may import whom: the table of folders, held by reading every import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMPILER = {"torch_mlir", "onnx", "onnxruntime", "torch"}
# Of ir/, on every party's host.
AUDITED = ("plan.py", "plan_file.py", "plan_checks.py", "types.py", "errors.py", "harmless.py")
# Folders of ours that each folder may import.
MAY = {
    "frontend": {"frontend", "ir"},
    "ir": {"ir"},
    "passes": {"passes", "ir", "targets", "kernels"},
    "targets": {"targets", "ir"},
    "kernels": {"kernels"},
    "runtime": {"runtime", "ir", "kernels"},
}


def imports(file: Path) -> Iterator[str]:
    """Names of the modules that a file imports, those for type checkers alone left out."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found
    return found


@pytest.mark.parametrize("folder", MAY)
def test_a_folder_imports_only_what_it_may(folder: str) -> None:
    for file in files(folder):
        for name in imports(file):
            first, *rest = name.split(".")
            if first == "veilgraph":
                assert rest[0] in MAY[folder], f"{file.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("folder", ["runtime", "kernels", "targets"])
def test_party_hosts_need_no_compiler(folder: str) -> None:
    for file in files(folder):
        assert not {name.split(".")[0] for name in imports(file)} & COMPILER, file


def test_the_runtime_reads_only_the_audited_part_of_ir() -> None:
    allowed = {name.removesuffix(".py") for name in AUDITED}
    for file in files("runtime"):
        for name in imports(file):
            parts = name.split(".")
            if parts[:2] == ["veilgraph", "ir"]:
                assert parts[2] in allowed, f"{file.relative_to(ROOT)} imports {name}"


def test_the_audited_part_of_ir_needs_little() -> None:
    for name in AUDITED:
        for imported in imports(ROOT / "ir" / name):
            first = imported.split(".")[0]
            assert first not in COMPILER
            assert first != "veilgraph" or imported.split(".")[1] == "ir"


def test_kernels_need_numpy_alone() -> None:
    for file in files("kernels"):
        for name in imports(file):
            assert name.split(".")[0] not in {"click", "rich", "yaml", "cryptography"}, file

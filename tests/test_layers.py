"""Who may import whom: the table of folders, held by reading every import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import veilgraph

ROOT = Path(__file__).parents[1]
COMPILER = {"torch_mlir", "onnx", "onnxruntime", "torch"}
# Of ir/, on every party's host.
AUDITED = (
    *("plan/tables.py", "plan/plan.py", "plan/file.py", "plan/checks.py", "types.py"),
    *("errors.py", "harmless.py", "roles.py"),
    *("files/whole_files.py", "files/file_kinds.py", "files/column_files.py"),
    *("files/parquet_files.py", "files/plain_yaml.py", "files/beside.py"),
)
# Of passes/, on a party's host that verifies plans.
VERIFIER = {
    *("align_messages", "assign_buffers", "batch_rounds", "collection", "cut_messages"),
    *("emit_party", "facts"),
    *("fuse_local", "fused_code", "fused_templates", "independent_rows", "lifetimes", "lower"),
    *("products", "step_tables"),
    *("sums", "tree_roots", "walks"),
    *("verify_masking", "verify_outputs", "verify_states", "version"),
}
PACKAGE = Path(veilgraph.__file__).parent
# Folders of ours that each folder may import.
MAY = {
    "frontend": {"frontend", "ir"},
    "ir": {"ir"},
    "passes": {"passes", "ir", "targets", "kernels"},
    "targets": {"targets", "ir"},
    "kernels": {"kernels"},
    "runtime": {"runtime", "ir", "kernels"},
}


# What sources of a folder do not speak of: who does not know a name has no case for it.
UNSPOKEN = {
    "kernels": ("rep3", "additive"),
    "runtime": ("rep3", "additive", "onnx", "torch"),
    "passes": ("cuda",),
    "targets": ("cuda",),
}
SOURCES = {".py", ".pyi", ".h", ".cpp", ".cu", ".cuh"}
MOST_SIBLINGS = 18  # sources and folders of sources in one folder


def imports(file: Path, for_checkers: bool = False) -> Iterator[str]:
    """Names of what a file imports, in functions too; `for_checkers`: for type checkers too."""
    for node in ast.walk(ast.parse(file.read_text())):
        is_for_checkers = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if isinstance(node, ast.If) and is_for_checkers and not for_checkers:
            node.body = []
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_module(name: str) -> bool:
    """Whether a plain checkout has the module at the place where tools look for it."""
    path = ROOT / "python" / Path(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


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


@pytest.mark.parametrize("folder", UNSPOKEN)
def test_a_folder_does_not_name_what_it_must_not_know(folder: str) -> None:
    """No device knows a suite or a format of models, no pass and no suite a device."""
    found = [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SOURCES]
    assert found
    for file in found:
        text = file.read_text().lower()
        named = [word for word in UNSPOKEN[folder] if word in text]
        assert not named, f"{file.relative_to(ROOT)} speaks of {named}"


def siblings(folder: Path) -> list[str]:
    """Sources of a folder and folders with some; what links lead to is another place's."""
    own = [path for path in folder.iterdir() if not path.is_symlink()]
    rooms = [path for path in own if path.is_dir() and any(map(is_source, path.rglob("*")))]
    return [path.name for path in [*rooms, *filter(is_source, own)]]


def is_source(path: Path) -> bool:
    return path.is_file() and path.suffix in SOURCES


@pytest.mark.parametrize("folder", [*MAY, "python", "benchmarks"])
def test_a_folder_has_few_siblings(folder: str) -> None:
    """What belongs together has a folder of its own, whose name says what it is."""
    inner = (path for path in (ROOT / folder).rglob("*") if path.is_dir())
    for path in (ROOT / folder, *inner):
        found = siblings(path)
        assert len(found) <= MOST_SIBLINGS, f"{path.relative_to(ROOT)} has {len(found)}"


@pytest.mark.parametrize("folder", [*MAY, "python"])
def test_a_plain_checkout_resolves_every_import(folder: str) -> None:
    """For editors and type checkers: links in python/veilgraph lead to each folder."""
    compiled = {f"veilgraph.{folder}._native" for folder in ("runtime", "passes", "ir.party")}
    for file in files(folder):
        for name in imports(file):
            if name.startswith("veilgraph.") and not compiled & {name, name.rpartition(".")[0]}:
                is_found = is_module(name) or is_module(name.rpartition(".")[0])
                assert is_found, f"{file.relative_to(ROOT)} imports {name}"


def graph_of_imports() -> dict[str, set[str]]:
    """The modules of ours that each one names in an import, wherever in its file that stands."""
    found = {}
    for folder in [*MAY, "python"]:
        for file in files(folder):
            path = file.relative_to(ROOT / "python" if folder == "python" else ROOT)
            parts = (path.parent if path.name == "__init__.py" else path.with_suffix("")).parts
            found[".".join(parts if folder == "python" else ("veilgraph", *parts))] = file
    graph = {}
    for module, file in found.items():
        named = list(imports(file, for_checkers=True))
        graph[module] = {
            each if each in found else each.rpartition(".")[0]
            for each in named
            if found.keys() & {each, each.rpartition(".")[0]}
        }
    return graph


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Modules each of which imports the one before it, the last of them the first; or none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_circle_of_imports() -> None:
    """Nor one that imports in functions, or for type checkers, keep from closing.

    An import counts for the module that it names, and not for the packages around it: a package
    that is a door imports from its folder, and nothing in its folder imports the door.
    """
    graph = graph_of_imports()
    assert {"veilgraph", "veilgraph.ir.plan.plan", "veilgraph.commands.compile.verb"} <= set(graph)
    found = circle(graph)
    assert not found, " imports ".join(reversed(found))


def test_what_a_circle_is() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) in (["b", "c", "b"], ["c", "b", "c"])


@pytest.mark.parametrize("folder", ["runtime", "kernels", "targets"])
def test_party_hosts_need_no_compiler(folder: str) -> None:
    for file in files(folder):
        assert not {name.split(".")[0] for name in imports(file)} & COMPILER, file


def test_the_runtime_reads_only_the_audited_part_of_ir() -> None:
    allowed = {name.partition("/")[0].removesuffix(".py") for name in AUDITED}
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


def reachable(start: str) -> set[str]:
    """Modules of ours that one loads, itself included, from wherever in it they are imported."""
    found, todo = set(), [start]
    while todo:
        name = todo.pop()
        path = PACKAGE / Path(*name.split(".")[1:])
        file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
        if name in found or not file.exists():
            continue  # a name in a module, not a module
        found.add(name)
        for imported in imports(file):
            if imported.startswith("veilgraph."):
                todo += [imported, imported.rpartition(".")[0]]
    return found - {"veilgraph"}


def test_a_host_that_verifies_needs_no_compiler() -> None:
    """The verifier adds to what a host loads the party level, its passes and the suites."""
    found = reachable("veilgraph.verification.verified_plans")
    for name in found:
        file = PACKAGE / Path(*name.split(".")[1:])
        file = file.with_suffix(".py") if file.with_suffix(".py").exists() else file / "__init__.py"
        assert not {each.split(".")[0] for each in imports(file)} & COMPILER, name
    passes = {name.split(".")[-1] for name in found if name.startswith("veilgraph.passes.")}
    assert passes - {"party", "plan"} == VERIFIER

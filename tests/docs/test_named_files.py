"""Docstrings, comments and links name files of this repository, and none that is gone."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from documents import ROOT, documents

FOLDERS = (
    *("frontend", "ir", "passes", "targets", "runtime", "kernels", "python/veilgraph"),
    *("benchmarks", "examples", "tests"),
)
PYTHON, NATIVE = {".py", ".pyi"}, {".h", ".cpp", ".cu", ".cuh"}
NAMED = re.compile(r"(?<![\w/.*>])(?P<path>(?:[\w-]+/)*[\w-]+\.(?:pyi?|h|cpp|cuh?))\b")
LABELLED = re.compile(r"\[(?P<label>[\w-]+\.(?:py|h|cpp|cuh?))\]\((?P<target>[^)\s#]+)")
GENERATED = {"kernels/declared.h"}
FOREIGN = {"torch/_export/serde/schema.py", "cublas_api.h", "library_types.h"}


def sources(suffixes: set[str]) -> list[Path]:
    found = [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in suffixes and "__pycache__" not in path.parts
    ]
    assert found
    return found


EXISTING = [PurePosixPath(path.relative_to(ROOT)) for path in sources(PYTHON | NATIVE)]


def prose(path: Path) -> Iterator[str]:
    """Comments, and in Python docstrings too."""
    text = path.read_text()
    if path.suffix in NATIVE:
        yield from re.findall(r"//(.*)", text)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented):
            yield ast.get_docstring(node) or ""


def gone(texts: Iterator[str]) -> Iterator[str]:
    """Names that no file of this repository ends in."""
    for text in texts:
        for match in NAMED.finditer(text):
            name = match["path"]
            parts = PurePosixPath(name).parts
            if name not in GENERATED | FOREIGN and all(
                p.parts[-len(parts) :] != parts for p in EXISTING
            ):
                yield name


@pytest.mark.parametrize("folder", FOLDERS)
def test_sources_name_files_that_exist(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)} names {name}"
        for path in sources(PYTHON | NATIVE)
        if path.is_relative_to(ROOT / folder)
        for name in gone(prose(path))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("document", documents(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_link_is_labelled_with_its_file(document: Path) -> None:
    for match in LABELLED.finditer(document.read_text()):
        assert match["label"] == PurePosixPath(match["target"]).name, match[0]


def test_what_is_gone() -> None:
    assert list(gone(iter(["see no_such_file.py and ir/graph/ops.py, graph/no.h"]))) == [
        "no_such_file.py",
        "graph/no.h",
    ]
    assert list(gone(iter(["<suite>.py, test_*.py, a/test_layers.py"]))) == ["a/test_layers.py"]


@pytest.mark.parametrize(
    "name", ["model.weights", "model.alice.shares", "alice.key", "model.ranges", "m.histograms"]
)
def test_git_takes_no_file_that_must_not_be_published(name: str) -> None:
    patterns = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert any(PurePosixPath(name).match(pattern) for pattern in patterns)

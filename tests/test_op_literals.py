"""Names of operations stand where operations are declared: lists and literals elsewhere are few.

A list is an assignment of a module with two names of operations or more, which are at least 60% of
its strings. A literal is a name of an operation that something is compared with. What is asked of
an operation belongs to its facts (`ir/graph/facts.py`, `ir/secret/facts.py`) or its class. The
limits are what there is: lower them with the count.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from veilgraph.ir.graph import ops as graph_ops
from veilgraph.ir.party import ops as party_ops
from veilgraph.ir.secret.facts import FACTS as SECRET_OPERATIONS

ROOT = Path(__file__).parents[1]
FOLDERS = ("frontend", "ir", "passes", "targets", "runtime", "kernels", "python/veilgraph")
NAMES = frozenset(
    (
        *(kind.OPERATION_NAME.partition(".")[2] for kind in graph_ops.OPERATIONS),
        *SECRET_OPERATIONS,
        *party_ops.BY_NAME,
    )
)
# Where operations are declared.
HOMES = ("ir/graph/ops.py", "ir/secret/facts.py", "ir/party/ops.py")
SHARE = 0.6  # of a list's strings
MOST_LISTS = 5
MOST_LITERALS = 25


def strings(node: ast.AST) -> list[str]:
    constants = (n for n in ast.walk(node) if isinstance(n, ast.Constant))
    return [n.value for n in constants if isinstance(n.value, str)]


def lists(tree: ast.Module) -> Iterator[int]:
    """The lines of assignments that list operations."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            found = strings(statement.value)
            named = sum(name in NAMES for name in found)
            if named >= max(2, SHARE * len(found)):
                yield statement.lineno


def literals(tree: ast.Module) -> Iterator[int]:
    """The lines of comparisons with the name of an operation, and of such cases of a match."""
    for node in ast.walk(tree):
        compared: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            compared = node.comparators
        elif isinstance(node, ast.MatchValue):
            compared = [node.value]
        if any(name in NAMES for part in compared for name in strings(part)):
            yield node.lineno


def product() -> Iterator[tuple[str, ast.Module]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if (name := str(path.relative_to(ROOT))) not in HOMES:
                yield name, ast.parse(path.read_text())


def shown(found: Counter[str]) -> str:
    return ", ".join(f"{path}: {count}" for path, count in sorted(found.items()))


def test_lists_of_operations_grow_no_more() -> None:
    found = Counter(path for path, tree in product() for _ in lists(tree))
    assert found.total() <= MOST_LISTS, f"{found.total()} lists of names: {shown(found)}"


def test_comparisons_with_names_grow_no_more() -> None:
    found = Counter(path for path, tree in product() for _ in literals(tree))
    assert found.total() <= MOST_LITERALS, f"{found.total()} comparisons: {shown(found)}"


def test_what_is_counted() -> None:
    tree = ast.parse(
        "LAYOUT = frozenset(('reshape', 'slice'))\n"
        "WORDS = ('reshape', 'a', 'b')\n"
        "ONE = 'relu'\n"
        "def f(kind):\n"
        "    if kind in ('relu', 'other'):\n"
        "        return kind == 'maximum' or kind == 'median'\n"
        "    match kind:\n"
        "        case 'conv':\n"
        "            return True\n"
    )
    assert list(lists(tree)) == [1]
    assert sorted(literals(tree)) == [5, 6, 8]

"""How many product files say something of one operation, or of one kernel: what adding one touches.

A file declares a name where it has a class, a function, a constant or a key of that name, or a
decorator with it. A file that only uses what has the name is not counted. The limits are what there
is: lower them with the count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from veilgraph.kernels import KERNELS

ROOT = Path(__file__).parents[1]
FOLDERS = ("frontend", "ir", "passes", "targets", "runtime", "kernels", "python/veilgraph")
MOST_OF_AN_OP = 12
MOST_OF_A_KERNEL = 6
MOST_OF_ITS_OP = 3


def forms(name: str) -> set[str]:
    """pool_sum: pool_sum, _pool_sum, POOL_SUM, PoolSum."""
    camel = "".join(part.capitalize() for part in name.split("_"))
    return {name, f"_{name}", name.upper(), camel}


def said(node: ast.AST | None) -> str:
    """The name that a key, or an argument, is."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def declared(tree: ast.Module) -> Iterator[str]:
    inner = {f for n in tree.body if isinstance(n, ast.FunctionDef) for f in ast.walk(n)}
    for node in ast.walk(tree):
        if node in inner and node not in tree.body:
            continue
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.FunctionDef(name=name, decorator_list=decorators):
                yield name
                calls = (each for each in decorators if isinstance(each, ast.Call))
                yield from (said(argument) for each in calls for argument in each.args)
            case ast.Call(func=ast.Name(id="Operator"), args=[name, *_]):
                yield said(name)
            case ast.Dict(keys=keys):
                yield from map(said, keys)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call()):
                yield name
            case ast.AnnAssign(target=ast.Name(id="KERNELS"), value=ast.Tuple(elts=listed)):
                yield from map(said, listed)


def declaring(name: str) -> list[str]:
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if forms(name) & set(declared(ast.parse(path.read_text()))):
                found.append(str(path.relative_to(ROOT)))
    return found


def test_an_element_wise_op_with_a_protocol() -> None:
    """`maximum`, in three suites, with its derivative; `Max` is the row of ONNX's operators."""
    found = {*declaring("maximum"), *declaring("Max")}
    assert len(found) <= MOST_OF_AN_OP, sorted(found)


def test_a_kernel_and_the_op_that_calls_it() -> None:
    """`pool_sum`, of no other level: its folder and its number; then its op."""
    assert "pool_sum" in KERNELS
    folder = ROOT / "kernels" / "pool_sum"
    own = {str(p.relative_to(ROOT)) for p in folder.iterdir() if p.is_file() and p.stat().st_size}
    found = own | set(declaring("pool_sum"))
    ops = {each for each in found if each.startswith("ir/")}
    assert len(found - ops) <= MOST_OF_A_KERNEL, sorted(found)
    assert len(ops) <= MOST_OF_ITS_OP, sorted(ops)


def test_what_declares() -> None:
    tree = ast.parse(
        "@s.protocol('max')\n"
        "def top():\n    def inside(): return {'inside': use(Used, 'used')}\n"
        "class Made: ...\n"
        "SUM = op('x')\n"
        "rows = {ops.Row: 1, 'key': 2}\n"
        "KERNELS: tuple = ('listed',)\n"
        "row = Operator('Row2')\n"
    )
    assert {*declared(tree)} == {"max", "top", "Made", "SUM", "Row", "key", "listed", "Row2", "row"}

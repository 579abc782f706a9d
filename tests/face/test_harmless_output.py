"""What strangers wrote into a plan, a model, a file's name or a certificate is only ever shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_tables import Terminal
from verbs import DIGITS, Compiled, run_verb

from veilgraph.ir.errors import Offender, UnsupportedError, UsageError
from veilgraph.ir.harmless import MOST_SHOWN, harmless
from veilgraph.reports import tables
from veilgraph.reports.markup import tag
from veilgraph.reports.tables import Table

STEERING = {
    "escape": "\x1b[2J",
    "title": "\x1b]0;owned\x07",
    "8-bit escape": "\x9b31m",
    "bell": "\a",
    "return": "\rforged",
    "line": "\nforged 0 0",
    "Unicode's line": "\u2028forged",
    "next line": "\x85forged",
    "tab": "\t",
    "delete": "\x7f\b",
    "override": "\u202eforged\u2066",
    "no width": "\u200b\ufeff\u00ad\ufe0f",
    "tags": "\U000e0041",
    "over others": "e" + 40 * "\u0301",
    "blank letter": "\u3164",
    "markup": "[red]forged[/red]",
}
HOSTILE = "".join(STEERING.values())
SEVERAL = [*STEERING.values(), HOSTILE, 100_000 * "long"]
DRAWN = re.compile(r"\x1b\[[0-9;?]*[mlhKA]")  # what rich draws with: colours and its own cursor


def check_harmless(shown: str) -> None:
    """No character but line breaks steers anything, and no line is one that a name has made."""
    found = {c for c in shown if c != "\n" and harmless(c) != c}
    assert not found
    assert not [line for line in shown.split("\n") if line.strip().startswith("forged")]


@pytest.mark.parametrize("text", SEVERAL)
def test_a_text_is_one_line_that_steers_nothing(text: str) -> None:
    shown = harmless(text)
    check_harmless(shown)
    assert "\n" not in shown
    assert shown == harmless(shown)
    assert len(shown) <= 10 * MOST_SHOWN


def test_what_people_write_stays_as_it_is() -> None:
    for text in ("conv1/Relu_2:0", "größe µs 3×3", "重み \\x1b", "имя", "🙂"):
        assert harmless(text) == text


def test_what_is_long_loses_its_middle() -> None:
    shown = harmless("first" + "x" * 10**6 + "last")
    assert len(shown) == MOST_SHOWN
    assert shown.startswith("first")
    assert shown.endswith("last")
    assert "..." in shown


# Where it comes out


@pytest.mark.parametrize("name", SEVERAL)
def test_tables_lines_and_progress(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    for stream in (Terminal(), Plain()):
        with redirect_stdout(stream), redirect_stderr(stream):
            tables.show(name, Table.of(f"{name}|#rounds", [(name, 1), ("b", 2)], name))
            tables.say(name)
            with tables.progress(name) as tell:
                tell(name)
        shown = DRAWN.sub("", stream.getvalue()).replace("\r", "")  # of rich's progress
        check_harmless(shown)
        if name == STEERING["markup"]:
            assert shown.count(name) >= 5


class Plain(Terminal):
    """A stream that is no terminal."""

    def isatty(self) -> bool:
        return False


@pytest.mark.parametrize("name", SEVERAL)
def test_json_and_programs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    tables.show_json({name: [name]})
    check_harmless(capsys.readouterr().out)
    tables.show_text(f"first {name}\n".replace("\nforged", ""))
    check_harmless(capsys.readouterr().out)


@pytest.mark.parametrize("name", SEVERAL)
def test_pages_turn_nothing_around_and_keep_long_drawings(name: str) -> None:
    check_harmless(str(tag("p", name, title=name)))
    assert 9_000 * "L1 2" in str(tag("path", d=9_000 * "L1 2"))


def test_errors_are_harmless_before_they_are_raised() -> None:
    for name in STEERING.values():
        check_harmless(str(UsageError(f"`{name}` is no input.", f"It has `{name}`.")))
        offender = Offender(name, name, name, name, name)
        told = UnsupportedError([offender, offender], name)
        check_harmless(str(told))
        assert len(str(told).split("\n")) == 4


# Verbs


def _model(named: str) -> onnx.ModelProto:
    """x W, and the larger of that and zero; every name ends in `named`."""
    w = numpy_helper.from_array(np.eye(3, dtype=np.float32), f"w{named}")
    nodes = [
        helper.make_node("MatMul", [f"x{named}", f"w{named}"], [f"h{named}"], f"layer{named}"),
        helper.make_node("Relu", [f"h{named}"], [f"y{named}"], f"relu{named}"),
    ]
    x = helper.make_tensor_value_info(f"x{named}", TensorProto.FLOAT, [1, 3])
    y = helper.make_tensor_value_info(f"y{named}", TensorProto.FLOAT, [1, 3])
    return helper.make_model(
        helper.make_graph(nodes, f"graph{named}", [x], [y], [w]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name=named,
    )


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder, itself of a hostile name, with a model, its plan and samples."""
    folder = tmp_path_factory.mktemp("hostile") / "\x1b[2J\u202e\nforged"
    folder.mkdir()
    onnx.save(_model(HOSTILE), folder / "model.onnx")
    np.save(folder / "x.npy", np.ones((4, 1, 3), np.float32))
    np.save(folder / "one.npy", np.ones((1, 3), np.float32))
    (folder / "parties.yaml").write_text(json.dumps({HOSTILE: {HOSTILE: HOSTILE}}))
    made = run_verb("compile", folder / "model.onnx", "-o", folder / "model.plan")
    check_harmless(made.output)
    assert made.exit_code == 0, made.output
    return folder


def _lines(folder: Path) -> Iterator[list[str]]:
    plan, model = str(folder / "model.plan"), str(folder / "model.onnx")
    weights = ["--weights", str(folder / "model.weights")]
    named = f"x{HOSTILE}=@"
    for more in (
        [], ["--layers"], ["--reveals"], ["--json"], ["--html", str(folder / "page.html")],
        *(["--ir", level] for level in ("graph", "secret", "party", "plan")),
    ):  # fmt: skip
        yield ["inspect", plan, *more]
    for verb, one in (("simulate", "one.npy"), ("bench", "one.npy")):
        yield [verb, plan, *weights, "--input", f"{named}{folder / one}"]
        yield [verb, plan, *weights, "--input", f"{HOSTILE}=@{folder / one}"]
        yield [verb, plan, *weights, "--input", f"{named}{folder / HOSTILE.replace('/', '')}"]
    yield ["check", plan, *weights, "--model", model, "--samples", f"{named}{folder / 'x.npy'}"]
    yield ["run", plan, "--party", HOSTILE, "--config", str(folder / HOSTILE.replace("/", ""))]
    yield ["run", plan, "--party", "alice", "--config", str(folder / "parties.yaml")]
    yield ["prepare", plan, "--party", HOSTILE, "--config", str(folder)]
    yield ["compile", str(folder / f"{HOSTILE.replace('/', '')}.onnx"), "-o", plan]
    yield ["compile", model, "-o", plan, "--shape", f"{HOSTILE}=1x3"]
    yield ["compile", model, "-o", plan, "--shape", f"x={HOSTILE}"]
    yield ["cert", "init", HOSTILE.replace("/", ""), "--out", str(folder)]
    yield ["ops", HOSTILE]
    yield ["doctor", f"--{HOSTILE}"]
    yield [HOSTILE]
    yield [f"--{HOSTILE}"]


def test_every_verb_shows_hostile_names_harmlessly(
    hostile: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What native code writes past Python is looked at as well."""
    for line in _lines(hostile):
        result = run_verb(*line)
        check_harmless(result.output)
        assert "Something went wrong inside" not in result.output, (line[0], result.output)
    check_harmless((hostile / "page.html").read_text())
    check_harmless("".join(capfd.readouterr()))


def test_a_traceback_is_harmless(hostile: Path) -> None:
    result = run_verb("--traceback", "inspect", hostile / HOSTILE.replace("/", ""))
    assert "Traceback" in result.output
    check_harmless(result.output)


def test_a_plan_may_say_anything(
    digits: Compiled, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Names that no compiler of ours writes: of layers, and in the programs' text."""
    plan = digits.plan
    layers = tuple(replace(layer, name=layer.name + HOSTILE) for layer in plan.layers)
    text = {level: f"{HOSTILE.replace(chr(10), '')}\n{t}" for level, t in plan.ir.items()}
    forged = replace(plan, layers=layers, ir=text)
    forged.save(tmp_path / "forged.plan")
    for more in ("--layers", "--json", "--ir=graph", "--ir=secret", "--ir=plan"):
        result = run_verb("inspect", tmp_path / "forged.plan", more)
        assert result.exit_code == 0, result.output
        check_harmless(result.output)
    for line in (["inspect", "--reveals"], ["verify"]):
        result = run_verb(*line, tmp_path / "forged.plan")
        assert result.exit_code == 6, result.output
        check_harmless(result.output)
    one = f"image=@{digits.file('image.npy')}"
    for verb, *rest in (["simulate", "--input", one], ["check", "--model", DIGITS / "digits.onnx"]):
        check_harmless(run_verb(verb, tmp_path / "forged.plan", *rest).output)
    check_harmless("".join(capfd.readouterr()))

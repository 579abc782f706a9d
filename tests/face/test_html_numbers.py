"""The page against `inspect --json` and against the model: edges, numbers, names and its title."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import model
from onnx import ModelProto, helper
from verbs import json_of, run_verb

import veilgraph
from veilgraph.checks.checking import check
from veilgraph.reports import units
from veilgraph.reports.layer_graph import LayerGraph

WIDEST = 36  # letters of a column that must not push the numbers out of sight


def mobile_model() -> tuple[ModelProto, np.ndarray[Any, np.dtype[np.float32]]]:
    """Two blocks with ReLU6 and gates, whose constants the compiler shares, and samples."""
    rng = np.random.default_rng(0)
    nodes, weights = [], {"zero": np.float32(0), "six": np.float32(6)}
    x = "image"
    for block in ("first", "second"):
        channels = 3 if block == "first" else 8
        weights[f"{block}_w"] = rng.standard_normal((8, channels, 3, 3), np.float32)
        weights[f"{block}_g"] = 4 * rng.standard_normal((8, 8, 1, 1), np.float32)
        nodes += [
            helper.make_node("Conv", [x, f"{block}_w"], [f"{block}/c"], f"{block}/conv",
                             pads=[1, 1, 1, 1]),
            helper.make_node("Clip", [f"{block}/c", "zero", "six"], [f"{block}/r"],
                             f"{block}/relu6"),
            helper.make_node("Conv", [f"{block}/r", f"{block}_g"], [f"{block}/p"], f"{block}/gate"),
            helper.make_node("Sigmoid", [f"{block}/p"], [f"{block}/s"], f"{block}/sigmoid"),
            helper.make_node("Mul", [f"{block}/r", f"{block}/s"], [f"{block}/m"], f"{block}/mul"),
        ]  # fmt: skip
        x = f"{block}/m"
    nodes += [
        helper.make_node("ReduceMean", [x], ["pooled"], "pool", keepdims=0, axes=[2, 3]),
        helper.make_node("Tanh", ["pooled"], ["squashed"], "tanh"),
        helper.make_node("Softmax", ["squashed"], ["p"], "softmax", axis=-1),
    ]
    samples = rng.standard_normal((4, 1, 3, 8, 8), np.float32)
    return model(nodes, {"image": (1, 3, 8, 8)}, ["p"], weights, opset=17), samples


@dataclass
class Rows(HTMLParser):
    """The rows of the table of layers: the text and the tooltip of each cell."""

    title: str = ""
    rows: list[list[tuple[str, str]]] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "meta":
            return
        self._open.append("drawn" if given.get("class") == "drawn" else tag)
        if tag == "tr":
            self.rows.append([])
        elif tag == "td" and given.get("class") != "drawn" and self.rows:
            self.rows[-1].append(("", given.get("title") or ""))

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open[-2:] == ["head", "title"]:
            self.title += data
        elif "td" in self._open and self.rows[-1]:
            text, hover = self.rows[-1][-1]
            self.rows[-1][-1] = text + data, hover


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model, its samples and its plan."""
    place = tmp_path_factory.mktemp("mobile")
    proto, samples = mobile_model()
    onnx.save(proto, place / "mobile.onnx")
    np.savez(place / "samples.npz", image=samples)
    given = ("--calibrate", place / "samples.npz")
    result = run_verb("compile", place / "mobile.onnx", "-o", place / "m.plan", *given)
    assert result.exit_code == 0, result.stderr
    return place


@pytest.fixture(scope="module")
def layers(folder: Path) -> list[dict[str, Any]]:
    found = json_of("inspect", folder / "m.plan")["layers"]
    assert isinstance(found, list)
    return found


def read_page(folder: Path, *verb: object) -> Rows:
    result = run_verb(*verb, "--html", folder / "page.html")
    assert result.exit_code in (0, 4), result.stderr
    text = (folder / "page.html").read_text()
    read = Rows()
    read.feed(text.partition("Beside the model")[0].partition("Who learns what")[0])
    read.rows = [row for row in read.rows if row]
    return read


def bar(value: float, told: str) -> str:
    return told if value else ""


def test_every_number_of_the_page_is_that_of_json(
    folder: Path, layers: list[dict[str, Any]]
) -> None:
    read = read_page(folder, "inspect", folder / "m.plan")
    assert len(read.rows) == len(layers) > 20
    for cells, layer in zip(read.rows, layers, strict=True):
        texts = [text for text, _ in cells]
        sent = layer["online_bytes"] + layer["offline_bytes"]
        assert texts[0] == layer["name"]
        assert texts[2] == f"{layer['ring_bits']}.{layer['frac_bits']}"
        assert texts[3] == bar(layer["seconds"], units.seconds(layer["seconds"]))
        assert texts[4] == bar(sent, units.size(sent))
        assert texts[5] == bar(layer["rounds"], str(layer["rounds"]))
        room = layer["headroom_bits"]
        assert texts[6].startswith("" if room is None else f"{room:.1f} bits of headroom")


def test_json_has_seconds_beside_their_share(layers: list[dict[str, Any]]) -> None:
    total = sum(layer["seconds"] for layer in layers)
    for layer in layers:
        assert layer["share_of_seconds"] == pytest.approx(layer["seconds"] / total)


def test_what_a_layer_computes_is_said_in_few_letters(folder: Path) -> None:
    read = read_page(folder, "inspect", folder / "m.plan")
    told = {cells[0][0]: cells[1] for cells in read.rows}
    assert told["first/sigmoid"][0] == "sigmoid (2 comparisons)"
    assert told["first/sigmoid"][1].startswith("function (masked_function=narrow)+add")
    assert len(told["softmax"][1]) > 70
    assert all(len(text) <= WIDEST for text, _ in told.values())


def test_an_edge_is_one_of_the_model(folder: Path, layers: list[dict[str, Any]]) -> None:
    """Shared constants carry the place of their first reader, and are nobody's result."""
    proto = onnx.load(folder / "mobile.onnx")
    makers = {name: node.name for node in proto.graph.node for name in node.output}
    reads = {node.name: {makers.get(n, n) for n in node.input} for node in proto.graph.node}
    plan = veilgraph.Plan.load(folder / "m.plan")
    names = [layer["name"] for layer in layers]
    edges = LayerGraph.parse(plan.ir["secret"]).edges(names)

    def node_of(layer: str) -> str:
        return max((n for n in reads if layer == n or layer.startswith(f"{n}/")), default=layer)

    found = [(node_of(names[a]), node_of(names[b])) for a, b in edges]
    assert len(found) > 20
    assert [(a, b) for a, b in found if a != b and a not in reads[b]] == []
    assert {(a, b) for b in reads for a in reads[b] if a in names} <= set(found)


def test_headroom_is_negative_only_where_something_overflows(
    folder: Path, layers: list[dict[str, Any]]
) -> None:
    """A sigmoid far out is what comparisons say it is: its series' window bounds nothing."""
    rooms = [layer["headroom_bits"] for layer in layers if layer["headroom_bits"] is not None]
    assert len(rooms) > 10
    assert min(rooms) > 0
    proto, samples = mobile_model()
    plan, weights = veilgraph.compile(proto, calibrate={"image": samples})
    found = check(plan, weights, proto, {"image": samples})
    assert not found.excursions
    assert min(layer.headroom_bits for layer in found.layers) > 0


def test_the_title_names_plan_model_and_day(folder: Path) -> None:
    read = read_page(folder, "inspect", folder / "m.plan")
    assert read.title == f"mobile.onnx in m.plan, {date.today().isoformat()} - Veilgraph"
    kept = folder / "m.ranges"
    content = kept.read_text()
    kept.unlink()
    assert read_page(folder, "inspect", folder / "m.plan").title.startswith("m.plan, 20")
    kept.write_text(content)
    assert json.loads(content)["model"] == "mobile.onnx"
    other = (folder / "mobile.onnx").rename(folder / "renamed.onnx")
    given = ("--weights", folder / "m.weights", "--model", other)
    checked = ("check", folder / "m.plan", *given, "--inputs", folder / "samples.npz")
    assert read_page(folder, *checked).title.startswith("renamed.onnx in m.plan, 20")
    other.rename(folder / "mobile.onnx")

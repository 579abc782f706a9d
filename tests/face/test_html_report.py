"""`inspect --html` and `check --html`: one self-contained page, whatever a plan's text says."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from models import model
from onnx import helper, parser
from verbs import Compiled, reason, run_verb

import veilgraph
from veilgraph.checks import kept_ranges
from veilgraph.checks.kept_ranges import with_ranges
from veilgraph.measuring.pricing import predict
from veilgraph.reports.html import page
from veilgraph.reports.layer_graph import ROW, LayerGraph, drawing
from veilgraph.reports.markup import tag

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
VOID = ("meta", "br")
HOSTILE = '"><script>alert(1)</script><img src=https://example.org/x onerror=alert(2)>&amp;'


class Page(HTMLParser):
    """Elements and text of a page, and whether its tags are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    def found(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.elements if name == tag)


def assert_self_contained(text: str) -> Page:
    """Nothing is run, and nothing is fetched."""
    read = Page(text)
    tags = {name for name, _ in read.elements}
    assert tags.isdisjoint({"script", "link", "img", "iframe", "object", "a", "form", "base"})
    for _, attributes in read.elements:
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in ("src", "href")
            assert "url(" not in (value or "")
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    policy = next(e for e in read.found("meta") if e.get("http-equiv"))
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"
    return read


def test_inspect_writes_a_page(copied: Compiled) -> None:
    result = run_verb("inspect", "digits.plan", "--html", "report.html", "--network", "wan")
    assert result.exit_code == 0, result.stderr
    assert "report.html is a page for a browser." in result.stdout
    read = assert_self_contained(Path("report.html").read_text())
    text = " ".join(read.texts)
    for told in ("image (1x1x28x28) of alice", "conv1", "truncate_relu", "online on wan, predicted",
                 "Who learns what", "output logits", copied.plan.digest):  # fmt: skip
        assert told in text
    assert len(list(read.found("circle"))) == 14  # a node a layer, inputs and outputs too
    assert len([e for e in read.found("path") if e.get("class") == "edge"]) == 13


def test_check_adds_errors_and_the_samples_magnitudes(copied: Compiled) -> None:
    with np.load("calibration.npz", allow_pickle=False) as samples:
        np.savez("few.npz", image=samples["image"][:3])
    result = run_verb(
        "check", "digits.plan", "--weights", "digits.weights", "--model", "digits.onnx",
        "--inputs", "few.npz", "--html", "report.html",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    read = assert_self_contained(Path("report.html").read_text())
    text = " ".join(read.texts)
    assert "On 3 samples no value left its range, and no layer drifted." in text
    assert "worst error" in text
    assert "3 of 3" in text
    assert sum(e.get("class") == "share" for e in read.found("rect")) > 40


def test_a_page_is_not_written_over_nothing(copied: Compiled) -> None:
    code, told = reason("inspect", "digits.plan", "--html", "nowhere/report.html")
    assert code == 2
    assert "nowhere" in told


@pytest.mark.parametrize("name", ["digits.plan", "digits.ranges"])
def test_a_page_is_not_written_over_what_it_is_made_of(copied: Compiled, name: str) -> None:
    before = Path(name).read_bytes()
    code, told = reason("inspect", "digits.plan", "--html", name)
    assert code == 2
    assert f"{name} is read here, and would be overwritten." in told
    assert Path(name).read_bytes() == before


@pytest.mark.parametrize("name", ["digits.weights", "digits.onnx", "calibration.npz"])
def test_a_check_is_not_written_over_what_it_reads(copied: Compiled, name: str) -> None:
    before = Path(name).read_bytes()
    code, told = reason(
        "check", "digits.plan", "--weights", "digits.weights", "--model", "digits.onnx",
        "--inputs", "calibration.npz", "--html", name,
    )  # fmt: skip
    assert code == 2
    assert f"{name} is read here, and would be overwritten." in told
    assert Path(name).read_bytes() == before


def test_whatever_a_plan_says_is_escaped(digits: Compiled) -> None:
    plan = digits.plan
    layers = tuple(
        replace(layer, name=layer.name and layer.name + HOSTILE) for layer in plan.layers
    )
    told = tuple(
        replace(d, what=HOSTILE, to=HOSTILE, why=HOSTILE) for d in plan.manifest.disclosures
    )
    manifest = replace(
        plan.manifest, encoding=HOSTILE, security=HOSTILE, disclosures=told,
        options={HOSTILE: HOSTILE}, veilgraph_version=HOSTILE,
    )  # fmt: skip
    text = plan.ir["secret"].replace("conv1", HOSTILE.replace('"', '\\"'))
    hostile = replace(plan, layers=layers, manifest=manifest, ir={"secret": text})
    read = assert_self_contained(page(hostile, predict(hostile)))
    assert HOSTILE in "".join(read.texts)


def test_a_plan_without_text_has_rows_without_edges(digits: Compiled) -> None:
    plan = replace(digits.plan, ir={"secret": "no program at all\n" * 3})
    read = assert_self_contained(page(plan, predict(plan)))
    assert not [e for e in read.found("path") if e.get("class") == "edge"]
    assert "conv1" in read.texts


def test_the_page_of_an_entry_draws_what_it_reads() -> None:
    """Two entries over one input; each page has the edges of its own layers."""
    models = {
        name: parser.parse_model(f"""<ir_version: 10, opset_import: ["": 17]>
            {name} (float[1, 4] x) => (float[1, 4] {name}_y)
            {{ {name}_y = {nodes} }}""")
        for name, nodes in {"one": "Relu(x)", "other": "Add(x, x)"}.items()
    }
    samples = {"x": np.linspace(-1, 1, 40, dtype=np.float32).reshape(10, 1, 4)}
    plan, _ = veilgraph.compile(models, calibrate=samples)
    for number, name in enumerate(models):
        graph = LayerGraph.of(plan, number)
        assert graph.outputs == [f"{name}_y"]
        assert any("x" in read for read in graph.sources.values())
        read = assert_self_contained(page(plan, predict(plan, entry=number)))
        assert [e for e in read.found("path") if e.get("class") == "edge"]


def test_residual_edges_go_around_what_they_pass(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Sigmoid", ["a"], ["b"], name="second"),
        helper.make_node("Add", ["a", "b"], ["y"], name="sum"),
    ]
    samples = np.random.default_rng(0).standard_normal((4, 1, 8)).astype(np.float32)
    plan, _ = veilgraph.compile(model(nodes, {"x": (1, 8)}, ["y"]), calibrate={"x": samples})
    graph = LayerGraph.parse(plan.ir["secret"])
    assert set(graph.sources["sum"]) == {"first", "second"}
    assert graph.edges(["x", "first", "second", "sum"]) == [(0, 1), (1, 2), (1, 3), (2, 3)]
    assert graph.returned == ["sum"]
    assert graph.windows["x"] > 1


def test_edges_that_meet_have_lanes_of_their_own() -> None:
    svg = str(drawing([(0, 1), (0, 2), (1, 3), (3, 5)], 6))
    assert svg.count("<path") == 4
    assert f'height="{6 * ROW}"' in svg
    lefts = {part.split("C")[1].split()[0] for part in svg.split('d="')[1:] if "C" in part}
    assert len(lefts) == 2  # (0, 2) and (1, 3) meet, (3, 5) has the lane of one of them


def test_histograms_stay_beside_the_plan(copied: Compiled) -> None:
    """In a file of their own, which its owner alone may read; the plan has none of them."""
    kept = Path("digits.ranges")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    plan = copied.plan
    assert plan.magnitudes == ()
    found = with_ranges(plan, kept).magnitudes
    assert {"image", "conv1", "relu1", "fc2"} <= {entry.name for entry in found}
    assert all(200 < sum(entry.shares) < 300 for entry in found)
    with zipfile.ZipFile("digits.plan") as archive:
        assert not [name for name in archive.namelist() if "magnitudes" in name]
    assert replace(plan, magnitudes=found).digest == plan.digest

    def shares() -> int:
        assert run_verb("inspect", "digits.plan", "--html", "report.html").exit_code == 0
        read = assert_self_contained(Path("report.html").read_text())
        return sum(e.get("class") == "share" for e in read.found("rect"))

    assert shares() > 40
    content = json.loads(kept.read_text())
    kept.write_text(json.dumps({**content, "plan": "ab" * 32}))
    assert shares() == 0
    kept.unlink()
    assert shares() == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"plan": 3}',
        b'{"plan": "PLAN"}',
        b'{"plan": "PLAN", "ranges": [], "magnitudes": {}}',
        b'{"plan": "PLAN", "ranges": [], "magnitudes": []}',
        b'{"plan": "PLAN", "ranges": [[1]], "magnitudes": []}',
        b'{"plan": "PLAN", "ranges": [[1, 0]], "magnitudes": []}',
        b'{"plan": "PLAN", "ranges": [[NaN, 0]], "magnitudes": []}',
        b'{"plan": "PLAN", "ranges": [["0", 1]], "magnitudes": []}',
        b'{"plan": "PLAN", "ranges": [], "magnitudes": [{"name": "x", "top": "1", "shares": []}]}',
        b"[" * 100_000,
    ],
)
def test_histograms_that_are_none(copied: Compiled, content: bytes) -> None:
    stated = content.replace(b"PLAN", copied.plan.digest.encode())
    Path("digits.ranges").write_bytes(stated)
    code, told = reason("inspect", "digits.plan", "--html", "report.html")
    assert code == 2
    assert "digits.ranges holds no ranges, or damaged ones." in told


@pytest.mark.parametrize("verb", ["inspect", "check"])
def test_histograms_of_another_plan_are_told_of(copied: Compiled, verb: str) -> None:
    Path("digits.ranges").write_text(json.dumps({"plan": "0" * 64}))
    given = ("--weights", "digits.weights", "--model", "digits.onnx", "--inputs", "calibration.npz")
    done = run_verb(verb, "digits.plan", *(given if verb == "check" else ()))
    assert done.exit_code == 0
    told = "digits.ranges is another plan's; ranges are shown to a power of two."
    assert done.stderr.count(told) == 1


def test_histograms_that_are_too_large(copied: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_ranges, "MOST_BYTES", 100)
    code, told = reason("inspect", "digits.plan", "--html", "report.html")
    assert (code, "or damaged ones" in told) == (2, True)


def test_text_is_escaped_and_attributes_too() -> None:
    made = tag("p", "<b>", tag("i", "&", title='"x"'), class_="a b", data_x=None)
    assert str(made) == '<p class="a b">&lt;b&gt;<i title="&quot;x&quot;">&amp;</i></p>'


@pytest.mark.skipif(BROWSER is None, reason="no Chromium, which .ci/run installs by apt-get")
@pytest.mark.parametrize("scheme", [(), ("--force-dark-mode",)], ids=["light", "dark"])
def test_a_browser_shows_it(copied: Compiled, scheme: tuple[str, ...]) -> None:
    assert run_verb("inspect", "digits.plan", "--html", "report.html").exit_code == 0
    given = ("--headless", "--no-sandbox", "--disable-gpu", "--window-size=1360,1200", *scheme)
    address = Path("report.html").absolute().as_uri()
    shown = subprocess.run(
        [str(BROWSER), *given, "--dump-dom", address], capture_output=True, text=True, timeout=180
    )
    assert "Who learns what" in shown.stdout
    subprocess.run(
        [str(BROWSER), *given, f"--screenshot={Path('shot.png').absolute()}", address],
        capture_output=True,
        timeout=180,
    )
    assert Path("shot.png").stat().st_size > 50_000  # an empty page takes a tenth

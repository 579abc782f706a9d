"""`veilgraph inspect`: cost, layers, who learns what, and the programs of each level."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from verbs import Compiled, json_of, reason, run_verb

from veilgraph.ir.plan.tables import Phase
from veilgraph.kernels import KERNELS


def test_summary_says_what_the_plan_is(digits: Compiled) -> None:
    shown = run_verb("inspect", digits.file("digits.plan")).stdout
    for text in (
        "rep3, semi-honest",
        "alice, bob, carol",
        "1x1x28x28, alice's",
        digits.plan.digest,
    ):
        assert text in shown
    assert "Seconds assume lan: 1.25 GB/s a link, 200 us round trip" in shown


def test_layers_say_what_became_of_each_node(digits: Compiled) -> None:
    shown = run_verb("inspect", digits.file("digits.plan"), "--layers").stdout
    rows = {line.split()[0]: line for line in shown.splitlines() if line}
    assert "truncate_relu" in rows["relu1"]
    assert "calibrated" in rows["relu1"]
    assert "conv" in rows["conv1"]
    assert "time on lan" in rows["layer"]


def test_json_adds_up(digits: Compiled) -> None:
    content = json_of("inspect", digits.file("digits.plan"))
    plan = digits.plan
    assert content["rounds"] == plan.rounds(Phase.ONLINE)
    assert content["sent_bytes"]["online"] == plan.sent_bytes(Phase.ONLINE)
    layers = content["layers"]
    assert sum(layer["share_of_seconds"] for layer in layers) == pytest.approx(1)
    online = sum(layer["online_bytes"] for layer in layers)
    assert online == sum(plan.sent_bytes(Phase.ONLINE).values())
    offline = sum(layer["offline_bytes"] for layer in layers)
    assert offline == sum(plan.sent_bytes(Phase.OFFLINE).values())
    assert content["multiply_adds"] == sum(layer["multiply_adds"] for layer in layers)
    assert content["total_seconds"] == content["offline_seconds"] + content["online_seconds"]


def test_network_decides_the_seconds(digits: Compiled, tmp_path: Path) -> None:
    near = json_of("inspect", digits.file("digits.plan"))
    far = json_of("inspect", digits.file("digits.plan"), "--network", "wan")
    assert far["online_seconds"] > 10 * near["online_seconds"]
    own = tmp_path / "moon.yaml"
    own.write_text("bytes_per_second: 1.0e+6\nround_trip_seconds: 2.6\n")
    moon = json_of("inspect", digits.file("digits.plan"), "--network", own)
    assert moon["network"]["name"] == "moon"
    assert moon["online_seconds"] > far["online_seconds"]


def test_reveals_says_who_learns_what(digits: Compiled) -> None:
    shown = run_verb("inspect", digits.file("digits.plan"), "--reveals").stdout
    assert "one of three parties may be curious" in shown
    assert "output logits" in shown
    assert "the graph: operators, shapes, strides" in shown
    assert "floor((z + tau) / 2^f)" in shown
    assert "431 k numbers" in shown
    content = json_of("inspect", digits.file("digits.plan"), "--reveals")
    assert {"what", "to", "why"} == set(content["disclosures"][0])


def test_cleartext_says_that_it_protects_nothing(copied: Compiled) -> None:
    shape = ("--shape", "image=1x1x28x28")
    run_verb("compile", "digits.onnx", "-o", "c.plan", *shape, "--suite", "cleartext")
    shown = run_verb("inspect", "c.plan", "--reveals").stdout
    assert "cleartext" in shown
    assert "none" in shown
    assert "how values were rounded" not in shown


@pytest.mark.parametrize(
    ("level", "text"),
    [
        ("graph", "graph.conv"),
        ("secret", "secret.truncate_relu"),
        ("party", "@bob"),
        ("plan", "round 1"),
    ],
)
def test_prints_the_program_of_each_level(digits: Compiled, level: str, text: str) -> None:
    shown = run_verb("inspect", digits.file("digits.plan"), "--ir", level).stdout
    assert text in shown
    content = json_of("inspect", digits.file("digits.plan"), "--ir", level)
    assert content["ir"] + "\n" == shown


def test_listing_has_every_step_and_message(digits: Compiled) -> None:
    shown = run_verb("inspect", digits.file("digits.plan"), "--ir", "plan").stdout
    plan = digits.plan
    for party, program in plan.programs.items():
        assert f"{party}: {len(program.steps)} steps, {program.arena_bytes} bytes" in shown
        for row in program.messages:
            assert f"{int(row['bytes'])} bytes at {int(row['offset'])}" in shown
    kernels = {int(k) for p in plan.programs.values() for k in p.steps["kernel"]}
    assert all(f"  {KERNELS[k]}" in shown for k in kernels if k < len(KERNELS))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("none.plan",), "There is no plan none.plan."),
        (("digits.onnx",), "digits.onnx is no plan"),
        (("digits.plan", "--network", "moon"), "There is no network `moon`."),
        (
            ("digits.plan", "--network", "digits.onnx"),
            "digits.onnx can't be read as YAML.\nHint: It",
        ),
        (("digits.plan", "--ir", "assembler"), "--ir: `assembler` is none of graph, secret,"),
    ],
)
def test_refuses(copied: Compiled, arguments: tuple[str, ...], sentence: str) -> None:
    code, told = reason("inspect", *arguments)
    assert code == 2
    assert sentence in told


def test_refuses_a_level_that_the_plan_does_not_carry(copied: Compiled) -> None:
    plan, _ = copied.without_text("party")
    code, told = reason("inspect", plan, "--ir", "party")
    assert code == 2
    assert "carries no text of level party" in told
    assert "It has: graph, secret, plan." in told


def test_edited_plan_is_a_security_abort(copied: Compiled) -> None:
    edited = copied.folder / "edited.plan"
    with zipfile.ZipFile("digits.plan") as old, zipfile.ZipFile(edited, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename == "layers.json":
                layers = json.loads(content)
                layers[1]["rounds"] += 1
                content = json.dumps(layers, indent=0, sort_keys=True).encode()
            new.writestr(entry, content)
    assert reason("inspect", edited)[0] == 6

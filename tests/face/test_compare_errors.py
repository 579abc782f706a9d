"""`compile --compare-errors`: what each tightening costs, and what it refuses."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from models import model
from onnx import helper
from verbs import DIGITS, json_of, reason

from veilgraph.cli import main

SHAPE = ("--shape", "image=1x1x28x28")
SAMPLES = ("--calibrate", DIGITS / "calibration.npz")
ERRORS = ("--compare-errors", "0.0001,0.02")


def test_less_error_costs_more() -> None:
    found = json_of("compile", DIGITS / "digits.onnx", *ERRORS, *SHAPE, *SAMPLES)["errors"]
    assert len(found) == 2
    for loose, tight in pairwise(found):
        assert loose["sent_bytes"]["online"] < tight["sent_bytes"]["online"]
        assert "measured" in tight["encoding"]


def test_as_a_table_up_to_what_can_be_held() -> None:
    options = ["--compare-errors", "0.001,1e-12", "--network", "wan"]
    given = [str(word) for word in (*options, *SHAPE, *SAMPLES)]
    done = CliRunner().invoke(main, ["compile", str(DIGITS / "digits.onnx"), *given])
    assert done.exit_code == 0, done.stderr
    assert "0.001 allowed, measured" in " ".join(done.stdout.split())
    assert "1e-12 allowed" not in done.stdout


def test_what_was_chosen_is_shown(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    weights = {name: (rng.standard_normal((16, 16)) / 3).astype(np.float32) for name in ("u", "v")}
    nodes = [
        helper.make_node("MatMul", ["x", "u"], ["a"]),
        helper.make_node("Gelu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]
    onnx.save(model(nodes, {"x": (4, 16)}, ["y"], weights), tmp_path / "gelu.onnx")
    samples = rng.standard_normal((6, 4, 16)).astype(np.float32)
    np.savez(tmp_path / "samples.npz", x=samples)
    given = ("--calibrate", tmp_path / "samples.npz", "--compare-errors", "0.05,0.0001")
    loose, tight = json_of("compile", tmp_path / "gelu.onnx", *given)["errors"]
    assert "Fourier series within 8 units" in loose["encoding"]
    assert sum(loose["sent_bytes"].values()) < sum(tight["sent_bytes"].values())
    done = CliRunner().invoke(main, ["compile", str(tmp_path / "gelu.onnx"), *map(str, given)])
    shown = " ".join(done.stdout.split())
    for words in ("allowed, measured", "Fourier series within 8 units", "24 bits"):
        assert words in shown


def test_an_error_that_no_ring_holds() -> None:
    given = ("--compare-errors", "1e-12", *SHAPE, *SAMPLES)
    code, told = reason("compile", DIGITS / "digits.onnx", *given)
    assert code == 4
    assert "1e-10% is allowed" in told


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((*ERRORS, *SAMPLES, "-o", "x.plan"), "--output makes no sense with --compare-errors."),
        ((*ERRORS, *SAMPLES, "--max-error", "0.5"), "--max-error makes no sense with"),
        (ERRORS, "--compare-errors needs samples"),
        (("--compare-errors", "0.1,x"), "should read like 0.01,0.001"),
        (("--compare-errors", "0.1,-1"), "should read like 0.01,0.001"),
        (("--compare-errors", ""), "should read like 0.01,0.001"),
    ],
)
def test_what_is_refused(options: tuple[str | Path, ...], sentence: str) -> None:
    code, told = reason("compile", DIGITS / "digits.onnx", *SHAPE, *options)
    assert code == 2
    assert sentence in told

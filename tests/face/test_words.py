"""What commands print: numbers agree with nouns, and things are called what they are."""

from __future__ import annotations

import re

import numpy as np
import pytest
from verbs import Compiled, run_verb

SHAPE = ("--shape", "image=1x1x28x28")


def test_a_plan_without_samples_says_what_samples_would_do(copied: Compiled) -> None:
    result = run_verb("compile", "digits.onnx", "-o", "bare.plan", *SHAPE)
    assert result.exit_code == 0, result.stderr
    assert "rings have 64 bits" in result.stderr
    found = re.search(r"an inference sends (\S+) MB.* about (\S+) (k|M)B", result.stderr)
    assert found is not None, result.stderr
    half = float(found[2]) / (1000 if found[3] == "k" else 1)
    assert half == pytest.approx(float(found[1]) / 2, rel=0.02)
    samples = ("--calibrate", "calibration.npz", "--max-error", "0.05")
    result = run_verb("compile", "digits.onnx", "-o", "more.plan", *SHAPE, *samples)
    assert "No samples were given" not in result.stderr
    fixed = run_verb("compile", "digits.onnx", "-o", "ring.plan", *SHAPE, "--ring", "64")
    assert "No samples were given" not in fixed.stderr


def test_several_receive_and_one_receives(copied: Compiled) -> None:
    several = ("--reveal", "logits=alice,bob")
    result = run_verb("compile", "digits.onnx", "-o", "both.plan", *SHAPE, *several)
    assert "alice and bob receive logits" in result.stderr
    result = run_verb("compile", "digits.onnx", "-o", "one.plan", *SHAPE)
    assert "alice receives logits" in result.stderr


def test_one_sample_is_one_sample(copied: Compiled) -> None:
    np.savez("one.npz", image=np.load("image.npy")[np.newaxis])
    files = ("--weights", "digits.weights", "--model", "digits.onnx", "--inputs", "one.npz")
    assert "Output logits on 1 sample: " in run_verb("check", "digits.plan", *files).stdout


def test_a_single_run_has_one_column_of_seconds(copied: Compiled) -> None:
    files = ("--weights", "digits.weights", "--input", "image=@image.npy")
    out = run_verb("simulate", "digits.plan", *files).stdout
    assert re.search(r"^phase +seconds +rounds$", out, re.MULTILINE)
    out = run_verb("bench", "digits.plan", "--iterations", "2").stdout
    assert re.search(r"^phase +median +min +max +rounds$", out, re.MULTILINE)


def test_an_argmax_is_called_one(copied: Compiled) -> None:
    made = run_verb("compile", "digits.onnx", "-o", "top.plan", *SHAPE, "--reveal-as", "argmax")
    assert made.exit_code == 0, made.stderr
    files = ("--weights", "top.weights", "--input", "image=@image.npy")
    out = run_verb("simulate", "top.plan", *files).stdout
    assert "argmax of logits, 1: 1" in out.splitlines()

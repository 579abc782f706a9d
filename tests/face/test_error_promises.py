"""The promise of a mean error: judged on samples enough, and the same in words, code and page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from verbs import Compiled, run_verb

from veilgraph.checks.promises import LEAST_SAMPLES, Judgement, promise
from veilgraph.plans import Plan
from veilgraph.runtime.store.weights import load_weights, save_weights

CHECK = ("--weights", "digits.weights", "--model", "digits.onnx", "--inputs", "few.npz")


@pytest.mark.parametrize(
    ("differences", "judgement"),
    [
        ([9.0], Judgement.TOO_FEW),
        ([0.0] * (LEAST_SAMPLES - 1), Judgement.TOO_FEW),
        ([0.5, 1.2, 0.9, 1.1], Judgement.KEPT),
        ([2.0, 2.1, 1.9, 2.0], Judgement.MISSED),
        ([0.5, 3.0, 0.2, 0.9], Judgement.UNDECIDED),
    ],
)
def test_a_mean_is_judged_by_the_spread_of_its_samples(
    differences: list[float], judgement: Judgement
) -> None:
    found = promise(0.01, [[(difference, 100.0) for difference in differences]])
    assert found.judgement is judgement
    assert found.measured == pytest.approx(sum(differences) / (100 * len(differences)))
    assert f"on {found.samples} sample" in str(found)


def test_the_worst_output_decides() -> None:
    good, bad = [(0.5, 100.0)] * 4, [(2.0, 100.0)] * 4
    assert promise(0.01, [good, bad]).judgement is Judgement.MISSED


def checked(copied: Compiled, samples: int, max_error: float) -> tuple[int, str, str, str]:
    """Exit code, output, error and page of a check of a plan that promises `max_error`."""
    with np.load("calibration.npz", allow_pickle=False) as given:
        np.savez("few.npz", image=given["image"][:samples])
    plan = copied.plan
    weights = load_weights("digits.weights", plan.digest)
    Path("digits.ranges").unlink()  # they are of the plan as it was
    options = {**plan.manifest.options, "max_error": max_error}
    changed = replace(plan, manifest=replace(plan.manifest, options=options))
    changed.save("digits.plan")
    save_weights(weights, "digits.weights", Plan.load("digits.plan").digest)
    result = run_verb("check", "digits.plan", *CHECK, "--html", "report.html")
    return result.exit_code, result.stdout, result.stderr, Path("report.html").read_text()


def test_one_sample_is_too_few(copied: Compiled) -> None:
    code, out, told, page = checked(copied, 1, 1e-6)
    assert (code, told) == (0, "")
    assert "on 1 sample, too few to judge a mean: give --inputs 4 or more." in out
    assert "too few to judge a mean" in page
    assert 'class="verdict open"' in page


def test_a_missed_promise_is_missed_everywhere(copied: Compiled) -> None:
    code, out, told, page = checked(copied, 5, 1e-6)
    assert code == 4
    sentence = "on 5 samples, missed."
    assert sentence in out
    assert sentence in told
    assert sentence in page
    assert 'class="verdict bad"' in page


def test_a_promise_that_is_kept(copied: Compiled) -> None:
    code, out, told, page = checked(copied, 5, 0.05)
    assert (code, told) == (0, "")
    assert "on 5 samples, kept." in out
    assert 'class="verdict"' in page
    result = run_verb("check", "digits.plan", *CHECK, "--json")
    assert json.loads(result.stdout)["promise"]["judgement"] == "kept"

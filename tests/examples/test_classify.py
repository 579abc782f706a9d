"""The thirty-line example does what it says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

CLASSIFY = Path(__file__).parents[2] / "examples" / "digits" / "classify.py"


def test_classify_answers_the_label_and_says_what_it_took(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runpy.run_path(str(CLASSIFY), run_name="__main__")
    answer, took = capsys.readouterr().out.splitlines()
    assert answer == "answer 1, label 1"
    assert re.fullmatch(r"\d+ rounds, \d+ bytes, \d+\.\d{3} s online", took)

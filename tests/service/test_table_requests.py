"""A client asks a service about a whole table: requests of as many rows as the plan takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from click.testing import CliRunner
from serving import Hospital, answer_to, compiled, members, until

from veilgraph.cli import main

COLUMNS = tuple("abcdefgh")


def test_a_table_is_asked_in_requests(tmp_path: Path) -> None:
    plan, weights = compiled("rep3", columns={"x": COLUMNS})
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    rows = np.random.default_rng(2).uniform(-1, 1, (5, 8)).round(3)
    table, answer = tmp_path / "rows.csv", tmp_path / "answer.csv"
    order = np.arange(8)[::-1]
    header = ",".join(COLUMNS[place] for place in order)
    np.savetxt(table, rows[:, order], "%.3f", ",", header=header, comments="")
    ask = ["infer", "small", "--config", str(hospital.client), "--input", f"@{table}"]
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        done = CliRunner().invoke(main, [*ask, "--output", f"y=@{answer}"])
    assert done.exit_code == 0, done.output
    assert "y, 5x5:" in done.output
    header, *lines = answer.read_text().splitlines()
    assert header == "y.0,y.1,y.2,y.3,y.4"
    found = np.array([line.split(",") for line in lines], np.float64)
    np.testing.assert_allclose(found, answer_to(rows), atol=0.02)

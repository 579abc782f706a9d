"""Makes the two banks' tables and the model: loans that neither bank could judge alone.

    python examples/banks/train.py [--rows N] [--out FOLDER]

Applicants are made up, by a seed: no bank's, and nobody's. Each of the two banks has columns of
them, under a number that both know. What is decided about a loan depends on columns of both. The
model is scikit-learn's gradient boosting, fitted on rows that are in neither table.

| file | what it is |
| --- | --- |
| `bank.csv` | rows of the first bank: applicant, age, income, savings, loan |
| `bureau.csv` | rows of the second, a bureau of credit histories: applicant, history, late, debt |
| `trees.onnx` | boosted trees, that say `approved` or `declined` |
| `columns.txt` | the model's columns, a name a line |
| `calibration.csv` | 512 rows of all columns, which are of those that the model was fitted on |
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from skl2onnx import to_onnx
from sklearn.ensemble import GradientBoostingClassifier

SEED, FITTED_ON, CALIBRATION = 20, 6000, 512
TREES, DEPTH = 60, 4
BANK = ("age", "income", "savings", "loan")
BUREAU = ("history", "late", "debt")
COLUMNS = (*BANK, *BUREAU)

Table = NDArray[np.float32]


def applicants(count: int, rng: np.random.Generator) -> Table:
    """Rows of COLUMNS: years, thousands, thousands, thousands; years, a count, thousands."""
    age = rng.integers(18, 80, count)
    income = rng.lognormal(np.log(42), 0.5, count).clip(8, 250)
    savings = (income * rng.exponential(0.6, count)).clip(0, 400)
    loan = (income * rng.uniform(0.2, 3, count)).clip(2, 500)
    history = (rng.beta(1.5, 3, count) * (age - 17)).clip(0, 50)
    late = rng.poisson(0.8, count).clip(0, 12)
    debt = (income * rng.exponential(0.5, count)).clip(0, 400)
    columns = (age, income, savings, loan, history, late, debt)
    return np.stack([np.round(column, 1) for column in columns], axis=1).astype(np.float32)


def decided(table: Table, rng: np.random.Generator) -> NDArray[np.str_]:
    """What was decided of each, by rules of both banks' columns, with some chance."""
    _, income, savings, loan, history, late, debt = table.T
    burden = (loan + debt - savings / 2) / income
    score = 1.6 - burden + 0.08 * history - 0.7 * late + (late == 0) * (history > 5)
    return np.where(score + rng.normal(0, 0.4, len(table)) > 0, "approved", "declined")


def write_csv(path: Path, names: tuple[str, ...], table: Table, numbered: bool = True) -> None:
    header, form = ",".join(names), ["%.1f"] * len(names)
    if numbered:
        table = np.column_stack([np.arange(len(table)), table])
        header, form = f"applicant,{header}", ["%d", *form]
    np.savetxt(path, table, form, ",", header=header, comments="")


def write_banks(folder: Path, rows: int) -> None:
    """Makes the applicants, fits and writes the five files."""
    rng = np.random.default_rng(SEED)
    known = applicants(FITTED_ON, rng)
    model = GradientBoostingClassifier(n_estimators=TREES, max_depth=DEPTH, random_state=SEED)
    model.fit(known, decided(known, rng))
    asked = applicants(rows, rng)
    right = (model.predict(asked) == decided(asked, rng)).mean()
    print(f"right about {right:.0%} of {rows:,} loans that the fit never saw")
    proto = to_onnx(model, known[:1], options={"zipmap": False}, target_opset=17)
    del proto.graph.output[1]  # probabilities: the class alone is asked for
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trees.onnx").write_bytes(proto.SerializeToString(deterministic=True))
    (folder / "columns.txt").write_text("\n".join(COLUMNS) + "\n")
    write_csv(folder / "calibration.csv", COLUMNS, known[:CALIBRATION], numbered=False)
    write_csv(folder / "bank.csv", BANK, asked[:, : len(BANK)])
    write_csv(folder / "bureau.csv", BUREAU, asked[:, len(BANK) :])


def main() -> None:
    """Reads the command line and makes the files."""
    parser = argparse.ArgumentParser(description="Make the example of two banks.")
    parser.add_argument("--rows", type=int, default=20_000, help="applicants in both tables")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write")
    options = parser.parse_args()
    write_banks(options.out, options.rows)


if __name__ == "__main__":
    main()

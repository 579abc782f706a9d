"""Makes the credit example: a table of loans, and a logistic regression on it.

Writes three files, which are committed, into the folder of this script or `--out`:

- `credit.onnx`: `row` float32 [batch, 8] in, `repays` float32 [batch, 1] out, a probability;
- `calibration.npz`: `row` float32 [256, 1, 8], rows that the model was fitted on;
- `heldout.npz`: `rows` float32 [1000, 8] and `repaid` uint8 [1000], never fitted on.

The loans are made up, by a seed: no bank's, and nobody's. Whether one is repaid is drawn from a
probability that the columns decide, so that no model can be right about all of them. The fit is
Newton's method on the log-likelihood, with a small penalty (Hastie et al., The Elements of
Statistical Learning, section 4.4.1), in NumPy; it takes a second.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

Table = NDArray[np.float64]
Flags = NDArray[np.uint8]

SEED = 20262
ROWS, HELDOUT, CALIBRATION = 6000, 1000, 256
MOST = 10.0  # of money, in 10,000: the form takes no larger amount
PENALTY = 1.0  # of the squared weights of standardised columns
STEPS = 12  # of Newton's method; the eighth changes nothing any more

COLUMNS = (  # and their units, in which a column is of order one
    "age, in decades",
    "income a year, in 10,000",
    "savings, in 10,000",
    "loan, in 10,000",
    "debt before the loan, in 10,000",
    "years in this job, in decades",
    "late payments in two years",
    "has a guarantor, 0 or 1",
)
TRUTH = np.array([0.15, 0.35, 0.30, -0.45, -0.40, 0.50, -0.80, 0.90])
TRUE_BIAS = -0.2


def make_loans(rng: np.random.Generator) -> tuple[Table, Flags]:
    """Rows of `COLUMNS` [6000, 8], and whether each was repaid [6000]."""
    age = rng.uniform(2.0, 7.0, ROWS)
    income = rng.lognormal(np.log(3.5), 0.45, ROWS).clip(0.8, MOST)
    savings = (income * rng.exponential(0.5, ROWS)).clip(0, MOST)
    loan = (income * rng.uniform(0.1, 1.2, ROWS)).clip(0.2, MOST)
    debt = (income * rng.exponential(0.35, ROWS)).clip(0, MOST)
    job = (rng.beta(1.2, 3.0, ROWS) * (age - 1.6)).clip(0, 4)
    late = rng.poisson(0.6, ROWS).clip(0, 8)
    guarantor = rng.random(ROWS) < 0.2
    table = np.stack([age, income, savings, loan, debt, job, late, guarantor], axis=1)
    table = np.round(table, 2)
    probability = 1 / (1 + np.exp(-(table @ TRUTH + TRUE_BIAS)))
    return table, (rng.random(ROWS) < probability).astype(np.uint8)


def fit(table: Table, repaid: Flags) -> tuple[Table, float]:
    """Weights [8] and a bias for columns in their own units.

    Columns are standardised while fitting; what they were scaled by goes into the weights, so that
    the model takes rows as they are, and no mean of the bank's table is known to applicants.
    """
    mean, deviation = table.mean(axis=0), table.std(axis=0)
    x = np.column_stack([(table - mean) / deviation, np.ones(len(table))])
    penalty = np.diag([PENALTY] * table.shape[1] + [0.0])
    weights = np.zeros(x.shape[1])
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-x @ weights))
        slope = x.T @ (p - repaid) + penalty @ weights
        curvature = x.T @ (x * (p * (1 - p))[:, None]) + penalty
        weights -= np.linalg.solve(curvature, slope)
    scaled = weights[:-1] / deviation
    return scaled, float(weights[-1] - scaled @ mean)


def to_onnx(weights: Table, bias: float) -> onnx.ModelProto:
    """sigmoid(row weights + bias)."""
    float32 = onnx.TensorProto.FLOAT
    tensors = {"weights": weights.reshape(-1, 1), "bias": np.array([bias])}
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Gemm", ["row", "weights", "bias"], ["odds"], "odds"),
            onnx.helper.make_node("Sigmoid", ["odds"], ["repays"], "sigmoid"),
        ],
        "credit",
        [onnx.helper.make_tensor_value_info("row", float32, ["batch", len(COLUMNS)])],
        [onnx.helper.make_tensor_value_info("repays", float32, ["batch", 1])],
        [onnx.numpy_helper.from_array(a.astype(np.float32), n) for n, a in tensors.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def write_credit(folder: Path) -> None:
    """Makes the loans, fits and writes the three files."""
    table, repaid = make_loans(np.random.default_rng(SEED))
    fitted, held = slice(HELDOUT, None), slice(0, HELDOUT)
    weights, bias = fit(table[fitted], repaid[fitted])
    folder.mkdir(parents=True, exist_ok=True)
    model = to_onnx(weights, bias)
    (folder / "credit.onnx").write_bytes(model.SerializeToString(deterministic=True))
    rows = table.astype(np.float32)
    np.savez_compressed(folder / "heldout.npz", rows=rows[held], repaid=repaid[held])
    calibration = rows[fitted][:CALIBRATION, np.newaxis]
    np.savez_compressed(folder / "calibration.npz", row=calibration)
    for name, part in (("fitted on", fitted), ("held out", held)):
        right = ((table[part] @ weights + bias > 0) == repaid[part]).mean()
        print(f"right about {right:.1%} of the loans {name}; {repaid[part].mean():.1%} were repaid")


def main() -> None:
    """Reads the command line and fits."""
    parser = argparse.ArgumentParser(description="Make the credit example.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write")
    write_credit(parser.parse_args().out)


if __name__ == "__main__":
    main()

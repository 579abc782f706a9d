"""Scores one applicant with a bank's model, among three parties.

All three run in this process, so it shows the way and keeps no secret. README.md says how they run
as three.
"""

from pathlib import Path

import numpy as np

import veilgraph

HERE = Path(__file__).parent


def main() -> None:
    """Compiles the model, scores the first held-out row and prints what it took."""
    plan, weights = veilgraph.compile(
        HERE / "credit.onnx",
        suite="rep3",
        parties=("applicant", "bank", "auditor"),
        owners={"row": "applicant", "weights": "bank"},
        receivers={"repays": ("applicant",)},
        calibrate=HERE / "calibration.npz",
        shapes={"row": (1, 8)},
    )
    with np.load(HERE / "heldout.npz", allow_pickle=False) as heldout:
        row, repaid = heldout["rows"][:1], heldout["repaid"][0]
    answer = veilgraph.simulate(plan, weights, {"row": row})
    score = answer.outputs["repays"].item()
    print(f"repays with probability {score:.2f}; {'repaid' if repaid else 'did not repay'}")
    print(f"{answer.rounds} rounds, {answer.sent_bytes} bytes")


if __name__ == "__main__":
    main()

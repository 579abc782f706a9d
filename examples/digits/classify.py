"""Classifies one party's handwritten digit with another party's model, among three parties.

All three run in this process, so it shows the way and keeps no secret. `make demo` runs them as
three processes that speak TLS.
"""

from pathlib import Path

import numpy as np

import veilgraph

HERE = Path(__file__).parent


def main() -> None:
    """Compiles the model, runs it on the first held-out digit and prints what it took."""
    plan, weights = veilgraph.compile(
        HERE / "digits.onnx",
        suite="rep3",
        calibrate=HERE / "calibration.npz",
        shapes={"image": (1, 1, 28, 28)},
    )
    with np.load(HERE / "heldout.npz", allow_pickle=False) as heldout:
        x = heldout["images"][:1].astype(np.float32) / 255
        label = heldout["labels"][0]
    answer = veilgraph.simulate(plan, weights, {"image": x})
    print(f"answer {answer.outputs['logits'].argmax()}, label {label}")
    print(
        f"{answer.rounds} rounds, {answer.sent_bytes} bytes, {answer.online_seconds:.3f} s online"
    )


if __name__ == "__main__":
    main()

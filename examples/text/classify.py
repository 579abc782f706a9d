"""Sorts one message by topic with a shop's PyTorch network, among three parties.

All three run in this process, so it shows the way and keeps no secret. README.md says how they run
as three. Only the topic is revealed, and none of the numbers that it follows from.
"""

from pathlib import Path

from messages import TOPICS, counts

import veilgraph

HERE = Path(__file__).parent
MESSAGE = "Hello, the parcel has not arrived and tracking shows no order. Please help!"


def main() -> None:
    """Compiles the network, sorts a message and prints what it took."""
    plan, weights = veilgraph.compile(
        HERE / "text.pt2",
        suite="rep3",
        parties=("writer", "shop", "helper"),
        owners={"words": "writer", "weights": "shop"},
        receivers={"output": ("writer",)},
        reveal_as="argmax",
        calibrate=HERE / "calibration.npz",
    )
    answer = veilgraph.simulate(plan, weights, {"words": counts(MESSAGE)})
    print(f"topic: {TOPICS[int(answer.outputs['output'].item())]}")
    print(f"{answer.rounds} rounds, {answer.sent_bytes} bytes")


if __name__ == "__main__":
    main()

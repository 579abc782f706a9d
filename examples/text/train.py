"""Makes the text example: messages to a shop, and a small PyTorch network that sorts them.

Writes three files, which are committed, into the folder of this script or `--out`:

- `text.pt2`: the trained network; `words` float32 [1, 66] in, `output` float32 [1, 4] out;
- `calibration.npz`: `words` float32 [64, 1, 66], messages that it was trained on;
- `heldout.npz`: `messages` [400] and `topics` uint8 [400], never trained on.

The messages are made up from the phrases below, by a seed. Half of the words are left out, and
those held out have other openings and endings than those trained on. `messages.py` turns a message
into shares of words. It needs the extra `torch`, and takes some seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from messages import TOPICS, VOCABULARY, counts
from numpy.typing import NDArray
from torch import nn

Messages = list[str]
Topics = NDArray[np.uint8]

SEED = 20263
TRAINED, HELDOUT, CALIBRATION = 1600, 400, 64
FORGOTTEN = 0.5  # of the words of a message, so that some say little
STEPS, BATCH, LEARNING_RATE = 300, 64, 0.01
DIMENSIONS = 16  # of a word's embedding

PHRASES = {
    "delivery": (
        "my parcel has not arrived", "the courier left the box at the wrong address",
        "when will my order arrive", "the tracking page shows no parcel",
        "my order was sent to the wrong street", "the package is late again",
    ),
    "payment": (
        "my card was charged twice", "the invoice shows the wrong amount",
        "i want my money back", "the refund is not on my card",
        "can i pay by bank transfer", "the discount is not on the invoice",
    ),
    "account": (
        "i can not log in", "please change my email address", "i forgot my password",
        "delete my account please", "the login page says my password is wrong",
        "my account shows an old name",
    ),
    "product": (
        "the lamp does not work", "the screen is broken", "a part is missing from the box",
        "the battery is empty after an hour", "it stopped working after a day",
        "the colour is not as shown",
    ),
}  # fmt: skip
ENDS = (
    (("hello", "good morning", "hi", ""), ("thanks", "please help", "what can i do", "")),
    (("dear shop", "good evening", ""), ("can you help", "i am waiting for an answer", "")),
)


class Sorter(nn.Module):
    """The mean of the words' embeddings, a hidden layer, and a number for each topic."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(len(VOCABULARY), DIMENSIONS, bias=False)
        self.hidden = nn.Linear(DIMENSIONS, DIMENSIONS)
        self.topic = nn.Linear(DIMENSIONS, len(TOPICS))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Logits [n, 4] of shares of words [n, 66]."""
        return self.topic(torch.relu(self.hidden(self.embedding(words))))


def make_messages(rng: np.random.Generator, count: int, ends: int) -> tuple[Messages, Topics]:
    """Two phrases of one topic with openings and endings of one kind, and the topics."""
    openings, endings = ENDS[ends]
    topics = rng.integers(0, len(TOPICS), count).astype(np.uint8)
    messages = []
    for topic in topics:
        phrases = PHRASES[TOPICS[topic]]
        first, second = rng.choice(len(phrases), 2, replace=False)
        parts = (rng.choice(openings), phrases[first], phrases[second], rng.choice(endings))
        words = " ".join(parts).split()
        messages.append(" ".join(word for word in words if rng.random() > FORGOTTEN))
    return messages, topics


def train(words: torch.Tensor, topics: torch.Tensor) -> Sorter:
    """Trains for a fixed number of steps."""
    torch.manual_seed(SEED)
    network = Sorter()
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=0.05)
    for _ in range(STEPS):
        batch = torch.randint(len(words), (BATCH,))
        loss = nn.functional.cross_entropy(network(words[batch]), topics[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    return network


def write_text(folder: Path) -> None:
    """Makes the messages, trains and writes the three files."""
    rng = np.random.default_rng(SEED)
    messages, topics = make_messages(rng, TRAINED, 0)
    words = np.concatenate([counts(message) for message in messages])
    network = train(torch.from_numpy(words), torch.from_numpy(topics).long())
    heldout, held_topics = make_messages(rng, HELDOUT, 1)
    folder.mkdir(parents=True, exist_ok=True)
    program = torch.export.export(network, (torch.from_numpy(words[:1]),))
    torch.export.save(program, folder / "text.pt2")
    np.savez_compressed(folder / "calibration.npz", words=words[:CALIBRATION, np.newaxis])
    np.savez_compressed(folder / "heldout.npz", messages=np.array(heldout), topics=held_topics)
    held = torch.from_numpy(np.concatenate([counts(message) for message in heldout]))
    parts = (("trained on", torch.from_numpy(words), topics), ("held out", held, held_topics))
    for name, x, y in parts:
        with torch.no_grad():
            right = (network(x).argmax(dim=1).numpy() == y).mean()
        print(f"right about {right:.1%} of the messages {name}")


def main() -> None:
    """Reads the command line and trains."""
    parser = argparse.ArgumentParser(description="Make the text example.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write")
    options = parser.parse_args()
    torch.set_num_threads(1)  # sums in one order, whatever the number of cores
    write_text(options.out)


if __name__ == "__main__":
    main()

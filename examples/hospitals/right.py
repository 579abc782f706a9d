"""Says how many digits of `test.npz` a trained LeNet reads right.

python examples/hospitals/right.py lenet.safetensors [--rows test.npz]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parents[2]))
from examples.digits.train import build_lenet


def main() -> None:
    parser = argparse.ArgumentParser(description="How many digits a trained LeNet reads right.")
    parser.add_argument("parameters", type=Path, metavar="FILE.safetensors")
    parser.add_argument("--rows", type=Path, default=Path("test.npz"), metavar="FILE.npz")
    options = parser.parse_args()
    lenet = build_lenet().eval()
    lenet.load_state_dict(load_file(options.parameters))
    with np.load(options.rows) as rows, torch.no_grad():
        told = lenet(torch.tensor(rows["image"])).argmax(1).numpy()
        right = int((told == rows["labels"]).sum())
        print(f"{right} of {len(told)} digits are right: {right / len(told):.1%}")


if __name__ == "__main__":
    main()

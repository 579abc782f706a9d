"""One of two CrypTen processes, at CrypTen's defaults; runs in CrypTen's own environment.

    python crypten_party.py RANK FOLDER ADDRESS ...

FOLDER holds network.json and arrays.npz (workloads.Network.describe). Weights and inputs are shared
before anything is timed. Each line {"runs": n} on standard input is answered by {"seconds": [...],
"bytes": n, "output": [...]}: seconds from a barrier to the end of each execution, and the bytes
of one, sent and received, as CrypTen's communicator counts them; the first values of the last
output. Where there are labels, one-hot rows, an execution is a step of training: its output is the
loss, and weights are less by RATE times their gradients after it.
"""

# mypy: disable-error-code="import-not-found"

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

# CrypTen 0.4.1 looks here for what torch has moved since.
sys.modules["torch.onnx._internal.registration"] = importlib.import_module(
    "torch.onnx._internal.torchscript_exporter.registration"
)
import crypten  # noqa: E402
import crypten.communicator as communicator  # noqa: E402

SHOWN = 10
RATE = 0.05  # of a step of training
LABELS = "labels"


def trees(x: Any, thresholds: Any, leaves: Any, depth: int, features: list[int]) -> Any:
    """Complete trees, level by level: what reaches a node goes right where x >= its threshold."""
    rows, count = x.size(0), leaves.size(0)
    right = (x[:, features] >= thresholds).reshape(rows, count, -1)
    moves = right[:, :, :1]
    reached = crypten.stack([1 - moves, moves], dim=-1).reshape(rows, count, -1)
    for level in range(1, depth):
        moves = reached * right[:, :, 2**level - 1 : 2 ** (level + 1) - 1]
        reached = crypten.stack([reached - moves, moves], dim=-1).reshape(rows, count, -1)
    return (reached * leaves).sum(dim=(1, 2))


OPS: dict[str, Any] = {
    "conv": lambda x, w, b, kernel, stride, pad: (
        x.conv2d(w, stride=stride, padding=pad) + b.reshape(1, -1, 1, 1)
    ),
    "average_pool": lambda x, kernel, stride, pad: x.avg_pool2d(kernel, stride, pad),
    "relu": lambda x: x.relu(),
    "flatten": lambda x: x.reshape(x.size(0), -1),
    "dense": lambda x, w, b: x.matmul(w.t()) + b,
    "add": lambda x, y: x + y,
    "matmul": lambda x, y: x.matmul(y),
    "trees": trees,
}


def evaluate(network: dict[str, Any], values: dict[str, Any]) -> Any:
    """The network on shared tensors."""
    values = dict(values)
    for op, names, output, size in network["nodes"]:
        x, *others = (values[name] for name in names)
        values[output] = OPS[op](x, *others, **size)
    return values[network["output"]]


def train(network: dict[str, Any], values: dict[str, Any]) -> Any:
    """A step by cross-entropy; the loss."""
    names = [name for name in values if name[0] in "wb"]
    for name in names:
        values[name].requires_grad = True
    loss = crypten.nn.CrossEntropyLoss()(evaluate(network, values), values[LABELS])
    loss.backward()
    with crypten.no_grad():
        for name in names:
            values[name] = values[name].detach() - values[name].grad * RATE
    return loss


def execute(network: dict[str, Any], values: dict[str, Any], runs: int) -> dict[str, Any]:
    """`runs` executions, each timed from a barrier on."""
    link, seconds = communicator.get(), []
    for _ in range(runs):
        link.barrier()
        link.reset_communication_stats()
        start = time.perf_counter()
        if LABELS in values:
            output = train(network, values)
        else:
            with crypten.no_grad():
                output = evaluate(network, values)
        seconds.append(time.perf_counter() - start)
        sent = link.get_communication_stats()["bytes"]
    shown = output.get_plain_text().flatten()[:SHOWN].tolist()
    return {"seconds": seconds, "bytes": sent, "output": shown}


def main(rank: int, folder: Path, parties: int) -> None:
    os.environ |= {
        "WORLD_SIZE": str(parties),
        "RANK": str(rank),
        "RENDEZVOUS": f"file://{folder}/rendezvous",
        "DISTRIBUTED_BACKEND": "gloo",
    }
    crypten.init()
    network = json.loads((folder / "network.json").read_text())
    with np.load(folder / "arrays.npz") as arrays:
        values = {
            name: crypten.cryptensor(
                torch.from_numpy(arrays[name]), src=network["owners"].get(name, 1)
            )
            for name in arrays.files
        }
    crypten.cfg.communicator.verbose = True  # it counts bytes only when verbose
    for line in sys.stdin:
        print(json.dumps(execute(network, values, json.loads(line)["runs"])), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), len(sys.argv[3:]))

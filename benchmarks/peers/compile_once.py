"""Compiles a model by the veilgraph that this Python has; prints seconds of processor, and more.

    python compile_once.py FOLDER RING

The folder has model.onnx, and samples.npz of all inputs, a sample on each first axis. It is run by
the Python of any checkout: it imports nothing of `benchmarks`. Imports of veilgraph are apart.
"""

import hashlib
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

import veilgraph


def seconds() -> float:
    """Of processor, of this process and of those that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def peak_bytes() -> int:
    """Of this process; `getrusage` would count who started it too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def main() -> None:
    warnings.simplefilter("ignore")
    folder, ring = Path(sys.argv[1]), sys.argv[2]
    samples = dict(np.load(folder / "samples.npz"))
    shapes = {name: array.shape[1:] for name, array in samples.items()}
    start = seconds()
    plan, _ = veilgraph.compile(
        folder / "model.onnx",
        ring=ring if ring == "auto" else int(ring),
        calibrate=samples,
        shapes=shapes,
    )
    taken = seconds() - start
    with tempfile.TemporaryDirectory() as name:
        plan.save(Path(name) / "plan")
        digest = hashlib.sha256((Path(name) / "plan").read_bytes()).hexdigest()
    print(json.dumps({"seconds": taken, "peak_bytes": peak_bytes(), "sha256": digest}))


if __name__ == "__main__":
    main()

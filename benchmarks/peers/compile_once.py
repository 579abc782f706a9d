"""Compiles a model by the veilgraph that this Python has; prints what that took, or its refusal.

    python compile_once.py FOLDER RING

The folder has model.onnx, and samples.npz of all inputs, a sample on each first axis. It is run by
the Python of any checkout: it imports nothing of `benchmarks`. Imports of veilgraph are apart.
made.plan and made.npz, its weights, are left in the folder.
"""

import hashlib
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

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
    start, clock = seconds(), time.perf_counter()
    try:
        plan, weights = veilgraph.compile(
            folder / "model.onnx",
            ring=ring if ring == "auto" else int(ring),
            calibrate=samples,
            shapes=shapes,
        )
    except veilgraph.VeilgraphError as error:
        print(json.dumps({"refused": str(error)}))
        return
    taken = {
        "seconds": seconds() - start,
        "clock_seconds": time.perf_counter() - clock,
        "peak_bytes": peak_bytes(),
    }
    plan.save(folder / "made.plan")
    arrays: dict[str, Any] = dict(weights)
    np.savez(folder / "made.npz", **arrays)
    digest = hashlib.sha256((folder / "made.plan").read_bytes()).hexdigest()
    print(json.dumps({**taken, "sha256": digest}))


if __name__ == "__main__":
    main()

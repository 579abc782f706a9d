"""A compile in a process of its own: what it takes of a user, without what made the model."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto

import veilgraph
from veilgraph.measuring.memory import Memory
from veilgraph.plans import Plan

Arrays = Mapping[str, npt.NDArray[np.float32]]
MODEL, SAMPLES, PLAN, WEIGHTS = "model.onnx", "samples.npz", "made.plan", "made.weights"


@dataclass(frozen=True)
class Taken:
    """What `veilgraph.compile` took, imports apart; memory is the process's at most."""

    seconds: float
    peak_bytes: int


def compiled_apart(
    model: ModelProto, samples: Arrays, ring: int | str
) -> tuple[Plan, Arrays, Taken]:
    """The plan and its weights, read back, and what they took.

    Args:
        samples: by input, samples on a first axis that the model has not.
        ring: bits of all rings, or "auto".

    Raises:
        veilgraph.VeilgraphError: the model is refused; its words are the other process's.
    """
    with TemporaryDirectory() as folder:
        onnx.save(model, Path(folder, MODEL))
        arrays: dict[str, Any] = dict(samples)
        np.savez(Path(folder, SAMPLES), **arrays)
        command = [sys.executable, "-m", __spec__.name, folder, str(ring)]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(ended.stdout)
        if "refused" in found:
            raise veilgraph.VeilgraphError(found["refused"].split("\n"))
        plan = Plan.load(Path(folder, PLAN))
        weights = veilgraph.load_weights(Path(folder, WEIGHTS), plan)
        return plan, weights, Taken(**found)


def _compile(folder: Path, ring: int | str) -> Taken:
    with np.load(folder / SAMPLES) as archive:
        samples = dict(archive)
    shapes = {name: array.shape[1:] for name, array in samples.items()}
    start = time.perf_counter()
    plan, weights = veilgraph.compile(folder / MODEL, ring=ring, calibrate=samples, shapes=shapes)
    taken = Taken(time.perf_counter() - start, Memory.now().peak_bytes)
    plan.save(folder / PLAN)
    veilgraph.save_weights(weights, folder / WEIGHTS, plan)
    return taken


def main() -> None:
    folder, ring = sys.argv[1:]
    try:
        taken = _compile(Path(folder), ring if ring == "auto" else int(ring))
    except veilgraph.VeilgraphError as error:
        print(json.dumps({"refused": str(error)}))
    else:
        print(json.dumps(asdict(taken)))


if __name__ == "__main__":
    main()

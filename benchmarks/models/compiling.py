"""A compile in a process of its own: what it takes of a user, without what made the model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

import veilgraph
from benchmarks.models.recipe import Arrays
from veilgraph.plans import Plan

ONCE = Path(__file__).parents[1] / "peers" / "compile_once.py"
Taken = dict[str, Any]


def compiled_apart(
    model: ModelProto, samples: Arrays, ring: int | str
) -> tuple[Plan, Arrays, Taken]:
    """The plan and its weights, read back, and what `compile_once.py` says of them.

    Raises:
        veilgraph.VeilgraphError: the model is refused; its words are the other process's.
    """
    with TemporaryDirectory(prefix="veilgraph-models-") as name:
        taken = compiled_in(Path(name), Path(sys.executable), model, samples, ring)
        if "refused" in taken:
            raise veilgraph.VeilgraphError(taken["refused"].split("\n"))
        plan = Plan.load(Path(name, "made.plan"))
        with np.load(Path(name, "made.npz")) as archive:
            return plan, dict(archive), taken


def compiled_in(
    folder: Path, python: Path, model: ModelProto, samples: Mapping[str, Any], ring: int | str
) -> Taken:
    """What `compile_once.py` says, run by any checkout's Python, of a model put into a folder.

    Args:
        samples: by input, samples on a first axis that the model has not.
        ring: bits of all rings, or "auto".
    """
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "samples.npz", **samples)
    command = [str(python), str(ONCE), str(folder), str(ring)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{python} could not compile it:\n{done.stderr}")
    found: Taken = json.loads(done.stdout.splitlines()[-1])
    return found

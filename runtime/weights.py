"""model.weights: the model owner's secret, safetensors with the plan's digest, mode 0600."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from veilgraph.ir.errors import SecurityAbort, UsageError

Weights = dict[str, npt.NDArray[np.float32]]


def save_weights(
    weights: Mapping[str, npt.NDArray[np.float32]], path: str | Path, digest: str
) -> None:
    """Writes folded weights by graph name for the plan with this digest; readable by its owner."""
    write_tensors(weights, path, {"veilgraph.plan": digest})


def write_tensors(
    tensors: Mapping[str, npt.NDArray[Any]], path: str | Path, stated: Mapping[str, str]
) -> None:
    """Writes a safetensors file with mode 0600 that states these things, whole or not at all.

    Raises:
        UsageError: a place that can't be written to.
    """
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    content = save(
        {name: np.asarray(tensors[name], order="C") for name in sorted(tensors)},
        metadata=dict(stated),
    )
    try:
        partial.unlink(missing_ok=True)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UsageError(f"{path} can't be written: {error.strerror}.") from error


def load_weights(path: str | Path, digest: str) -> Weights:
    """The weights that belong to the plan with this digest.

    Raises:
        UsageError: no such file, no weights, or a party's shares of them.
        SecurityAbort: the weights of another plan.
    """
    try:
        with safe_open(str(path), framework="numpy") as file:
            stated = file.metadata() or {}
            if "veilgraph.party" in stated:
                raise UsageError(
                    f"{path} holds one party's shares of the weights, and not the weights.",
                    "Give model.weights, which `compile` wrote beside the plan.",
                )
            if stated.get("veilgraph.plan") != digest:
                raise SecurityAbort(
                    f"{path} holds the weights of another plan.",
                    "Give the file that `compile` wrote beside this plan.",
                )
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise UsageError(f"There is no weights file {path}.") from error
    except (SafetensorError, OSError) as error:
        raise UsageError(f"{path} holds no weights, or damaged ones.") from error

"""model.weights: the model owner's secret, safetensors with the plan's digest, mode 0600."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.files.file_kinds import FileKind, mistaken
from veilgraph.ir.files.whole_files import placed_whole
from veilgraph.runtime.store.at_rest import is_at_rest

Weights = dict[str, npt.NDArray[np.float32]]


def save_weights(
    weights: Mapping[str, npt.NDArray[np.float32]], path: str | Path, digest: str
) -> None:
    """Writes folded weights by graph name for the plan with this digest; readable by its owner.

    Raises:
        UsageError: a place that can't be written to.
    """
    content = save(
        {name: np.asarray(weights[name], order="C") for name in sorted(weights)},
        metadata={"veilgraph.plan": digest},
    )
    try:
        with placed_whole(Path(path)) as file:
            file.write(content)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror}.") from error


def load_weights(path: str | Path, digest: str) -> Weights:
    """The weights that belong to the plan with this digest.

    Raises:
        UsageError: no such file, no weights, or a party's shares of them.
        SecurityAbort: the weights of another plan.
    """
    try:
        with safe_open(str(path), framework="numpy") as file:
            if (file.metadata() or {}).get("veilgraph.plan") != digest:
                raise SecurityAbort(
                    f"{path} holds the weights of another plan.",
                    "Give the file that `compile` wrote beside this plan.",
                )
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise UsageError(f"There is no weights file {path}.", "Check the path.") from error
    except (SafetensorError, OSError) as error:
        if is_at_rest(Path(path)):
            raise UsageError(
                f"{path} holds one party's shares of the weights, and not the weights.",
                "Give model.weights, which `compile` wrote beside the plan.",
            ) from error
        raise UsageError(
            mistaken(path, FileKind.WEIGHTS, "weights file"),
            "Give model.weights, which `compile` wrote beside the plan; if it is damaged, compile "
            "again.",
        ) from error

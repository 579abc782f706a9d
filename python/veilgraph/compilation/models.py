"""Which front door a model takes: ONNX or PyTorch. PyTorch is loaded for its own models alone."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import ModelProto

from veilgraph.frontend.onnx import importer as onnx
from veilgraph.frontend.onnx.classical.fitted import maker
from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.file_kinds import ZIP
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.graph.table_options import AS_USUAL, TableOptions
from veilgraph.model_files import require_model_file

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module

    Model: TypeAlias = str | Path | bytes | ModelProto | Module | ExportedProgram
else:
    Model: TypeAlias = Any

Samples = Mapping[str, npt.NDArray[np.float32]]


def is_torch(model: Model) -> bool:
    """Whether it is a module, an exported program, or a `.pt2` archive."""
    if isinstance(model, bytes):
        return model.startswith(ZIP)
    if isinstance(model, str | Path):
        return Path(model).suffix == ".pt2"
    torch = sys.modules.get("torch")  # there if the model is one of its own
    return torch is not None and isinstance(model, torch.nn.Module | torch.export.ExportedProgram)


def model_name(model: Model) -> str:
    """The name of its file, or of its module's class; "" where it has none."""
    if isinstance(model, str | Path):
        return Path(model).name
    torch = sys.modules.get("torch")
    is_module = torch is not None and isinstance(model, torch.nn.Module)
    return type(model).__name__ if is_module or maker(model) else ""


def _require_model(model: Model) -> None:
    """UsageError for what is no model: a class, weights, a file of another kind."""
    if isinstance(model, type):
        raise UsageError(
            f"{model.__name__} is a class, and no model yet.",
            f"Build it, as {model.__name__}(...), load its weights, and compile that.",
        )
    known = isinstance(model, str | Path | bytes | ModelProto) or maker(model)
    if not (known or is_torch(model)):
        raise UsageError(
            f"An object of type {type(model).__name__} is given in place of a model.",
            "Give a path, an ONNX model, a PyTorch module, or a fitted scikit-learn model.",
        )
    if isinstance(model, str | Path):
        require_model_file(Path(model))


def require_no_weights(model: object) -> None:
    """UsageError for a `state_dict`, which a mapping of entries could be taken for."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, Mapping) or not model:
        return
    if all(isinstance(value, torch.Tensor) for value in model.values()):
        raise UsageError(
            "A state_dict holds weights alone, and no model.",
            "Build the module, load_state_dict into it, and compile the module.",
        )


def import_model(
    model: Model,
    shapes: Mapping[str, Sequence[int]] | None,
    example_inputs: Any = None,
    public: Collection[str] = (),
    trains: bool = False,
    tables: TableOptions = AS_USUAL,
) -> tuple[Graph, Samples | None]:
    """The model at the graph level, and the samples that its example inputs are.

    Args:
        trains: whether a module of PyTorch is in training mode.
        tables: how models of tables are read.

    Raises:
        UsageError, UnsupportedError: as the front doors do; or examples for an ONNX model.
    """
    _require_model(model)
    if is_torch(model):
        from veilgraph.frontend.torch.export import export
        from veilgraph.frontend.torch.importer import import_exported

        exported = export(model, example_inputs, shapes, public, trains)
        return import_exported(exported), exported.samples or None
    if example_inputs is not None:
        raise UsageError(
            "example_inputs are for PyTorch models.", "Give an ONNX model's samples to calibrate."
        )
    return onnx.import_model(model, shapes, public, tables), None

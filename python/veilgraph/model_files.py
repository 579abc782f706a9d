"""Files that are given as models and are none, told before anything is loaded for models."""

from __future__ import annotations

from pathlib import Path

from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.file_kinds import FileKind, kind_of

EXPORT = "Export the model to ONNX, or write it with torch.export.save to a .pt2."
NO_LAYERS = f"Arrays say nothing of layers. {EXPORT}"
HINTS = {
    FileKind.FOLDER: "Name the model's file in it.",
    FileKind.EMPTY: "Export it again, and see that the disk has room.",
    FileKind.TEXT: EXPORT,
    FileKind.PLAN: "It is compiled already: `veilgraph inspect` shows what it computes.",
    FileKind.WEIGHTS: "Give the model that they were compiled from.",
    FileKind.AT_REST: "Give an ONNX model or a .pt2 archive.",
    FileKind.SAFETENSORS: NO_LAYERS,
    FileKind.ARRAY: NO_LAYERS,
    FileKind.ARRAYS: NO_LAYERS,
    FileKind.PICKLE: "Load it into its module, and compile that in Python; or torch.export.save a "
    ".pt2.",
    FileKind.EXPORTED: "Let its name end in .pt2.",
    FileKind.ARCHIVE: f"It is of another kind, or damaged. {EXPORT}",
}


def require_model_file(path: Path) -> None:
    """UsageError for a file that is known to be something else.

    Files that are not there are told by whoever reads them.
    """
    if path.suffix == ".pt2":
        return
    if path.suffix == ".py" and path.exists():
        raise UsageError(
            f"{path} is Python source, and no model.",
            "In Python, build the module in it and give it to veilgraph.compile, or write it with "
            "torch.export.save to a .pt2.",
        )
    kind = kind_of(path)
    if kind is FileKind.EXPORTED:
        raise UsageError(f"{path} is {kind.value} under another name.", HINTS[kind])
    if kind in HINTS:
        raise UsageError(f"{path} is {kind.value}, and no model.", HINTS[kind])

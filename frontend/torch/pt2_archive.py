"""A `.pt2` archive as it comes: the program's JSON and its tensors, nothing trusted.

torch's own loader (2.13) unpickles what an archive says is a pickle, evaluates the expressions that
stand in its shapes (`sympify`) and runs its guards, which are Python source. So it is never called.
Here an archive is a zip of uncompressed members, of which the program and the tensors' raw bytes
are read and nothing else: sample inputs, which are pickled in every archive, are left where they
are, and a tensor or an object that is a pickle is refused.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilgraph.ir.errors import UsageError

Json: TypeAlias = Any  # as json.loads gives it; whoever reads it checks each part
ENCRYPTED = 1  # of a member's flags
DAMAGED = "Save the model again with torch.export.save."
NEWER = "Save it with torch.export.save of PyTorch 2.9 or later."
PLAIN = "Keep plain tensors alone in the model, and save it again."
FOLDERS = (("weights", "model_weights_config.json"), ("constants", "model_constants_config.json"))
# torch's numbers of element types (torch/_export/serde/schema.py) as NumPy's; bfloat16 apart.
BFLOAT16 = 13
ELEMENTS: Mapping[int, str] = {
    1: "u1",
    2: "i1",
    3: "<i2",
    4: "<i4",
    5: "<i8",
    6: "<f2",
    7: "<f4",
    8: "<f8",
    10: "<c8",
    11: "<c16",
    12: "?",
    BFLOAT16: "<u2",
}


@dataclass(frozen=True)
class Archive:
    """What an archive holds.

    Attributes:
        program: the exported program, parsed JSON that nobody has checked yet.
        tensors: parameters, buffers and constants by their torch names.
        source: what to call the archive in messages.
    """

    program: Json
    tensors: Mapping[str, NDArray[Any]]
    source: str


def read_archive(file: str | Path | bytes) -> Archive:
    """Reads the one model of an archive, running nothing of it.

    Raises:
        UsageError: no such file, no such archive, one of another version, one that is damaged, or
            one of which some part is a pickle.
    """
    source = "the given archive" if isinstance(file, bytes) else Path(file).name
    try:
        content = file if isinstance(file, bytes) else Path(file).read_bytes()
        with zipfile.ZipFile(io.BytesIO(content)) as members:
            return _Reader(members, len(content), source).read()
    except OSError as error:
        raise UsageError(f"{file!s} can't be read: {error.strerror}.", "Check the path.") from error
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise UsageError(f"{source} is no .pt2 archive, or a truncated one.", DAMAGED) from error
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise UsageError(f"{source} is damaged: its parts don't fit together.", DAMAGED) from error


class _Reader:
    """The members of one archive, whose sizes have been checked."""

    def __init__(self, members: zipfile.ZipFile, size: int, source: str) -> None:
        self._members, self._source = members, source
        found = members.infolist()
        names = {info.filename for info in found}
        plain = all(
            info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & ENCRYPTED
            for info in found
        )
        # Uncompressed and distinct members are no larger together than the archive itself.
        if not plain or len(names) < len(found) or sum(info.file_size for info in found) > size:
            raise UsageError(
                f"{source} has members that are compressed, encrypted or overlap, as no exported "
                "model has.",
                DAMAGED,
            )
        self._names = names

    def read(self) -> Archive:
        root = self._root()
        program = self._json(f"{root}models/model.json")
        tensors: dict[str, NDArray[Any]] = {}
        for folder, config in FOLDERS:
            described = self._json(f"{root}data/{folder}/{config}")["config"]
            for name, entry in described.items():
                tensors[name] = self._tensor(f"{root}data/{folder}/", name, entry)
        return Archive(program, tensors, self._source)

    def _root(self) -> str:
        """What all members' names begin with: the archive's own name."""
        models = [name for name in self._names if "models/" in name and name.endswith(".json")]
        roots = [name.removesuffix("models/model.json") for name in models]
        if any(name.endswith(("data.pkl", "constants.pkl")) for name in self._names):
            raise UsageError(
                f"{self._source} is a pickle (torch.save or TorchScript), which could run anything "
                "when it is read.",
                "Export the model with torch.export.export, and save it with torch.export.save.",
            )
        if not models:
            raise UsageError(f"{self._source} holds no exported model that is known.", NEWER)
        if len(models) > 1 or roots == models:
            raise UsageError(
                f"{self._source} holds {len(models)} models, none of which is the one.",
                "Save a single exported program with torch.export.save.",
            )
        root = roots[0]
        for folder, config in FOLDERS:
            if f"{root}data/{folder}/{config}" not in self._names:
                raise UsageError(f"{self._source} keeps its {folder} as a pickle.", NEWER)
        return root

    def _json(self, name: str) -> Json:
        return json.loads(self._members.read(name))

    def _tensor(self, folder: str, name: str, entry: Json) -> NDArray[Any]:
        """The view of its stored bytes that an entry describes."""
        if entry["use_pickle"] is not False or entry["tensor_meta"] is None:
            raise UsageError(
                f"{self._source} keeps `{name}` as a pickle, which could run anything when it is "
                "read.",
                PLAIN,
            )
        meta = entry["tensor_meta"]
        if meta["dtype"] not in ELEMENTS:
            raise UsageError(
                f"`{name}` in {self._source} has elements of a type that isn't known.",
                "Convert the model to float32 with model.float().",
            )
        stored = self._members.read(f"{folder}{entry['path_name']}")
        shape, strides = _integers(meta["sizes"]), _integers(meta["strides"])
        (offset,) = _integers([meta["storage_offset"]])
        element = np.dtype(ELEMENTS[meta["dtype"]])
        _require_inside(name, shape, strides, offset, len(stored) // element.itemsize)
        flat = np.frombuffer(stored, element, len(stored) // element.itemsize)
        steps = [stride * element.itemsize for stride in strides]
        view = np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False)
        if meta["dtype"] == BFLOAT16:  # the upper half of a float32
            return (view.astype(np.uint32) << 16).view(np.float32)
        return view.astype(element.newbyteorder("="))


def _integers(given: Json) -> tuple[int, ...]:
    """[{"as_int": 3}, ...] as numbers that are not negative."""
    found = tuple(entry["as_int"] for entry in given)
    if not all(type(number) is int and number >= 0 for number in found):
        raise ValueError(f"{found} are no extents")
    return found


def _require_inside(
    name: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, stored: int
) -> None:
    """ValueError unless a view of these elements lies in so many, each of them its own."""
    if len(shape) != len(strides):
        raise ValueError(f"{name} has {len(shape)} extents and {len(strides)} strides")
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    count = math.prod(shape)
    # A broadcast tensor is stored whole; more elements than bytes is a bomb.
    if count and (last >= stored or count > stored):
        raise ValueError(f"{name} needs {max(last + 1, count)} elements, and {stored} are stored")

"""What a model of the table is: how it is had, what it is run on, and what it decides."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import ModelProto
from torch import nn

from benchmarks.models.wheels import Wheels

Array = npt.NDArray[np.float32]
Arrays = Mapping[str, Array]
Agree = Callable[[Arrays, Arrays], tuple[int, int]]
CNN_ERROR, TRANSFORMER_ERROR = 0.001, 0.01  # mean relative error of final outputs
OPSET = 17


@dataclass(frozen=True)
class Sources:
    """Where weights and pictures come from.

    Attributes:
        environments: that `benchmarks/models/pretrained.py` makes.
    """

    wheels: Wheels
    environments: Path


@dataclass(frozen=True)
class Case:
    """A model with inputs, one array an input with samples on a new first axis.

    Attributes:
        calibrate: that ranges are found with.
        tests: that parties compute on; other samples than those.
    """

    model: ModelProto
    calibrate: Arrays
    tests: Arrays


@dataclass(frozen=True)
class Recipe:
    """One model.

    Attributes:
        name: of its report.
        weights: "pretrained", "trained here" or "random".
        inputs: what it is run on, in words.
        most_error: that is allowed in final outputs, mean relative.
        make: may raise Unavailable.
        agree: of our outputs of a sample and ONNX Runtime's, how many decisions are equal, and of
            how many; None where there is no task.
        decisions: what is decided, in words.
        checked: how many test samples are compared layer by layer.
        runs: whether parties run it; otherwise it is compiled, and its cost predicted.
    """

    name: str
    title: str
    weights: str
    inputs: str
    most_error: float
    make: Callable[[Sources], Case]
    agree: Agree | None = None
    decisions: str = ""
    checked: int = 2
    runs: bool = True


def exported(network: nn.Module, example: torch.Tensor, outputs: list[str]) -> ModelProto:
    """A PyTorch network as ONNX, its input called `input`."""
    content = io.BytesIO()
    torch.onnx.export(
        network.eval(),
        (example,),
        content,
        input_names=["input"],
        output_names=outputs,
        opset_version=OPSET,
        dynamo=False,
    )
    return onnx.load_from_string(content.getvalue())


def largest(axis: int, name: str | None = None) -> Agree:
    """Decisions for the largest number along an axis of an output, of the only one unless named."""

    def agree(ours: Arrays, theirs: Arrays) -> tuple[int, int]:
        found, wanted = (_output(each, name).argmax(axis) for each in (ours, theirs))
        return int((found.ravel() == wanted.ravel()).sum()), wanted.size

    return agree


def _output(outputs: Arrays, name: str | None) -> Array:
    if name is not None:
        return outputs[name]
    (alone,) = outputs.values()
    return alone

"""A module that returns its loss beside its output: what a user's own loss is compiled as."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch

from veilgraph.ir.errors import UsageError
from veilgraph.ir.training import LABELS, LOSS

OUTPUT = "output"
OwnLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def with_loss(module: torch.nn.Module, loss: OwnLoss) -> torch.nn.Module:
    """The module with one argument more, its labels; its parameters keep their names.

    Args:
        loss: of the module's output and of labels, one number.

    Raises:
        UsageError: a module that takes labels itself.
    """
    signature = inspect.signature(module.forward)
    if LABELS in signature.parameters:
        raise UsageError(
            f"{type(module).__name__} has an argument `{LABELS}` of its own.",
            "Let it return its loss, and name that output as the loss.",
        )
    found = copy.copy(module)  # its layers and parameters are the module's own

    def forward(*args: Any, **kwargs: Any) -> dict[str, torch.Tensor]:
        labels = kwargs.pop(LABELS)
        output = module.forward(*args, **kwargs)
        if not isinstance(output, torch.Tensor):
            raise TypeError("a loss that is given is of one output, and there are several")
        value = loss(output, labels)
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            raise TypeError("the loss is no single number")
        return {OUTPUT: output, LOSS: value}

    given = inspect.Parameter(LABELS, inspect.Parameter.KEYWORD_ONLY)
    others = [*signature.parameters.values()]
    ends = [each for each in others if each.kind is inspect.Parameter.VAR_KEYWORD]
    ahead = [each for each in others if each not in ends]
    forward.__signature__ = signature.replace(parameters=[*ahead, given, *ends])  # type: ignore[attr-defined]
    found.forward = forward
    return found

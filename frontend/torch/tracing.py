"""torch.export on a module, and what is told where it fails.

torch writes to its loggers and to standard error before it raises. Users read one sentence instead,
which says whether the examples, or the code of the model, are at fault.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch.export import ExportedProgram

from veilgraph.frontend.torch.constants import first_line
from veilgraph.frontend.torch.followed_norms import as_traced
from veilgraph.ir.errors import UsageError

Example: TypeAlias = "torch.Tensor | npt.NDArray[np.generic]"
Examples: TypeAlias = "Example | Sequence[Example] | Mapping[str, Example]"
Tensors: TypeAlias = "torch.Tensor | tuple[torch.Tensor, ...] | dict[str, torch.Tensor]"
TORCH = Path(torch.__file__).parent
BY_DATA = ("data-dependent", "GuardOnDataDependent", "DynamicValueError")
UNTRAINABLE = (torch.nn.AlphaDropout, torch.nn.FeatureAlphaDropout)
OUTSIDE = (".numpy()", "numpy.ndarray", "FakeTensor")


def as_tensors(examples: Examples | None) -> Tensors | None:
    """Example inputs as torch has them; NumPy's float64 becomes float32, as models take it.

    Raises:
        UsageError: an example that is neither a tensor nor an array of numbers.
    """
    if examples is None:
        return None
    if isinstance(examples, torch.Tensor | np.ndarray):
        return _tensor(examples)
    if isinstance(examples, Mapping):
        return {name: _tensor(x) for name, x in examples.items()}
    return tuple(_tensor(x) for x in examples)


def _tensor(given: Example) -> torch.Tensor:
    """A tensor of its own: torch.export takes one that is given twice for one input."""
    if isinstance(given, torch.Tensor):
        return given.clone()
    if not isinstance(given, np.ndarray) or given.dtype.kind not in "fiub":
        raise UsageError(
            f"An example input is of type {type(given).__name__}.",
            "Give tensors, or NumPy arrays of numbers.",
        )
    array = given.astype(np.float32) if given.dtype == np.float64 else given
    return torch.from_numpy(np.ascontiguousarray(array))


def trace_module(
    model: torch.nn.Module, examples: Tensors | None, trains: bool = False
) -> ExportedProgram:
    """A user's module, traced on examples; one that `trains`, in training mode.

    Raises:
        UsageError: no examples, a module in the other mode, one with layers that can't be
            trained, or one that can't be traced.
    """
    if examples is None:
        raise UsageError(
            "A PyTorch module has no shapes of its own.",
            "Give example_inputs: a tensor or array, a tuple of them, or a mapping by argument.",
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise UsageError(
            f"{type(model).__name__} is TorchScript, which torch.export does not take.",
            "Give the module itself, from before torch.jit.trace or torch.jit.script.",
        )
    if trains:
        _require_trainable(model)
    elif any(part.training for part in model.modules()):
        raise UsageError(
            f"{type(model).__name__} is in training mode.", "Call model.eval() before compiling it."
        )
    args = (examples,) if isinstance(examples, torch.Tensor) else examples
    positional, named = ((), args) if isinstance(args, dict) else (args, {})
    _require_arguments(model, positional, named)
    if not trains:
        return trace(model, positional, named)
    with as_traced(model):
        return trace(model, positional, named)


def _require_trainable(model: torch.nn.Module) -> None:
    """UsageError for a module in inference mode, or layers that change or draw as they train."""
    if not all(part.training for part in model.modules()):
        raise UsageError(
            f"{type(model).__name__} is in inference mode, in whole or in part.",
            "Call model.train() before compiling its training.",
        )
    refused = [
        f"{name} ({type(part).__name__})"
        for name, part in model.named_modules()
        if isinstance(part, UNTRAINABLE)
    ]
    if refused:
        raise UsageError(
            f"Layers of {type(model).__name__} can't be trained in secret: {', '.join(refused)}.",
            "Take an ordinary dropout.",
        )


def _require_arguments(
    model: torch.nn.Module, args: tuple[torch.Tensor, ...], kwargs: Mapping[str, torch.Tensor]
) -> None:
    signature = inspect.signature(model.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(
            f"The example inputs don't fit {type(model).__name__}.forward{signature}: {error}.",
            "Give a tensor for each argument, in order or by name.",
        ) from error


def trace(
    module: torch.nn.Module,
    args: tuple[torch.Tensor, ...],
    kwargs: Mapping[str, torch.Tensor] | None = None,
) -> ExportedProgram:
    """The module as torch.export has it; UsageError where it can't."""
    try:
        with torch.no_grad(), quietly():
            return torch.export.export(module, args, dict(kwargs or {}))
    except Exception as error:  # torch.export promises no class of errors
        raise _reason(module, args, kwargs or {}, error) from error


def _reason(
    module: torch.nn.Module,
    args: tuple[torch.Tensor, ...],
    kwargs: Mapping[str, torch.Tensor],
    error: Exception,
) -> UsageError:
    """What to tell: the example inputs are at fault if the model does not run on them either."""
    try:
        with torch.no_grad(), quietly():
            module(*args, **kwargs)
    except Exception as failure:  # a user's code raises anything
        return UsageError(
            f"The model does not run on the example inputs: {first_line(failure)}",
            "Look at their shapes and types: `model(*example_inputs)` has to work first.",
        )
    told = f"torch.export can't trace the model{_place(error)}"
    text = f"{type(error).__name__}: {error}"
    if any(word in text for word in BY_DATA):
        return UsageError(
            f"{told}: what it does depends on the numbers in its input.",
            "Write an `if`, a loop or `.item()` as `torch.where`, which computes both sides.",
        )
    if any(word in text for word in OUTSIDE):
        return UsageError(f"{told}: it leaves torch.", "Stay with tensors in forward.")
    return UsageError(
        f"{told}: {first_line(error)}",
        "`torch.export.export` on the module alone shows where in the model that is.",
    )


def _place(error: Exception) -> str:
    """Where in a user's code, behind what failed: " (FILE, line 12)"; empty if nowhere."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not Path(frame.filename).is_relative_to(TORCH) and Path(frame.filename).is_file()
    ]
    calls = own[1:]  # the first one is ours, who called torch
    return f" ({Path(calls[-1].filename).name}, line {calls[-1].lineno})" if calls else ""


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keeps what torch logs, warns of and prints about itself to itself, while it is at work."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "torch"]
    before = {name: logging.getLogger(name).level for name in names}
    try:
        for name in names:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)

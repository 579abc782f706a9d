"""torch.export on a module, and what is told where it fails.

torch writes to its loggers and to standard error before it raises. Users read one sentence instead,
which says whether the examples, or the code of the model, are at fault.

PyTorch leaves something out of gradients, which is looked for in what was traced:

    with torch.no_grad():                no parameter of `backbone` has a gradient: refused where
        features = backbone(x)           one asks for it
    nn.Embedding(5, 8, padding_idx=0)    row 0 stays as it is: looked up nowhere where it is zero
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
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

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
CUT, LOOK_UP = torch.ops.aten.detach.default, torch.ops.aten.embedding.default
REGION = torch.ops.higher_order.wrap_with_set_grad_enabled


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
        return trace(model, positional, named, trains)


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
    trains: bool = False,
) -> ExportedProgram:
    """The module as torch.export has it; UsageError where it can't.

    Where it trains, what cuts gradients off is there to be seen (`require_gradients`).
    """
    try:
        with torch.set_grad_enabled(trains), quietly():
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


def require_gradients(program: ExportedProgram) -> None:
    """UsageError for what a step of a program, as it was traced, would not train as PyTorch does.

    Cuts are there if gradients were enabled while it was traced.
    """
    asking = {
        spec.arg.name: spec.target
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.PARAMETER and program.state_dict[spec.target].requires_grad
    }
    nodes = list(program.graph.nodes)
    cut = {name for node in nodes if _cuts(node) for name in _leading_to(node)}
    if found := [target for name, target in asking.items() if name in cut]:
        raise UsageError(
            f"`detach` or `torch.no_grad` cuts the gradient off from {', '.join(found)}.",
            "Leave it out of the model; call requires_grad_(False) on parameters that are to stay.",
        )
    for node in nodes:
        if node.target is LOOK_UP:
            _require_look_up(program, node)


def _cuts(node: fx.Node) -> bool:
    """Whether no gradient goes through it."""
    return node.target is CUT or (node.target is REGION and node.args[0] is False)


def _leading_to(node: fx.Node) -> set[str]:
    """Names of all nodes that one is computed from."""
    found, waiting = set[str](), [node]
    while waiting:
        for before in waiting.pop().all_input_nodes:
            if before.name not in found:
                found.add(before.name)
                waiting.append(before)
    return found


def _require_look_up(program: ExportedProgram, node: fx.Node) -> None:
    table, _, *others = node.args
    padding, by_count = (*others, *(-1, False)[len(others) :])[:2]
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    where = targets.get(table.name) or table.name
    if by_count:
        raise UsageError(
            f"`{where}` scales its gradients by how often a row is looked up, which is secret.",
            "Leave out scale_grad_by_freq.",
        )
    if padding < 0:
        return
    rows = program.state_dict.get(where)
    if rows is None or bool(rows[padding].any()) or not _is_looked_up_alone(program, rows):
        raise UsageError(
            f"Row {padding} of `{where}` is a padding, which has no gradient, and it is not zero "
            "for good.",
            "Set it to zero, read the table in look-ups alone, or leave out padding_idx.",
        )


def _is_looked_up_alone(program: ExportedProgram, rows: torch.Tensor) -> bool:
    """Whether nothing but look-ups reads a parameter, under any of its names."""
    named = {
        spec.arg.name: program.state_dict.get(spec.target)
        for spec in program.graph_signature.input_specs
        if spec.target is not None
    }
    names = {n for n, x in named.items() if x is not None and x.data_ptr() == rows.data_ptr()}
    tables = [node for node in program.graph.nodes if node.name in names]
    return all(user.target is LOOK_UP for table in tables for user in table.users)


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

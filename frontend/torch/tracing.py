"""torch.export on a module, and what is told where it fails.

torch writes to its loggers and to standard error before it raises. Users read one sentence instead,
which says whether the examples, or the code of the model, are at fault.

PyTorch leaves something out of gradients, which is looked for in what was traced:

    with torch.no_grad():                no parameter of `backbone` has a gradient: refused where
        features = backbone(x)           one asks for it, whatever other paths there are
    nn.Embedding(5, 8, padding_idx=0)    row 0 stays as it is: looked up nowhere where it is zero
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
SILENCE = threading.RLock()  # that one thread at a time asks of torch
BY_DATA = ("data-dependent", "GuardOnDataDependent", "DynamicValueError")
UNTRAINABLE = (torch.nn.AlphaDropout, torch.nn.FeatureAlphaDropout)
OUTSIDE = (".numpy()", "numpy.ndarray", "FakeTensor")
_ATEN, _REGIONS = torch.ops.aten, torch.ops.higher_order
LOOK_UP = _ATEN.embedding.default
# By operator the place of its operand that says whether gradients are scaled by frequency.
LOOK_UPS = {LOOK_UP: 3, _ATEN.embedding_bag.default: 3, _ATEN.embedding_bag.padding_idx: 3}
CUTS = frozenset({_ATEN.detach.default, _ATEN.detach_.default, _ATEN.detach_copy.default})
NO_GRADIENTS, AUTOCAST = _REGIONS.wrap_with_set_grad_enabled, _REGIONS.wrap_with_autocast
BODIES = {NO_GRADIENTS: 1, AUTOCAST: 4}  # before the operands of a region


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

    Cuts are there if gradients were enabled while it was traced. Of look-ups in tables that ask for
    no gradient, paddings are forgotten.
    """
    found = _Gradients(program)
    if cut := [name for name in found.asking if name in found.cut]:
        raise UsageError(
            f"`detach` or `torch.no_grad` cuts off a gradient of {', '.join(cut)}.",
            "Leave it out of the model; call requires_grad_(False) on parameters that are to stay.",
        )
    if hidden := [name for name in found.asking if name in found.hidden]:
        raise UsageError(
            f"What `torch.autocast` computes of {', '.join(hidden)} is not all seen: torch.export "
            "forgets where gradients are cut off in it.",
            "Leave it out of the model; call requires_grad_(False) on parameters that are to stay.",
        )
    for node, table in found.look_ups:
        if table in found.asking:
            _require_look_up(program, node, table, found.read)
        elif node.target is LOOK_UP:
            node.args = node.args[:2]


@dataclass(frozen=True)
class _Source:
    """What a node is computed from.

    Attributes:
        asking: parameters that ask for gradients.
        tensor: the parameter or buffer that it is.
    """

    asking: frozenset[str] = frozenset()
    tensor: str | None = None


class _Gradients:
    """What a program's graphs say of gradients, those of its regions too.

    Attributes:
        asking: parameters that ask for gradients.
        cut: those of them that a gradient is cut off from.
        hidden: those of them that a region of another precision computes with.
        look_ups: nodes, and the tensors in which they look up.
        read: tensors that anything else reads.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self.asking: dict[str, None] = {}  # in the model's order
        self.cut, self.hidden, self.read = set[str](), set[str](), set[str]()
        self.look_ups: list[tuple[fx.Node, str | None]] = []
        given = []
        for spec in program.graph_signature.input_specs:
            tensor = program.state_dict.get(spec.target) if spec.target else None
            asks = spec.kind is InputKind.PARAMETER and tensor is not None and tensor.requires_grad
            if asks:
                self.asking[str(spec.target)] = None
            given.append(_Source(frozenset({spec.target} if asks else ()), spec.target))
        self._follow(program.graph_module, given)

    def _follow(self, module: fx.GraphModule, given: Sequence[_Source]) -> None:
        known: dict[fx.Node, _Source] = {}
        places = iter(given)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                known[node] = next(places)
                continue
            before = [known[each] for each in node.all_input_nodes]
            known[node] = _Source(frozenset().union(*(each.asking for each in before)))
            if _cuts(node):
                self.cut |= known[node].asking
            if node.target is AUTOCAST:
                self.hidden |= known[node].asking
            if (body := BODIES.get(node.target)) is not None:
                inner = getattr(module, node.args[body].target)
                operands = node.args[body + 1 :]
                self._follow(inner, [known.get(each, _Source()) for each in operands])
                continue
            if node.target in LOOK_UPS:
                self.look_ups.append((node, known[node.args[0]].tensor))
                before = [known[each] for each in node.all_input_nodes if each is not node.args[0]]
            self.read |= {each.tensor for each in before if each.tensor is not None}


def _cuts(node: fx.Node) -> bool:
    """Whether no gradient goes through it."""
    return node.target in CUTS or (node.target is NO_GRADIENTS and node.args[0] is False)


def _require_look_up(program: ExportedProgram, node: fx.Node, table: str, read: set[str]) -> None:
    """Of a table that asks for gradients.

    Args:
        read: what is read otherwise than by looking up.
    """
    place = LOOK_UPS[node.target]
    if len(node.args) > place and node.args[place]:
        raise UsageError(
            f"`{table}` scales its gradients by how often a row is looked up, which is secret.",
            "Leave out scale_grad_by_freq.",
        )
    if node.target is not LOOK_UP or len(node.args) < 3 or node.args[2] < 0:
        return
    rows, padding = program.state_dict[table], node.args[2]
    elsewhere = {program.state_dict[name].data_ptr() for name in read if name in program.state_dict}
    if bool(rows[padding].any()) or rows.data_ptr() in elsewhere:
        raise UsageError(
            f"Row {padding} of `{table}` is a padding, which has no gradient, and it is not zero "
            "for good.",
            "Set it to zero, read the table in look-ups alone, or leave out padding_idx.",
        )


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keeps what torch logs, warns of and prints about itself to itself, while it is at work.

    Threads wait for each other: loggers and warnings are the process's, and left as they were.
    """
    with SILENCE, _silenced():
        yield


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    every = logging.root.manager.loggerDict.items()
    loggers = [each for name, each in every if name.partition(".")[0] == "torch"]
    before = [(each, each.disabled) for each in loggers if isinstance(each, logging.Logger)]
    whole = logging.getLogger("torch")
    level = whole.level
    try:
        # Setting a level goes through all loggers of the process: it is done once, and is that of
        # loggers made meanwhile.
        whole.setLevel(logging.CRITICAL + 1)
        for logger, _ in before:
            logger.disabled = True
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, was_disabled in before:
            logger.disabled = was_disabled
        whole.setLevel(level)

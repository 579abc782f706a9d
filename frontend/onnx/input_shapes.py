"""Input shapes of an ONNX model, fixed by the model or by the user."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence

from onnx import GraphProto, ValueInfoProto

from veilgraph.ir.errors import UsageError
from veilgraph.ir.harmless import harmless

MAX_EXTENT = 1 << 31
LOG = logging.getLogger("veilgraph.frontend")


class OpenShape(UsageError):
    """An input of which the model leaves extents open, and nobody says them.

    Args:
        info: the input.
    """

    def __init__(self, message: str, hint: str, info: ValueInfoProto) -> None:
        super().__init__(message, hint)
        self.info = info

    @property
    def least(self) -> tuple[int, ...]:
        """The input's shape, with 1 for what is open."""
        return _with_ones(self.info)

    def __reduce__(self) -> tuple[type[OpenShape], tuple[str, str, ValueInfoProto]]:
        return type(self), (self.message, self.hint, self.info)


def bind_shapes(graph: GraphProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Fixes every extent of every input; one symbol has one extent in all inputs.

    Args:
        graph: changed in place; types its outputs declare are left to inference.
        shapes: the user's shapes by input name, for inputs that the model leaves open.

    Raises:
        UsageError: an unknown input, or a shape that contradicts the model.
        OpenShape: an extent left open, other than an input's first, which is 1 then.
    """
    inputs = {info.name: info for info in graph.input}
    symbols: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            known = ", ".join(inputs)
            raise UsageError(f"The model has no input {name}.", f"Its inputs are: {known}.")
        _bind(inputs[name], tuple(shape), symbols)
    for info in inputs.values():
        _fill(info, symbols)
        _take_one(info, symbols)
    for info in inputs.values():
        _fill(info, symbols)
        _require_fixed(info)
    for info in graph.output:
        info.ClearField("type")


def _fill(info: ValueInfoProto, symbols: Mapping[str, int]) -> None:
    for dim in info.type.tensor_type.shape.dim:
        if not dim.dim_value and dim.dim_param in symbols:
            dim.dim_value = symbols[dim.dim_param]


def _take_one(info: ValueInfoProto, symbols: dict[str, int]) -> None:
    """Takes 1 for the first extent where it alone is open: a batch of one; said in the log."""
    first, *rest = info.type.tensor_type.shape.dim or [None]
    if first is None or not rest or any(dim.dim_value < 1 for dim in rest) or first.dim_value:
        return
    if first.dim_param:
        symbols[first.dim_param] = 1
    first.dim_value = 1  # which clears dim_param
    LOG.warning(
        "The first extent of input %s is open in the model, and 1 is taken: %s says another.",
        harmless(info.name),
        harmless(suggestion(info)),
    )


def _bind(info: ValueInfoProto, shape: tuple[int, ...], symbols: dict[str, int]) -> None:
    """Fixes the input's extents to `shape`, and remembers what its symbols stand for."""
    tensor = info.type.tensor_type
    given = "x".join(map(str, shape))
    if not all(isinstance(extent, int) and 1 <= extent <= MAX_EXTENT for extent in shape):
        raise UsageError(
            f"Shape {given} of input {info.name} has an extent beyond 1 to {MAX_EXTENT}.",
            f"Give whole numbers, as in {suggestion(info)}.",
        )
    if not tensor.HasField("shape"):
        for _ in shape:
            tensor.shape.dim.add()
    if len(tensor.shape.dim) != len(shape):
        raise UsageError(
            f"Input {info.name} has {len(tensor.shape.dim)} dimensions, but {given} was given.",
            f"Give it as {suggestion(info)}.",
        )
    for position, (dim, extent) in enumerate(zip(tensor.shape.dim, shape, strict=True)):
        fixed = dim.dim_value or symbols.get(dim.dim_param, extent)
        if fixed != extent:
            raise UsageError(
                f"Dimension {position} of input {info.name} is {fixed}, but {given} was given.",
                "Export the model with another shape, or leave this one.",
            )
        if dim.dim_param:
            symbols[dim.dim_param] = extent
        dim.dim_value = extent


def _require_fixed(info: ValueInfoProto) -> None:
    """Raises unless every extent of a tensor input is fixed and positive."""
    if not info.type.HasField("tensor_type"):
        return  # no tensor: reported as unsupported later, with all the rest
    if not info.type.tensor_type.HasField("shape"):
        raise UsageError(
            f"Input {info.name} has no shape in the model.",
            f"Say its shape, as in --shape {info.name}=1x3x224x224.",
        )
    unfixed = [
        f"{position} ({dim.dim_param})" if dim.dim_param else str(position)
        for position, dim in enumerate(info.type.tensor_type.shape.dim)
        if not 1 <= dim.dim_value <= MAX_EXTENT
    ]
    if not unfixed:
        return
    *before, last = unfixed
    which = f"Dimensions {', '.join(before)} and {last}" if before else f"Dimension {last}"
    raise OpenShape(
        f"{which} of input {info.name} {'have' if before else 'has'} no fixed extent.",
        f"Say {'them' if before else 'it'}, for example with {suggestion(info)}.",
        info,
    )


def suggestion(info: ValueInfoProto) -> str:
    """The option that would fix the input's shape, with 1 for what is open, as a shell takes it."""
    named = f"{info.name}={'x'.join(map(str, _with_ones(info)))}"
    return f"--shape {shlex.quote(named)}"


def _with_ones(info: ValueInfoProto) -> tuple[int, ...]:
    return tuple(max(dim.dim_value, 1) for dim in info.type.tensor_type.shape.dim)

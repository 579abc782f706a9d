"""The secret level: a program on public and secret fixed-point tensors; no parties, no protocols.

One function `main`. Its arguments are the inputs, then the weights, each with the attributes
`secret.name`, `secret.role` ("input", "weight" or "state"), `secret.owner`, `secret.range` and
`secret.range_source`; each result has `secret.name`. The weights' values stay outside MLIR, as real
numbers: their owner encodes them when it shares them. An operation's location is the name of the
graph operation that it comes from. The operations are in `ops.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir
from torch_mlir.dialects import func

from veilgraph.ir.plan.tables import COMMON, EACH, PUBLIC
from veilgraph.ir.secret.ops import Constant, RealFunction, SecretOp
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Secrecy, Tensor

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Argument:
    """What `main` is given: a tensor of one owner, and the real numbers it may hold."""

    name: str
    role: str  # "input", "weight" or "state"
    owner: str
    tensor: Tensor
    range: RealRange

    @property
    def is_weight(self) -> bool:
        """Whether it is there from the setup on; else each run has another."""
        return self.role == "weight"

    @property
    def is_input(self) -> bool:
        """Whether whoever has it gives each run another."""
        return self.role == "input"

    @property
    def is_announced(self) -> bool:
        """Whether its owner tells every party, in each run."""
        is_public = self.tensor.encoding.secrecy is Secrecy.PUBLIC
        return is_public and self.owner not in (PUBLIC, COMMON)

    @property
    def is_given_by_all(self) -> bool:
        """Whether each party that computes gives it, or a part of it."""
        return self.owner in (COMMON, EACH)

    def attributes(self) -> ir.DictAttr:
        """As the function carries it, but for the type."""
        texts = {"name": self.name, "role": self.role, "owner": self.owner}
        return ir.DictAttr.get(
            {f"secret.{name}": ir.StringAttr.get(text) for name, text in texts.items()}
            | {f"secret.{name}": value for name, value in self.range.attributes().items()}
        )

    @staticmethod
    def of(value: ir.Value, attributes: ir.DictAttr) -> Argument:
        """The argument that `value` is, by what the function says about it."""
        name, role, owner = (attributes[f"secret.{key}"].value for key in ("name", "role", "owner"))
        source = RangeSource(attributes["secret.range_source"].value)
        low, high = attributes["secret.range"]
        return Argument(name, role, owner, Tensor.of(value), RealRange(low, high, source))


@dataclass(frozen=True)
class SecretProgram:
    """A program of the secret level.

    Attributes:
        module: the MLIR module that holds `func.func @main`.
        weights: the value of each weight argument, float32, to be encoded as its type says.
        encoding: how rings, scales and ranges were found, in a sentence for people.
        margin: values may be this many times larger than their range says before anything breaks.
        predicted_error: of the outputs, relative to their size, by derivatives; 0 where no samples
            tell.
        mask_error: the part of it that comes of what leads to masks of derivatives.
        trusting: functions, by name, whose operands are trusted to stay where they were.
    """

    module: ir.Module
    weights: Mapping[str, Array] = field(default_factory=dict)
    encoding: str = ""
    margin: float = 1.0
    predicted_error: float = 0.0
    mask_error: float = 0.0
    trusting: tuple[str, ...] = ()

    @staticmethod
    def create(
        context: ir.Context,
        arguments: Sequence[Argument],
        weights: Mapping[str, Array],
        encoding: str = "",
        margin: float = 1.0,
        predicted_error: float = 0.0,
        mask_error: float = 0.0,
        trusting: tuple[str, ...] = (),
    ) -> SecretProgram:
        """A program without operations: build under `at(name)`, then call `finish`."""
        with context, ir.Location.unknown():
            module = ir.Module.create()
            with ir.InsertionPoint(module.body):
                function = func.FuncOp("main", ([a.tensor.type() for a in arguments], []))
            function.add_entry_block([ir.Location.name(a.name) for a in arguments])
            entries = [argument.attributes() for argument in arguments]
            function.attributes["arg_attrs"] = ir.ArrayAttr.get(entries)
        predicted = predicted_error, mask_error
        return SecretProgram(module, weights, encoding, margin, *predicted, trusting)

    @staticmethod
    def parse(
        context: ir.Context, text: str, weights: Mapping[str, Array], margin: float = 1.0
    ) -> SecretProgram:
        """The program that `text` says; ir.MLIRError where it isn't one."""
        return SecretProgram(ir.Module.parse(text, context), weights, margin=margin)

    @property
    def function(self) -> func.FuncOp:
        return self.module.body.operations[0]

    @property
    def block(self) -> ir.Block:
        return self.function.entry_block

    @property
    def operations(self) -> list[SecretOp]:
        """The operations in program order, without the return."""
        return list(self.block.operations)[:-1]

    @property
    def arguments(self) -> list[Argument]:
        """What `main` is given, in order."""
        values = list(self.block.arguments)
        entries = self.function.attributes["arg_attrs"] if values else ()
        return [Argument.of(v, entry) for v, entry in zip(values, entries, strict=True)]

    @property
    def outputs(self) -> dict[str, ir.Value]:
        """The returned values by the result's name."""
        names = [entry["secret.name"].value for entry in self.function.attributes["res_attrs"]]
        returned = list(self.block.operations)[-1]
        return dict(zip(names, returned.operands, strict=True))

    @contextmanager
    def at(self, name: str) -> Iterator[None]:
        """Builds at the end of a program that isn't finished, under `name`."""
        with self.module.context, ir.InsertionPoint(self.block), ir.Location.name(name):
            yield

    @contextmanager
    def before(self, op: ir.OpView) -> Iterator[None]:
        """Builds before `op`, under the name of `op`."""
        with self.module.context, ir.InsertionPoint(op), op.location:
            yield

    def text(self) -> str:
        """For a plan: each range is rounded outward, to a power of two with both signs.

        So is what functions were wanted for; where they hold is what their forms say.
        """
        copy = SecretProgram(self.module.operation.clone().opview)
        copy.state_ranges([r.rounded(encoding) for r, encoding in self._ranges()])
        with self.module.context, ir.Location.unknown():
            for op in copy.operations:
                if isinstance(op, RealFunction):
                    op.round_domain()
        text: str = copy.module.operation.get_asm(enable_debug_info=True)
        return text

    def stated_ranges(self) -> Iterator[tuple[RealRange, bool]]:
        """Those of arguments, then of operations, and whether each is a layer of a plan."""
        for argument in self.arguments:
            yield argument.range, argument.owner != PUBLIC
        for op in self.operations:
            yield RealRange.of(op), not isinstance(op, Constant)

    def _ranges(self) -> Iterator[tuple[RealRange, Encoding]]:
        """Of arguments, then of operations."""
        for argument in self.arguments:
            yield argument.range, argument.tensor.encoding
        for op in self.operations:
            yield RealRange.of(op), Tensor.of(op.operation.results[0]).encoding

    def state_ranges(self, ranges: Sequence[RealRange]) -> None:
        """Gives arguments, then operations, these ranges, in place."""
        arguments = self.arguments
        with self.module.context:
            entries = [
                replace(argument, range=known).attributes()
                for argument, known in zip(arguments, ranges, strict=False)
            ]
            self.function.attributes["arg_attrs"] = ir.ArrayAttr.get(entries)
            for op, known in zip(self.operations, ranges[len(arguments) :], strict=True):
                for name, value in known.attributes().items():
                    op.operation.attributes[name] = value

    def keep_outputs(self, names: Sequence[str]) -> None:
        """Lets a program that is finished return these of its outputs alone."""
        kept = {name: value for name, value in self.outputs.items() if name in names}
        self.reopen()
        self.finish(kept)

    def reopen(self) -> None:
        """Takes the return off a program that is finished: build under `at`, and `finish` again."""
        list(self.block.operations)[-1].operation.erase()

    def finish(self, outputs: Mapping[str, ir.Value]) -> None:
        """Ends the program: returns `outputs`, drops what is unused, has equal constants once."""
        with self.module.context, ir.Location.unknown():
            with ir.InsertionPoint(self.block):
                func.ReturnOp(list(outputs.values()))
            names = [ir.DictAttr.get({"secret.name": ir.StringAttr.get(n)}) for n in outputs]
            self.function.attributes["res_attrs"] = ir.ArrayAttr.get(names)
            given = [value.type for value in self.block.arguments]
            kind = ir.FunctionType.get(given, [value.type for value in outputs.values()])
            self.function.attributes["function_type"] = ir.TypeAttr.get(kind)
        for op in reversed(self.operations):
            if not any(True for _ in op.operation.results[0].uses):
                op.operation.erase()
        self._merge_constants()
        assert self.module.operation.verify(), "the program that a pass built is not legal"

    def _merge_constants(self) -> None:
        first: dict[tuple[Any, ...], ir.Value] = {}
        for op in self.operations:
            if isinstance(op, Constant):
                named, result = op.operation.attributes, op.operation.results[0]
                key = (result.type, *(named[name] for name in sorted(named)))
                if (kept := first.setdefault(key, result)) != result:
                    result.replace_all_uses_with(kept)
                    op.operation.erase()

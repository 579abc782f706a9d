"""Only on request: inner truncations round to the nearest, so that no threshold tells anything.

Rounding at random is unbiased and cheap, but each party that knows its threshold knows how a value
was rounded. A truncation that is put right by a comparison of the bits that it dropped is a
function of the value alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch_mlir import ir

from veilgraph.ir.attributes import to_attribute
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.ops import SecretOp, Stated, attributes_of
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import RealRange, Tensor


@dataclass(frozen=True)
class ExactRounding:
    """Replaces truncations; no options. Fourier series and sums of exponentials stay as they are.

    Before::

        %2 = truncate_relu %1 {bits = 9, dropped_bits = 9, window_bits = 20} : 8

    After::

        %2 = round_off %1 {bits = 9} : 8
        %3 = relu %2 {dropped_bits = 0, window_bits = 23} : 8
    """

    def run(self, program: SecretProgram) -> SecretProgram:
        """`program` itself, changed in place; `choose_comparison` narrows the windows."""
        for op in program.operations:
            if isinstance(op, secret_ops.Step | secret_ops.Relu | secret_ops.ClippedFunction):
                with program.module.context:
                    _look_at_all(op)
            elif isinstance(op, secret_ops.Truncate):
                result = op.operation.results[0]
                with program.before(op):
                    result.replace_all_uses_with(_rounded(op))
                op.operation.erase()
        return program


def _look_at_all(op: SecretOp) -> None:
    """Which numbers below zero a sign of upper bits calls positive depends on a threshold too."""
    window = Tensor.of(op.operation.operands[0]).encoding.ring_bits - 1
    op.operation.attributes["dropped_bits"] = to_attribute(0)
    op.operation.attributes["window_bits"] = to_attribute(window)


def _rounded(op: SecretOp) -> ir.Value:
    result = op.operation.results[0]
    encoding, declared = Tensor.of(result).encoding, RealRange.of(op)
    is_relu = isinstance(op, secret_ops.TruncateRelu)
    (operand,) = op.operation.operands
    rounded = secret_ops.RoundOff.build(
        operand,
        range=_before(op) if is_relu else declared,
        stated=Stated(ring_bits=encoding.ring_bits),
        bits=attributes_of(op)["bits"],
    )
    if not is_relu:
        return rounded
    window = {"window_bits": encoding.ring_bits - 1, "dropped_bits": 0}
    return secret_ops.Relu.build(rounded, range=declared, stated=Stated(), **window)


def _before(op: SecretOp) -> RealRange:
    """Where the operand of a fused ReLU lies."""
    (operand,) = op.operation.operands
    if isinstance(operand, ir.BlockArgument):
        return RealRange.assumed(Tensor.of(op.operation.results[0]).encoding)
    return RealRange.of(operand.owner.opview)

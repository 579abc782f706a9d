"""A max pool takes its place before the ReLU, and both after one truncation, as one operation.

A ReLU and a maximum commute. So an output of a 2x2 pool takes four comparisons in place of seven;
all of them but the last are between numbers that have not left the window's few bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch_mlir import ir

from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.ops import SecretOp, Stated, attributes_of
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import RealRange, Tensor
from veilgraph.targets.blocks.maxima import bits_to_pool
from veilgraph.targets.suite import Suite

FUSED = "truncate_relu_pool"


@dataclass(frozen=True)
class FusePools:
    """Fuses max pools with the ReLUs that nothing else reads.

    Before::

        %2 = truncate_relu %1 {bits = 12, window_bits = 20, dropped_bits = 12} : 1x8x4x4, 8
        %3 = max_pool %2 {kernel = [2, 2], window_bits = 9, dropped_bits = 0} : 1x8x2x2, 8

    After::

        %3 = truncate_relu_pool %1 {bits = 12, window_bits = 20, dropped_bits = 12,
            kernel = [2, 2]} : 1x8x2x2, 8

    Attributes:
        suite: changes nothing if it has no protocol for it.
    """

    suite: Suite

    def run(self, program: SecretProgram) -> SecretProgram:
        """`program` itself, changed in place."""
        if FUSED not in self.suite.protocols:
            return program
        for op in program.operations:
            relu = _relu_before(op)
            if relu is None:
                continue
            with program.before(op):
                op.operation.results[0].replace_all_uses_with(_fused(relu, op))
            op.operation.erase()
            relu.operation.erase()
        return program


def _relu_before(op: SecretOp) -> SecretOp | None:
    """The ReLU that a max pool alone reads."""
    if not isinstance(op, secret_ops.MaxPool):
        return None
    (operand,) = op.operation.operands
    relu = None if isinstance(operand, ir.BlockArgument) else operand.owner.opview
    if type(relu) is not secret_ops.TruncateRelu or sum(1 for _ in operand.uses) > 1:
        return None
    named, wide = attributes_of(relu), Tensor.of(relu.operation.operands[0]).encoding
    return relu if bits_to_pool(**named) <= wide.ring_bits else None


def _fused(relu: SecretOp, pool: SecretOp) -> ir.Value:
    encoding = Tensor.of(pool.operation.results[0]).encoding
    return secret_ops.TruncateReluPool.build(
        relu.operation.operands[0],
        range=RealRange.of(pool),
        stated=Stated(ring_bits=encoding.ring_bits),
        **(attributes_of(pool) | attributes_of(relu)),
    )

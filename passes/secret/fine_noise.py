"""fine_noise: what each party adds as noise is as fine as what it is added to.

Noise hides integers if it is of the same integers. Of the sum of a number and coarser noise the
lowest bits would be the number's own. So where the encoding brought noise to a finer scale, the
parties give it at that scale.

    before:  main(%n : ring 32, 29 bits)   %1 = scale %n by 16   %2 = add %0 %1
    after:   main(%n : ring 32, 33 bits)   %2 = add %0 %n
"""

from __future__ import annotations

from torch_mlir import ir

from veilgraph.ir.plan.tables import EACH
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.ops import attributes_of
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Tensor


class FineNoise:
    """Brings what all parties give parts of to the scale of what it is added to."""

    def run(self, program: SecretProgram) -> SecretProgram:
        """The same program, changed in place.

        Raises:
            AssertionError: noise that is no term of one sum; no encoding makes that.
        """
        values = zip(program.block.arguments, program.arguments, strict=True)
        given = [(value, argument) for value, argument in values if argument.owner == EACH]
        for value, argument in given:
            _refine(value, argument)
        if given:
            outputs = program.outputs
            program.reopen()
            program.finish(outputs)
        return program


def _refine(value: ir.Value, argument: Argument) -> None:
    """Gives noise in the encoding that its sum reads it in: finer, in a ring that is no wider."""
    (reader,) = (use.owner.opview for use in value.uses)
    while isinstance(reader, secret_ops.Scale | secret_ops.Reduce):
        made = reader.operation.results[0]
        shift = Tensor.of(made).encoding.frac_bits - Tensor.of(value).encoding.frac_bits
        if isinstance(reader, secret_ops.Scale):
            assert attributes_of(reader)["factor"] == 1 << shift, "a scale is brought to another"
        value.set_type(made.type)
        made.replace_all_uses_with(value)
        reader.operation.erase()
        (reader,) = (use.owner.opview for use in value.uses)
    assert isinstance(reader, secret_ops.Add), f"{argument.name} is added to something"

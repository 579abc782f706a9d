"""Values of the secret level modulo smaller powers of two, which is free."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.ir.meaning.integers import center
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.ops import Stated, attributes_of
from veilgraph.ir.secret.types import RealRange, frac_bits_of, ring_of


def constant_of(value: ir.Value) -> NDArray[np.int64] | None:
    """The integers of a public constant; None for anything else."""
    owner = None if isinstance(value, ir.BlockArgument) else value.owner.opview
    return attributes_of(owner)["value"] if isinstance(owner, secret_ops.Constant) else None


def reduced(value: ir.Value, ring_bits: int, declared: RealRange) -> ir.Value:
    """The same integers modulo 2^ring_bits, no more than they are modulo; itself if that is it."""
    if ring_of(value) == ring_bits:
        return value
    constant = constant_of(value)
    if constant is None:
        return secret_ops.Reduce.build(value, range=declared, stated=Stated(ring_bits=ring_bits))
    stated = Stated(frac_bits=frac_bits_of(value), ring_bits=ring_bits)
    integers = np.asarray(center(constant, ring_bits))
    return secret_ops.Constant.build(range=declared, stated=stated, value=integers)

"""The derivative of each operation that has one: what `Derivative.RULE` promises.

A rule takes the operation, its operands, its result and the derivative d of a loss by its result,
of the result's shape. It gives the derivative by each operand, of the operand's shape, and builds
it where building stands. What nobody reads is erased, so a rule need not ask who does. The row of
an operation stands with its rule, in the table of a module below.
"""

from __future__ import annotations

from veilgraph.passes.graph.derivatives import elements, moves, products, windows
from veilgraph.passes.graph.derivatives.algebra import Rules

RULES: Rules = {**elements.RULES, **products.RULES, **windows.RULES, **moves.RULES}

"""Tables of any number of rows, as the batches that a plan takes, and the answers to their rows.

The last batch is filled with rows of the table itself, from its first on: they are in range, and no
row is asked more often than it must be. Answers to them are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.tables import Tensor

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Batches:
    """The inputs of each inference.

    Attributes:
        inputs: by name, an inference after another.
        rows: of the whole table; None where inputs were given as the plan takes them.
    """

    inputs: Sequence[Mapping[str, Array]]
    rows: int | None = None

    @staticmethod
    def of(
        arrays: Mapping[str, Array],
        tables: Collection[str],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        rows: int | None = None,
    ) -> Batches:
        """Inputs of which some are tables: [rows, ...], where the plan takes [batch, ...].

        Args:
            arrays: by name.
            tables: which of them may have another number of rows than the plan takes.
            inputs: what the plan takes, from everybody.
            outputs: what comes out, to whoever asks here.
            rows: of the whole table, where somebody counted them; of `arrays` if None.

        Raises:
            UsageError: tables of different numbers of rows, or other than `rows`; an input that is
                no table beside some that are cut; an output without a row for each of the table's.
        """
        taken = {tensor.name: tensor for tensor in inputs}
        counts = {name: len(arrays[name]) for name in tables if name in taken}
        if rows is not None:
            counts[""] = rows
        sizes = {tensor.shape[0] for tensor in inputs if tensor.name in counts}
        if not counts or (rows is None and all(taken[n].shape[0] == c for n, c in counts.items())):
            return Batches((arrays,))
        sizes |= {tensor.shape[0] for tensor in inputs if tensor.columns and not sizes}
        batch = _batch(sizes)
        _require_alike(counts)
        _require_rows(batch, [tensor for tensor in inputs if tensor.name in arrays], counts)
        _require_rows(batch, outputs)
        (count,) = set(counts.values())
        places = np.arange(-(-count // batch) * batch).reshape(-1, batch) % count
        return Batches([{n: array[own] for n, array in arrays.items()} for own in places], count)

    def joined(self, answers: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """The answers to the table's rows, of as many inferences as have ended; else the last."""
        if self.rows is None:
            return dict(answers[-1])
        names = answers[-1]
        return {n: np.concatenate([each[n] for each in answers])[: self.rows] for n in names}


def _batch(sizes: Collection[int]) -> int:
    if len(sizes) != 1:
        raise UsageError(
            "The plan takes no table whose rows could be counted."
            if not sizes
            else "The plan takes tables of different numbers of rows.",
            "Give each input as the plan takes it, in .npy files.",
        )
    (size,) = sizes
    return size


def _require_alike(counts: Mapping[str, int]) -> None:
    if len(set(counts.values())) > 1:
        (first, one), (second, other) = list(counts.items())[:2]
        told = f"`{second}` has {other}" if second else f"{other} are said to be there"
        raise UsageError(
            f"`{first}` has {one} rows, and {told}.",
            "Give all parts of a table with the same rows, in the same order.",
        )
    if min(counts.values()) < 1:
        raise UsageError("A table without rows asks nothing.", "Give one row at the least.")


def _require_rows(
    batch: int, tensors: Sequence[Tensor], tables: Collection[str] | None = None
) -> None:
    """That a batch's tensors have a row for each of the table's; inputs must be tables as well."""
    for tensor in tensors:
        if tables is not None and tensor.name not in tables:
            raise UsageError(
                f"`{tensor.name}` is no table in a file, and there are other inputs that are.",
                "Give it in a CSV file too, a row for each row of the others.",
            )
        if not tensor.shape or tensor.shape[0] != batch:
            raise UsageError(
                f"`{tensor.name}` has no row for each row of the table.",
                f"Give {batch} rows, as many as the plan takes at once.",
            )

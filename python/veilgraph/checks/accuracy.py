"""How often a plan and its model decide rightly, and what average pools would make of the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from veilgraph.commands.files import read_array
from veilgraph.ir.errors import UsageError
from veilgraph.passes.graph.reveal_as import Form, FormKind
from veilgraph.reports.units import counted

Decisions = npt.NDArray[np.int64]


@dataclass
class Accuracy:
    """Right decisions, counted over samples.

    Attributes:
        labels: what is right, a row a sample; None where only agreement is counted.
        plan: right decisions of the plan's integers; `model` of the model as it is; `averaged` of
            the model with average pools.
        same: decisions that average pools leave as they are.
    """

    labels: Decisions | None
    plan: int = 0
    model: int = 0
    averaged: int = 0
    same: int = 0
    decisions: int = 0
    samples: int = 0

    def add(self, plan: Decisions, model: Decisions, averaged: Decisions | None) -> None:
        """Takes one sample's decisions into account."""
        if self.labels is not None:
            right = self.labels[self.samples].reshape(-1)
            if right.size != model.size:
                raise UsageError(
                    f"A sample has {right.size} labels, and the model decides {model.size} times.",
                    "Give one label a decision: samples on the first axis.",
                )
            self.plan += int(np.count_nonzero(plan == right))
            self.model += int(np.count_nonzero(model == right))
            if averaged is not None:
                self.averaged += int(np.count_nonzero(averaged == right))
        if averaged is not None:
            self.same += int(np.count_nonzero(averaged == model))
        self.decisions += model.size
        self.samples += 1

    def share(self, right: int) -> float:
        """Of all decisions."""
        return right / max(self.decisions, 1)


def decisions(x: npt.NDArray[np.floating], form: Form | None = None) -> Decisions:
    """Where the largest number along the last axis is, or what an output of this form says."""
    if form is None or not form.decides:
        return np.asarray(x.argmax(axis=-1), np.int64).reshape(-1)
    first = x[..., 0] if form.kind is FormKind.TOPK else x
    return np.asarray(np.rint(first), np.int64).reshape(-1)


def read_labels(path: Path, samples: int) -> Decisions:
    """The labels in a .npy file, a row a sample; UsageError where they don't fit."""
    labels = read_array(path)
    if labels.dtype.kind not in "iub":
        raise UsageError(
            f"{path} holds {labels.dtype}, and labels are integers.",
            "Save them with array.astype(int), if each is whole.",
        )
    given = len(labels) if labels.ndim else 0
    if given < samples or not labels.ndim:
        raise UsageError(
            f"{path} has labels for {counted(given, 'sample')}, and there are {samples}.",
            "Give one label a sample, in the samples' order.",
        )
    return labels.astype(np.int64)

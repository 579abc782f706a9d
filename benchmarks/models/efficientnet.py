"""EfficientNet-Lite0 with its pretrained weights: `pretrained.py` has where it is from.

Fewer crops than there, where the classes of 100 are compared in the automatic ring.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx

from benchmarks.models.pretrained import exported
from benchmarks.models.recipe import CNN_ERROR, Case, Recipe, Sources, largest

CALIBRATIONS, TESTS = 32, 10


def _case(sources: Sources) -> Case:
    with tempfile.TemporaryDirectory(prefix="veilgraph-") as name:
        crops = exported(sources.environments, Path(name))
        model = onnx.load(Path(name) / "model.onnx")
    calibrate, test = crops["calibrate"][:CALIBRATIONS, None], crops["test"][:TESTS, None]
    return Case(model, {"image": calibrate}, {"image": test})


RECIPES = (
    Recipe(
        name="efficientnet_lite0",
        title="EfficientNet-Lite0",
        weights="pretrained",
        inputs="crops of photographs, 3x224x224",
        most_error=CNN_ERROR,
        make=_case,
        agree=largest(1),
        decisions="classes",
    ),
)

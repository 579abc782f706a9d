"""The graphs of all `light_*` models of the package onnx, with seeded random weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.models.recipe import CNN_ERROR, Case, Recipe, Sources, largest
from tests.models import light_model

NAMES = {
    "squeezenet": "SqueezeNet",
    "shufflenet": "ShuffleNet",
    "inception_v1": "Inception v1",
    "inception_v2": "Inception v2",
    "densenet121": "DenseNet-121",
    "resnet50": "ResNet-50",
    "bvlc_alexnet": "AlexNet",
    "zfnet512": "ZFNet-512",
    "vgg19": "VGG-19",
}
CALIBRATIONS, TESTS = 2, 2
SHAPE = (1, 3, 224, 224)


def _case(name: str) -> Callable[[Sources], Case]:
    def make(sources: Sources) -> Case:
        model = light_model(name, seed=0)
        rng = np.random.default_rng(0)
        images = rng.standard_normal((CALIBRATIONS + TESTS, *SHAPE), dtype=np.float32)
        image = model.graph.input[0].name
        return Case(model, {image: images[:CALIBRATIONS]}, {image: images[CALIBRATIONS:]})

    return make


RECIPES = tuple(
    Recipe(
        name=name,
        title=f"{title} (`light_{name}`)",
        weights="random",
        inputs="noise, 3x224x224",
        most_error=CNN_ERROR,
        make=_case(name),
        agree=largest(1),
        decisions="classes",
        checked=1,
    )
    for name, title in NAMES.items()
)

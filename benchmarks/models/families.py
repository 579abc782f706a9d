"""All families and models, in the order of the page."""

from __future__ import annotations

from benchmarks.models import ddddocr, efficientnet, light, mtcnn, transformers, wav2letter
from benchmarks.models.measuring import Report, measured
from benchmarks.models.recipe import Recipe, Sources

FAMILIES: dict[str, tuple[Recipe, ...]] = {
    "efficientnet": efficientnet.RECIPES,
    "ddddocr": ddddocr.RECIPES,
    "mtcnn": mtcnn.RECIPES,
    "transformers": transformers.RECIPES,
    "wav2letter": wav2letter.RECIPES,
    "light": light.RECIPES,
}
RECIPES = {recipe.name: recipe for recipes in FAMILIES.values() for recipe in recipes}


def measured_by_name(name: str, sources: Sources, ring: int | str) -> Report:
    """`measured`, for a process that can be given no recipe."""
    return measured(RECIPES[name], sources, ring)

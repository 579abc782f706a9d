"""How models of tables are read: what of them everybody may learn, and what rows may lack."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Trees(Enum):
    """Whether the structure of trees is a plan's, for every party to read, or the model owner's."""

    PUBLIC = "public-structure"
    SECRET = "secret-structure"


class Categories(Enum):
    """Whether tables of categories are a plan's, for every party to read, or the model owner's."""

    PUBLIC = "public"
    SECRET = "secret"


@dataclass(frozen=True)
class TableOptions:
    """What is asked for of models of tables.

    Attributes:
        trees: whether everybody may know the structure of decision trees.
        categories: whether everybody may know which categories of text a model tells apart.
        lacks: whether decision trees take rows in which numbers are missing.
    """

    trees: Trees = Trees.PUBLIC
    categories: Categories = Categories.PUBLIC
    lacks: bool = False


AS_USUAL = TableOptions()

"""HTML and SVG as values: whatever text an element is given is harmless when it is written.

It is escaped, and so are characters that would turn the text around or hide in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from veilgraph.ir.harmless import harmless

VOID = frozenset(("meta", "br"))  # elements that have no end tag


@dataclass(frozen=True)
class Element:
    """One element; `style` is the one whose text is written as it is, and is never a plan's."""

    tag: str
    attributes: tuple[tuple[str, str], ...]
    children: tuple[Node, ...]

    def __str__(self) -> str:
        attributes = "".join(f' {name}="{_escaped(value)}"' for name, value in self.attributes)
        if self.tag in VOID:
            return f"<{self.tag}{attributes}>"
        inside = "".join(self._written(child) for child in self.children)
        return f"<{self.tag}{attributes}>{inside}</{self.tag}>"

    def _written(self, child: Node) -> str:
        return str(child) if isinstance(child, Element) or self.tag == "style" else _escaped(child)


Node: TypeAlias = Element | str


def _escaped(text: str) -> str:
    return escape(harmless(text, None))  # a path of a drawing may be long


def tag(kind: str, /, *children: Node | Iterable[Node], **attributes: object) -> Element:
    """An element with these children, in order; attributes are written with - for _.

    A trailing _ in an attribute's name is left out: `class_`. None leaves the attribute out.
    """
    flat: list[Node] = []
    for child in children:
        flat.extend([child] if isinstance(child, Element | str) else child)
    given = tuple(
        (key.rstrip("_").replace("_", "-"), str(value))
        for key, value in attributes.items()
        if value is not None
    )
    return Element(kind, given, tuple(flat))

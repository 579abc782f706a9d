"""YAML of strangers, read as plain values: no aliases, no tags, no deep nesting.

Aliases and nesting grow or recurse without end in a loader, so events are looked at one by one, and
values are made of them as they pass: what a scalar is, is asked once of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

MOST_DEPTH = 16  # nested collections


def plain_yaml(text: bytes) -> Any:
    """What a document says, as PyYAML's safe loader has it; None of an empty one.

    Raises:
        ValueError: aliases, tags, nesting without need, keys that are no scalars, or a second
            document.
        yaml.YAMLError: no YAML.
    """
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return _Reading(yaml.parse(text, Loader=loader)).document()


class _Reading:
    """Events under way."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._loader: Any = yaml.SafeLoader("")
        self._plain: dict[str, Any] = {}  # scalars without quotes: what each is

    def document(self) -> Any:
        found, count = None, 0
        for event in self._events:
            if type(event) is yaml.DocumentStartEvent:
                count += 1
            elif isinstance(event, yaml.NodeEvent):
                found = self._value(event, 0)
        if count > 1:
            raise ValueError("its manifest is several documents")
        return found

    def _value(self, event: Any, depth: int) -> Any:
        """The value that begins with an event, its other events taken."""
        kind = type(event)
        if kind is not yaml.AliasEvent and event.tag is not None:
            raise ValueError("its manifest has tags")
        if kind is yaml.ScalarEvent:
            return self._scalar(event.value) if event.implicit[0] else event.value
        if kind is yaml.AliasEvent or depth == MOST_DEPTH:
            raise ValueError("its manifest has aliases, or is nested without need")
        return self._mapping(depth) if kind is yaml.MappingStartEvent else self._list(depth)

    def _list(self, depth: int) -> list[Any]:
        found = list[Any]()
        while type(event := next(self._events)) is not yaml.SequenceEndEvent:
            found.append(self._value(event, depth + 1))
        return found

    def _mapping(self, depth: int) -> dict[Any, Any]:
        found = dict[Any, Any]()
        while type(event := next(self._events)) is not yaml.MappingEndEvent:
            if type(event) is not yaml.ScalarEvent:
                raise ValueError("its manifest has a key that is no plain word")
            key = self._value(event, depth + 1)
            found[key] = self._value(next(self._events), depth + 1)
        return found

    def _scalar(self, text: str) -> Any:
        if text not in self._plain:
            tag = self._loader.resolve(yaml.ScalarNode, text, (True, False))
            self._plain[text] = self._loader.construct_object(yaml.ScalarNode(tag, text))
        return self._plain[text]

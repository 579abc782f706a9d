"""One mapping of a parties.yaml: its keys are checked, and its values are read by type."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import yaml

from veilgraph.ir.errors import UsageError

MAX_SECONDS = 86_400
_MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class Keys:
    """Which keys a mapping must have, and which it may have besides."""

    required: frozenset[str]
    optional: frozenset[str] = frozenset()


class Section:
    """One mapping, the file's own or one within it.

    Args:
        folder: what paths are relative to.
        where: how messages call it: `me`, `parties[2]`; empty for the file's own.
        content: as YAML has it.
        keys: that it must have, and may have.

    Raises:
        UsageError: no mapping, or a key that is missing or unknown; methods: a value of another
            type than is asked for.
    """

    def __init__(self, folder: Path, where: str, content: object, keys: Keys) -> None:
        self.folder = folder
        self.where = where
        if not isinstance(content, dict):
            raise UsageError(f"{where or 'the file'} must be a mapping.", _known(keys))
        self.values: dict[Any, Any] = content
        for key in content:
            if key not in keys.required | keys.optional:
                raise UsageError(f"{self.at(key)} is no known key.", _known(keys))
        for key in sorted(keys.required - content.keys()):
            raise UsageError(f"{self.at(key)} is missing.", _known(keys))

    def at(self, key: object) -> str:
        return f"{self.where}.{key}" if self.where else str(key)

    def wrong(self, key: str, expected: str, hint: str = "") -> UsageError:
        value = repr(self.values[key])[:80]
        return UsageError(f"{self.at(key)} must be {expected}, not {value}.", hint)

    def text(self, key: str) -> str:
        value = self.values[key]
        if not isinstance(value, str) or not value or not value.isprintable():
            raise self.wrong(key, "text", "Put it in quotes if YAML takes it for something else.")
        return value

    def file(self, key: str) -> Path:
        return self.folder / self.text(key)

    def words(self, key: str) -> list[str]:
        value = self.values[key]
        if not isinstance(value, list) or not value or not all(isinstance(x, str) for x in value):
            raise self.wrong(key, "a list of texts, a command and its arguments", "[pass, show, x]")
        return list(value)

    def port(self, key: str) -> int:
        return self.count(key, 65535)

    def seconds(self, key: str) -> float:
        value = self.values[key]
        if not _is_number(value) or not 0 < value <= MAX_SECONDS:
            raise self.wrong(key, f"a number of seconds above 0, at most {MAX_SECONDS}")
        return float(value)

    def number(self, key: str, most: float) -> float:
        value = self.values[key]
        if not _is_number(value) or not 0 < value <= most:
            raise self.wrong(key, f"a number above 0, at most {most:g}")
        return float(value)

    def count(self, key: str, most: int) -> int:
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self.wrong(key, f"a whole number from 1 to {most}")
        return value

    def bytes_per_second(self, key: str) -> float:
        value = self.values[key]
        if not _is_number(value) or not 1 <= value <= 1e9:
            raise self.wrong(key, "a number of bytes a second from 1 to 1e9")
        return float(value)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _known(keys: Keys) -> str:
    optional = f"; optional: {', '.join(sorted(keys.optional))}" if keys.optional else ""
    return f"Its keys are {', '.join(sorted(keys.required))}{optional}."


def read_yaml(path: Path) -> object:
    """What a file holds; UsageError for one that can't be read, is over 1 MiB or is no YAML."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"it can't be read: {error.strerror}.", "Give the path of a parties.yaml."
        ) from error
    if len(content) > _MAX_FILE_BYTES:
        raise UsageError("it is over 1 MiB.", "Give the path of a parties.yaml.")
    try:
        return yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"it is no YAML: {reason}.", "Indent with spaces.") from error

"""How long the sentences of the documents are: `make lint` prints it, and fails nothing.

    python tests/docs/sentences.py [FILE.md ...]

The aim is a mean of 17 words at most, and no sentence above 35. Code, tables and headings don't
count; an entry of a list is a sentence of its own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from documents import ROOT, documents

MEAN = 17
LONGEST = 35
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_ENTRY = re.compile(r"^\s*([-*]|\d+\.)\s+")
_END = re.compile(r"(?<=[.!?])[)\"*]*\s+(?=[\"(*`\[]*[A-Z0-9`])")
_LINK = re.compile(r"!?\[([^]]*)\]\([^)]*\)")
_QUOTED = re.compile(r"`[^`]*`")


@dataclass(frozen=True)
class Sentence:
    """A sentence and the number of its words; what stands in backticks is one word."""

    text: str
    words: int


def sentences(markdown: str) -> Iterator[Sentence]:
    """The sentences of a document, in order."""
    for paragraph in _paragraphs(_COMMENT.sub("", _FENCE.sub("", markdown))):
        for text in _END.split(paragraph):
            words = _QUOTED.sub("code", text).split()
            if words:
                yield Sentence(text, len(words))


def _paragraphs(markdown: str) -> Iterator[str]:
    lines: list[str] = []
    for line in [*markdown.splitlines(), ""]:
        is_prose = line.strip() and not line.lstrip().startswith(("|", "#"))
        if lines and (not is_prose or _ENTRY.match(line)):
            yield _LINK.sub(r"\1", " ".join(lines))
            lines = []
        if is_prose:
            lines.append(_ENTRY.sub("", line).strip())


def main(files: list[str]) -> None:
    """A line a document, and every sentence that is too long."""
    for path in map(Path, files) if files else documents():
        found = list(sentences(path.read_text()))
        long = [each for each in found if each.words > LONGEST]
        mean = sum(each.words for each in found) / max(1, len(found))
        if mean > MEAN or long or files:
            name = path.resolve().relative_to(ROOT)
            print(f"{name}: {mean:.1f} words a sentence, {len(long)} above {LONGEST}")
        for each in long if files else ():
            print(f"  {each.words}: {each.text}")


if __name__ == "__main__":
    main(sys.argv[1:])

"""What people read: tables and lines, drawn with rich on a terminal, aligned text elsewhere.

Nothing here knows what the words mean, nor who chose them: each line and cell is made harmless
before it is shown, and none is read as markup. Standard output carries results, standard error
progress and remarks; the latter's progress only where it is a terminal.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Literal, Protocol

from veilgraph.ir.harmless import harmless

MOST_COLUMNS = 200  # of a table where there is no terminal
LOG = logging.getLogger("veilgraph")
_KEPT = "\N{NO-BREAK SPACE}"
_UNUSUAL = re.compile(r"[^\n -~]")  # what harmless() may change


@dataclass(frozen=True)
class Column:
    """A column's heading, and whether it holds numbers, which align to the right."""

    heading: str
    is_number: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of text under headings; a table without rows is not shown."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""

    @staticmethod
    def of(headings: str, rows: Sequence[Sequence[object]], title: str = "") -> Table:
        """A table from headings with | between them; # before the heading of a column of numbers.

        >>> Table.of("layer|#rounds", [("relu1", 5)]).columns[1]
        Column(heading='rounds', is_number=True)
        """
        columns = tuple(Column(h.removeprefix("#"), h.startswith("#")) for h in headings.split("|"))
        texts = tuple(tuple(str(cell) for cell in row) for row in rows)
        assert all(len(row) == len(columns) for row in texts), "a row has other columns"
        return Table(columns, texts, title)

    def cells(self) -> list[tuple[str, ...]]:
        """Headings and rows as they are shown."""
        lines = [tuple(c.heading for c in self.columns), *self.rows]
        return [tuple(map(harmless, line)) for line in lines]

    def plain(self) -> str:
        """Aligned text, two spaces between columns, no cell folded."""
        lines = self.cells()
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        body = [
            "  ".join(
                cell.rjust(width) if column.is_number else cell.ljust(width)
                for cell, width, column in zip(line, widths, self.columns, strict=True)
            ).rstrip()
            for line in lines
        ]
        return "\n".join([harmless(self.title), *body] if self.title else body)

    def least_width(self) -> int:
        """Columns that a terminal needs for no word to be cut."""
        words = [
            max((len(word) for cell in cells for word in cell.split()), default=0)
            for cells in zip(*self.cells(), strict=True)
        ]
        return sum(words) + 2 * (len(words) - 1)

    def records(self, width: int) -> str:
        """Each row as its first cell and, below it, the others by their headings."""
        (_, *headings), *rows = self.cells()
        lines = [harmless(self.title)] if self.title else []
        for first, *others in rows:
            said = zip(headings, others, strict=True)
            pairs = [_whole(f"{h} {c}".strip(), width - 4) for h, c in said if c.strip()]
            folded = textwrap.wrap(
                ", ".join(pairs),
                max(width - 2, 1),
                break_long_words=False,
                break_on_hyphens=False,
            )
            lines += [first, *(f"  {line.replace(_KEPT, ' ')}" for line in folded)]
        return "\n".join(lines)


def _whole(pair: str, width: int) -> str:
    """A heading and its cell, which a line ends before or behind if one holds them."""
    return pair.replace(" ", _KEPT) if len(pair) <= width else pair


def show(*parts: Table | str, wide: bool = False) -> None:
    """Prints tables and lines on standard output, an empty line around each table.

    What breaks the line inside a string is written out: give a string a line. A table too wide for
    the terminal, or for MOST_COLUMNS where there is none, comes as records, a row each, unless
    `wide` says that lines may be longer.
    """
    shown = [p for p in parts if isinstance(p, str) or p.rows]
    if is_terminal(sys.stdout) and not wide:
        _show_rich(shown)
        return
    for number, part in enumerate(shown):
        apart = number and (isinstance(part, Table) or isinstance(shown[number - 1], Table))
        text = _plain(part, wide) if isinstance(part, Table) else harmless(part)
        print("\n" + text if apart else text)


def _plain(table: Table, wide: bool) -> str:
    """Aligned text, or records where its lines would be endless."""
    text = table.plain()
    too_wide = max(map(len, text.splitlines())) > MOST_COLUMNS
    has_columns = len(table.columns) > 2  # of a name and its value the value alone is long
    return table.records(MOST_COLUMNS) if too_wide and has_columns and not wide else text


def _show_rich(parts: Sequence[Table | str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console(highlight=False)
    for part in parts:
        if isinstance(part, str):
            console.print(Text(harmless(part)))
            continue
        if part.least_width() > console.width:
            console.print(Text(part.records(console.width)))
            continue
        drawn = RichTable(
            title=Text(harmless(part.title)) if part.title else None,
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
        )
        headings, *rows = part.cells()
        for column, heading in zip(part.columns, headings, strict=True):
            side: Literal["left", "right"] = "right" if column.is_number else "left"
            drawn.add_column(Text(heading), justify=side, overflow="fold")
        for row in rows:
            drawn.add_row(*(Text(cell) for cell in row))
        console.print(drawn)


def show_json(content: Mapping[str, Any]) -> None:
    """Prints one JSON object on standard output, its text as escapes where it isn't harmless."""
    _print_json(content, 2)


def show_json_line(content: Mapping[str, Any]) -> None:
    """The same in one line, at once: one of several that a program reads as they come."""
    _print_json(content, None)
    sys.stdout.flush()


def _print_json(content: Mapping[str, Any], indent: int | None) -> None:
    text = json.dumps(content, indent=indent, allow_nan=False, ensure_ascii=False)
    print(_UNUSUAL.sub(_json_escape, text))


def _json_escape(found: re.Match[str]) -> str:
    c = found[0]
    return c if harmless(c) == c else json.dumps(c)[1:-1]


def show_text(text: str) -> None:
    """Prints a program of any length as it is written, each of its lines harmless."""
    print("\n".join(harmless(line, None) for line in text.split("\n")))


def remark(line: str, *, is_result: bool = False) -> None:
    """Tells the log, hence whoever runs a verb, unless -q asks for results and errors alone.

    Args:
        is_result: told with -q too.
    """
    LOG.log(logging.ERROR if is_result else logging.WARNING, "%s", line)


def say(line: str) -> None:
    """Prints a line on standard error."""
    print(harmless(line), file=sys.stderr)


def is_terminal(stream: IO[str]) -> bool:
    """Whether someone watches the stream: a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class Tell(Protocol):
    """Told what is being done, in a few words."""

    def __call__(self, doing: str, /) -> None: ...


@contextmanager
def progress(doing: str) -> Iterator[Tell]:
    """Shows on standard error what is being done, while it is; where nobody watches it is in the
    log alone, at DEBUG.
    """
    LOG.debug("%s", doing)
    if not is_terminal(sys.stderr):
        yield lambda doing: LOG.debug("%s", doing)
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(harmless(doing), total=None)

        def tell(doing: str) -> None:
            LOG.debug("%s", doing)
            shown.update(task, description=harmless(doing))

        yield tell

"""Walks docs/first-hour.md on a fresh clone, as a reader would, and says how long commands took.

    python tests/docs/first_hour.py                 clones, installs (minutes, from PyPI), runs
    python tests/docs/first_hour.py --installed     runs in the environment of this Python

Ends with 1 where a command prints something else than the page shows, where there are ten commands
or more, or where they take three minutes, installs apart. Not a test: it may install.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from documents import ROOT, Command, Workplace, blocks, commands, matches

PAGE = ROOT / "docs" / "first-hour.md"
REPOSITORY = "REPOSITORY"  # in the page, for whatever is cloned
MOST_COMMANDS = 9
MOST_SECONDS = 180.0
SHOWN = 60  # characters of a command


@dataclass(frozen=True)
class Walked:
    """Commands that ran side by side, and how long they took; an install is not counted."""

    commands: list[Command]
    seconds: float
    is_install: bool

    @property
    def wrong(self) -> list[Command]:
        """What printed something else than the page shows."""
        return [c for c in self.commands if c.expected and not matches(c.printed, c.expected)]


def walk(page: Path, source: str, folder: Path, *, installed: bool) -> Iterator[Walked]:
    """Runs a page's commands in a folder, a block at a time; what is not run installs.

    Args:
        source: what is cloned.
        installed: leave the installs out.

    Raises:
        AssertionError: a command that fails.
    """
    place = Workplace(folder / "hour")
    path = place.environment["PATH"]
    for block in blocks(page):
        if block.word == "file":
            place.write(block.rest, block.text)
        elif block.word == "not run":
            own = commands(block)
            start = time.monotonic()
            if not installed:
                for command in own:
                    _install(command, source, place.folder)
                built = place.folder / "veilgraph" / ".venv" / "bin"
                place.environment["PATH"] = os.pathsep.join([str(built), path])
            yield Walked(own, time.monotonic() - start, True)
        elif block.language == "console":
            start = time.monotonic()
            ran = place.run_console(block)
            yield Walked(ran, time.monotonic() - start, False)


def _install(command: Command, source: str, folder: Path) -> None:
    text = command.text.replace(REPOSITORY, source)
    done = subprocess.run(["bash", "-e", "-c", text], cwd=folder, check=False)
    assert done.returncode == 0, f"{text}: exit code {done.returncode}"


def main(arguments: list[str]) -> int:
    """Prints a line a command; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", default=str(ROOT), help="what is cloned: a path or a URL")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page that is walked")
    parser.add_argument("--installed", action="store_true", help="leave the installs out")
    given = parser.parse_args(arguments)
    count, seconds, wrong = 0, 0.0, list[Command]()
    with tempfile.TemporaryDirectory() as folder:
        for walked in walk(given.page, given.source, Path(folder), installed=given.installed):
            count += len(walked.commands)
            seconds += 0.0 if walked.is_install else walked.seconds
            wrong += walked.wrong
            for command in walked.commands:
                shown = " ".join(command.text.split())[:SHOWN]
                print(f"{walked.seconds:7.1f} s  {shown}", flush=True)
        for command in wrong:
            print(f"line {command.line}: {command.text} printed", *command.printed, sep="\n")
        print(f"{count} commands, {seconds:.0f} s apart from installs", flush=True)
    return int(bool(wrong) or count > MOST_COMMANDS or seconds > MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

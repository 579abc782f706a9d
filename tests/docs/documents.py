"""The documents of the repository: their fenced blocks, and what it takes to run them.

A comment on the line before a block says what to do with it:

    <!-- not run: REASON -->    nothing
    <!-- file: NAME -->         write it to NAME in the document's folder
    <!-- from: PATH -->         hold that PATH has these lines, in this order; `...` leaves some out

Without one, `python` is executed, and `console` too: lines behind a prompt are commands, the lines
below them are what they print, wherever lines break, in which `...` stands for anything. `text`
right behind a `python` block is what that prints. A prompt with a name (`alice$`) is another host:
a folder of its own, in which commands of one block run beside those of other hosts.

`python tests/docs/documents.py FILE.md` puts what is printed in place of what is shown.
"""

from __future__ import annotations

import io
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 180  # that one block may take
END_OF_COMMAND = "-- end of command --"
DIRECTIVES = ("not run", "file", "from")
_FENCE = re.compile(r"(?P<indent> *)```(?P<language>\w*)$")
_COMMENT = re.compile(r"<!-- (?P<word>[a-z ]+): (?P<rest>.+) -->$")
_PROMPT = re.compile(r"(?P<host>\w*)\$ (?P<command>.*)")
# Documents write hosts of a private network; here they are this machine's loopback addresses.
_ADDRESS = re.compile(r"\b10\.0\.0\.(?=\d)")
# What a party says on a machine that is too busy to answer in time: no document shows it.
_LATE = re.compile(r"Links took .*? measures them for `compile --network`\. ?")
_PORT = re.compile(r"\b7001\b")
SCP = """\
#!/bin/sh
# Stands in for scp: `scp FILE... HOST:PATH`, where hosts are folders side by side.
for last; do :; done
while [ $# -gt 1 ]; do cp "$1" "../${last%%:*}/${last#*:}"; shift; done
"""


def documents() -> list[Path]:
    """All Markdown files that a reader of the repository is sent to."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(found)


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its fence, counted from 1.

    `word` and `rest` are the comment's before it ("file", "alice.yaml"), empty where there is none.
    `follows` says that the block before it stands right above.
    """

    line: int
    language: str
    lines: tuple[str, ...]
    word: str = ""
    rest: str = ""
    follows: bool = False

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


def blocks(document: Path) -> Iterator[Block]:
    """The fenced blocks of a document, in order."""
    lines = document.read_text().splitlines()
    number, spoken = 0, -1  # spoken: the last line that is no blank
    ended = -1
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if fence is None:
            spoken = number if lines[number].strip() else spoken
            number += 1
            continue
        end = next(i for i in range(number + 1, len(lines)) if lines[i].strip() == "```")
        indent = len(fence["indent"])
        comment = _COMMENT.match(lines[number - 1].strip()) if number else None
        word, rest = (comment["word"], comment["rest"]) if comment else ("", "")
        body = tuple(line[indent:] for line in lines[number + 1 : end])
        yield Block(number + 1, fence["language"], body, word, rest, spoken == ended >= 0)
        number, spoken, ended = end + 1, end, end


@dataclass
class Command:
    """A command of a console block, and the lines under it, the first of which is line `line`."""

    host: str
    text: str
    line: int
    expected: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)


def commands(block: Block) -> list[Command]:
    """The commands of a console block; a backslash at a line's end goes on in the next."""
    found: list[Command] = []
    goes_on = False
    for number, line in enumerate(block.lines, block.line + 1):
        prompt = _PROMPT.match(line)
        if goes_on:
            found[-1].text += "\n" + line
            found[-1].line = number + 1
        elif prompt:
            found.append(Command(prompt["host"], prompt["command"], number + 1))
        else:
            assert found, f"line {number} of a console block has no prompt: {line}"
            found[-1].expected.append(line)
        goes_on = (goes_on or prompt is not None) and line.endswith("\\")
    return found


def matches(printed: list[str], expected: list[str]) -> bool:
    """Whether text is what a document shows; `...` is anything.

    Where lines break is nothing, and neither is a warning that links were late.
    """
    text, pattern = (" ".join(" ".join(lines).split()) for lines in (printed, expected))
    text = _LATE.sub("", text)
    return (
        re.fullmatch(".*?".join(re.escape(part) for part in pattern.split("...")), text) is not None
    )


class Workplace:
    """A document's folder, in which its blocks run one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = str(free.getsockname()[1])
        self.names: dict[str, object] = {"__name__": "__main__"}
        folder.mkdir(exist_ok=True)
        self._link_examples(folder)
        tools = folder / ".tools"
        tools.mkdir()
        (tools / "scp").write_text(SCP)
        (tools / "scp").chmod(0o755)
        path = (str(Path(sys.executable).parent), str(tools), os.environ["PATH"])
        self.environment = os.environ | {"PATH": os.pathsep.join(path), "NO_COLOR": "1"}

    def host(self, name: str) -> Path:
        """The folder of a host, or of the document where the prompt has no name."""
        place = self.folder / name
        if not place.is_dir():
            place.mkdir()
            self._link_examples(place)
        return place

    def write(self, name: str, text: str) -> None:
        """The file of a block; NAME may begin with a host's folder."""
        host, _, rest = name.rpartition("/")
        (self.host(host) / rest).write_text(self._here(text))

    def run_python(self, block: Block, document: Path) -> None:
        """Runs a block in the namespace of the document's blocks before it."""
        code = compile("\n" * block.line + block.text, str(document), "exec")
        exec(code, self.names)

    def run_console(self, block: Block) -> list[Command]:
        """Runs a block's commands, each host's in order, and notes what they print.

        Raises:
            AssertionError: a command fails, or takes too long.
        """
        found = commands(block)
        hosts = {command.host: [c for c in found if c.host == command.host] for command in found}
        with ThreadPoolExecutor(len(hosts)) as threads:
            list(threads.map(self._run_on, hosts, hosts.values()))
        return found

    def _run_on(self, host: str, own: list[Command]) -> None:
        script = "".join(f"{self._here(c.text)}\necho '{END_OF_COMMAND}'\n" for c in own)
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script + "wait\n"],
            cwd=self.host(host),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, (
            f"{own[0].text} ...: exit code {done.returncode}\n{done.stdout}"
        )
        printed = done.stdout.split(END_OF_COMMAND + "\n")
        for command, text in zip(own, printed, strict=False):
            command.printed = text.splitlines()

    def _here(self, text: str) -> str:
        return _PORT.sub(self.port, _ADDRESS.sub("127.0.0.", text))

    def _link_examples(self, place: Path) -> None:
        (place / "examples").symlink_to(ROOT / "examples")


def differing(document: Path, place: Workplace) -> Iterator[Command]:
    """Runs a document's blocks; the commands that print something else than is shown."""
    printed = ""
    for block in blocks(document):
        if block.word == "file":
            place.write(block.rest, block.text)
        elif block.word == "from":
            _check_excerpt(block, ROOT / block.rest, f"{document.name}, line {block.line}")
        elif block.word == "not run":
            continue
        elif block.language == "console":
            ran = place.run_console(block)
            yield from (c for c in ran if c.expected and not matches(c.printed, c.expected))
        elif block.language == "python":
            with redirect_stdout(io.StringIO()) as output:
                place.run_python(block, document)
            printed = output.getvalue()
        elif block.language == "text" and block.follows and printed:
            shown = Command("", "the block above", block.line + 1, list(block.lines))
            shown.printed = printed.splitlines()
            if not matches(shown.printed, shown.expected):
                yield shown


def _check_excerpt(block: Block, source: Path, where: str) -> None:
    """Holds that a file has the block's stretches of lines, in this order."""
    text = source.read_text()
    at = 0
    for part in re.split(r"^ *(?:# )?\.\.\.\n", block.text, flags=re.MULTILINE):
        found = text.find(part.strip("\n"), at)
        assert found >= 0, f"{where}: {source.relative_to(ROOT)} has not the lines\n{part}"
        at = found + len(part.strip("\n"))


def update(document: Path, differing: list[Command]) -> None:
    """Puts what was printed in place of what is shown; what `...` stood for is then there too."""
    lines = document.read_text().splitlines()
    for command in sorted(differing, key=lambda c: -c.line):
        first = command.line - 1
        lines[first : first + len(command.expected)] = [p.rstrip() for p in command.printed]
    document.write_text("\n".join(lines) + "\n")


def main(names: list[str]) -> None:
    """Brings documents up to date, by their paths."""
    for document in map(Path.resolve, map(Path, names)):
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            update(document, list(differing(document, Workplace(Path(folder)))))


if __name__ == "__main__":
    main(sys.argv[1:])

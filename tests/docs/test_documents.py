"""What the documents show is what happens: examples run, paths exist, numbers are the program's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import (
    DIRECTIVES,
    ROOT,
    Command,
    Workplace,
    blocks,
    differing,
    documents,
    matches,
    update,
)
from sentences import sentences

from veilgraph.measuring.lateness import LinkSeconds
from veilgraph.passes.pipeline import PIPELINE

RUNNABLE = ("python", "console")
WIDTH = 120
LINK = re.compile(r"(?<!!)\[[^]]*\]\((?P<target>[^)\s]+)\)|!\[[^]]*\]\((?P<image>[^)\s]+)\)")
QUOTED = re.compile(r"`([^`\s]+)`")
ELSEWHERE = re.compile(r"(?<![\w.:/@-])/(work|tmp|root|home|mnt|opt|usr|var)/")
FOLDERS = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith(".")}

each_document = pytest.mark.parametrize(
    "document", documents(), ids=lambda p: str(p.relative_to(ROOT))
)


@each_document
def test_examples_do_what_is_shown(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = list(differing(document, Workplace(tmp_path)))
    assert not wrong, "\n".join(_difference(document, command) for command in wrong)


def _difference(document: Path, command: Command) -> str:
    shown, printed = "\n".join(command.expected), "\n".join(command.printed)
    return (
        f"{document.name}, line {command.line}: {command.text}\n"
        f"the document shows\n{shown}\nand it prints\n{printed}\n"
    )


@each_document
def test_examples_are_run_or_say_why_not(document: Path) -> None:
    for block in blocks(document):
        where = f"{document.name}, line {block.line}"
        assert block.language, f"{where}: a block without a language"
        assert block.word in ("", *DIRECTIVES), f"{where}: no such word: {block.word}"
        quiet = block.word or block.language in (*RUNNABLE, "text")
        assert quiet, f"{where}: {block.language} is not run, and no comment says why"


@each_document
def test_links_lead_somewhere(document: Path) -> None:
    for match in LINK.finditer(_prose(document)):
        target = (match["target"] or match["image"]).partition("#")
        if target[0].startswith(("https://", "mailto:")):
            continue
        path = document.parent / target[0] if target[0] else document
        assert path.exists(), f"{document.name}: {target[0]}"
        if target[2]:
            assert target[2] in _anchors(path), f"{document.name}: {target[0]}#{target[2]}"


def _anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_document
def test_named_paths_exist(document: Path) -> None:
    for name in QUOTED.findall(_prose(document)):
        if "/" in name and name.split("/")[0] in FOLDERS:
            # `ir/graph`, an entry of a plan, may pass for ir/graph/program.py.
            path = re.sub(r"<\w+>", "*", name.rstrip("/"))
            found = [*ROOT.glob(path), *ROOT.glob(f"{path}.*")]
            assert found, f"{document.name} names {name}"


@each_document
def test_no_path_of_one_machine(document: Path) -> None:
    found = ELSEWHERE.search(document.read_text())
    assert found is None, f"{document.name} names {found and found.group()}"


@each_document
def test_prose_is_wrapped(document: Path) -> None:
    for number, line in enumerate(_prose(document).splitlines(), 1):
        exempt = line.lstrip().startswith("|") or "](" in line
        assert exempt or len(line) <= WIDTH, f"{document.name}, line {number} is too long"


def test_the_table_of_passes_is_in_order() -> None:
    rows = _rows(ROOT / "docs" / "passes.md", "| pass |")
    assert [row[0].strip("`") for row in rows] == [*(name for name, _, _ in PIPELINE), "emit_plan"]


def _rows(document: Path, heading: str) -> Iterator[list[str]]:
    """The cells of each row of the table with this heading."""
    lines = document.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(heading))
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def _prose(document: Path) -> str:
    """The document with the lines of its blocks left empty."""
    lines = document.read_text().splitlines()
    for block in blocks(document):
        for number in range(block.line, block.line + len(block.lines)):
            lines[number] = ""
    return "\n".join(lines)


def test_what_is_not_so_is_seen(tmp_path: Path) -> None:
    document = tmp_path / "wrong.md"
    document.write_text(
        "```console\n$ echo one\none\n$ echo 'two  words'\n... words\n$ echo 3\n4\n```\n"
    )
    (wrong,) = differing(document, Workplace(tmp_path))
    assert (wrong.line, wrong.printed, wrong.expected) == (7, ["3"], ["4"])
    update(document, [wrong])
    assert list(differing(document, Workplace(tmp_path / "again"))) == []


def test_a_machine_may_be_busy() -> None:
    seconds = LinkSeconds("lan", 0.001, 0.132, 0.0)
    late = seconds.sentence.split()
    assert matches([*late, "logits: 1"], ["logits: 1"])
    assert not matches([*late, "logits: 1"], ["logits: 2"])


def test_a_command_that_fails_is_seen(tmp_path: Path) -> None:
    document = tmp_path / "failing.md"
    document.write_text("```console\nalice$ exit 3\nbob$ echo fine\n```\n")
    with pytest.raises(AssertionError, match="exit code 3"):
        list(differing(document, Workplace(tmp_path)))


def test_sentences_are_counted_without_code_and_tables() -> None:
    text = (
        "# A heading of four words\n\nOne `a b c` two. Three\nfour five! [Six](x.md) of 3.5.\n\n"
        "| a | table |\n\n```text\nfenced. Code.\n```\n- an entry\n- another one, in\n  two lines\n"
    )
    counted = [(each.words, each.text) for each in sentences(text)]
    assert counted == [
        (3, "One `a b c` two."),
        (3, "Three four five!"),
        (3, "Six of 3.5."),
        (2, "an entry"),
        (5, "another one, in two lines"),
    ]

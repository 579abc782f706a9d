"""The first hour: its page is short enough, and the script that walks it sees what is wrong.

What the page's commands print is held by test_documents.py.
"""

from __future__ import annotations

from pathlib import Path

import first_hour
import pytest
from documents import ROOT, blocks, commands

SMALL = """\
<!-- not run: it clones -->
```console
$ git clone REPOSITORY copy && mkdir -p veilgraph/.venv/bin && cp copy/greet veilgraph/.venv/bin
```

<!-- file: name -->
```text
world
```

```console
$ greet hello
hello world
$ echo {more}
more
```
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository of one script."""
    folder = tmp_path / "source"
    folder.mkdir()
    greet = folder / "greet"
    greet.write_text("#!/bin/sh\necho $1 $(cat name)\n")
    greet.chmod(0o755)
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "."), (*author, "commit", "-qm", "greet")):
        first_hour.subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def walked(tmp_path: Path, source: Path, text: str, *options: str) -> int:
    page = tmp_path / "page.md"
    page.write_text(text)
    return first_hour.main(["--page", str(page), "--source", str(source), *options])


def test_nine_commands_lead_from_a_clone_to_an_answer() -> None:
    found = [
        c.text for b in blocks(first_hour.PAGE) if b.language == "console" for c in commands(b)
    ]
    assert len(found) <= first_hour.MOST_COMMANDS < 10
    assert found[0].startswith("git clone ")
    assert [text.split()[:2] for text in found[-3:]] == [["veilgraph", "run"]] * 3
    assert "docs/first-hour.md" in (ROOT / "README.md").read_text()


def test_a_clone_is_made_and_its_commands_are_run(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert walked(tmp_path, source, SMALL.format(more="more")) == 0
    assert "3 commands, " in capsys.readouterr().out


@pytest.mark.parametrize("limit", ["MOST_COMMANDS", "MOST_SECONDS"])
def test_too_many_and_too_slow_commands_are_seen(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(first_hour, limit, 0)
    assert walked(tmp_path, source, SMALL.format(more="more")) == 1


def test_what_is_printed_otherwise_is_seen(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert walked(tmp_path, source, SMALL.format(more="less")) == 1
    assert "echo less printed\nless\n" in capsys.readouterr().out


def test_installs_are_left_out_on_request(tmp_path: Path, source: Path) -> None:
    with pytest.raises(AssertionError, match="exit code 127"):  # nothing to greet with
        walked(tmp_path, source, SMALL.format(more="more"), "--installed")

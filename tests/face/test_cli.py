"""The command line as a whole: verbs, errors, exit codes, and what it loads."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from verbs import DIGITS, Compiled, reason, run_verb

from veilgraph.commands import VERBS, module_of
from veilgraph.ir.errors import (
    AccuracyError,
    Offender,
    PeerError,
    ResourceLimitError,
    SecurityAbort,
    UnsupportedError,
    UsageError,
    VeilgraphError,
)
from veilgraph.measuring import demo
from veilgraph.measuring.processes import write_configs

HEAVY = ("torch_mlir", "onnx", "onnxruntime", "torch")


def python(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs Python beside this process."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A list: `doctor` raises what is put in it."""
    errors: list[BaseException] = []

    def fail() -> list[object]:
        raise errors[0]

    monkeypatch.setattr(import_module("veilgraph.commands.doctor.verb"), "diagnose", fail)
    return errors


# What is there


def test_the_nearest_verb_and_option_are_named() -> None:
    code, told = reason("complie", "x.onnx")
    assert code == 2
    assert told == (
        "Error: No such verb: complie. Did you mean compile?\n"
        "Hint: `veilgraph --help` says what there is.\n"
    )
    code, told = reason("compile", "x.onnx", "--calibrat", "x.npz")
    assert code == 2
    assert "--calibrate" in told
    assert told.endswith("Hint: `veilgraph compile --help` says what there is.\n")
    assert reason("zzzzz")[1].startswith("Error: No such verb: zzzzz.\n")


def test_a_group_of_verbs_alone_shows_its_help() -> None:
    code, told = reason("cert")
    assert code == 2
    assert told.startswith("Usage: ")
    assert "went wrong" not in told
    assert "issue" in told


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("inspect", "no.plan", "--json"), 2),
        (("inspect", "--jsn", "--json"), 2),
        (("nonsense", "--json"), 2),
        (("compile", "no.onnx", "-o", "no.plan", "--json"), 2),
    ],
)
def test_with_json_errors_are_json_too(arguments: tuple[str, ...], code: int) -> None:
    result = run_verb(*arguments)
    error = json.loads(result.stdout)["error"]
    assert result.exit_code == error["exit_code"] == code
    hint = f"Hint: {error['hint']}\n" if error["hint"] else ""
    assert result.stderr == f"Error: {error['message']}\n{hint}"


def test_exit_codes_are_those_that_help_and_the_document_list() -> None:
    codes = {1, 130, *(kind.exit_code for kind in VeilgraphError.__subclasses__())}
    shown = run_verb("--help").stdout.partition("Exit codes:")[2].partition("Completion")[0]
    assert {int(line.split()[0]) for line in shown.strip().splitlines()} == {0, *codes}
    document = (DIGITS.parents[1] / "docs" / "hosts.md").read_text()
    table = document.partition("| exit code |")[2].partition("\n\n")[0]
    rows = {
        int(cell) for line in table.splitlines() if (cell := line.split("|")[1].strip()).isdigit()
    }
    assert rows == codes


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_verbs_and_options(shell: str) -> None:
    def asked(instruction: str, **typed: str) -> str:
        told = {"_VEILGRAPH_COMPLETE": f"{shell}_{instruction}", **typed}
        call = "from veilgraph.cli import main; main(prog_name='veilgraph')"
        return python("-c", call, env={**os.environ, **told}).stdout

    assert "veilgraph" in asked("source")
    for words, found in (("veilgraph comp", "compile"), ("veilgraph compile --cal", "--calibrate")):
        place = words.split()[-1] if shell == "fish" else str(len(words.split()) - 1)
        assert found in asked("complete", COMP_WORDS=words, COMP_CWORD=place)


def test_every_verb_has_a_module_and_a_summary() -> None:
    listed = run_verb("--help").stdout
    for verb, summary in VERBS.items():
        assert import_module(module_of(verb)).command.name == verb
        assert summary.split(",")[0][:30] in listed
        assert run_verb(verb, "--help").exit_code == 0


def every_command() -> Iterator[tuple[str, click.Command]]:
    for verb in VERBS:
        command = import_module(module_of(verb)).command
        if isinstance(command, click.Group):
            yield from ((f"{verb} {name}", c) for name, c in command.commands.items())
        else:
            yield verb, command


@pytest.mark.parametrize(("name", "command"), list(every_command()), ids=lambda value: str(value))
def test_every_option_is_explained_and_help_ends_with_an_example(
    name: str, command: click.Command
) -> None:
    for parameter in command.params:
        assert not isinstance(parameter, click.Option) or parameter.help, parameter.name
    shown = run_verb(*name.split(), "--help").stdout
    assert f"veilgraph {name}" in shown.rpartition("Example")[2]


@pytest.mark.parametrize("name", [name for name, _ in every_command()])
def test_every_verb_says_more_or_less(name: str) -> None:
    """Behind its name too; asked for help again, it has not got the options twice."""
    for _ in range(2):
        shown = run_verb(*name.split(), "--help").stdout
        assert len(re.findall(r"^ +-v, --verbose ", shown, re.MULTILINE)) == 1
        assert len(re.findall(r"^ +-q, --quiet ", shown, re.MULTILINE)) == 1
        assert len(re.findall(r"^ +--log-json ", shown, re.MULTILINE)) == 1


def test_loudness_is_of_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where the letters are an option's value, nothing is asked for."""
    logger = logging.getLogger("veilgraph.compile")
    step = {"seconds": 0.1}

    def looks() -> list[Any]:
        logger.info("a step", extra=step)
        logger.warning("a warning")
        return []

    monkeypatch.setattr(import_module("veilgraph.commands.doctor.verb"), "diagnose", looks)
    assert run_verb("doctor", "-v").stderr == "a step\na warning\n"
    assert run_verb("doctor", "--quiet").stderr == ""
    assert run_verb("doctor", "-vq").stderr == ""
    assert run_verb("doctor").stderr == "a warning\n"
    assert "a step" not in run_verb("doctor", "--timeout", "-v").stderr


def examples(verb: str) -> list[list[str]]:
    """The commands in a verb's help, its lines joined, without prompts."""
    shown = run_verb(*verb.split(), "--help").stdout.rpartition("Example")[2]
    lines = shown.replace("\\\n", " ").splitlines()
    found = [line.partition("veilgraph ")[2] for line in lines if "veilgraph " in line]
    return [shlex.split(line) for line in found]


@pytest.mark.parametrize(
    "verb",
    ["compile", "inspect", "check", "simulate", "bench", "cert init", "ops", "doctor"],
)
def test_examples_of_help_work(copied: Compiled, verb: str) -> None:
    for arguments in examples(verb):
        if "--config" in arguments:
            continue  # it takes several parties
        result = run_verb(*arguments)
        assert result.exit_code == 0, result.output
        assert result.stdout


def at_once(commands: list[list[str]]) -> list[tuple[str, str, int]]:
    """Runs commands at the same time; output, error and exit code of each."""
    processes = [
        subprocess.Popen([sys.executable, "-m", "veilgraph.cli", *arguments], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for arguments in commands
    ]  # fmt: skip
    return [(*process.communicate(timeout=60), process.returncode) for process in processes]


def test_example_of_measuring_a_link_works(copied: Compiled) -> None:
    write_configs(copied.folder, ("alice", "bob"))
    ended = at_once([each for each in examples("doctor") if "--config" in each])
    assert [code for _, _, code in ended] == [0, 0], ended
    assert run_verb("inspect", "digits.plan", "--network", "link.yaml").exit_code == 0


def test_example_of_renewing_a_certificate_works(copied: Compiled) -> None:
    for arguments in (*examples("cert init"), *examples("cert issue")):
        assert run_verb(*arguments).exit_code == 0


def test_example_of_run_works_for_three_parties(copied: Compiled) -> None:
    write_configs(copied.folder, copied.plan.manifest.parties)
    commands = examples("run")
    assert [arguments[3] for arguments in commands] == ["alice", "bob", "carol"]
    ended = at_once(commands)
    assert [code for _, _, code in ended] == [0, 0, 0], ended
    assert "logits, 1x10: logits.npy" in ended[0][0]
    assert "bob receives no output." in ended[1][0]
    assert (copied.folder / "logits.npy").exists()


def test_example_of_demo_works(
    copied: Compiled, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(demo, "DIGITS", DIGITS)
    for arguments in examples("demo"):
        assert run_verb(*arguments).exit_code == 0
    assert (copied.folder / "out" / "alice.yaml").exists()


# What is loaded


def test_a_party_host_loads_no_compiler() -> None:
    modules = [module_of(verb) for verb in VERBS if verb not in ("check",)]
    code = (
        "import sys; from importlib import import_module; import veilgraph.cli\n"
        "assert 'numpy' not in sys.modules and 'rich' not in sys.modules\n"
        f"for module in {modules}: import_module(module)\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    ended = python("-c", code)
    assert ended.stdout.strip() == "[]", ended.stderr


def test_missing_extra_is_told_with_how_to_install_it(digits: Compiled) -> None:
    code = (
        "import sys; sys.modules['torch_mlir'] = None\n"
        "from veilgraph.cli import main; main(prog_name='veilgraph')"
    )
    arguments = ("compile", digits.file("digits.onnx"), "-o", digits.file("new.plan"))
    ended = python("-c", code, *arguments)
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        "Error: This needs the package torch_mlir, which is not installed.",
        "Hint: pip install 'veilgraph[compile]'",
    ]


def test_installed_script_tells_its_version() -> None:
    script = Path(sys.executable).with_name("veilgraph")
    ended = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=60)
    assert ended.stdout.startswith("veilgraph, version ")


# Errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("It is wrong.", "Do it right."), 2),
        (UnsupportedError([Offender("n", "Op", "m.onnx", "It is odd.")], "Do it right."), 3),
        (AccuracyError("It is off.", "Do it right."), 4),
        (PeerError("bob is gone.", "Do it right."), 5),
        (SecurityAbort("A replay.", "Do it right."), 6),
        (ResourceLimitError("Too large.", "Do it right."), 7),
    ],
)
def test_errors_are_told_in_a_sentence_and_a_hint(
    failing: list[BaseException], error: Exception, code: int
) -> None:
    failing.append(error)
    found, told = reason("doctor")
    assert found == code
    message = str(error).removesuffix("\nDo it right.")
    assert told == f"Error: {message}\nHint: Do it right.\n"


def test_error_without_a_hint_is_one_line(failing: list[BaseException]) -> None:
    failing.append(UsageError("It is wrong."))
    assert reason("doctor") == (2, "Error: It is wrong.\n")


def test_bug_is_told_in_a_sentence(failing: list[BaseException]) -> None:
    failing.append(ValueError("first\nsecond"))
    code, told = reason("doctor")
    assert code == 1
    assert told.splitlines() == [
        "Error: Something went wrong inside veilgraph (ValueError: first second).",
        "Hint: This is a bug: `veilgraph --traceback VERB ...` shows where, for the report.",
    ]


def test_traceback_is_shown_on_request(failing: list[BaseException]) -> None:
    failing.append(UsageError("It is wrong."))
    result = run_verb("--traceback", "doctor")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("Error: It is wrong.\n")


def test_out_of_memory_is_a_lack_of_resources(failing: list[BaseException]) -> None:
    failing.append(MemoryError())
    code, told = reason("doctor")
    assert code == 7
    assert "ran out of memory" in told


def test_interruption_is_no_error(failing: list[BaseException]) -> None:
    failing.append(KeyboardInterrupt())
    assert reason("doctor") == (130, "Interrupted.\n")


def test_a_reader_that_leaves_is_no_error() -> None:
    command = f"{shlex.quote(sys.executable)} -m veilgraph.cli ops --json | head -c 1"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert ended.stdout == "{"
    assert ended.stderr == ""


def test_unknown_verb_and_option_are_usage_errors() -> None:
    assert reason("frobnicate")[0] == 2
    assert reason("doctor", "--frobnicate")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("compile x.onnx --shape x=1,3", "--shape: `1,3` is no shape like 1x3x224x224, of numbers"),
        ("compile x.onnx --shape x=0x3", "--shape: `0x3` is no shape like 1x3x224x224, of numbers"),
        ("compile x.onnx --shape 1x3", "--shape: `1x3` should read NAME=..., without spaces."),
        ("compile x.onnx --shape", "--shape needs a value."),
        ("compile x.onnx --json=yes", "--json takes no value."),
        ("compile x.onnx --frac-bits many", "--frac-bits: `many` is no whole number."),
        ("compile x.onnx --goal speed", "There is no option --goal."),
        ("compile x.onnx --protocols least", "--protocols: `least` is none of auto, least-bytes,"),
        ("inspect x.plan --ir grap", "party, plan. Did you mean graph?"),
        ("inspect", "PLAN is missing."),
        ("inspect x.plan y.plan", "There is no place for `y.plan`."),
        ("run x.plan --party a --config b --iterations 0", "--iterations: 0 is not at least 1 and"),
        ("run x.plan --party a --config b --iterations x", "--iterations: `x` is no whole number."),
        ("check x.plan --tolerance little", "--tolerance: `little` is no number."),
        ("check x.plan --tolerance -1", "--tolerance: -1 is not at least 0."),
        ("cert shwo", "No such verb: cert shwo."),
    ],
)
def test_a_bad_command_line_is_told_in_words_of_ours(arguments: str, sentence: str) -> None:
    code, told = reason(*arguments.split())
    assert code == 2
    first, hint = told.splitlines()
    assert first.startswith("Error: ")
    assert sentence in first
    assert hint.startswith("Hint: ")
    assert not re.search("Invalid value|Missing|not a valid|unexpected|<=", told)


def test_json_stays_alone_on_standard_output(digits: Compiled) -> None:
    plan = digits.file("second.plan")
    shape = ("--shape", "image=1x1x28x28")
    result = run_verb("compile", digits.file("digits.onnx"), "-o", plan, *shape, "--json")
    assert json.loads(result.stdout)["plan"] == plan
    assert "alice owns image" in result.stderr

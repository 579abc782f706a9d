"""What packaging/ has for a host: held to the command line, and to what the tools say of it."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from veilgraph.cli import main
from veilgraph.commands import module_of

PACKAGING = Path(__file__).parents[2] / "packaging"
UNIT = PACKAGING / "systemd" / "veilgraph@.service"
CONTAINER = PACKAGING / "container"


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """What a verb takes a command line for, without running it."""
    context = main.make_context("veilgraph", list(words), resilient_parsing=False)
    verb, *rest = context.protected_args + context.args
    command: click.Command = import_module(module_of(verb)).command
    return {"verb": verb, **command.make_context(verb, rest).params}


def unit() -> configparser.SectionProxy:
    text = UNIT.read_text().replace("\\\n", " ")
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser["Service"]


def test_the_unit_serves() -> None:
    binary, *words = shlex.split(unit()["ExecStart"].replace("%i", "alice"))
    found = parsed(words)
    assert binary.endswith("/bin/veilgraph")
    assert (found["verb"], found["party"]) == ("serve", "alice")
    assert found["config_file"] == Path("/etc/veilgraph/alice.yaml")
    assert "HUP" in unit()["ExecReload"]


def test_the_unit_keeps_memory_off_disks() -> None:
    assert unit()["LimitCORE"] == "0"
    assert unit()["MemorySwapMax"] == "0"
    assert unit()["StateDirectoryMode"] == "0700"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_knows_every_line_of_the_unit(tmp_path: Path) -> None:
    """And rates how little of the system the process can reach: 10 is all of it, 0 nothing."""
    binary = tmp_path / "veilgraph"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    file = tmp_path / "veilgraph@alice.service"
    file.write_text(UNIT.read_text().replace("/opt/veilgraph/bin/veilgraph", str(binary)))
    analyze = ["systemd-analyze", "--man=no"]
    told = subprocess.run([*analyze, "verify", file], capture_output=True, text=True).stderr
    assert "veilgraph" not in told
    command = [*analyze, "security", "--offline=true", "--threshold=20", file]
    rated = subprocess.run(command, capture_output=True, text=True)
    assert not rated.returncode, rated.stdout


def test_containers_run_what_there_is() -> None:
    services = yaml.safe_load((CONTAINER / "compose.yaml").read_text())["services"]
    verbs = {name: parsed(each["command"]) for name, each in services.items()}
    assert {name: each["verb"] for name, each in verbs.items()} == {
        "alice": "serve", "bob": "serve", "carol": "serve", "patient": "infer"
    }  # fmt: skip
    assert all(verbs[name]["party"] == name for name in ("alice", "bob", "carol"))
    for name, each in services.items():
        assert each["cap_drop"] == ["ALL"]
        assert each["ulimits"]["core"] == 0
        assert each["memswap_limit"] == each["mem_limit"]
        own = [volume for volume in each["volumes"] if "parties/" in volume]
        assert own == [f"./parties/{name}:/etc/veilgraph:ro"]
        assert (CONTAINER / each["build"]["context"] / each["build"]["dockerfile"]).exists()


def test_the_image_has_no_key_of_its_builder() -> None:
    ignored = (CONTAINER / "Dockerfile.dockerignore").read_text().split()
    secret = {
        line for line in (PACKAGING.parent / ".gitignore").read_text().split() if "*." in line
    }
    assert {f"**/{kind}" for kind in ("*.key", "*.shares", "*.weights")} <= set(ignored)
    assert {"*.key", "*.shares", "*.weights"} <= secret
    text = (CONTAINER / "Dockerfile").read_text()
    assert "USER veilgraph" in text
    assert "STOPSIGNAL SIGTERM" in text

"""What verbs load: nothing of the compiler at a party's, and little before anything is asked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest
from verbs import Compiled

from veilgraph.measuring.processes import write_configs
from veilgraph.verification.consent import accepting_lines
from veilgraph.verification.verify import verify

SCRIPT = """
import sys
from veilgraph.cli import main

try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert not ended.code, ended.code
print("loaded:", *sys.modules)
"""
# Of other packages: the compiler's, and what only a terminal or a GPU needs.
COMPILER = {"torch", "torch_mlir", "onnx", "onnxruntime", "scipy", "pandas"}
HEAVY = COMPILER | {"rich", "pycuda"}
COMPILING = {"veilgraph.frontend", "veilgraph.compilation.compile", "veilgraph.passes.pipeline"}
VERIFYING = {"veilgraph.verification.verify", "veilgraph.ir.party", "veilgraph.targets.suites"}


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe)


def loaded(*processes: subprocess.Popen[str]) -> list[set[str]]:
    """The modules that each process has loaded at its end."""
    ended = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), ended
    return [set(out.rpartition("loaded:")[2].split()) for out, _ in ended]


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("doctor",)])
def test_what_computes_nothing_loads_no_numbers(arguments: Sequence[str]) -> None:
    (found,) = loaded(start(*arguments))
    assert not found & (HEAVY | COMPILING | VERIFYING)
    assert not found & {"numpy", "cryptography", "yaml", "safetensors"}
    assert "veilgraph.cli" in found


def test_a_party_loads_no_compiler_and_verifies_a_plan_once(copied: Compiled) -> None:
    """Nor does it where its configuration says what it consents to."""
    write_configs(copied.folder, ("alice", "bob", "carol"))
    accepting = accepting_lines(copied.plan, verify(copied.plan))
    with (copied.folder / "carol.yaml").open("a") as file:
        file.write("\n".join([*accepting, ""]))
    own = {
        "alice": ("--input", "image=@image.npy"),
        "bob": ("--weights", "digits.weights"),
        "carol": (),
    }

    def run() -> list[set[str]]:
        return loaded(
            *(
                start("run", "digits.plan", "--party", name, "--config", f"{name}.yaml", *more)
                for name, more in own.items()
            )
        )

    for found in run():
        assert not found & (HEAVY | COMPILING)
        assert found >= VERIFYING
    for found in run():
        assert not found & (HEAVY | COMPILING | VERIFYING)
        assert not {name for name in found if name.startswith("veilgraph.kernels.cuda")}
        assert "veilgraph.session" in found

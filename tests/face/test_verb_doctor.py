"""`veilgraph doctor`: what is found, and what is advised where something lacks."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from verbs import Compiled, json_of, run_verb

from veilgraph.checks import diagnosis
from veilgraph.checks.diagnosis import Finding, diagnose
from veilgraph.ir.errors import UsageError
from veilgraph.kernels import KERNELS
from veilgraph.runtime.devices.costs import Copies, Costs, Step, form_of
from veilgraph.runtime.devices.cuda.driver import Card


def finding(what: str) -> Finding:
    return next(found for found in diagnose() if found.what == what)


def test_shows_a_line_a_finding() -> None:
    result = run_verb("doctor")
    assert result.exit_code == 0
    for found in diagnose():
        status = "ok" if found.is_ok else "warn"
        assert any(line.startswith(status) and found.what in line
                   for line in result.stdout.splitlines())  # fmt: skip


def test_json_says_what_to_do() -> None:
    findings = json_of("doctor")["findings"]
    assert {"what", "found", "advice", "ok"} == set(findings[0])
    assert all(found["ok"] == (found["advice"] == "") for found in findings)


def test_this_machine_can_compile_and_run() -> None:
    needed = ("Python", "veilgraph", "kernels", "native machine", "TLS", "numpy", "extra compile")
    assert all(finding(what).is_ok for what in needed)


@pytest.mark.parametrize(
    ("what", "name", "value", "advice"),
    [
        ("Python", "sys.version_info", (3, 10), "Use 3.11 or newer."),
        ("TLS", "ssl.HAS_TLSv1_3", False, "Links need TLS 1.3"),
        ("kernels", "supported", lambda: ("portable",), "A processor with AVX2"),
        ("native machine", "importlib.util.find_spec", lambda name: None, "Install veilgraph"),
        ("numpy", "_version", lambda name: None, "Install veilgraph again."),
        ("extra compile", "_version", lambda name: None, "pip install 'veilgraph[compile]'"),
        ("free memory", "_lines", lambda path: ["MemAvailable: 1000 kB"], "Large models need"),
        ("free memory", "_lines", lambda path: [], "Look yourself"),
    ],
)
def test_what_lacks_is_advised_on(
    monkeypatch: pytest.MonkeyPatch, what: str, name: str, value: Any, advice: str
) -> None:
    monkeypatch.setattr(f"veilgraph.checks.diagnosis.{name}", value)
    makers: dict[str, Callable[[], Finding]] = {
        "Python": diagnosis._python,
        "TLS": diagnosis._tls,
        "kernels": diagnosis._kernels,
        "native machine": diagnosis._machine,
        "numpy": lambda: diagnosis._package("numpy"),
        "extra compile": lambda: diagnosis._extra("compile"),
        "free memory": diagnosis._memory,
    }
    found = makers[what]()
    assert not found.is_ok
    assert advice in found.advice


def test_kernels_that_can_not_be_loaded_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> tuple[str, ...]:
        raise OSError("libveil_portable.so: cannot open shared object file")

    monkeypatch.setattr(diagnosis, "supported", broken)
    found = diagnosis._kernels()
    assert found.found == "can't be loaded: libveil_portable.so: cannot open shared object file"
    assert found.advice == "Install veilgraph again."


def test_no_gpu_is_no_fault_and_a_gpu_out_of_reach_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable() -> Any:
        raise UsageError("A GPU is reached through pycuda.", "pip install it.")

    monkeypatch.setattr(diagnosis, "load_pycuda", unreachable)
    monkeypatch.setattr(Path, "glob", lambda path, pattern: iter([]))
    assert diagnosis._gpu() == Finding("GPU", "none: A GPU is reached through pycuda.")
    monkeypatch.setattr(Path, "glob", lambda path, pattern: iter(["0000:00:04.0"]))
    assert diagnosis._gpu() == Finding(
        "GPU", "1: A GPU is reached through pycuda.", "pip install it."
    )


def test_cards_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card("NVIDIA H200", "sm_90", 132, 139 << 30)
    monkeypatch.setattr(diagnosis, "load_pycuda", lambda: None)
    monkeypatch.setattr(diagnosis, "list_cards", lambda cuda: [card, card])
    told = "NVIDIA H200, sm_90, 139 GiB"
    assert diagnosis._gpu() == Finding("GPU", f"{told}; {told}")


def test_the_compiler_for_gpus_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "find_nvcc", lambda: None)
    assert "absent" in diagnosis._nvcc().found
    monkeypatch.setattr(diagnosis, "find_nvcc", lambda: Path("/cuda/nvcc"))
    assert diagnosis._nvcc() == Finding("nvcc", "/cuda/nvcc")


def test_nothing_on_this_machine_is_changed(tmp_path: Path) -> None:
    before = (ssl.OPENSSL_VERSION, sorted(tmp_path.iterdir()))
    assert diagnose() == diagnose() or finding("free memory")
    assert (ssl.OPENSSL_VERSION, sorted(tmp_path.iterdir())) == before


# What steps cost


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The table of costs, of a user without any; on a machine without a GPU."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("veilgraph.commands.doctor.first_card", lambda: None)
    return tmp_path / "veilgraph" / "costs.json"


def test_steps_are_measured(digits: Compiled, cache: Path) -> None:
    result = run_verb("doctor", "--tune", digits.file("digits.plan"))
    assert result.exit_code == 0
    assert "kinds of steps" in result.stdout
    assert all(kernel in result.stdout for kernel in ("fused", "matmul", "conv2d"))
    assert f"The table of costs is {cache}." in result.stderr
    before = cache.read_text()
    found = json_of("doctor", "--tune", digits.file("digits.plan"))
    assert found["table"] == str(cache)
    assert found["parties"] == []
    assert found["kernels"]["conv2d"]["cpu"] > 0
    assert cache.read_text() == before  # nothing is measured twice


def test_a_card_is_measured_beside_the_processor(
    digits: Compiled, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(plan: Any, devices: Any, costs: Costs, tell: Any) -> Costs:
        assert devices == ["cuda:1"]
        steps = {
            form_of(plan.party(party), number): Step("fused", 8, {"cpu": 2.0, "cuda:1": 1.0})
            for party in plan.manifest.parties
            for number, row in enumerate(plan.party(party).steps)
            if row["kernel"] < len(KERNELS)
        }
        return replace(costs, steps=steps, devices={"cuda:1": Copies("NVIDIA H200", 1e-6, 1e10)})

    monkeypatch.setattr("veilgraph.commands.doctor.measure", measured)
    result = run_verb("doctor", "--tune", digits.file("digits.plan"), "--device", "cuda:1")
    assert result.exit_code == 0
    assert "0 steps on the processor, " in result.stdout
    found = json_of("doctor", "--tune", digits.file("digits.plan"), "--device", "cuda:1")
    alice = found["parties"][0]
    assert alice["party"] == "alice"
    assert alice["placed_seconds"] < alice["host_seconds"]
    assert alice["on_host"] == {}


def test_a_table_of_another_format_is_made_anew(digits: Compiled, cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text('{"version": 0}')
    result = run_verb("doctor", "--tune", digits.file("digits.plan"), "--threads", "2")
    assert result.exit_code == 0
    assert "is of format 0, and this is 1. It is made anew." in result.stderr
    assert Costs.load(cache).threads == 2


def test_a_device_is_for_tuning(digits: Compiled) -> None:
    result = run_verb("doctor", "--device", "cuda:0")
    assert result.exit_code == 2
    assert "--device says what --tune measures." in result.stderr
    result = run_verb("doctor", "--tune", digits.file("digits.plan"), "--device", "gpu")
    assert result.exit_code == 2
    assert "There is no device `gpu`." in result.stderr


def test_the_first_card_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable() -> Any:
        raise UsageError("A GPU is reached through pycuda.")

    monkeypatch.setattr(diagnosis, "load_pycuda", lambda: None)
    assert diagnosis.first_card() == "cuda:0"
    monkeypatch.setattr(diagnosis, "load_pycuda", unreachable)
    assert diagnosis.first_card() is None

"""`veilgraph doctor`: what is found, and what is advised where something lacks."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from verbs import Compiled, json_of, reason, run_verb

from veilgraph.checks import diagnosis
from veilgraph.checks.diagnosis import Finding, diagnose
from veilgraph.commands.doctor import measured_links
from veilgraph.ir.errors import UsageError
from veilgraph.kernels import KERNELS
from veilgraph.measuring.processes import write_configs
from veilgraph.runtime.devices.costs import Copies, Costs, Step, form_of
from veilgraph.runtime.devices.cuda.drivers.gpus import Gpu
from veilgraph.runtime.links.measuring import Rates
from veilgraph.targets.networks import Network, network


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
    needed = (
        "Python",
        "veilgraph",
        "kernels",
        "native interpreter",
        "TLS",
        "numpy",
        "extra compile",
    )
    assert all(finding(what).is_ok for what in needed)


@pytest.mark.parametrize(
    ("what", "name", "value", "advice"),
    [
        ("Python", "sys.version_info", (3, 10), "Use 3.11 or newer."),
        ("TLS", "ssl.HAS_TLSv1_3", False, "Links need TLS 1.3"),
        ("kernels", "supported", lambda: ("portable",), "A processor with AVX2"),
        ("native interpreter", "importlib.util.find_spec", lambda name: None, "Install veilgraph"),
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
        "native interpreter": diagnosis._interpreter,
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


def test_gpus_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu("NVIDIA H200", "sm_90", 132, 139 << 30)
    monkeypatch.setattr(diagnosis, "load_pycuda", lambda: None)
    monkeypatch.setattr(diagnosis, "list_gpus", lambda cuda: [gpu, gpu])
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
    monkeypatch.setattr("veilgraph.commands.doctor.verb.first_gpu", lambda: None)
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


def test_a_gpu_is_measured_beside_the_processor(
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

    monkeypatch.setattr("veilgraph.commands.doctor.tuned_costs.measure", measured)
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


def test_the_first_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable() -> Any:
        raise UsageError("A GPU is reached through pycuda.")

    monkeypatch.setattr(diagnosis, "load_pycuda", lambda: None)
    assert diagnosis.first_gpu() == "cuda:0"
    monkeypatch.setattr(diagnosis, "load_pycuda", unreachable)
    assert diagnosis.first_gpu() is None


# Links

FOUND = {
    ("alice", "bob"): Rates(0.0401234, 12_345_678.0),
    ("bob", "alice"): Rates(0.0412, 11_000_000.0),
}


@pytest.fixture
def parties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, the current one, with a configuration for alice, bob and carol."""
    write_configs(tmp_path, ("alice", "bob", "carol"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers who come at once, over links that do what FOUND says."""
    monkeypatch.setattr(measured_links, "measure_links", lambda config: FOUND)


def start(party: str, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "veilgraph.cli", "doctor", "--config", f"{party}.yaml", *more]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe)


def test_two_parties_measure_their_link(parties: Path) -> None:
    processes = [
        start("alice", "--peer", "bob", "--write-network", "link.yaml"),
        start("bob", "--peer", "alice", "--json"),
    ]
    (shown, told), (found, _) = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], told
    links = json.loads(found)["links"]
    assert set(links) == {"alice->bob", "bob->alice"}
    assert "alice -> bob" in shown
    assert "give it to `compile --network`" in told
    written = network("link.yaml")
    rates = [each["bytes_per_second"] for each in links.values()]
    assert written.bytes_per_second == pytest.approx(min(rates), rel=0.01)
    assert json.loads(found)["bytes_per_second"] == written.bytes_per_second
    trips = [each["round_trip_seconds"] for each in links.values()]
    assert written.round_trip_seconds == pytest.approx(max(trips), rel=0.01)


def test_all_parties_are_measured_if_none_is_named(parties: Path) -> None:
    processes = [start(party, "--json") for party in ("alice", "bob", "carol")]
    found = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert json.loads(found[0]) == json.loads(found[1]) == json.loads(found[2])
    assert len(json.loads(found[0])["links"]) == 6


def test_the_slowest_figures_are_written(parties: Path, measured: None) -> None:
    arguments = ("--config", "alice.yaml", "--peer", "bob", "--write-network", "link.yaml")
    result = run_verb("doctor", *arguments)
    assert result.exit_code == 0
    assert "alice -> bob" in result.stdout
    assert "40.1 ms" in result.stdout
    assert "12.3 MB/s" in result.stdout
    assert network("link.yaml") == Network("link", 11_000_000.0, 0.0412)
    assert "alice -> bob: 1.23e+07, 0.0401" in Path("link.yaml").read_text()
    assert run_verb("doctor", *arguments).exit_code == 0  # a network's file may be measured anew


def test_links_that_nobody_measured_are_told(parties: Path, measured: None) -> None:
    result = run_verb("doctor", "--config", "alice.yaml")
    assert "The link between alice and carol was not measured." in result.stderr
    assert "The link between bob and carol was not measured." in result.stderr
    assert "alice and bob was" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentences"),
    [
        (("--peer", "bop"), ("--peer names `bop`,", "Did you mean bob?", "name: bob, carol.")),
        (("--peer", "alice"), ("alice is this party itself.", "Name bob or carol.")),
        (
            ("--write-network", "alice.yaml"),
            ("alice.yaml is read here, and would be overwritten.",),
        ),
        (("--write-network", "bob.yaml"), ("is there already, and describes no network.",)),
        (("--write-network", "alice.key"), ("is there already, and describes no network.",)),
        (("--write-network", "no/link.yaml"), ("There is no directory no.",)),
        (("--write-network", "."), ("is a directory.",)),
        (("--timeout", "nan"), ("at most 86400, not nan.",)),
        (("--tune", "digits.plan"), ("--config measures links, and --tune steps.",)),
    ],
)
def test_what_makes_no_sense_is_told_before_anyone_is_waited_for(
    parties: Path, arguments: tuple[str, ...], sentences: tuple[str, ...]
) -> None:
    before = {file: file.read_bytes() for file in parties.iterdir()}
    code, told = reason("doctor", "--config", "alice.yaml", *arguments)
    assert code == 2
    assert all(sentence in told for sentence in sentences), told
    assert "Waiting" not in told
    assert {file: file.read_bytes() for file in parties.iterdir()} == before


@pytest.mark.parametrize(
    "option", [("--peer", "bob"), ("--write-network", "x"), ("--timeout", "1")]
)
def test_links_are_measured_with_a_configuration(option: tuple[str, str]) -> None:
    code, told = reason("doctor", *option)
    assert code == 2
    assert "Give this party's parties.yaml with --config too." in told


def test_nobody_answers(parties: Path) -> None:
    arguments = ("--timeout", "0.3", "--write-network", "link.yaml")
    code, told = reason("doctor", "--config", "alice.yaml", "--peer", "bob", *arguments)
    assert code == 5
    assert "who run `veilgraph doctor --config FILE --peer alice`" in told
    assert "No link to bob (127.0.0.1:" in told
    assert "within 0.3 seconds" in told
    assert not Path("link.yaml").exists()


def test_a_certificate_that_is_not_the_peers(parties: Path) -> None:
    pinned = f"fingerprint: {'ab' * 32}"
    text = Path("bob.yaml").read_text().replace("certificate: alice.crt", pinned)
    Path("bob.yaml").write_text(text)
    alice = start("alice", "--peer", "bob", "--timeout", "20")
    bob = start("bob", "--peer", "alice", "--timeout", "20")
    try:
        _, told = bob.communicate(timeout=60)
    finally:
        alice.kill()
        alice.communicate()
    assert bob.returncode == 5
    assert "is not alice: it showed a certificate" in " ".join(told.split())


def test_a_disk_that_is_full(
    parties: Path, measured: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    code, told = reason("doctor", "--config", "alice.yaml", "--write-network", "link.yaml")
    assert code == 7
    assert "link.yaml can't be written: No space left on device." in told
    assert not list(parties.glob("*link*"))

"""Machine code by content: where it is looked for, who may have written it, and what makes it."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from veilgraph.ir.errors import UsageError
from veilgraph.kernels.cuda import Source
from veilgraph.runtime.devices.cuda.archs import build_flag, gpu_arch
from veilgraph.runtime.devices.cuda.cubins import (
    Cubins,
    cache_folder,
    compiled,
    make_own,
    prepare,
    store,
)
from veilgraph.runtime.devices.cuda.nvcc import find_nvcc

TEXT = 'extern "C" __global__ void add(unsigned long long* out) { out[threadIdx.x] += 1; }\n'
ADD = Source("add", TEXT, ("add",))
OTHER = Source("other", TEXT.replace("1;", "2;"), ("add",))


def compiler(folder: Path, script: str) -> Path:
    """A program in nvcc's place."""
    file = folder / "nvcc"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o700)
    return file


@pytest.fixture
def counting(tmp_path: Path) -> Path:
    """Writes its arguments as machine code, and a line for each call."""
    log = tmp_path / "calls"
    return compiler(tmp_path, f'for last; do :; done; echo "$@" > "$last"; echo >> {log}')


def calls(tmp_path: Path) -> int:
    log = tmp_path / "calls"
    return len(log.read_text()) if log.exists() else 0


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.cubin"))


def test_code_is_made_once(tmp_path: Path, counting: Path) -> None:
    cubins = Cubins(tmp_path / "cache", None, counting)
    first = cubins.cubin(ADD, "sm_90")
    assert b"-cubin -arch=sm_90a " in first
    assert cubins.cubin(ADD, "sm_90") == first
    assert Cubins(tmp_path / "cache").cubin(ADD, "sm_90") == first
    assert calls(tmp_path) == 1


def test_code_is_of_one_source_and_architecture(tmp_path: Path, counting: Path) -> None:
    cubins = Cubins(tmp_path / "cache", None, counting)
    for source in (ADD, OTHER):
        for arch in ("sm_80", "sm_90"):
            cubins.cubin(source, arch)
    assert calls(tmp_path) == 4
    assert len(files(tmp_path / "cache")) == 4


def test_the_cache_is_this_users_alone(tmp_path: Path, counting: Path) -> None:
    folder = tmp_path / "new" / "cache"
    Cubins(folder, None, counting).cubin(ADD, "sm_90")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (file,) = files(folder)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_was_prepared_comes_first(tmp_path: Path, counting: Path) -> None:
    folder = tmp_path / "prepared"
    assert prepare([ADD, OTHER], ["sm_80", "sm_90"], folder, counting) == 4
    assert prepare([ADD, OTHER], ["sm_80", "sm_90"], folder, counting) == 4
    assert calls(tmp_path) == 4
    found = Cubins(tmp_path / "cache", folder, None).cubin(ADD, "sm_80")
    assert b"sm_80" in found
    assert not (tmp_path / "cache").exists()


def test_who_comes_second_waits_for_the_first(tmp_path: Path) -> None:
    """Three parties on one GPU compile each kernel once."""
    slow = f'sleep 0.2; for last; do :; done; echo > "$last"; echo >> {tmp_path / "calls"}'
    cubins = Cubins(tmp_path / "cache", None, compiler(tmp_path, slow))
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: cubins.make([ADD, OTHER], "sm_90"), range(3)))
    assert calls(tmp_path) == 2


def test_no_code_and_no_compiler(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no machine code of kernel `add` for sm_90") as caught:
        Cubins(tmp_path).cubin(ADD, "sm_90")
    assert "prepare PLAN --gpu-arch sm_90" in caught.value.hint


@pytest.mark.parametrize("mode", [0o770, 0o702])
@pytest.mark.parametrize("whose", ["cache", "prepared", "file"])
def test_code_that_others_could_have_written(
    tmp_path: Path, counting: Path, whose: str, mode: int
) -> None:
    folder = tmp_path / "cubins"
    prepare([ADD], ["sm_90"], folder, counting)
    (files(folder)[0] if whose == "file" else folder).chmod(mode)
    cubins = Cubins(tmp_path, folder) if whose == "prepared" else Cubins(folder)
    with pytest.raises(UsageError, match="holds machine code, and others can write to it"):
        cubins.cubin(ADD, "sm_90")
    if whose != "file":
        with pytest.raises(UsageError, match="others can write to it"):
            make_own(folder)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can't be made: "):
        store(tmp_path / "file" / "cubins", "name", b"")


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    make_own(tmp_path / "cubins")
    with pytest.raises(UsageError, match="can't be written: File name too long"):
        store(tmp_path / "cubins", "n" * 300, b"")
    assert not list((tmp_path / "cubins").iterdir())


def test_a_gpu_of_compute_capability_9_is_given_all_its_instructions(
    tmp_path: Path, counting: Path
) -> None:
    """Whatever it was prepared as, it is found under what a GPU calls itself."""
    assert [gpu_arch(arch) for arch in ("sm_90", "sm_90a", "sm_100f")] == [
        "sm_90",
        "sm_90",
        "sm_100",
    ]
    assert [build_flag(arch) for arch in ("sm_80", "sm_90", "sm_90a")] == [
        "-arch=sm_80", "-arch=sm_90a", "-arch=sm_90a",
    ]  # fmt: skip
    prepare([ADD], ["sm_90a"], tmp_path / "cubins", counting)
    assert Cubins(tmp_path / "cache", tmp_path / "cubins").cubin(ADD, "sm_90")


@pytest.mark.parametrize("arch", ["", "90", "sm_9", "sm_90 -x", "compute_90", "sm_90b"])
def test_no_architecture(arch: str) -> None:
    with pytest.raises(UsageError, match="is no GPU architecture"):
        gpu_arch(arch)


def test_an_architecture_that_is_too_old() -> None:
    with pytest.raises(UsageError, match="GPUs of sm_75 are too old"):
        gpu_arch("sm_75")


@pytest.mark.parametrize(
    ("script", "said"),
    [("echo '\nnvcc fatal: no' >&2; exit 1", "nvcc fatal: no"), ("exit 3", "it does not say why")],
)
def test_a_compiler_that_refuses(tmp_path: Path, script: str, said: str) -> None:
    nvcc = compiler(tmp_path, script)
    with pytest.raises(UsageError, match=f"nvcc makes nothing of kernel `add` for sm_90: {said}"):
        Cubins(tmp_path / "cache", None, nvcc).cubin(ADD, "sm_90")
    assert not files(tmp_path / "cache")


def test_a_compiler_that_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veilgraph.runtime.devices.cuda.cubins.COMPILE_SECONDS", 0.1)
    nvcc = compiler(tmp_path, "exec sleep 30")
    with pytest.raises(UsageError, match="nvcc is not done with kernel `add` for sm_90 after"):
        Cubins(tmp_path / "cache", None, nvcc).cubin(ADD, "sm_90")
    assert not files(tmp_path / "cache")


def test_the_compiler_is_found_on_the_path(counting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{counting.parent}{os.pathsep}/usr/bin:/bin")
    assert find_nvcc() == counting


def test_the_cache_follows_the_users_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/veilgraph/cubins")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/alice")
    assert cache_folder() == Path("/home/alice/.cache/veilgraph/cubins")


def test_nvcc_makes_code_for_a_gpu() -> None:
    nvcc = find_nvcc()
    if nvcc is None:
        pytest.skip("CUDA's compiler is not installed")
    assert compiled(ADD, "sm_80", nvcc).startswith(b"\x7fELF")
    with pytest.raises(UsageError, match="nvcc makes nothing of kernel `add` for sm_199"):
        compiled(ADD, "sm_199", nvcc)

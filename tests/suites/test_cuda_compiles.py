"""nvcc takes every CUDA source, for the architectures that are supported and as PTX.

Here and not with the kernels' tests because printed kernels come from plans: of every protocol of a
suite, as the golden files have them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from conformance import SETTINGS
from protocol_plans import protocol_plan

from veilgraph.ir.plan import ROUND, Plan
from veilgraph.kernels import KERNELS
from veilgraph.kernels.cuda import FLAGS, ROOT, DeviceShape, Source, buffers_of, launches

NVCC = shutil.which("nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="there is no nvcc on the path")
TARGETS = (
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=sm_90",
    "-gencode=arch=compute_90,code=compute_90",
)
WRITTEN = tuple(kernel for kernel in KERNELS if (ROOT / "kernels" / kernel / "cuda.cu").is_file())
PROTOCOLS = ("mul", "truncate_relu", "masked_function")


def compiled(folder: Path, text: str) -> Mapping[str, str]:
    """What the assembler reports of each kernel, on the last of two architectures."""
    unit = folder / "unit.cu"
    unit.write_text(text, encoding="utf-8")
    command = [str(NVCC), *FLAGS, *TARGETS, "-Xptxas", "-v", "--fatbin", "-I", str(ROOT), str(unit)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    reports = re.split(r"Compiling entry function '(\w+)' for 'sm_\d+'", done.stderr)
    return dict(zip(reports[1::2], reports[2::2], strict=True))


def together(sources: Iterable[Source]) -> str:
    """Printed kernels as one unit, each under a name of its own: headers are read once."""
    return "\n".join(
        source.text.replace("veil_fused(", f"veil_fused_{number}(")
        for number, source in enumerate(sources)
    )


def printed(plan: Plan) -> dict[str, Source]:
    """The distinct fused programs of all parties, by digest."""
    found: dict[str, Source] = {}
    for program in plan.programs.values():
        for step in program.steps:
            if step["kernel"] == ROUND or KERNELS[step["kernel"]] != "fused":
                continue
            first, last = step["first_buffer"], step["first_buffer"] + step["buffer_count"]
            begin, end = step["first_param"], int(step["first_param"]) + int(step["param_count"])
            params = [int(value) for value in program.params[begin:end]]
            buffers = buffers_of(program.buffers[first:last])
            for launch in launches("fused", buffers, params, DeviceShape(132)):
                found[launch.source.digest] = launch.source
    return found


def spills(report: str) -> bool:
    return " 0 bytes spill stores, 0 bytes spill loads" not in report


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("kernel", WRITTEN)
def test_written_kernels(tmp_path: Path, kernel: str) -> None:
    text = (ROOT / "kernels" / kernel / "cuda.cu").read_text()
    reports = compiled(tmp_path, text)
    assert reports
    assert not [name for name, report in reports.items() if spills(report)]


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("op", PROTOCOLS)
def test_printed_kernels_do_not_spill(tmp_path: Path, op: str) -> None:
    rep3 = next(setting for setting in SETTINGS if setting.suite.name == "rep3")
    sources = printed(protocol_plan(rep3, op, 40, 40))
    reports = compiled(tmp_path, together(sources.values()))
    assert len(reports) == len(sources)
    assert not [name for name, report in reports.items() if spills(report)]

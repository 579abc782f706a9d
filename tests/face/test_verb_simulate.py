"""`veilgraph simulate`: answers and measured figures."""

from __future__ import annotations

import os
import sys

import numpy as np
import onnxruntime
import pytest
from verbs import Compiled, json_of, reason, run_verb

from veilgraph.ir.plan.tables import Phase
from veilgraph.kernels.native import INSTRUCTION_SETS

FILES = ("digits.plan", "--weights", "digits.weights", "--input", "image=@image.npy")
SPREAD = {"median", "min", "max"}


def test_outputs_are_those_of_onnx_runtime(copied: Compiled) -> None:
    session = onnxruntime.InferenceSession("digits.onnx", providers=["CPUExecutionProvider"])
    (wanted,) = session.run(["logits"], {"image": np.load("image.npy")})
    content = json_of("simulate", *FILES)
    np.testing.assert_allclose(content["outputs"]["logits"]["values"], wanted, atol=0.05)
    run_verb("simulate", *FILES, "--output", "logits=@logits.npy", "--threads", "2")
    np.testing.assert_allclose(np.load("logits.npy"), wanted, atol=0.05)
    assert not list(copied.folder.glob(".*"))


def test_measured_figures_are_the_plans(copied: Compiled) -> None:
    content = json_of("simulate", *FILES)
    plan = copied.plan
    assert content["rounds"] == plan.rounds(Phase.ONLINE)
    for phase in Phase:
        assert content["sent_bytes"][phase.name.lower()] == plan.sent_bytes(phase)
    for phase_name in ("setup", "offline", "online", "total"):
        assert set(content[f"{phase_name}_seconds"]) == SPREAD


def test_table_shows_outputs_seconds_and_links(copied: Compiled) -> None:
    shown = run_verb("simulate", *FILES).stdout
    assert shown.startswith("logits, 1x10: ")
    assert "offline and online" in shown
    assert "alice->bob" in shown


@pytest.mark.parametrize("verb", ["simulate", "bench"])
@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_instruction_set_can_be_chosen(
    copied: Compiled, verb: str, isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veilgraph.commands.arguments.supported", lambda: ("portable",))
    result = run_verb(verb, *FILES, "--isa", isa)
    if isa == "portable":
        assert result.exit_code == 0
    else:
        assert result.exit_code == 2
        assert "this processor runs portable alone" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ((*FILES, "--device", "abacus"), 2, "There is no device `abacus`."),
        ((*FILES, "--processes", "--device", "host-emulator"), 2, "imitates a GPU, for tests"),
        ((*FILES, "--device", "=cpu"), 2, "should read PARTY=DEVICE"),
        ((*FILES, "--device", "eve=cpu"), 2, "eve is no party of this plan."),
        ((*FILES, "--device", "bob=cpu", "--device", "bob=cuda"), 2, "--device names `bob` twice."),
        (FILES[:3], 2, "alice owns input `image`, and it was not given."),
        ((*FILES, "--input", "image=@image.npy"), 2, "--input names `image` twice."),
        ((*FILES[:3], "--input", "picture=@image.npy"), 2, "The model has no input `picture`."),
        ((*FILES[:3], "--input", "image=image.npy"), 2, "should read image=@FILE.npy"),
        ((*FILES[:3], "--input", "image=@"), 2, "should read image=@FILE.npy"),
        ((*FILES[:3], "--input", "image=@none.npy"), 2, "none.npy can't be read"),
        ((*FILES[:3], "--input", "image=@flat.npy"), 2, "`image` has shape 784"),
        ((*FILES[:3], "--input", "image=@nan.npy"), 2, "not finite"),
        ((*FILES[:3], "--input", "image=@huge.npy"), 4, "outside the range"),
        ((*FILES, "--output", "label=@l.npy"), 2, "--output names `label`"),
        ((*FILES, "--output", "logits=@."), 2, ". is a directory."),
        ((*FILES, "--output", "logits=@no/l.npy"), 2, "There is no directory no."),
        ((*FILES, "--output", "logits=@image.npy"), 2, "image.npy is read here, and would be"),
        ((*FILES, "--output", "logits=@digits.plan"), 2, "digits.plan is read here, and would be"),
        ((FILES[0], "--weights", "none", *FILES[3:]), 2, "There is no weights file none."),
        ((FILES[0], "--weights", "digits.onnx", *FILES[3:]), 2, "is no weights file"),
    ],
)
def test_refuses(copied: Compiled, arguments: tuple[str, ...], code: int, sentence: str) -> None:
    image = np.load("image.npy")
    np.save("flat.npy", image.ravel())
    np.save("nan.npy", np.where(image > 0.5, np.nan, image))
    np.save("huge.npy", image + 100)
    before = sorted(copied.folder.iterdir())
    found, told = reason("simulate", *arguments)
    assert found == code
    assert sentence in told
    assert sorted(copied.folder.iterdir()) == before


@pytest.mark.parametrize("more", [(), ("--processes",)])
def test_no_way_to_a_gpu_is_told(
    copied: Compiled, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By this process, before it starts others."""
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    code, told = reason("simulate", *FILES, "--device", "bob=cuda:0", *more)
    assert code == 2
    assert "package pycuda, which is not installed" in told


def test_nothing_is_printed_where_an_output_can_not_be_written(
    copied: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    code, told = reason("simulate", *FILES, "--output", "logits=@logits.npy")
    assert code == 7
    assert "logits.npy can't be written: No space left on device." in told
    assert not list(copied.folder.glob("logits*"))


def test_a_pipe_is_not_replaced_by_an_output(copied: Compiled) -> None:
    os.mkfifo("pipe")
    for place in ("pipe", "/dev/stdout"):
        code, told = reason("simulate", *FILES, "--output", f"logits=@{place}")
        assert code == 2
        assert "would become a file" in told
    assert (copied.folder / "pipe").is_fifo()

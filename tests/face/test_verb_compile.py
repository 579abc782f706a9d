"""`veilgraph compile`: what it writes, says and refuses."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import model
from onnx import helper
from safetensors.numpy import save_file
from verbs import Compiled, json_of, reason, run_verb

from veilgraph.passes.pipeline import PIPELINE
from veilgraph.targets.functions import fourier_series

SHAPE = ("--shape", "image=1x1x28x28")


def test_writes_plan_and_weights_with_their_modes(digits: Compiled) -> None:
    weights = Path(digits.file("digits.weights"))
    assert stat.S_IMODE(weights.stat().st_mode) == 0o600
    assert digits.plan.manifest.owners == {"image": "alice", "weights": "bob"}
    assert not list(digits.folder.glob(".digits*"))


def remarks(*arguments: str) -> str:
    """What a compile says on standard error, but for its steps, slow ones on a busy machine."""
    told = run_verb(*arguments).stderr
    return re.sub(r"^\d+ of \d+, .*\n", "", told, flags=re.MULTILINE)


def test_says_who_owns_what_unless_it_was_told(copied: Compiled) -> None:
    arguments = ("compile", "digits.onnx", "-o", "new.plan", *SHAPE, "--ring", "64")
    assert remarks(*arguments) == (
        "alice owns image; bob owns weights; alice receives logits. "
        "--parties, --owner and --reveal change this.\n"
    )
    named = (
        "--parties", "hospital,bank,judge", "--owner", "image=hospital", "--owner", "weights=bank",
        "--reveal", "logits=hospital,judge",
    )  # fmt: skip
    assert remarks(*arguments, *named) == ""
    plan = Compiled(copied.folder).plan.load("new.plan")
    assert plan.manifest.parties == ("hospital", "bank", "judge")
    assert plan.manifest.owners == {"image": "hospital", "weights": "bank"}
    assert plan.manifest.receivers == {"logits": ("hospital", "judge")}


def test_summary_states_cost_encoding_and_files(copied: Compiled) -> None:
    shown = run_verb("compile", "digits.onnx", "-o", "new.plan", *SHAPE, "--ring", "64").stdout
    assert "Encoding: ring of 64 bits" in shown
    assert "setup, once a session" in shown
    assert "new.plan is for every party; new.weights is bob's alone (mode 0600)." in shown


def test_says_why_few_of_the_samples_are_measured(copied: Compiled) -> None:
    options = ("compile", "digits.onnx", "-o", "new.plan", *SHAPE, "--calibrate")
    shown = run_verb(*options, "calibration.npz").stdout
    assert "on the first 4 of 64 samples.\n" in shown
    assert (
        "Exact integers are slow, so 4 samples are measured here; `check` measures on all" in shown
    )
    with np.load("calibration.npz") as samples:
        np.savez("few.npz", image=samples["image"][:4])
    assert "Exact integers" not in run_verb(*options, "few.npz").stdout


def test_says_what_a_protection_of_weights_leaves(copied: Compiled) -> None:
    to = ("--parties", "alice,bob,carol", "--owner", "image=alice", "--owner", "weights=bob")
    digits = ("compile", "digits.onnx", "-o", "new.plan", *SHAPE, "--ring", "64", *to)
    alone = ("--reveal", "logits=alice")
    assert remarks(*digits, *alone) == ""
    assert copied.plan.load("new.plan").manifest.options["protect_weights"] == "none"
    assert remarks(*digits, *alone, "--protect-weights", "roles") == ""
    assert copied.plan.load("new.plan").manifest.options["protect_weights"] == "roles"
    both = ("--reveal", "logits=alice,carol", "--protect-weights", "roles")
    assert "roles changed nothing" in (told := run_verb(*digits, *both).stderr)
    assert "and there are 2." in told
    nobody = ("--reveal", "logits=bob", "--protect-weights", "roles")
    assert "and there are none." in run_verb(*digits, *nobody).stderr


@pytest.mark.parametrize("protection", ["roles", "exact"])
def test_masked_functions_keep_their_thresholds(copied: Compiled, protection: str) -> None:
    rng = np.random.default_rng(2)
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["h"], "fc1"),
        helper.make_node("Sigmoid", ["h"], ["a"], "sigmoid"),
        helper.make_node("Gemm", ["a", "v"], ["y"], "fc2"),
    ]
    weights = {name: rng.normal(size=(4, 4)).astype(np.float32) for name in "wv"}
    onnx.save(model(nodes, {"x": (2, 4)}, ["y"], weights), "sigmoid.onnx")
    np.savez("x.npz", x=rng.normal(size=(3, 2, 4)).astype(np.float32))
    options = ("--calibrate", "x.npz", "--protect-weights", protection)
    done = run_verb("compile", "sigmoid.onnx", "-o", "s.plan", *options)
    assert f"--protect-weights {protection} leaves alice thresholds to know" in done.stderr
    assert "alice learns one derivative of layer sigmoid" in done.stdout


def test_json_states_the_prediction(copied: Compiled) -> None:
    content = json_of("compile", "digits.onnx", "-o", "new.plan", *SHAPE)
    plan = copied.plan.load("new.plan")
    assert content["plan"] == "new.plan"
    assert content["weights"] == "new.weights"
    assert content["digest"] == plan.digest
    assert content["ring_bits"] == 64
    assert content["inputs"][0]["shape"] == [1, 1, 28, 28]
    assert content["inputs"][0]["range"] == [None, None]
    assert content["outputs"][0]["receivers"] == ["alice"]
    assert set(content["sent_bytes"]) == {"setup", "offline", "online"}


def test_profile_shows_seconds_and_memory_of_each_pass(copied: Compiled) -> None:
    arguments = ("compile", "digits.onnx", "-o", "new.plan", *SHAPE, "--ring", "64")
    shown = run_verb(*arguments, "--profile").stdout.splitlines()
    first = next(i for i, line in enumerate(shown) if line.startswith("pass "))
    names = ["import", *(stage[0] for stage in PIPELINE), "emit_plan", "all"]
    assert [re.split(r"  +", line)[0] for line in shown[first + 1 :]] == names
    rows = json_of(*arguments, "--profile")["profile"]
    assert [row["name"] for row in rows] == names[:-1]
    assert all(row["seconds"] > 0 and row["processor_seconds"] >= 0 for row in rows)
    assert all(0 < row["held_bytes"] <= row["peak_bytes"] for row in rows)
    assert "profile" not in json_of(*arguments)


def test_profile_is_of_one_compilation(copied: Compiled) -> None:
    code, told = reason("compile", "digits.onnx", *SHAPE, "--profile", "--compare-suites")
    assert code == 2
    assert "--profile shows one compilation, and this compares several." in told


def test_options_reach_the_compiler(copied: Compiled, tmp_path: Path) -> None:
    options = (
        "--ring",
        "40",
        "--frac-bits",
        "12",
        "--avgpool",
        "--dump-phases",
        tmp_path / "ir",
        "--trust-ranges",
        "--keep-clips",
    )
    samples = ("--calibrate", "calibration.npz", "--network", "wan", "--suite", "cleartext")
    content = json_of("compile", "digits.onnx", "-o", "n.plan", *SHAPE, *samples, *options)
    assert content["ring_bits"] == 40
    assert content["inputs"][0]["frac_bits"] == 12
    assert content["options"]["avgpool"] is True
    assert content["options"]["trust_ranges"] is True
    assert content["options"]["keep_clips"] is True
    assert content["network"]["name"] == "wan"
    assert content["suite"] == "cleartext"
    assert list((tmp_path / "ir").iterdir())


def test_fits_of_functions_are_kept_on_request(tmp_path: Path) -> None:
    node = helper.make_node("Sigmoid", ["x"], ["y"], "gate")
    onnx.save(model([node], {"x": (1, 4)}, ["y"]), tmp_path / "gate.onnx")
    np.savez(tmp_path / "samples.npz", x=np.linspace(-2, 2, 16, dtype=np.float32).reshape(4, 1, 4))
    given = ("compile", tmp_path / "gate.onnx", "--calibrate", tmp_path / "samples.npz", "--force")
    plain = json_of(*given)["digest"]
    digests, told = [], ""
    for turn in range(3):
        fourier_series.series_of.cache_clear()  # as another process would begin
        done = run_verb(*given, "--cache", tmp_path / "fits", "--json")
        digests.append(json.loads(done.stdout)["digest"])
        files = sorted((tmp_path / "fits").iterdir())
        if turn == 1:
            files[0].write_bytes(b"no fit")
        told = done.stderr
    assert digests == [plain] * 3
    assert files
    assert f"{files[0]} is damaged, and its function is fitted again" in told


def test_python_source_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import torch")
    code, told = reason("compile", tmp_path / "net.py")
    assert code == 2
    assert "net.py is Python source, and no model." in told
    assert "torch.export.save" in told


def test_steps_are_told_once_whoever_listens_to_all_loggers(tmp_path: Path) -> None:
    """Importing torch gives the root logger a handler, which showed every step again."""
    onnx.save(
        model([helper.make_node("Relu", ["x"], ["y"], "relu")], {"x": (1, 4)}, ["y"]),
        tmp_path / "relu.onnx",
    )
    heard: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: heard.append(record.name)  # type: ignore[method-assign]
    logging.getLogger().addHandler(listener)
    try:
        told = run_verb("-v", "compile", tmp_path / "relu.onnx").stderr
    finally:
        logging.getLogger().removeHandler(listener)
    assert told.count("emit_plan") == 1
    assert [name for name in heard if name.startswith("veilgraph")] == []
    assert logging.getLogger("veilgraph").propagate


def test_clips_that_are_left_out_are_named(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantiser"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["r"], "real"),
        helper.make_node("Relu", ["r"], ["y"], "relu"),
    ]
    code = {"s": np.float32(0.5), "z": np.uint8(10)}
    onnx.save(model(nodes, {"x": (1, 8)}, ["y"], code), tmp_path / "q.onnx")
    samples = np.linspace(-6, 100, 32, dtype=np.float32).reshape(4, 1, 8)
    np.savez(tmp_path / "s.npz", x=samples)
    given = ("compile", tmp_path / "q.onnx", "--calibrate", tmp_path / "s.npz")
    said = run_verb(*given).stderr
    told = "1 of 2 bounds of quantisers' clips are left out, which no sample reaches: quantiser."
    assert f"{told} --keep-clips keeps them." in said
    kept = run_verb(*given, "--force", "--keep-clips")
    assert kept.exit_code == 0
    assert "clips" not in kept.stderr


def test_rings_are_chosen_by_the_error_allowed(copied: Compiled) -> None:
    samples = ("--calibrate", "calibration.npz")
    arguments = ("compile", "digits.onnx", "-o", "n.plan", *SHAPE, *samples, "--max-error")
    coarse = json_of(*arguments, "0.01")
    assert coarse["options"]["max_error"] == 0.01
    assert coarse["encoding"].startswith("ring")
    assert ", measured " in coarse["encoding"]
    exact = json_of(*arguments, "1e-5")
    assert exact["ring_bits"] > coarse["ring_bits"]
    rings = {layer["ring_bits"] for layer in json_of("inspect", "n.plan", "--layers")["layers"]}
    assert len(rings) > 1
    shown = run_verb("inspect", "n.plan").stdout
    assert "predicted relative error" in shown


def test_an_error_that_can_not_be_held_ends_with_code_4(copied: Compiled) -> None:
    samples = ("--calibrate", "calibration.npz", "--ring", "24", "--max-error", "1e-4")
    code, told = reason("compile", "digits.onnx", "-o", "n.plan", *SHAPE, *samples)
    assert code == 4
    assert "In a ring of 24 bits the outputs are" in told
    assert not (copied.folder / "n.plan").exists()


def test_a_plan_that_no_host_would_check_is_not_written(
    copied: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veilgraph.passes.party.verify_masking.MOST_WORDS", 10)
    code, told = reason("compile", "digits.onnx", "-o", "n.plan", *SHAPE)
    assert code == 7
    assert "more nodes and draws than hosts check" in told
    assert "smaller batch" in told
    assert not (copied.folder / "n.plan").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("-o", "."), "is a directory"),
        (("-o", "n.plan", *SHAPE, "--max-error", "0"), "--max-error"),
        (("-o", "n.plan", *SHAPE, "--max-error", "1%"), "should be a number above 0 and below 1"),
        (("-o", "n.plan", *SHAPE, "--max-error", "5"), "below 1: 0.01 for 1%."),
        (
            ("-o", "calibration.npz", *SHAPE, "--calibrate", "calibration.npz"),
            "calibration.npz is read here, and would be overwritten.",
        ),
        (("-o", "n.plan", *SHAPE, "--max-error", "0.1"), "there are none"),
        (("-o", "nowhere/new.plan"), "There is no directory nowhere."),
        (("-o", "digits.onnx"), "digits.onnx is the model itself"),
        (("-o", "new.weights"), "new.weights is the name that the weights get."),
        (("-o", "n.plan", *SHAPE, *SHAPE), "--shape names `image` twice."),
        (("-o", "n.plan", "--shape", "image=1xx28"), "is no shape like"),
        (("-o", "n.plan", *SHAPE, "--public", "fc9"), "no parameter 'fc9' to make public."),
        (("-o", "n.plan", "--shape", "image"), "should read NAME=..."),
        (("-o", "n.plan", *SHAPE, "--ring", "many"), "neither `auto` nor a number"),
        (("-o", "n.plan", *SHAPE, "--owner", "weights=eve"), "eve owns `weights`, and is no party"),
        (("-o", "n.plan", *SHAPE, "--reveal", "label=alice"), "no output `label`"),
        (("-o", "n.plan", *SHAPE, "--suite", "none"), "no suite `none`"),
        (("-o", "n.plan", *SHAPE, "--calibrate", "no.npz"), "no.npz"),
        (SHAPE, "digits.plan is there already."),
    ],
)
def test_refuses(copied: Compiled, options: tuple[str, ...], sentence: str) -> None:
    before = sorted(copied.folder.iterdir())
    code, told = reason("compile", "digits.onnx", *options)
    assert code == 2
    assert sentence in told
    assert sorted(copied.folder.iterdir()) == before


def test_without_a_place_the_plan_goes_beside_its_model(copied: Compiled) -> None:
    folder = copied.folder / "beside"
    folder.mkdir()
    (copied.folder / "digits.onnx").rename(folder / "net.onnx")
    options = ("--parties", "alice,bob,carol", "--owner", "image=alice")
    first = run_verb("compile", folder / "net.onnx", *options)
    assert first.exit_code == 0, first.stderr
    names = {"net.onnx", "net.plan", "net.weights", "net.ranges"}
    assert {file.name for file in folder.iterdir()} == names
    assert "1 is taken: --shape image=1x1x28x28 says another" in first.stderr
    (folder / "net.plan").unlink()  # weights are lost as badly
    code, told = reason("compile", folder / "net.onnx", *options)
    assert (code, "net.weights is there already." in told) == (2, True)
    assert run_verb("compile", folder / "net.onnx", *options, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("digits.plan", "digits.plan is a plan, and no model."),
        ("digits.weights", "digits.weights is the weights of a plan, and no model."),
        ("calibration.npz", "calibration.npz is an .npz file of arrays, and no model."),
        ("image.npy", "image.npy is a .npy file of one array, and no model."),
        ("digits.ranges", "digits.ranges is a text file, and no model."),
        ("digits.safetensors", "digits.safetensors is a safetensors file: weights, and no model."),
        ("empty.onnx", "empty.onnx is empty, and no model."),
        ("cut.plan", "cut.plan is a zip archive, and no model."),
        ("folder.onnx", "folder.onnx is a directory, and no model."),
    ],
)
def test_another_file_is_told_for_what_it_is(copied: Compiled, name: str, sentence: str) -> None:
    """Also where files of an earlier compile are there, which was all that was said."""
    save_file({"w": np.zeros(3, np.float32)}, "digits.safetensors")
    (copied.folder / "empty.onnx").touch()
    (copied.folder / "cut.plan").write_bytes((copied.folder / "digits.plan").read_bytes()[:500])
    (copied.folder / "folder.onnx").mkdir()
    (copied.folder / name).with_suffix(".weights").touch()
    for options in ((), ("-o", "new.plan"), ("--compare-suites",)):
        code, told = reason("compile", name, *options)
        assert (code, told.splitlines()[0]) == (2, f"Error: {sentence}")
        assert told.splitlines()[1].startswith("Hint: ")


def test_what_is_wrong_with_the_model_comes_first(copied: Compiled) -> None:
    code, told = reason("compile", "nowhere/none.onnx")
    assert code == 2
    assert "nowhere/none.onnx can't be read" in told


def test_what_is_wrong_with_the_model_comes_before_what_is_there_already(copied: Compiled) -> None:
    odd = [helper.make_node("Det", ["x"], ["y"], name="odd")]
    onnx.save(model(odd, {"x": (2, 3, 3)}, ["y"]), "odd.onnx")
    (copied.folder / "cut.onnx").write_bytes((copied.folder / "digits.onnx").read_bytes()[:-99])
    for name in ("odd", "cut", "digits"):
        (copied.folder / f"{name}.weights").touch()
    assert "1 node of the model can't be compiled" in reason("compile", "odd.onnx")[1]
    assert "cut.onnx is no ONNX model, or a truncated one." in reason("compile", "cut.onnx")[1]
    told = reason("compile", "digits.onnx", "--shape", "image=1x1x28x29")[1]
    assert "Dimension 3 of input image is 28, but 1x1x28x29 was given." in told
    assert "digits.plan is there already." in reason("compile", "digits.onnx", *SHAPE)[1]


def test_refuses_a_folder_that_can_not_be_written(
    copied: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: mode != os.W_OK)
    code, told = reason("compile", "digits.onnx", "-o", "new.plan", *SHAPE)
    assert code == 2
    assert "can't be written to" in told


def test_names_every_unsupported_node_at_once(copied: Compiled) -> None:
    nodes = [
        helper.make_node("Det", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["x"], ["b"], name="fine"),
        helper.make_node("Det", ["b"], ["y"], name="second"),
    ]
    onnx.save(model(nodes, {"x": (2, 3, 3)}, ["a", "y"]), "odd.onnx")
    code, told = reason("compile", "odd.onnx", "-o", "new.plan")
    assert code == 3
    assert told.startswith("Error: 2 nodes of the model can't be compiled:\n")
    assert "first" in told
    assert "second" in told
    assert "fine" not in told
    assert not (copied.folder / "new.plan").exists()


def test_a_dealer_is_named_and_shown(copied: Compiled) -> None:
    suite = ("--suite", "additive", "--parties", "alice,bob")
    arguments = ("compile", "digits.onnx", "-o", "dealt.plan", *SHAPE, *suite)
    code, told = reason(*arguments)
    assert code == 2
    assert "--dealer" in told
    assert json_of(*arguments, "--dealer", "dora")["dealer"] == "dora"
    shown = run_verb("inspect", "dealt.plan").stdout
    assert [line.split() for line in shown.splitlines() if "dealer " in line][1] == [
        "dealer", "dora",
    ]  # fmt: skip

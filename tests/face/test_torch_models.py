"""PyTorch models from end to end: compiled, simulated, checked against torch."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from verbs import json_of, reason, run_verb

pytest.importorskip("torch", reason="PyTorch, the extra `torch`, is not installed")

import torch
from torch import nn

import veilgraph
from veilgraph.checks.checking import check
from veilgraph.ir.errors import UsageError

SHAPE = (1, 1, 8, 8)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 5),
    ).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive, samples, and the plan that the command line makes of them."""
    found = tmp_path_factory.mktemp("torch")
    torch.export.save(torch.export.export(net(), (torch.zeros(SHAPE),)), found / "net.pt2")
    samples = np.random.default_rng(0).standard_normal((4, *SHAPE), np.float32)
    np.savez(found / "samples.npz", input=samples)
    np.save(found / "x.npy", samples[0])
    made = ("compile", found / "net.pt2", "-o", found / "net.plan")
    result = run_verb(*made, "--calibrate", found / "samples.npz")
    assert result.exit_code == 0, result.stderr
    return found


def test_a_module_in_memory_is_compiled_and_calibrated_with_its_examples() -> None:
    x = torch.randn(SHAPE)
    plan, weights = veilgraph.compile(net(), example_inputs=x, max_error=0.01)
    assert "calibrated on 1 sample" in plan.manifest.encoding
    answer = veilgraph.simulate(plan, weights, {"input": x.numpy()}).outputs["output"]
    with torch.no_grad():
        wanted = net()(x).numpy()
    assert np.abs(answer - wanted).mean() < 0.02 * np.abs(wanted).mean()


def test_other_samples_take_the_place_of_examples() -> None:
    samples = {"input": np.ones((3, *SHAPE), np.float32)}
    plan, _ = veilgraph.compile(net(), example_inputs=torch.zeros(SHAPE), calibrate=samples)
    assert "calibrated on 3 samples" in plan.manifest.encoding


def test_both_say_the_same_of_one_model(folder: Path) -> None:
    with np.load(folder / "samples.npz") as samples:
        given = {"input": samples["input"]}
    archive, weights = veilgraph.compile(folder / "net.pt2", calibrate=given)
    module, same = veilgraph.compile(net(), example_inputs=torch.zeros(SHAPE), calibrate=given)
    content, _ = veilgraph.compile((folder / "net.pt2").read_bytes(), calibrate=given)
    assert archive.digest == module.digest == content.digest
    assert list(weights) == list(same)


def test_check_compares_with_torch(folder: Path) -> None:
    files = (folder / "net.plan", "--weights", folder / "net.weights", "--model")
    content = json_of("check", *files, folder / "net.pt2", "--inputs", folder / "samples.npz")
    assert content["ok"]
    # The batch norm's layer is the convolution with the norm's scale in its weights; the ReLU's is
    # the pool, which compares before it.
    assert [layer["name"] for layer in content["layers"]] == ["1", "3", "4", "5"]
    assert max(layer["relative_error"] for layer in content["layers"]) < 0.02
    (output,) = content["outputs"]
    assert output["agreeing"] == output["decisions"] == 4


@pytest.mark.parametrize("made", ["module", "program"])
def test_check_takes_what_compile_takes(folder: Path, made: str) -> None:
    samples = {"input": np.load(folder / "x.npy")[None]}
    plan, weights = veilgraph.compile(folder / "net.pt2", calibrate=samples, avgpool=True)
    program = torch.export.export(net(), (torch.zeros(SHAPE),))
    found = check(plan, weights, net() if made == "module" else program, samples, tolerance=1.0)
    pool = next(layer for layer in found.layers if layer.name.startswith("3"))
    assert pool.relative < 0.02  # against torch's model with the same average pools
    assert found.outputs[0].relative > pool.relative  # against the model as it is


def test_a_crafted_archive_ends_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    """A weight that is said to be a pickle; tests/frontend/test_pt2.py has many more."""
    crafted = tmp_path / "crafted.pt2"
    with zipfile.ZipFile(folder / "net.pt2") as given, zipfile.ZipFile(crafted, "w") as made:
        for name in given.namelist():
            content = given.read(name)
            made.writestr(name, content.replace(b'"use_pickle": false', b'"use_pickle": true'))
    code, told = reason("compile", crafted, "-o", tmp_path / "crafted.plan")
    assert code == 2
    assert "as a pickle, which could run anything when it is read." in told
    assert "Hint: Keep plain tensors alone in the model" in told
    assert not (tmp_path / "crafted.plan").exists()


def test_examples_are_for_pytorch_models() -> None:
    with pytest.raises(UsageError, match="example_inputs are for PyTorch models"):
        veilgraph.compile(b"", example_inputs=torch.zeros(1))


class Resampled(nn.Module):
    """Numbers that the compiler finds out: a mask, a matrix, places; float64 on the way."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.interpolate(x, (5, 5), mode="bilinear").double()
        scores = y[:, 0].masked_fill(torch.ones(5, 5).tril() == 0, -torch.inf).softmax(-1)
        return scores.float()[:, [4, 0]]


def test_what_was_folded_is_there_for_check() -> None:
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
    plan, weights = veilgraph.compile(Resampled().eval(), example_inputs=x)
    samples = {"x": x.numpy()[None]}
    found = check(plan, weights, Resampled().eval(), samples)
    assert found.outputs[0].relative < 1e-3
    answer = veilgraph.simulate(plan, weights, {"x": x.numpy()}).outputs["output"]
    np.testing.assert_allclose(answer, Resampled()(x).numpy(), atol=1e-3)


def test_weights_alone_are_no_model(tmp_path: Path) -> None:
    linear = nn.Linear(3, 2)
    with pytest.raises(UsageError, match="A state_dict holds weights alone"):
        veilgraph.compile(linear.state_dict(), example_inputs=torch.zeros(1, 3))
    torch.save(linear.state_dict(), tmp_path / "model.pt")
    with pytest.raises(UsageError, match=r"is a file of torch\.save"):
        veilgraph.compile(tmp_path / "model.pt")

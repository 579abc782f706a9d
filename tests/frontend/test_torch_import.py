"""PyTorch models at the graph level: names, examples, shapes, and the same program as over ONNX."""

from __future__ import annotations

import inspect
import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import run_onnx
from onnx import numpy_helper

pytest.importorskip("torch", reason="PyTorch, the extra `torch`, is not installed")

import torch
from torch import nn

from veilgraph.frontend.onnx.importer import import_model
from veilgraph.frontend.torch.export import export
from veilgraph.frontend.torch.importer import import_torch
from veilgraph.frontend.torch.tracing import quietly
from veilgraph.ir.errors import UnsupportedError, UsageError
from veilgraph.ir.graph.program import kind_of, name_of
from veilgraph.ir.meaning.graph import evaluate

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
IMAGE = (1, 1, 28, 28)


class LeNet(nn.Module):
    """The digits model, with the weights of its ONNX file."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.relu1, self.pool1 = nn.Conv2d(1, 20, 5), nn.ReLU(), nn.AvgPool2d(2)
        self.conv2, self.relu2, self.pool2 = nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2)
        self.flatten, self.fc1, self.relu3 = nn.Flatten(), nn.Linear(800, 500), nn.ReLU()
        self.fc2 = nn.Linear(500, 10)
        tensors = {t.name: numpy_helper.to_array(t) for t in onnx.load(DIGITS).graph.initializer}
        self.load_state_dict({name: torch.tensor(array) for name, array in tensors.items()})

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.pool1(self.relu1(self.conv1(image)))
        x = self.pool2(self.relu2(self.conv2(x)))
        return {"logits": self.fc2(self.relu3(self.fc1(self.flatten(x))))}


class Named(nn.Module):
    """Weights of each kind, two inputs and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.register_buffer("order", torch.tensor([2, 0, 1]))
        self.register_buffer("unread", torch.zeros(5))

    def forward(self, x: torch.Tensor, shift: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.block(x) + torch.tensor([1.0, 2.0, 3.0, 4.0])
        return y * self.scale + y, shift.index_select(1, self.order)


def test_the_digits_model_is_the_same_program_through_both_doors() -> None:
    over_onnx = import_model(DIGITS, {"image": IMAGE})
    over_torch = import_torch(LeNet().eval(), torch.zeros(IMAGE))
    assert list(over_torch.weights) == list(over_onnx.weights)
    for name, array in over_onnx.weights.items():
        np.testing.assert_array_equal(over_torch.weights[name], array)
    assert [kind_of(op) for op in over_torch.operations] == [
        kind_of(op) for op in over_onnx.operations
    ]
    assert [name_of(op) for op in over_torch.operations] == [
        name_of(op) for op in over_onnx.operations
    ]
    assert list(over_torch.outputs) == list(over_onnx.outputs) == ["logits"]
    image = np.random.default_rng(0).random(IMAGE, np.float32)
    found = evaluate(over_torch, {"image": image})["logits"]
    wanted = run_onnx(onnx.load(DIGITS), {"image": image})["logits"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_arguments_have_their_names_and_numbers_of_the_code_are_public() -> None:
    graph = import_torch(Named().eval(), {"x": torch.randn(2, 3), "shift": torch.randn(2, 3)})
    assert list(graph.inputs) == ["x", "shift"]
    assert list(graph.outputs) == ["output_0", "output_1"]
    weights = [*graph.weights]
    assert weights[:2] == ["block.0.weight", "block.0.bias"]
    assert weights[2:] == ["lifted_tensor_0", "scale"]  # the constant of forward, and one number
    names = [name_of(op) for op in graph.operations]
    assert {"block.0", "block.1", "add", "mul"} <= set(names)


def test_an_exported_program_is_the_same_as_its_module() -> None:
    model = Named().eval()
    examples = (torch.randn(2, 3), torch.randn(2, 3))
    program = torch.export.export(model, examples)
    assert import_torch(program).text() == import_torch(model, examples).text()


def test_examples_are_samples() -> None:
    x, shift = torch.randn(2, 3), torch.randn(2, 3)
    model = Named().eval()
    for examples in ((x, shift), {"x": x, "shift": shift}):
        exported = export(model, examples)
        np.testing.assert_array_equal(exported.samples["shift"], shift.numpy()[None])
    kept = export(torch.export.export(model, (x, shift)))
    np.testing.assert_array_equal(kept.samples["x"], x.numpy()[None])


def open_program() -> Any:
    batch = torch.export.Dim("batch", min=1, max=64)
    args = (torch.zeros(2, 3), torch.zeros(2, 3))
    return torch.export.export(
        Named().eval(), args, dynamic_shapes={"x": {0: batch}, "shift": {0: batch}}
    )


def test_an_open_extent_is_fixed_by_a_shape() -> None:
    graph = import_torch(open_program(), shapes={"x": (5, 3), "shift": (5, 3)})
    assert [tuple(value.type.shape) for value in graph.inputs.values()] == [(5, 3), (5, 3)]


@pytest.mark.parametrize(
    ("shapes", "sentence", "hint"),
    [
        ({}, "Input x is ?x3", "--shape x=1x3"),
        ({"x": (5, 4), "shift": (5, 3)}, "Input x is ?x3", "--shape x=1x3"),
        ({"x": (5, 3, 1), "shift": (5, 3)}, "Input x is ?x3", "--shape x=1x3"),
        ({"y": (5, 3)}, "The model has no input y.", "x, shift"),
    ],
)
def test_a_shape_that_does_not_fit(
    shapes: dict[str, tuple[int, ...]], sentence: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        import_torch(open_program(), shapes=shapes)
    assert sentence in caught.value.message
    assert hint in caught.value.hint


def test_a_shape_beside_examples_must_be_theirs() -> None:
    x = torch.zeros(2, 3)
    graph = import_torch(Named().eval(), (x, x), shapes={"x": (2, 3)})
    assert list(graph.inputs) == ["x", "shift"]  # though one tensor is the example of both
    with pytest.raises(UsageError, match="Input x is 2x3 in the model"):
        import_torch(Named().eval(), (x, x), shapes={"x": (5, 3)})


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x + self.count


class Clashing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.x


class Infinite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mask = nn.Parameter(torch.tensor([0.0, -torch.inf]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mask


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Outside(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() * 2)


class Scaling(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * float(x.sum().item())


@pytest.mark.parametrize(
    ("model", "examples", "sentence", "hint"),
    [
        (nn.ReLU(), None, "has no shapes of its own", "example_inputs"),
        (nn.ReLU().train(), torch.zeros(2), "ReLU is in training mode.", "model.eval()"),
        (Counting(), torch.zeros(2), "The model changes count", "inference"),
        (Clashing(), torch.zeros(2), "both called x", "Rename"),
        (Infinite(), torch.zeros(2), "Weight mask holds -inf, and is no mask", "again"),
        (
            Branching(),
            torch.zeros(2),
            "): what it does depends on the numbers in its",
            "torch.where",
        ),
        (Outside(), torch.zeros(2), "): it leaves torch.", "Stay with tensors"),
        (Scaling(), torch.zeros(2), "): what it does depends on the numbers in its", "`.item()`"),
        (nn.Linear(3, 2), torch.zeros(1, 5), "does not run on the example inputs", "shapes"),
        (nn.ReLU(), (torch.zeros(2),) * 2, "don't fit ReLU.forward(input: ", "in order or by name"),
        (nn.ReLU(), {"x": torch.zeros(2)}, "don't fit ReLU.forward(input: ", "in order or by name"),
        (nn.ReLU(), ["two"], "is of type str", "NumPy arrays"),
        (nn.ReLU(), np.array(["two"]), "is of type ndarray", "NumPy arrays"),
        (torch.jit.trace(nn.ReLU(), torch.zeros(2)), torch.zeros(2), "TorchScript", "before"),
    ],
)
def test_what_makes_no_sense(
    model: nn.Module, examples: Any, sentence: str, hint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    if "training" not in sentence:
        model.eval()
    with pytest.raises(UsageError) as caught:
        import_torch(model, examples)
    assert sentence in caught.value.message
    assert hint in caught.value.hint
    told = capfd.readouterr()
    assert told.out + told.err == ""  # torch's own words about it would come before ours


def test_what_can_not_be_traced_is_told_with_its_line() -> None:
    first = inspect.getsourcelines(Branching.forward)[1]
    with pytest.raises(UsageError) as caught:
        import_torch(Branching().eval(), torch.zeros(2))
    assert f"the model (test_torch_import.py, line {first + 1}): what" in caught.value.message


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_examples_may_be_arrays(kind: type) -> None:
    linear, array = nn.Linear(3, 2).eval(), np.ones((1, 3), kind)
    for examples in (array, (array,), {"input": array}):
        exported = export(linear, examples)
        (sample,) = exported.samples.values()
        np.testing.assert_array_equal(sample, array[None])
        assert sample.dtype == np.float32


class Blank(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = torch.empty(3)
        place.zero_()
        place[0] = 1.0
        return x + place + torch.empty_like(x) + x.new_empty(3)


def test_memory_that_nothing_was_written_to_is_zero() -> None:
    """Else what another program left there would be in the plan."""
    graph = import_torch(Blank().eval(), torch.zeros(1, 3))
    found = evaluate(graph, {"x": np.zeros((1, 3), np.float32)})
    np.testing.assert_array_equal(found["output"], [[1, 0, 0]])


def test_an_exported_program_without_an_example_of_an_input() -> None:
    program = torch.export.export(Named().eval(), (torch.zeros(2, 3), torch.zeros(2, 3)))
    with pytest.raises(UsageError, match="No example of input shift"):
        export(program, {"x": torch.zeros(2, 3)})


class Unsupported(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(x) + torch.linalg.inv(x) + torch.lgamma(x)


def test_all_that_is_unsupported_is_told_at_once_with_its_line() -> None:
    with pytest.raises(UnsupportedError) as caught:
        import_torch(Unsupported().eval(), torch.eye(3))
    operators = " ".join(entry.operator for entry in caught.value.offenders)
    for name in ("special_bessel_j0", "lgamma", "linalg_inv"):
        assert name in operators
    assert "test_torch_import.py, line" in caught.value.offenders[0].source


class Squared(nn.Module):
    """What is compared is reached on 3^24 paths."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x / 16
        for _ in range(24):
            y = y + y * y
        return (y[:, None] == torch.arange(3.0)).float()


class Doubled(nn.Module):
    """What is made an integer is one by each of 2^40 paths to what was rounded down."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.floor(x)
        for _ in range(40):
            y = y + y
        return (y.long()[:, None] == torch.arange(3)).float()


@pytest.mark.parametrize("module", [Squared, Doubled])
def test_what_is_reached_on_many_paths_is_looked_at_once(module: type[nn.Module]) -> None:
    given = torch.zeros(4)
    (found,) = evaluate(import_torch(module().eval(), given), {"x": given.numpy()}).values()
    np.testing.assert_array_equal(found, [[1, 0, 0]] * 4)


def test_torch_speaks_again_whichever_thread_ends_first() -> None:
    """A second thread begins while the first is silent, and ends after it."""
    logger = logging.getLogger("torch.of_a_test")
    before = logger.disabled, logging.getLogger("torch").level
    is_silent, seen = threading.Event(), list[bool]()

    def second() -> None:
        is_silent.wait()
        with quietly():
            seen.append(logger.disabled)

    thread = threading.Thread(target=second)
    thread.start()
    with quietly():
        is_silent.set()
        thread.join(0.1)
        assert logger.disabled
        assert not seen
    thread.join()
    assert seen == [True]
    assert (logger.disabled, logging.getLogger("torch").level) == before

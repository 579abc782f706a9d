"""`.pt2` archives: read without torch's loader, and what in them would run anything is not run."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch, the extra `torch`, is not installed")

import torch
from torch import nn

from veilgraph.frontend.torch.importer import import_torch
from veilgraph.frontend.torch.pt2_archive import read_archive
from veilgraph.ir.errors import UnsupportedError, UsageError
from veilgraph.ir.meaning.graph import evaluate

Change = Callable[[dict[str, bytes]], None]


class Net(nn.Module):
    """A bit of everything that archives hold."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)
        )
        self.fc = nn.Linear(64, 5)
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.register_buffer("order", torch.tensor([2, 0, 1]))

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.features(image)
        x = torch.flatten(x + x * self.scale, 1)
        first, second = (self.fc(x) + torch.ones(5)).split([2, 3], 1)
        return {"first": first, "second": second.index_select(1, self.order)}


@pytest.fixture(scope="module")
def archive() -> bytes:
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(
        Net().eval(), (torch.randn(2, 1, 8, 8),), dynamic_shapes=({0: batch},)
    )
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def changed(archive: bytes, change: Change, method: int = zipfile.ZIP_STORED) -> bytes:
    """The archive with other members."""
    with zipfile.ZipFile(io.BytesIO(archive)) as given:
        members = {name: given.read(name) for name in given.namelist()}
    change(members)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return buffer.getvalue()


def member(members: dict[str, bytes], ending: str) -> str:
    (name,) = (name for name in members if name.endswith(ending))
    return name


def edited(ending: str, edit: Callable[[Any], None]) -> Change:
    """Edits a member that is JSON."""

    def change(members: dict[str, bytes]) -> None:
        name = member(members, ending)
        content = json.loads(members[name])
        edit(content)
        members[name] = json.dumps(content).encode()

    return change


def in_program(edit: Callable[[Any], None]) -> Change:
    return edited("models/model.json", edit)


def in_weights(edit: Callable[[Any], None]) -> Change:
    return edited("model_weights_config.json", lambda content: edit(content["config"]))


class Trap:
    """What runs a command when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.proof,))


def test_an_archive_is_the_program_that_was_saved(archive: bytes) -> None:
    shapes = {"image": (2, 1, 8, 8)}
    graph = import_torch(archive, shapes=shapes)
    torch.manual_seed(0)
    model = Net().eval()
    image = torch.randn(2, 1, 8, 8)
    assert graph.text() == import_torch(model, image).text()
    assert list(graph.outputs) == ["first", "second"]
    with torch.no_grad():
        wanted = model(image)
    for name, value in evaluate(graph, {"image": image.numpy()}).items():
        np.testing.assert_allclose(value, wanted[name].numpy(), rtol=1e-5, atol=1e-6)


def test_a_file_is_read_too(archive: bytes, tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(archive)
    held = read_archive(tmp_path / "net.pt2")
    assert held.source == "net.pt2"
    assert held.tensors["order"].tolist() == [2, 0, 1]
    assert held.tensors["features.0.weight"].shape == (4, 1, 3, 3)


def test_views_and_half_precision_are_read_as_they_were() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            whole = torch.arange(24.0).reshape(4, 6)
            self.turned = nn.Parameter(whole.t().contiguous().t())
            self.part = nn.Parameter(whole[1:3, ::2])
            self.short = nn.Parameter(torch.tensor([0.5, -1.25], dtype=torch.bfloat16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.turned.sum(0)[:3] + self.part.sum() + self.short.float().sum()

    program = torch.export.export(Odd().eval(), (torch.zeros(2, 3),))
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    tensors = read_archive(buffer.getvalue()).tensors
    whole = np.arange(24.0).reshape(4, 6)
    np.testing.assert_array_equal(tensors["turned"], whole)
    np.testing.assert_array_equal(tensors["part"], whole[1:3, ::2])
    np.testing.assert_array_equal(tensors["short"], [0.5, -1.25])


def test_a_pickled_weight_is_refused_and_nothing_runs(archive: bytes, tmp_path: Path) -> None:
    proof = tmp_path / "proof"

    def pickled(members: dict[str, bytes]) -> None:
        in_weights(lambda config: config["fc.bias"].update(use_pickle=True))(members)
        config = json.loads(members[member(members, "model_weights_config.json")])["config"]
        name = member(members, "data/weights/" + config["fc.bias"]["path_name"])
        members[name] = pickle.dumps(Trap(proof))

    crafted = changed(archive, pickled)
    with pytest.raises(UsageError) as caught:
        import_torch(crafted, shapes={"image": (1, 1, 8, 8)})
    assert caught.value.exit_code == 2
    assert "keeps `fc.bias` as a pickle, which could run anything" in caught.value.message
    assert "Keep plain tensors alone" in caught.value.hint
    assert not proof.exists()


def test_a_trap_in_the_sample_inputs_is_never_opened(archive: bytes, tmp_path: Path) -> None:
    proof = tmp_path / "proof"

    def trapped(members: dict[str, bytes]) -> None:
        members[member(members, "sample_inputs/model.pt")] = pickle.dumps(Trap(proof))

    graph = import_torch(changed(archive, trapped), shapes={"image": (1, 1, 8, 8)})
    assert graph.text() == import_torch(archive, shapes={"image": (1, 1, 8, 8)}).text()
    assert not proof.exists()


def test_the_trap_works(tmp_path: Path) -> None:
    """Or the tests above would show nothing."""
    proof = tmp_path / "proof"
    pickle.loads(pickle.dumps(Trap(proof)))
    assert proof.exists()


def test_expressions_and_guards_are_not_evaluated(archive: bytes, tmp_path: Path) -> None:
    """torch's loader gives the first to sympify and the second to exec: both run Python."""
    proof = tmp_path / "proof"
    source = f"__import__('pathlib').Path({str(proof)!r}).touch()"

    def crafted(program: Any) -> None:
        program["guards_code"] = [source]
        graph = program["graph_module"]["graph"]
        size = graph["tensor_values"]["image"]["sizes"][0]
        size["as_expr"]["expr_str"] = source
        for symbol in graph["sym_int_values"].values():
            symbol["as_expr"]["expr_str"] = source
        for node in graph["nodes"]:
            node["metadata"] = {"nn_module_stack": source, "stack_trace": source}

    import_torch(changed(archive, in_program(crafted)), shapes={"image": (1, 1, 8, 8)})
    assert not proof.exists()


def retargeted(target: str) -> Change:
    def edit(program: Any) -> None:
        for node in program["graph_module"]["graph"]["nodes"]:
            if "relu" in node["target"]:
                node["target"] = target

    return in_program(edit)


@pytest.mark.parametrize(
    "target",
    [
        "torch.os.system",
        "_operator.methodcaller",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten._nested_view_from_buffer.default",
        "torch.ops.aten.no_such_operator.default",
        "torch.ops.aten.relu.__init__",
        "torch.ops.mine.relu.default",
        "torch.ops.higher_order.cond",
    ],
)
def test_a_function_that_is_not_on_the_list_is_refused(archive: bytes, target: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        import_torch(changed(archive, retargeted(target)), shapes={"image": (1, 1, 8, 8)})
    assert caught.value.exit_code == 3
    assert [entry.operator for entry in caught.value.offenders] == [target]


def renamed(program: Any) -> None:
    """An input whose name would be Python source."""
    name = "image=print()"
    graph = json.loads(json.dumps(program["graph_module"]).replace('"image"', json.dumps(name)))
    program["graph_module"] = graph


def without_nodes(program: Any) -> None:
    program["graph_module"]["graph"]["nodes"] = []


def stateful(program: Any) -> None:
    (first, *_) = program["graph_module"]["signature"]["output_specs"]
    arg = first.pop("user_output")["arg"]["as_tensor"]
    first["buffer_mutation"] = {"arg": {"as_tensor": arg}, "buffer_name": "order"}


def drop(ending: str) -> Change:
    return lambda members: members.__delitem__(member(members, ending))


def huge(config: Any) -> None:
    config["fc.bias"]["tensor_meta"].update(sizes=[{"as_int": 1 << 40}], strides=[{"as_int": 0}])


def outside(config: Any) -> None:
    config["fc.bias"]["tensor_meta"]["storage_offset"] = {"as_int": 3}


def negative(config: Any) -> None:
    config["fc.bias"]["tensor_meta"]["strides"] = [{"as_int": -1}]


def imaginary(config: Any) -> None:
    config["fc.bias"]["tensor_meta"]["dtype"] = 9


def add(name: str) -> Change:
    return lambda members: members.update({name: b""})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (in_program(renamed), "does not fit together"),
        (in_program(without_nodes), "does not fit together"),
        (in_program(lambda program: program.clear()), "does not fit together"),
        (edited("model_weights_config.json", lambda content: content.clear()), "is damaged"),
        (in_weights(huge), "is damaged"),
        (in_weights(outside), "is damaged"),
        (in_weights(negative), "is damaged"),
        (in_weights(imaginary), "elements of a type that isn't known"),
        (in_weights(lambda config: config.pop("fc.bias")), "does not fit together"),
        (drop("model_weights_config.json"), "keeps its weights as a pickle"),
        (drop("model_constants_config.json"), "keeps its constants as a pickle"),
        (drop("models/model.json"), "holds no exported model that is known"),
        (drop("weights/weight_0"), "is damaged"),
        (add("archive/models/other.json"), "holds 2 models"),
        (add("archive/data.pkl"), "is a pickle (torch.save or TorchScript)"),
    ],
)
def test_damage_is_told_in_a_sentence(archive: bytes, change: Change, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        import_torch(changed(archive, change), shapes={"image": (1, 1, 8, 8)})
    assert sentence in caught.value.message
    assert caught.value.hint


def test_a_model_that_changes_itself_is_refused(archive: bytes) -> None:
    with pytest.raises(UnsupportedError, match="changes what it keeps"):
        import_torch(changed(archive, in_program(stateful)), shapes={"image": (1, 1, 8, 8)})


def test_compressed_members_are_refused(archive: bytes) -> None:
    packed = changed(archive, lambda members: None, zipfile.ZIP_DEFLATED)
    with pytest.raises(UsageError, match="compressed, encrypted or overlap"):
        read_archive(packed)


def test_what_is_no_archive(archive: bytes, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="or a truncated one"):
        read_archive(archive[: len(archive) // 2])
    with pytest.raises(UsageError, match="can't be read"):
        read_archive(tmp_path / "nothing.pt2")

"""Reading model files: missing, garbage, and external data inside and outside their folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import model
from onnx import ModelProto, TensorProto, helper

from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.errors import UsageError

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)


def external(location: str, **entries: str) -> ModelProto:
    """x w, where w lies in another file."""
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (1, 2)}, ["y"])
    tensor = TensorProto(name="w", dims=WEIGHT.shape, data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    proto.graph.initializer.append(tensor)
    return proto


def saved(folder: Path, proto: ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("location", "before", "entries"),
    [
        ("w.bin", b"", {}),
        ("w.bin", b"", {"length": "24"}),
        ("data/w.bin", b"12345678", {"offset": "8", "length": "24"}),
    ],
)
def test_data_inside_the_folder_is_read(
    tmp_path: Path, location: str, before: bytes, entries: dict[str, str]
) -> None:
    (tmp_path / location).parent.mkdir(exist_ok=True)
    (tmp_path / location).write_bytes(before + WEIGHT.tobytes() + b"tail")
    graph = import_model(saved(tmp_path, external(location, **entries)))
    np.testing.assert_array_equal(graph.weights["w"], WEIGHT)


def test_what_onnx_saves_is_read(tmp_path: Path) -> None:
    proto = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (1, 2)}, ["y"], {"w": WEIGHT}
    )
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    np.testing.assert_array_equal(import_model(path).weights["w"], WEIGHT)


@pytest.mark.parametrize(
    "location",
    ["../secret.bin", "data/../../secret.bin", "/etc/hostname", "C:\\secret.bin", "..\\secret.bin"],
)
def test_data_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(WEIGHT.tobytes())
    folder = tmp_path / "inner"
    folder.mkdir()
    with pytest.raises(UsageError, match="outside the model's folder"):
        import_model(saved(folder, external(location)))


@pytest.mark.parametrize("whole_folder", [False, True])
def test_links_out_of_the_folder_are_refused(tmp_path: Path, whole_folder: bool) -> None:
    (tmp_path / "secret.bin").write_bytes(WEIGHT.tobytes())
    folder = tmp_path / "inner"
    folder.mkdir()
    target, location = (
        (tmp_path, "way/secret.bin") if whole_folder else (tmp_path / "secret.bin", "way")
    )
    (folder / "way").symlink_to(target)
    with pytest.raises(UsageError, match="outside the model's folder"):
        import_model(saved(folder, external(location)))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"length": "100"}, "needs 24 bytes at offset 0"),
        ({"offset": "8"}, "needs 24 bytes at offset 8"),
        ({"offset": "-8"}, "needs 24 bytes at offset -8"),
        ({"offset": "many"}, "no number"),
    ],
)
def test_data_that_does_not_fit_is_refused(
    tmp_path: Path, entries: dict[str, str], message: str
) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    with pytest.raises(UsageError, match=message):
        import_model(saved(tmp_path, external("w.bin", **entries)))


@pytest.mark.parametrize("location", ["missing.bin", "", ".", "w\0.bin"])
def test_data_that_is_not_there_is_refused(tmp_path: Path, location: str) -> None:
    with pytest.raises(UsageError, match="isn't in the model's folder"):
        import_model(saved(tmp_path, external(location)))


def test_huge_extents_allocate_nothing(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    proto = external("w.bin")
    proto.graph.initializer[0].dims[:] = [1 << 30, 1 << 30]
    with pytest.raises(UsageError, match="needs 4611686018427387904 bytes"):
        import_model(saved(tmp_path, proto))


def test_an_element_type_without_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    proto = external("w.bin")
    proto.graph.initializer[0].data_type = 99
    with pytest.raises(UsageError, match="unknown element type"):
        import_model(saved(tmp_path, proto))


def test_models_in_memory_have_no_folder() -> None:
    with pytest.raises(UsageError, match="the model has no folder"):
        import_model(external("w.bin"))
    with pytest.raises(UsageError, match="the model has no folder"):
        import_model(external("w.bin").SerializeToString())


def test_external_data_in_attributes_is_guarded_too(tmp_path: Path) -> None:
    value = external("../w.bin").graph.initializer[0]
    proto = model(
        [
            helper.make_node("Constant", [], ["w"], value=value),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        {"x": (1, 2)},
        ["y"],
    )
    with pytest.raises(UsageError, match="outside the model's folder"):
        import_model(saved(tmp_path, proto))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing.onnx can't be read: No such file"):
        import_model(tmp_path / "missing.onnx")
    with pytest.raises(UsageError, match="can't be read: Is a directory"):
        import_model(tmp_path)


@pytest.mark.parametrize("data", [b"", b"\0", b"not a model at all", bytes(range(256)) * 4])
def test_garbage_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="ONNX model"):
        import_model(path)

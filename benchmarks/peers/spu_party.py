"""One of three SPU processes (ABY3, FM64, 18 fraction bits); runs in SPU's own environment.

    python spu_party.py RANK FOLDER ADDRESS ADDRESS ADDRESS

FOLDER holds network.json and arrays.npz (workloads.Network.describe). The first party compiles and
makes everyone's shares, in files of FOLDER, before anything is timed. Each line {"runs": n} on
standard input is answered by {"seconds": [...], "output": [...]}: seconds from a barrier to the end
of each execution, and the first values of the last output (of the first party; empty for others).
Where there are labels, one-hot rows, an execution is a step of training: its outputs are the loss
and the weights less RATE times their gradients.
"""

# mypy: disable-error-code="import-not-found"

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import spu
import spu.utils.frontend as frontend

FRACTION_BITS = 18
RATE = 0.05  # of a step of training
LABELS = "labels"
SHOWN = 10
EPSILON = 1e-5  # ONNX's for layer normalisation
LAYOUT = ("NHWC", "HWIO", "NHWC")


def evaluate(network: dict[str, Any], values: dict[str, Any]) -> Any:
    """The network in JAX, images as NHWC; pools as sums, whose divisors are in the weights."""
    values = dict(values)
    for op, names, output, size in network["nodes"]:
        x, *others = (values[name] for name in names)
        values[output] = OPS[op](x, *others, **size)
    return values[network["output"]]


def conv(x: Any, w: Any, b: Any, kernel: int, stride: int, pad: int) -> Any:
    window = [(pad, pad), (pad, pad)]
    return (
        jax.lax.conv_general_dilated(x, w, (stride, stride), window, dimension_numbers=LAYOUT) + b
    )


def sum_pool(x: Any, kernel: int, stride: int, pad: int) -> Any:
    """As a reshape and a sum; as a sum of shifted slices where windows overlap."""
    n, h, w, c = x.shape
    if kernel == stride and not pad:
        h, w = h // kernel * kernel, w // kernel * kernel
        tiles = x[:, :h, :w].reshape(n, h // kernel, kernel, w // kernel, kernel, c)
        return tiles.sum(axis=(2, 4))
    x = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    rows, columns = ((extent + 2 * pad - kernel) // stride + 1 for extent in (h, w))
    return sum(
        x[:, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride]
        for i in range(kernel)
        for j in range(kernel)
    )


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + EPSILON) * w + b


def trees(x: Any, thresholds: Any, leaves: Any, depth: int, features: list[int]) -> Any:
    """Complete trees, level by level: what reaches a node goes right where x >= its threshold."""
    right = (x[:, np.array(features)] >= thresholds).astype(x.dtype)
    right = right.reshape(x.shape[0], len(leaves), -1)
    reached = jnp.ones((x.shape[0], len(leaves), 1), x.dtype)
    for level in range(depth):
        moves = reached * right[:, :, 2**level - 1 : 2 ** (level + 1) - 1]
        both = jnp.stack([reached - moves, moves], axis=-1)
        reached = both.reshape(x.shape[0], len(leaves), -1)
    return (reached * leaves).sum(axis=(1, 2))


OPS: dict[str, Any] = {
    "conv": conv,
    "sum_pool": sum_pool,
    "relu": lambda x: jnp.maximum(x, 0),
    "flatten": lambda x: jnp.transpose(x, (0, 3, 1, 2)).reshape(x.shape[0], -1),
    "dense": lambda x, w, b: x @ w + b,
    "add": lambda x, y: x + y,
    "matmul": lambda x, y: x @ y,
    "softmax": jax.nn.softmax,
    "gelu": lambda x: jax.nn.gelu(x, approximate=True),  # SPU's faster form, several times
    "layer_norm": layer_norm,
    "trees": trees,
}


def train(network: dict[str, Any], values: dict[str, Any]) -> tuple[Any, ...]:
    """A step by cross-entropy: the loss, and the weights after it."""
    weights = {name: x for name, x in values.items() if name[0] in "wb"}

    def loss_of(weights: dict[str, Any]) -> Any:
        z = evaluate(network, {**values, **weights})
        return -(values[LABELS] * jax.nn.log_softmax(z)).sum() / len(z)

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    return loss, *(x - RATE * gradients[name] for name, x in weights.items())


def in_layout(arrays: dict[str, Any]) -> dict[str, Any]:
    """Images and filters channels last, dense weights as x @ w takes them."""
    axes = {"x": (0, 2, 3, 1), "w": (2, 3, 1, 0)}
    found = {}
    for name, array in arrays.items():
        if array.ndim == 4:
            array = array.transpose(axes[name[0]])
        elif name[0] == "w":
            array = array.T
        found[name] = np.ascontiguousarray(array)
    return found


def prepare(network: dict[str, Any], arrays: dict[str, Any], io: Any, folder: Path) -> None:
    """Compiles, and writes the executable and every party's shares."""
    names, values = list(arrays), list(arrays.values())
    secret = [spu.Visibility.VIS_SECRET] * len(names)
    computed = train if LABELS in arrays else evaluate
    executable, _ = frontend.compile(
        frontend.Kind.JAX,
        lambda *found: computed(network, dict(zip(names, found, strict=True))),
        values,
        {},
        names,
        secret,
        lambda flat: ["output", *(f"output{i}" for i in range(1, len(flat)))],
    )
    (folder / "executable").write_bytes(executable.SerializeToString())
    for name, value in arrays.items():
        for rank, share in enumerate(io.make_shares(value, spu.Visibility.VIS_SECRET)):
            write_share(folder, rank, name, share)


def write_share(folder: Path, rank: int, name: str, share: Any) -> None:
    (folder / f"{rank}.{name}.meta").write_bytes(share.meta)
    for number, chunk in enumerate(share.share_chunks):
        (folder / f"{rank}.{name}.{number}.chunk").write_bytes(chunk)


def read_share(folder: Path, rank: int, name: str) -> Any:
    share = spu.libspu.Share()
    share.meta = (folder / f"{rank}.{name}.meta").read_bytes()
    count = len(list(folder.glob(f"{rank}.{name}.*.chunk")))
    share.share_chunks = [
        (folder / f"{rank}.{name}.{number}.chunk").read_bytes() for number in range(count)
    ]
    return share


def main(rank: int, folder: Path, addresses: list[str]) -> None:
    config = spu.RuntimeConfig(
        protocol=spu.ProtocolKind.ABY3,
        field=spu.FieldType.FM64,
        fxp_fraction_bits=FRACTION_BITS,
    )
    io = spu.Io(len(addresses), config)
    network = json.loads((folder / "network.json").read_text())
    with np.load(folder / "arrays.npz") as loaded:
        arrays = in_layout({name: loaded[name] for name in loaded.files})
    if rank == 0:
        prepare(network, arrays, io, folder)
        (folder / "prepared").touch()
    while not (folder / "prepared").exists():
        time.sleep(0.05)
    description = spu.link.Desc()
    for number, address in enumerate(addresses):
        description.add_party(f"party{number}", address)
    link = spu.link.create_brpc(description, rank)
    runtime = spu.Runtime(link, config)
    executable = spu.Executable()
    executable.ParseFromString((folder / "executable").read_bytes())
    for name in arrays:
        runtime.set_var(name, read_share(folder, rank, name))
    party = Party(link, runtime, executable, io, folder)
    for line in sys.stdin:
        print(json.dumps(execute(party, json.loads(line)["runs"])), flush=True)


class Party(NamedTuple):
    """What one process holds between runs."""

    link: Any
    runtime: Any
    executable: Any
    io: Any
    folder: Path


def execute(party: Party, runs: int) -> dict[str, Any]:
    """`runs` executions, each timed from a barrier on."""
    seconds = []
    for _ in range(runs):
        party.link.barrier()
        start = time.perf_counter()
        party.runtime.run(party.executable)
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds, "output": opened(party)}


def opened(party: Party) -> list[float]:
    """The first values of the output, at the first party; shares go through files."""
    link, share = party.link, party.runtime.get_var("output")
    write_share(party.folder, link.rank, "output", share)
    link.barrier()
    if link.rank:
        return []
    shares = [read_share(party.folder, rank, "output") for rank in range(link.world_size)]
    shown: list[float] = np.ravel(party.io.reconstruct(shares))[:SHOWN].tolist()
    return shown


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])

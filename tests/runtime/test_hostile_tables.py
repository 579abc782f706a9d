"""The native interpreter refuses every table that is wrong; what it accepts stays in its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_interpreters import OPENED, Records, image, interpreter, proven, step, words

from veilgraph.ir.plan.tables import MAX_RANK, BufferKind, Region
from veilgraph.kernels import KERNELS
from veilgraph.kernels.fused.declaration import INSTRUCTION
from veilgraph.kernels.fused.instructions import Op
from veilgraph.kernels.native import library, supported
from veilgraph.runtime._native import Interpreter

BAD_BUFFERS = {
    "ends beyond its region": words(232),
    "ends beyond its region (empty, at its end)": words(264, 0),
    "ends beyond its region (offset)": words(2**64 - 8),
    "ends beyond its region (stride)": words(strides=(80,)),
    "ends beyond its region (two dimensions)": words(rank=2, shape=(5, 7), strides=(7, 1)),
    "ends beyond its region (overflow)": words(
        rank=6, shape=(2**7,) * 6, strides=(2**38, 2**38, 2**38, 2**38, 2**38, 2**38)
    ),
    "ends beyond its region (constants)": words(64, 1, region=Region.CONSTANTS),
    "ends beyond its region (packed)": words(kind=BufferKind.PACKED, bits=40, shape=(54,)),
    "ends beyond its region (planes)": words(kind=BufferKind.PLANES, bits=33, shape=(10,)),
    "ends beyond its region (planes, overflow)": words(
        kind=BufferKind.PLANES, bits=2**32 - 1, shape=(2**38,)
    ),
    "begins before its region": words(16, strides=(-1,)),
    "begins before its region (far)": words(248, 2, strides=(-(2**38),)),
    "offset is not aligned": words(4),
    "offset is not aligned (narrow)": words(2, kind=BufferKind.WORDS32, bits=32),
    "unknown region": words(region=2),
    "unknown kind": words(kind=4),
    "rank out of range": words(rank=7),
    "packed elements and planes are of rank 1": words(kind=BufferKind.PACKED, rank=2),
    "packed elements and planes are of rank 1 (none)": words(kind=BufferKind.PLANES, rank=0),
    "bits out of range": words(bits=65),
    "bits out of range (none)": words(bits=0),
    "bits out of range (narrow)": words(kind=BufferKind.WORDS32, bits=33),
    "bits out of range (packed)": words(kind=BufferKind.PACKED, bits=0),
    "extent out of range": words(count=-1),
    "extent out of range (large)": words(rank=2, shape=(0, 2**38 + 1)),
    "stride out of range": words(count=1, strides=(2**38 + 1,)),
    "stride out of range (least)": words(count=1, strides=(-(2**63),)),
    "too many elements": words(rank=3, shape=(2**38, 2**38, 2**38), strides=(0, 0, 0)),
}


@OPENED
@pytest.mark.parametrize("name", BAD_BUFFERS)
def test_bad_buffer_is_refused(name: str, opened: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=f"^buffer 2: {name.split(' (')[0]}$"):
        opened(buffers=[words(0), words(64), BAD_BUFFERS[name]])


BAD_STEPS = {
    f"unknown kernel {len(KERNELS)}": step(len(KERNELS)),
    "buffers out of range": step(first_buffer=2),
    "buffers out of range (first)": step(first_buffer=2**32 - 1, buffer_count=0),
    "buffers out of range (count)": step(first_buffer=1, buffer_count=2**32 - 1),
    "parameters out of range": step(param_count=4),
    "parameters out of range (first)": step(first_param=2**64 - 1, param_count=1),
    "wrong number of buffers": step(buffer_count=1),
    "wrong number of parameters": step(param_count=1),
}


@OPENED
@pytest.mark.parametrize("name", BAD_STEPS)
def test_bad_step_is_refused(name: str, opened: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=rf"^step 1( \(copy\))?: {name.split(' (')[0]}$"):
        opened([step(), BAD_STEPS[name]], params=[1, 2, 3])


NARROW: dict[str, int] = {"kind": BufferKind.WORDS32, "bits": 32}
READ_ONLY: dict[str, int] = {"region": Region.CONSTANTS}
POOL = [1, 1, 1, 1, 0, 0]
CONV = [64, 1, 1, 0, 0, 1, 1, 1]
IMAGE, FILTER = image(0, 1, 2, 2, 2), image(128, 2, 2, 1, 1)

BAD_CALLS: dict[str, tuple[str, list[Records], list[int]]] = {
    "copy to constants": ("copy", [words(0, **READ_ONLY), words()], []),
    "copy of other words": ("copy", [words(), words(**NARROW)], []),
    "copy of another rank": ("copy", [words(), image(0, 4, 1)], []),
    "copy of another shape": ("copy", [words(), words(0, 5)], []),
    "copy to a repeated element": ("copy", [words(strides=(0,)), words()], []),
    "copy of planes": ("copy", [words(kind=BufferKind.PLANES, bits=1)] * 2, []),
    "fill of constants": ("fill", [words(**READ_ONLY)], [1]),
    "fill without a value": ("fill", [words()], []),
    "sum to constants": ("reduce_sum", [words(count=1, **READ_ONLY), words()], []),
    "sum to another rank": ("reduce_sum", [image(0, 1, 1), words()], []),
    "sum to part of an extent": ("reduce_sum", [words(count=2), words()], []),
    "sum to a repeated element": ("reduce_sum", [words(strides=(0,)), words()], []),
    "pool of rank 3": ("pool_sum", [image(0, 1, 2, 2)] * 2, POOL),
    "pool of a view": ("pool_sum", [IMAGE, image(0, 1, 2, 2, 2, strides=(8, 4, 1, 2))], POOL),
    "pool of other channels": ("pool_sum", [image(0, 1, 1, 2, 2), IMAGE], POOL),
    "pool without a window": ("pool_sum", [IMAGE, IMAGE], [0, *POOL[1:]]),
    "pool without a stride": ("pool_sum", [IMAGE, IMAGE], [1, 1, 0, 1, 0, 0]),
    "pool with negative padding": ("pool_sum", [IMAGE, IMAGE], [1, 1, 1, 1, 0, -1]),
    "pool with a far stride": ("pool_sum", [IMAGE, IMAGE], [1, 1, 1, 2**63 - 1, 0, 0]),
    "product without a pair": ("matmul", [image(0, 1, 2, 2)], [64]),
    "product of half a pair": ("matmul", [image(0, 1, 2, 2)] * 2, [64]),
    "product of four buffers": ("matmul", [image(0, 1, 2, 2)] * 4, [64]),
    "product without a ring": ("matmul", [image(0, 1, 2, 2)] * 3, []),
    "product in too wide a ring": ("matmul", [image(0, 1, 2, 2, **NARROW)] * 3, [33]),
    "product in no ring": ("matmul", [image(0, 1, 2, 2)] * 3, [0]),
    "product of rank 2": ("matmul", [image(0, 1, 2, 2), image(0, 2, 2), image(0, 1, 2, 2)], [64]),
    "product to rank 2": ("matmul", [image(0, 2, 2), image(0, 1, 2, 2), image(0, 1, 2, 2)], [64]),
    "product to a view": (
        "matmul",
        [image(0, 1, 2, 2, strides=(4, 1, 2)), image(0, 1, 2, 2), image(0, 1, 2, 2)],
        [64],
    ),
    "product to constants": (
        "matmul",
        [image(0, 1, 2, 2, **READ_ONLY), image(0, 1, 2, 2), image(0, 1, 2, 2)],
        [64],
    ),
    "product of other batches": (
        "matmul",
        [image(0, 1, 2, 2), image(0, 2, 2, 2), image(0, 1, 2, 2)],
        [64],
    ),
    "product of other rows": (
        "matmul",
        [image(0, 1, 2, 2), image(0, 1, 3, 2), image(0, 1, 2, 2)],
        [64],
    ),
    "product of other columns": (
        "matmul",
        [image(0, 1, 2, 2), image(0, 1, 2, 2), image(0, 1, 2, 3)],
        [64],
    ),
    "product of other depths": (
        "matmul",
        [image(0, 1, 2, 2), image(0, 1, 2, 3), image(0, 1, 2, 2)],
        [64],
    ),
    "convolution of half a pair": ("conv2d", [IMAGE, IMAGE], CONV),
    "convolution to constants": (
        "conv2d",
        [image(0, 1, 2, 2, 2, **READ_ONLY), IMAGE, FILTER],
        CONV,
    ),
    "convolution of other images": (
        "conv2d",
        [IMAGE, IMAGE, FILTER, image(0, 1, 2, 2, 3), FILTER],
        CONV,
    ),
    "convolution by other filters": (
        "conv2d",
        [IMAGE, IMAGE, FILTER, IMAGE, image(0, 2, 2, 2, 1)],
        CONV,
    ),
    "convolution by deep filters": ("conv2d", [IMAGE, IMAGE, image(0, 2, 3, 1, 1)], CONV),
    "convolution to other filters": ("conv2d", [image(0, 1, 3, 2, 2), IMAGE, FILTER], CONV),
    "convolution of rank 3": ("conv2d", [IMAGE, image(0, 2, 2, 2), FILTER], CONV),
    "convolution of a view": (
        "conv2d",
        [IMAGE, image(0, 1, 2, 2, 2, strides=(8, 4, 1, 2)), FILTER],
        CONV,
    ),
    "convolution in too wide a ring": ("conv2d", [IMAGE, IMAGE, FILTER], [65, *CONV[1:]]),
    "convolution without a stride": ("conv2d", [IMAGE, IMAGE, FILTER], [64, 0, *CONV[2:]]),
    "convolution without groups": ("conv2d", [IMAGE, IMAGE, FILTER], [*CONV[:7], 0]),
    "convolution in three groups": ("conv2d", [IMAGE, IMAGE, FILTER], [*CONV[:7], 3]),
    "convolution with negative padding": (
        "conv2d",
        [IMAGE, IMAGE, FILTER],
        [64, 1, 1, -1, *CONV[4:]],
    ),
    "convolution with far dilation": (
        "conv2d",
        [IMAGE, IMAGE, FILTER],
        [*CONV[:5], 2**63 - 1, 1, 1],
    ),
    "convolution without parameters": ("conv2d", [IMAGE, IMAGE, FILTER], []),
}


@OPENED
@pytest.mark.parametrize("name", BAD_CALLS)
@pytest.mark.parametrize("isa", supported())
def test_bad_call_is_refused(isa: str, name: str, opened: Callable[..., Any]) -> None:
    kernel, buffers, params = BAD_CALLS[name]
    call = step(kernel, buffer_count=len(buffers), param_count=len(params))
    with pytest.raises(ValueError, match=rf"^step 0 \({kernel}\): "):
        opened([call], buffers, params, library=str(library(isa)))


def test_store_to_constants_is_refused() -> None:
    store = np.array(
        [(2, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)], "<u2,<u2,<i4,<i4,<i4,<i4,<i2,<i2,<i2,<u2,<i4,<i8"
    )
    params = [4, 1, 0, 1, *store.view(np.int64).tolist()]
    call = step("fused", buffer_count=1, param_count=len(params))
    with pytest.raises(ValueError, match="store to read-only memory"):
        interpreter([call], [words(**READ_ONLY)], params)


def test_a_proof_needs_none_of_the_memory() -> None:
    """A party's memory on a GPU may be larger than all that its host has."""
    far = 2**40 - 32
    proven(buffers=[words(far), words(64)], arena_bytes=2**40)
    with pytest.raises(ValueError, match="buffer 0: ends beyond its region"):
        proven(buffers=[words(far + 8), words(64)], arena_bytes=2**40)
    with pytest.raises(ValueError, match="key number out of range"):
        proven(
            [step("fused", param_count=len(PROGRAM), buffer_count=4)],
            STREAMS,
            PROGRAM,
            arena_bytes=PAGE,
        )


PAGE = 4096  # of arena: what lies beyond it may not be touched


def at_the_end(*shape: int, **fields: Any) -> Records:
    """A contiguous buffer whose last element is the arena's last."""
    return image(PAGE - 8 * int(np.prod(shape)), *shape, **fields)


def program(*instructions: tuple[int, ...]) -> list[int]:
    """Parameters of a program on 70 elements with 2 word and 3 bit registers."""
    table = np.array(list(instructions), INSTRUCTION)
    return [70, 2, 3, len(table), *table.view(np.int64).tolist()]


PROGRAM = program(
    (Op.LOAD, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    (Op.LOAD, 64, 1, 1, 2, 35, 0, 0, 0, 0, 0, 0),
    (Op.LOOKUP, 64, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0),
    (Op.DRAW, 64, 0, 0, 0, 0, 0, 0, 0, 32, 0, 5),
    (Op.PACK, 64, 0, 0, 0, 0, 1, 0, 0, 3, 0, 60),
    (Op.DRAW_BITS, 0, 0, 1, 1, 0, 1, 2, 0, 3, 0, 5),
    (Op.LOAD_BITS, 0, 1, 2, 0, 0, 1, 1, 0, 2, 0, 0),
    (Op.AND_BITS, 0, 2, 0, 1, 0, -1, 1, 1, 2, 0, 0),
    (Op.UNPACK, 64, 1, 2, 0, 0, 0, -1, 0, 3, 0, 40),
    (Op.SELECT, 64, 1, 2, 0, 1, 0, 0, 0, 0, 0, 0),
    (Op.STORE, 64, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0),
    (Op.STORE_BITS, 0, 0, 2, 1, 0, 0, 1, 1, 2, 0, 0),
)
STREAMS = [
    at_the_end(70),
    words(PAGE - 352, 70, kind=BufferKind.PACKED, bits=40),
    words(PAGE - 48, 70, kind=BufferKind.PLANES, bits=3),
    at_the_end(64),
]
RIGHT_CALLS: dict[str, tuple[list[Records], list[int]]] = {
    "fused": (STREAMS, PROGRAM),
    "matmul": ([at_the_end(2, 7, 9), at_the_end(2, 7, 5), at_the_end(2, 5, 9)], [64]),
    "conv2d": (
        [at_the_end(1, 6, 3, 3), at_the_end(1, 4, 5, 5), at_the_end(6, 2, 3, 3)],
        [64, 2, 2, 1, 1, 1, 1, 2],
    ),
    "conv2d, a channel a group": (
        [at_the_end(1, 4, 3, 3), at_the_end(1, 2, 5, 5), at_the_end(4, 1, 3, 3)],
        [64, 2, 2, 1, 1, 1, 1, 2],
    ),
    "pool_sum": ([at_the_end(2, 3, 3, 3), at_the_end(2, 3, 6, 6)], [3, 2, 2, 2, 1, 0]),
    "reduce_sum": ([at_the_end(1, 6, 1), at_the_end(5, 6, 7)], []),
    "copy": ([at_the_end(5, 6, 7), at_the_end(5, 6, 7)], []),
    "fill": ([at_the_end(5, 6, 7)], [9]),
    "point, words": (
        [at_the_end(3, 5, 2), at_the_end(1, 2), at_the_end(3, 2), at_the_end(3, 2), at_the_end(3)],
        [2, 4, 1],
    ),
    "point, rows": (
        [at_the_end(3, 13), at_the_end(1, 2), at_the_end(3, 2), at_the_end(3, 5, 2)],
        [0, 4, 1],
    ),
    "point, turned rows": (
        [at_the_end(3, 9), at_the_end(1, 2), at_the_end(3, 2), at_the_end(3, 5, 2), at_the_end(3)],
        [1, 4, 1],
    ),
    "compare, words": (
        [
            *(at_the_end(30), at_the_end(1, 2), at_the_end(3, 2), at_the_end(3, 2)),
            *(at_the_end(3), at_the_end(3)),
        ],
        [2, 4, 64, 0, 0],
    ),
    "compare, parts": (
        [
            *(at_the_end(3), at_the_end(1, 2), at_the_end(3, 2), at_the_end(3)),
            *(at_the_end(12), at_the_end(18)),
        ],
        [0, 4, 64, 0, 0],
    ),
}
CHANGES = st.sampled_from([-9, -8, -4, -2, -1, 1, 2, 4, 8, 64, 511, 2**20, 2**38, -(2**38), 2**62])
FIELDS = ("offset", "kind", "bits", "rank", "shape", "shape", "shape", "strides", "strides")


def changed(number: int, by: int, dtype: np.dtype[Any]) -> Any:
    """The sum in the arithmetic of a field, wrapped around."""
    size = 8 * dtype.itemsize
    return np.array((number + by) % (1 << size), f"<u{dtype.itemsize}").astype(dtype)


@st.composite
def nearly_right_call(draw: st.DrawFn, name: str) -> tuple[list[Records], list[int]]:
    """A call that is right but for a few fields of its buffers, parameters or instructions."""
    buffers, params = RIGHT_CALLS[name]
    buffers, params = [b.copy() for b in buffers], list(params)
    in_params = st.booleans() if params else st.just(False)
    for _ in range(draw(st.integers(0, 3))):
        if draw(in_params):
            at = draw(st.integers(0, len(params) - 1))
            part = np.array([params[at]], np.int64).view(
                draw(st.sampled_from(["<i2", "<i4", "<i8"]))
            )
            k = draw(st.integers(0, len(part) - 1))
            part[k] = changed(int(part[k]), draw(CHANGES), part.dtype)
            params[at] = int(part.view(np.int64)[0])
            continue
        field, b = draw(st.sampled_from(FIELDS)), buffers[draw(st.integers(0, len(buffers) - 1))]
        if field in ("shape", "strides"):
            d = draw(st.integers(0, MAX_RANK - 1))
            b[field][d] = changed(int(b[field][d]), draw(CHANGES), b[field].dtype)
        else:
            b[field] = changed(int(b[field]), draw(CHANGES), b.dtype[field])
    return buffers, params


@pytest.mark.parametrize("isa", supported())
@pytest.mark.parametrize("name", RIGHT_CALLS)
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_what_is_accepted_stays_in_memory(isa: str, name: str, data: st.DataObject) -> None:
    """Calls close to right are refused, or run inside the arena, all around which is no memory."""
    buffers, params = data.draw(nearly_right_call(name))
    call = step(name.split(",")[0], buffer_count=len(buffers), param_count=len(params))
    options = {"library": str(library(isa)), "keys": bytes(32), "arena_bytes": PAGE}
    try:
        m = interpreter([call], buffers, params, **options)
    except ValueError:
        return
    m.run(0, 1, 0)


def test_every_kernel_has_a_right_call() -> None:
    assert {name.split(",")[0] for name in RIGHT_CALLS} == set(KERNELS)


@pytest.mark.parametrize("name", RIGHT_CALLS)
def test_calls_at_the_end_of_the_arena_are_right(name: str) -> None:
    buffers, params = RIGHT_CALLS[name]
    call = step(name.split(",")[0], buffer_count=len(buffers), param_count=len(params))
    interpreter([call], buffers, params, keys=bytes(32), arena_bytes=PAGE).run(0, 1, 0)


@given(st.binary(max_size=32 * 3), st.binary(max_size=128 * 4), st.binary(max_size=80))
def test_random_tables(steps: bytes, buffers: bytes, params: bytes) -> None:
    """Bytes that say nothing are refused, or are rounds only."""
    path = str(library())
    steps, buffers = steps[: len(steps) // 32 * 32], buffers[: len(buffers) // 128 * 128]
    params = params[: len(params) // 8 * 8]
    try:
        m = Interpreter(path, steps, buffers, params, b"", PAGE, bytes(16))
    except ValueError:
        return
    with pytest.raises(ValueError, match=r"steps out of range|is a round"):
        m.run(0, max(len(m), 1), 0)

"""The native interpreter: memory, steps, threads, and what it is made from."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest
from small_interpreters import CONSTANTS, busy_interpreter, interpreter, step, words

from veilgraph.ir.plan.tables import ROUND, Region
from veilgraph.kernels import KERNELS
from veilgraph.kernels.native import library, supported
from veilgraph.runtime._native import Interpreter

TABLES = ("step", "buffer", "parameter")
MOST_RUNS = 100  # until two threads meet


def test_runs_a_range_of_steps() -> None:
    fill = step("fill", first_buffer=2, buffer_count=1, first_param=1, param_count=1)
    m = interpreter([step(), fill], [words(0), words(64), words(0, 2)], [7, -1])
    m.arena[64:96] = np.arange(32)
    m.run(0, 1, 0)
    np.testing.assert_array_equal(m.arena[:32], np.arange(32))
    m.run(1, 2, 0)
    np.testing.assert_array_equal(m.arena[:32], [255] * 16 + list(range(16, 32)))
    m.run(1, 1, 0)
    assert len(m) == 2


def test_reads_constants() -> None:
    m = interpreter(buffers=[words(8), words(32, region=Region.CONSTANTS)])
    m.run(0, 1, 0)
    assert m.arena[8:40].tobytes() == CONSTANTS[32:64]


def test_every_library_has_the_kernels_of_the_package() -> None:
    for isa in supported():
        assert interpreter(library=str(library(isa))).kernels == KERNELS


def test_unknown_instruction_set() -> None:
    with pytest.raises(ValueError, match="'mmx' is not one of portable"):
        library("mmx")


def test_arena_is_zero_at_first_and_after_wipe() -> None:
    m = interpreter()
    assert not m.arena.any()
    m.arena[:] = 1
    m.wipe()
    assert not m.arena.any()


def test_arena_outlives_the_name_of_its_interpreter() -> None:
    arena = interpreter(arena_bytes=1 << 22).arena
    gc.collect()
    arena[:] = 9
    assert int(arena.sum()) == 9 << 22


def test_profile_counts_calls_and_time() -> None:
    m = interpreter()
    for _ in range(3):
        m.run(0, 1, 0)
    calls, nanoseconds = m.profile["copy"]
    assert calls == 3
    assert nanoseconds > 0
    assert m.profile["matmul"] == (0, 0)
    m.reset_profile()
    assert m.profile["copy"] == (0, 0)


def test_lets_other_threads_run() -> None:
    """Long products leave Python's lock to others meanwhile, but let no second call in."""
    repeats = 8
    m = busy_interpreter(repeats)
    worker = threading.Thread(target=m.run, args=(0, repeats, 0))
    worker.start()
    time.sleep(0.05)
    assert worker.is_alive()
    with pytest.raises(RuntimeError, match="the interpreter is running already"):
        m.wipe()
    with pytest.raises(RuntimeError, match="the interpreter is running already"):
        m.run(0, 1, 0)
    worker.join()
    assert m.profile["matmul"][0] == repeats


@pytest.mark.parametrize(("first", "last"), [(0, 3), (2, 1), (3, 3), (0, 2)])
def test_steps_that_cannot_run(first: int, last: int) -> None:
    m = interpreter([step(), step(ROUND)])
    with pytest.raises(ValueError, match=r"steps out of range|step 1: is a round"):
        m.run(first, last, 0)


def test_round_needs_no_buffers() -> None:
    assert len(interpreter([step(ROUND, first_buffer=2**32 - 1)])) == 1


@pytest.mark.parametrize("run", [-1, 2**32])
def test_run_number_is_of_32_bits(run: int) -> None:
    with pytest.raises(TypeError):
        interpreter().run(0, 1, run)


@pytest.mark.parametrize("size", [1, 31, 33])
@pytest.mark.parametrize("table", TABLES)
def test_tables_of_broken_records_are_refused(table: str, size: int) -> None:
    steps, buffers, params = (bytes(size) if t == table else b"" for t in TABLES)
    with pytest.raises(ValueError, match=f"{table} table: {size} bytes are no whole records"):
        Interpreter(str(library()), steps, buffers, params, b"", 0, b"")


def test_keys_are_of_16_bytes() -> None:
    with pytest.raises(ValueError, match="keys are not of 16 bytes each"):
        interpreter(keys=bytes(17))


def test_other_keys_are_as_many() -> None:
    made = interpreter(keys=bytes(32))
    made.rekey(bytes(range(32)))
    for wrong in (b"", bytes(16), bytes(48)):
        with pytest.raises(ValueError, match="other keys than the program's"):
            made.rekey(wrong)


def test_keys_stay_while_the_machine_runs() -> None:
    made = busy_interpreter()
    refused = 0
    for _ in range(MOST_RUNS):  # one may be over before this thread has its turn
        running = threading.Thread(target=made.run, args=(0, len(made), 0))
        running.start()
        while running.is_alive():
            try:
                made.rekey(b"")
            except RuntimeError:
                refused += 1
        running.join()
        if refused:
            break
    assert refused


@pytest.mark.parametrize("threads", [0, 257])
def test_threads_out_of_range(threads: int) -> None:
    with pytest.raises(ValueError, match="threads are not between 1 and 256"):
        interpreter(threads=threads)


def test_large_arena_is_refused_before_it_is_allocated() -> None:
    with pytest.raises(ValueError, match="is larger than the 1024 allowed"):
        interpreter(arena_bytes=2**63, max_arena_bytes=1024)


def test_arena_that_the_system_does_not_have() -> None:
    with pytest.raises(MemoryError):
        interpreter(arena_bytes=2**60, max_arena_bytes=2**60)


def test_no_kernel_library() -> None:
    with pytest.raises(RuntimeError, match="kernel library: "):
        interpreter(library="libm.so.6")
    with pytest.raises(RuntimeError, match="kernel library: "):
        interpreter(library="/nonexistent.so")

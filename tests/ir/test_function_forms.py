"""Forms that programs carry: read back, refused where they make no sense; blocks have protocols."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from veilgraph.ir.errors import UnsupportedError
from veilgraph.ir.mlir import context
from veilgraph.ir.secret import exponential as exponentials
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.exponential import ExpSegments, ExpSums
from veilgraph.ir.secret.fourier import FourierSeries
from veilgraph.ir.secret.function_forms import FunctionForm, carried, function_form, row_form
from veilgraph.ir.secret.ops import Stated, attributes_of
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Tensor
from veilgraph.targets.functions.catalogue import FUNCTIONS, TURNING
from veilgraph.targets.functions.function_block import Wanted
from veilgraph.targets.suite import Suite
from veilgraph.targets.suites import SUITES

SERIES = FourierSeries(5, 1, 2, (1 << 20, -3), (0, 7), 20, -9, 4, 14, 16, 40)
SUMS = ExpSums(8, 5, 3, 12, 12, 40, 9)
POWER = ExpSegments(8, 5, 3, 12, 12, 40, 9, 30, 12)
WHOLE = RealRange(-1.0, 1.5, RangeSource.CALIBRATED)


@pytest.mark.parametrize("form", [SERIES, SUMS, POWER], ids=lambda form: form.block)
def test_a_form_is_read_as_it_is_carried(form: FunctionForm) -> None:
    read = row_form if form is SUMS else function_form
    assert read(carried(form)) == form
    assert tuple(table.shape for table in form.tables()) == form.table_shapes


@pytest.mark.parametrize(
    "changed",
    [{"block": "exp_sums"}, {"block": "guess"}, {"first": "one"}, {"more": 1}, {"sines": (0,)},
     {"window_bits": 41}],
)  # fmt: skip
def test_a_form_that_makes_no_sense_is_refused(changed: dict[str, Any]) -> None:
    parameters = carried(SERIES) | changed
    x = Tensor((3,), Encoding(40, 9))
    with pytest.raises((ValueError, TypeError)):
        secret_ops.Function.infer([x], {"form": parameters}, Stated(frac_bits=18, ring_bits=40))


def test_forms_compute_what_their_arithmetic_does() -> None:
    z, mask = np.arange(60, dtype=np.int64), np.arange(60, dtype=np.int64) * 7
    tables = exponentials.tables(POWER, 9)
    tall = exponentials.heights(POWER, 9, 30 / 2**9, 2.0**-12)
    expected = exponentials.values(POWER, z, mask, tables, tall)
    np.testing.assert_array_equal(POWER.values(z, mask), expected)
    np.testing.assert_array_equal(
        SUMS.values(z, mask), exponentials.sums(SUMS, z, mask, exponentials.tables(SUMS, 9))
    )


def test_a_plan_tells_no_calibrated_end_of_a_domain() -> None:
    argument = Argument("x", "input", "alice", Tensor((3,), Encoding(40, 9)), WHOLE)
    program = SecretProgram.create(context(), [argument], {})
    named = {"function": "gelu none", "least": -1.2345, "most": 2.718, "origin": 0.0}
    with program.at("layer"):
        y = secret_ops.Function.build(
            *program.block.arguments, range=WHOLE, stated=Stated(frac_bits=18, ring_bits=40),
            **named, error=2.0**-10, form=carried(SERIES),
        )  # fmt: skip
    program.finish({"y": y})
    (op,) = SecretProgram.parse(context(), program.text(), {}).operations
    found = attributes_of(op)
    assert (found["least"], found["most"]) == (-4.0, 4.0)
    assert found["form"] == carried(SERIES)
    assert attributes_of(program.operations[0])["most"] == 2.718


@pytest.mark.parametrize("suite", SUITES.values(), ids=lambda suite: suite.name)
def test_a_suite_has_the_protocols_of_its_blocks(suite: Suite) -> None:
    assert {block.form.block for block in suite.functions} <= set(suite.protocols)
    fitted = frozenset().union(*(block.functions for block in suite.functions))
    assert fitted >= {*FUNCTIONS, *TURNING}


def test_a_suite_without_blocks_says_so() -> None:
    rep3 = SUITES["rep3"]
    bare = Suite("bare", rep3.security, "", rep3.share, rep3.from_shares, rep3.reveal)
    with pytest.raises(UnsupportedError, match="bare"):
        bare.fit(Wanted("tanh", -1.0, 1.0, 12, 12, 40, 2.0**-13))
    with pytest.raises(UnsupportedError, match="bare"):
        bare.typical(40, 12, 12)


def test_the_first_block_that_fits_is_taken() -> None:
    wanted = Wanted("tanh", -1.0, 1.0, 12, 12, 40, 2.0**-13)
    found = SUITES["rep3"].fit(wanted)
    assert found is not None
    assert (found.function, found.error, found.form.block) == ("tanh", 2.0**-13, "masked_function")
    wide = Wanted("log", 1e-6, 1e6, 12, 12, 40, 2.0**-13)
    assert SUITES["rep3"].fit(wide) is None

"""The node cases of `onnx.backend.test`, compiled and run by all parties.

    python -m benchmarks.node_cases [--suite NAME] [--jobs 2] [--every N] [--quick] [--json]
        [PATTERN]

A case is one ONNX node with inputs and expected outputs. What a model gives as a constant (shapes,
axes, indices, bounds, scales) is an initialiser here; all else is a secret input. Each is run by
`simulate` in a ring of 64 bits, calibrated on its own input, with rep3 unless another suite is
named ("cleartext" is the fixed-point engine alone); it passes if it agrees with the expected
outputs. A case that can't be one is left out for a reason from REASONS.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, TypeProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

from veilgraph.compilation.compile import compile
from veilgraph.ir.errors import VeilgraphError
from veilgraph.runtime.simulate import simulate

TOLERANCE = 2e-3  # of the largest expected magnitude, or of 1 where that is less
PRECISION = {TensorProto.BFLOAT16: 2.0**-7, TensorProto.FLOAT16: 2.0**-9}  # with which it is said
QUICK = r"^(add|relu|where_example|maxpool_2d_default|matmul_2d)$"
Arrays = dict[str, npt.NDArray[Any]]

REASONS: Mapping[str, str] = {
    "strings": "strings are no numbers",
    "sequences": "sequences, optionals and maps are no tensors",
    "training": "training: losses, optimisers, gradients, batch statistics",
    "random": "random outputs",
    "float bits": "the bits of a float, NaN and infinities: a ring has none",
    "narrow floats": "float8, float4, int4, int2 and complex types",
    "dynamic": "the shape of an output depends on data",
    "no data": "nothing is computed from a secret",
    "expanded": "a node's case again, written out as the body that ONNX gives its operator",
}


def named(operators: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(operators.split())


WITHOUT: Mapping[str, frozenset[str]] = {
    "strings": named("StringConcat StringNormalizer StringSplit RegexFullMatch TfIdfVectorizer"),
    "sequences": named(
        "SequenceInsert SequenceMap SplitToSequence OptionalGetElement OptionalHasElement"
    ),
    "training": named("Adam Adagrad Momentum SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss"),
    "random": named("Bernoulli"),
    "float bits": named("BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor IsInf IsNaN"),
    "dynamic": named("NonMaxSuppression NonZero Unique Compress"),
    "no data": named(
        "BlackmanWindow HammingWindow HannWindow MelWeightMatrix EyeLike Shape Size Range Constant "
        "ConstantOfShape ImageDecoder"
    ),
}
# Operators whose cases are run again as the body that ONNX gives them: exporters write it.
WRITTEN_OUT = named("Attention")
PATTERNS: Mapping[str, str] = {  # of names
    "sequences": r"^(sequence_|identity_opt|identity_sequence|if_opt|if_seq|loop1[36]|optional)",
    "training": r"^(training_|dropout_.*train|batchnorm_.*training|sce_|nllloss_)",
    "narrow floats": r"(float8|float4|e4m3|e5m2|e8m0|int4|int2|complex)",
    "strings": r"string",
}
NUMERIC = frozenset(
    (
        *(TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16),
        *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
        *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
        TensorProto.BOOL,
    )
)
# Inputs that a model gives as constants, by position.
CONSTANTS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(named("Reshape Expand Tile Squeeze Unsqueeze Split CumSum TopK Trilu"), (1,)),
    **dict.fromkeys(named("Gather GatherElements GatherND ReverseSequence CumProd"), (1,)),
    **dict.fromkeys(named("Scatter ScatterElements ScatterND CenterCropPad AffineGrid"), (1,)),
    **dict.fromkeys(named("Upsample Pow GridSample Mod ArrayFeatureExtractor"), (1,)),
    **dict.fromkeys(named("TensorScatter"), (2,)),
    **dict.fromkeys(named("MaxUnpool"), (1, 2)),
    **dict.fromkeys(named("Pad Slice Resize"), (1, 2, 3, 4)),
    **dict.fromkeys(named("Clip DequantizeLinear QuantizeLinear"), (1, 2)),
    **dict.fromkeys(named("Col2Im Dropout DFT"), (1, 2)),
    "STFT": (1, 2, 3),
    **dict.fromkeys(named("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax"), (1,)),
    **dict.fromkeys(named("ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"), (1,)),
    "BatchNormalization": (1, 2, 3, 4),
    "OneHot": (1, 2),
    "If": (0,),
    "Loop": (0, 1),
    "MatMulInteger": (2, 3),
    "ConvInteger": (2, 3),
    "QLinearConv": (1, 2, 3, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "RNN": (1, 2, 3, 4),
    "GRU": (1, 2, 3, 4),
    "LSTM": (1, 2, 3, 4, 6, 7),
    "RotaryEmbedding": (3,),
}


@dataclass(frozen=True)
class Case:
    """One node case.

    Attributes:
        name: as ONNX names it, without "test_".
        operator: of its node, or of the node that it was expanded from.
        left_out: a key of REASONS, "" for a case that is run.
        elements: element types of the outputs.
    """

    name: str
    operator: str
    left_out: str
    model: ModelProto
    inputs: Arrays
    expected: Arrays
    elements: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What became of a case: "passes", "left out", "refused" or "wrong", and why."""

    name: str
    operator: str
    result: str
    why: str = ""


@cache
def cases() -> tuple[Case, ...]:
    """All node cases of the installed package, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the reference implementations on edge values
        found = {case.name: case for case in load_model_tests(kind="node")}
    return tuple(_case(found[name]) for name in sorted(found))


def _case(found: Any) -> Case:
    name = found.name.removeprefix("test_")
    model = ModelProto()
    model.CopyFrom(found.model)
    operator = _operator(name, model)
    left_out = _left_out(name, operator, model)
    if not left_out and "_expanded" in name and operator not in WRITTEN_OUT:
        left_out = "expanded"
    if left_out:
        return Case(name, operator, left_out, model, {}, {})
    (inputs, outputs), *_ = found.data_sets
    given = {i.name: _array(x) for i, x in zip(model.graph.input, inputs, strict=False)}
    expected = {o.name: _array(x) for o, x in zip(model.graph.output, outputs, strict=False)}
    secret = _with_constants(model, operator, given)
    sized = all(x.size for x in (*secret.values(), *expected.values()))
    reason = "" if secret and sized else "no data"
    if not all(np.isfinite(x).all() for x in (*given.values(), *expected.values())):
        reason = "float bits"
    elements = {info.name: info.type.tensor_type.elem_type for info in model.graph.output}
    return Case(name, operator, reason, model, secret, expected, elements)


def _array(value: Any) -> npt.NDArray[Any]:
    tensor = isinstance(value, TensorProto)
    array = np.asarray(numpy_helper.to_array(value) if tensor else value)
    return array if array.dtype.kind in "fiub" else array.astype(np.float32)  # bfloat16


def _operator(name: str, model: ModelProto) -> str:
    """The operator that a case tests: of an expanded one, what its nodes' names begin with."""
    if "_expanded" in name:
        for node in model.graph.node:
            for tensor in (*node.output, *node.input):
                if "_expanded_function_" in tensor:
                    return str(tensor).partition("_")[0]
    return str(model.graph.node[0].op_type)


def _left_out(name: str, operator: str, model: ModelProto) -> str:
    for reason, operators in WITHOUT.items():
        if operator in operators:
            return reason
    for reason, pattern in PATTERNS.items():
        if re.search(pattern, name):
            return reason
    if any(entry.domain == "ai.onnx.preview.training" for entry in model.opset_import):
        return "training"
    for info in (*model.graph.input, *model.graph.output):
        reason = _type_reason(info.type)
        if reason:
            return reason
    return ""


def _type_reason(type: TypeProto) -> str:
    if not type.HasField("tensor_type"):
        return "sequences"
    kind = type.tensor_type.elem_type
    if kind == TensorProto.STRING:
        return "strings"
    return "" if kind in NUMERIC else "narrow floats"


def _with_constants(model: ModelProto, operator: str, given: Arrays) -> Arrays:
    """Makes initialisers of the inputs that a model gives as constants; the other inputs."""
    positions = CONSTANTS.get(operator, ())
    names = [info.name for info in model.graph.input]
    if len(model.graph.node) == 1:
        names = list(model.graph.node[0].input)
    constant = {names[i] for i in positions if i < len(names) and names[i] in given}
    kept = [info for info in model.graph.input if info.name not in constant]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(
        numpy_helper.from_array(given[name], name) for name in sorted(constant)
    )
    return {name: x for name, x in given.items() if name not in constant}


def judge(case: Case, suite: str = "rep3") -> Outcome:
    """Compiles and runs a case."""
    if case.left_out:
        return Outcome(case.name, case.operator, "left out", case.left_out)
    try:
        found = _run(case, suite)
    except VeilgraphError as error:
        return Outcome(case.name, case.operator, "refused", str(error))
    why = _difference(case, found)
    return Outcome(case.name, case.operator, "wrong" if why else "passes", why)


def _run(case: Case, suite: str) -> Arrays:
    samples = {name: np.asarray(x, np.float32)[None] for name, x in case.inputs.items()}
    plan, weights = compile(case.model, suite=suite, calibrate=samples, ring=64)
    return dict(simulate(plan, weights, case.inputs).outputs)


def _difference(case: Case, found: Mapping[str, npt.NDArray[Any]]) -> str:
    for name, wanted in case.expected.items():
        wanted = np.asarray(wanted, np.float64)
        if found[name].shape != wanted.shape:
            return f"{name} has shape {found[name].shape}, not {wanted.shape}"
        error = float(np.abs(found[name] - wanted).max(initial=0))
        allowed = max(TOLERANCE, PRECISION.get(case.elements[name], 0.0))
        if not error <= allowed * max(1.0, float(np.abs(wanted).max(initial=0))):
            return f"{name} is off by {error:.3g}"
    return ""


def judge_all(chosen: Sequence[Case], jobs: int, suite: str = "rep3") -> Iterator[Outcome]:
    """Outcomes, each from a process of its own: a case that breaks it is wrong.

    The compiler is loaded before they part, which takes longer than most cases.
    """
    context = get_context("fork")
    yield from (judge(case) for case in chosen if case.left_out)
    left = [case for case in chosen if not case.left_out]
    for first in range(0, len(left), jobs):
        running = []
        for case in left[first : first + jobs]:
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_tell, args=(case, suite, sender))
            process.start()
            sender.close()
            running.append((case, process, receiver))
        for case, process, receiver in running:
            yield _heard(case, receiver)
            receiver.close()
            process.join()


def every(number: int) -> list[Case]:
    """Each `number`-th of the cases that can be run, by name, and all those left out."""
    left = [case for case in cases() if not case.left_out]
    return [*(case for case in cases() if case.left_out), *left[::number]]


def _tell(case: Case, suite: str, sender: Connection) -> None:
    sender.send(judge(case, suite))


def _heard(case: Case, receiver: Connection) -> Outcome:
    try:
        outcome: Outcome = receiver.recv()
    except EOFError:
        return Outcome(case.name, case.operator, "wrong", "the process ended")
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--suite", default="rep3")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    pattern = QUICK if given.quick else given.pattern
    chosen = [case for case in every(given.every) if re.search(pattern, case.name)]
    for outcome in judge_all(chosen, given.jobs, given.suite):
        told = " ".join(outcome.why.split())
        line = f"{outcome.result:9} {outcome.operator:24} {outcome.name}: {told}"
        print(json.dumps(asdict(outcome)) if given.json else line, flush=True)


if __name__ == "__main__":
    main()

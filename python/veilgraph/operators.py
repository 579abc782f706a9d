"""The ONNX operators that can be compiled, in which forms, and into what.

One row an operator. What torch-mlir lowers an operator to is `frontend/lowering/aten.py`'s to read,
and what has no protocol yet `passes/graph/approximate.py`'s to refuse; a test compiles a model of
each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from veilgraph.ir.errors import UsageError

PRODUCT = "products, one truncation"
SERIES = "one opening and a truncation"
COMPARISON = "a comparison"
COMPARISONS = "comparisons"
LOCAL = "local"
SECRET_ROWS = "local; one-hot rows times the table for secret indices"
AGGREGATED = "thresholds; sums, means, extremes of one target"
INTEGER_PART = "a truncation, a comparison"
REMAINDER = "products, a truncation, three comparisons"
CLIPPED = "products, one truncation, two comparisons"
ARC = "comparisons, an opening, products"
UNROLLED = "products and openings, one cell after another"
TREES = "a comparison a question, products by depth"
FOLDED = "nothing: done at compile time"
FIRST_OF_EQUALS = "one axis; the first of equal integers, either of real numbers that tie"


@dataclass(frozen=True)
class Operator:
    """An ONNX operator: the forms of it that can be compiled, and what they cost the parties."""

    name: str
    forms: str
    becomes: str


OPERATORS: tuple[Operator, ...] = (
    Operator("Abs", "any", COMPARISON),
    Operator("Acos", "numbers between -1 and 1, calibrated; to 7e-5", ARC),
    Operator("Acosh", "numbers above 1, calibrated", "two openings"),
    Operator("Add", "any, broadcasting", LOCAL),
    Operator("AffineGrid", "known size", LOCAL),
    Operator("And", "any", "a product"),
    Operator("ArgMax", FIRST_OF_EQUALS, "all pairs of ten; of more a tree of comparisons"),
    Operator("ArgMin", FIRST_OF_EQUALS, "all pairs of ten; of more a tree of comparisons"),
    Operator("ArrayFeatureExtractor", "any places", SECRET_ROWS),
    Operator("Asin", "numbers between -1 and 1, calibrated; to 7e-5", ARC),
    Operator("Asinh", "any, calibrated", "comparisons, two openings"),
    Operator("Atan", "calibrated, up to some 16", SERIES),
    Operator("Atanh", "numbers between -1 and 1, calibrated", "two openings"),
    Operator(
        "Attention",
        "masks, windows, caches, groups of queries; masked scores can't be told",
        "products, a softmax",
    ),
    Operator("AveragePool", "1 to 3 dimensions; any padding, ceil mode, gaps", LOCAL),
    Operator("BatchNormalization", "for inference", "the weights before it, or a product"),
    Operator("Binarizer", "any", COMPARISON),
    Operator("BlackmanWindow", "known length", FOLDED),
    Operator("Cast", "between numbers and truth values", "local; integer parts of real numbers"),
    Operator("CategoryMapper", "of columns of text, to numbers", "as OneHotEncoder, products"),
    Operator("CausalConvWithState", "any", PRODUCT),
    Operator("Ceil", "any", INTEGER_PART),
    Operator("Celu", "any", "a comparison, an opening"),
    Operator("CenterCropPad", "known shape", LOCAL),
    Operator("Clip", "bounds of one number, the owner's too", "a comparison a bound"),
    Operator("Col2Im", "any", LOCAL),
    Operator("Concat", "any", LOCAL),
    Operator("Constant", "any", FOLDED),
    Operator("ConstantOfShape", "known shape", FOLDED),
    Operator("Conv", "1 to 3 dimensions; groups, dilations, strides, any padding", PRODUCT),
    Operator("ConvInteger", "known zero points; decoded", PRODUCT),
    Operator("ConvTranspose", "1 to 3 dimensions; any padding", PRODUCT),
    Operator("Cos", "any", SERIES),
    Operator("Cosh", "calibrated", "two openings"),
    Operator("CumProd", "any", "log n products"),
    Operator("CumSum", "any", LOCAL),
    Operator("DFT", "known length and axis; inverse, one-sided", PRODUCT),
    Operator("DepthToSpace", "any", LOCAL),
    Operator("DequantizeLinear", "known scale and zero point; decoded", LOCAL),
    Operator("DictVectorizer", "of a map that is an input, of numbers", LOCAL),
    Operator("Div", "real: by known numbers, or secrets of one sign; integers", PRODUCT),
    Operator("Dropout", "for inference", LOCAL),
    Operator(
        "DynamicQuantizeLinear", "before integer products or DequantizeLinear; decoded", LOCAL
    ),
    Operator("Einsum", "as torch-mlir turns into matrix products", PRODUCT),
    Operator("Elu", "any", "a comparison, an opening"),
    Operator("Equal", "any, broadcasting", "two comparisons"),
    Operator("Erf", "any", SERIES),
    Operator("Exp", "calibrated", SERIES),
    Operator("Expand", "known shape", LOCAL),
    Operator("FeatureVectorizer", "any", LOCAL),
    Operator("Flatten", "any", LOCAL),
    Operator("FlexAttention", "with modifiers; masked scores can't be told", "products, a softmax"),
    Operator("Floor", "any", INTEGER_PART),
    Operator("GRU", "both forms, any direction, sequences of one length", UNROLLED),
    Operator("Gather", "any indices", SECRET_ROWS),
    Operator("GatherElements", "any indices; secret ones of all the data", SECRET_ROWS),
    Operator("GatherND", "known indices", LOCAL),
    Operator("Gelu", "both forms", SERIES),
    Operator("Gemm", "any transposition, alpha, beta", PRODUCT),
    Operator("GlobalAveragePool", "1 to 3 dimensions", LOCAL),
    Operator("GlobalMaxPool", "1 to 3 dimensions", "a tree of comparisons"),
    Operator("Greater", "any, broadcasting", COMPARISON),
    Operator("GreaterOrEqual", "any, broadcasting", COMPARISON),
    Operator("GridSample", "known grid; images and volumes, all modes", LOCAL),
    Operator("GroupNormalization", "calibrated", "an opening, products"),
    Operator("HammingWindow", "known length", FOLDED),
    Operator("HannWindow", "known length", FOLDED),
    Operator("HardSigmoid", "any", "two comparisons, a truncation"),
    Operator("HardSwish", "any", "two comparisons, a product"),
    Operator("Hardmax", "one axis; the first of equals", "a tree of comparisons, two more"),
    Operator("Identity", "any", LOCAL),
    Operator("If", "known condition, or branches of the same shapes", "one, or both and a product"),
    Operator(
        "Imputer",
        "any; NaN of what is given, and of nothing that is computed",
        "two comparisons, a product; of NaN a product",
    ),
    Operator("InstanceNormalization", "calibrated", "an opening, products"),
    Operator("LRN", "calibrated", "two openings, products"),
    Operator("LSTM", "any direction, peepholes, sequences of one length", UNROLLED),
    Operator("LabelEncoder", "of numbers or text, to numbers", "as OneHotEncoder, products"),
    Operator("LayerNormalization", "calibrated", "an opening, products"),
    Operator("LeakyRelu", "any", "a comparison, a truncation"),
    Operator("Less", "any, broadcasting", COMPARISON),
    Operator("LessOrEqual", "any, broadcasting", COMPARISON),
    Operator("LinearAttention", "all update rules", UNROLLED),
    Operator("LinearClassifier", "raw scores, LOGISTIC, SOFTMAX", "products, comparisons"),
    Operator("LinearRegressor", "raw scores, LOGISTIC, SOFTMAX", PRODUCT),
    Operator("Log", "positive numbers, calibrated", SERIES),
    Operator("LogSoftmax", "one axis", "two openings, comparisons by row"),
    Operator("Loop", "known count and condition, up to 1024 turns", "its body, each turn"),
    Operator(
        "LpNormalization", "order 1 and 2, calibrated, of no zero vector", "an opening, products"
    ),
    Operator("LpPool", "order 1 to 16, calibrated", "products, an opening or two"),
    Operator("MatMul", "any rank, broadcasting", PRODUCT),
    Operator("MatMulInteger", "known zero points; decoded", PRODUCT),
    Operator("Max", "any number of tensors, broadcasting", COMPARISONS),
    Operator(
        "MaxPool", "1 to 3 dimensions; any padding, dilations, ceil mode", "a tree of comparisons"
    ),
    Operator("MaxUnpool", "known indices, no output shape", LOCAL),
    Operator("Mean", "any number of tensors", "a truncation"),
    Operator("MeanVarianceNormalization", "calibrated", "an opening, products"),
    Operator("MelWeightMatrix", "known numbers", FOLDED),
    Operator("Min", "any number of tensors, broadcasting", COMPARISONS),
    Operator("Mish", "any", "two openings, a product"),
    Operator("Mod", "divisors known to the owner", REMAINDER),
    Operator("Mul", "any, broadcasting", PRODUCT),
    Operator("Neg", "any", LOCAL),
    Operator("Normalizer", "numbers whose size is never near 0", "products, openings"),
    Operator("Not", "any", LOCAL),
    Operator("OneHot", "known depth and values", "a point function an index, or comparisons"),
    Operator(
        "OneHotEncoder",
        "of whole numbers, or of columns of text",
        "two comparisons a category; of text a point function",
    ),
    Operator("Or", "any, broadcasting", "a product"),
    Operator("PRelu", "any", "a comparison, a product"),
    Operator("Pad", "a constant around, or what is there", LOCAL),
    Operator(
        "Pow", "whole known exponents up to 16, or positive numbers", "products; two openings"
    ),
    Operator("QLinearConv", "known scales and zero points; decoded", CLIPPED),
    Operator("QLinearMatMul", "known scales and zero points; decoded", CLIPPED),
    Operator(
        "QuantizeLinear",
        "known scale and zero point, 8 or 16 bits; decoded",
        "two comparisons; an integer part where integers are asked for",
    ),
    Operator("RMSNormalization", "calibrated", "an opening, products"),
    Operator("RNN", "any direction, sequences of one length", UNROLLED),
    Operator("Reciprocal", "numbers of one sign, calibrated", SERIES),
    Operator("ReduceL1", "any axes", COMPARISON),
    Operator("ReduceL2", "any axes, calibrated", "products, an opening"),
    Operator("ReduceLogSum", "positive sums, calibrated", SERIES),
    Operator("ReduceLogSumExp", "calibrated", "two openings"),
    Operator("ReduceMax", "any axes", "a tree of comparisons"),
    Operator("ReduceMean", "any axes", LOCAL),
    Operator("ReduceMin", "any axes", "a tree of comparisons"),
    Operator("ReduceProd", "any axes", "a tree of products"),
    Operator("ReduceSum", "any axes", LOCAL),
    Operator("ReduceSumSquare", "any axes", PRODUCT),
    Operator("Relu", "any", "a comparison, with the truncation before it"),
    Operator("Reshape", "known shape", LOCAL),
    Operator("Resize", "nearest, linear, cubic; all coordinates, antialias; known size", LOCAL),
    Operator("ReverseSequence", "known lengths", LOCAL),
    Operator("RotaryEmbedding", "any", PRODUCT),
    Operator("Round", "any; of two the even one", "a truncation, four comparisons"),
    Operator("STFT", "known step and length; any window", PRODUCT),
    Operator(
        "SVMClassifier",
        "every kernel, and probabilities",
        "as SVMRegressor, and comparisons by pair",
    ),
    Operator("SVMRegressor", "every kernel", "a product; an opening for radial and sigmoid ones"),
    Operator("Scaler", "any", PRODUCT),
    Operator("Scan", "from opset 9 on", "its body, each place"),
    Operator("Scatter", "known indices", LOCAL),
    Operator("ScatterElements", "known indices, all reductions", "local; products or comparisons"),
    Operator("ScatterND", "known indices, all reductions", "local; products or comparisons"),
    Operator("Selu", "any", "a comparison, an opening"),
    Operator("Shape", "any", FOLDED),
    Operator("Shrink", "any", "two comparisons, a product"),
    Operator("Sigmoid", "any", SERIES),
    Operator("Sign", "any", "two comparisons, products"),
    Operator("Sin", "any", SERIES),
    Operator("Sinh", "calibrated", "two openings"),
    Operator("Slice", "known positions, any steps", LOCAL),
    Operator("Softmax", "one axis", "three openings, comparisons by row"),
    Operator("Softplus", "any", SERIES),
    Operator("Softsign", "calibrated", "a comparison, an opening"),
    Operator("SpaceToDepth", "any", LOCAL),
    Operator("Split", "any", LOCAL),
    Operator("Sqrt", "positive numbers, calibrated", SERIES),
    Operator("Squeeze", "any", LOCAL),
    Operator("Sub", "any, broadcasting", LOCAL),
    Operator("Sum", "any number of tensors", LOCAL),
    Operator("SwiGLU", "any", "an opening, two products"),
    Operator("Swish", "any", "an opening, a product"),
    Operator("Tan", "cosines of one sign, calibrated", "openings, a product"),
    Operator("Tanh", "any", SERIES),
    Operator("TensorScatter", "known indices", LOCAL),
    Operator("ThresholdedRelu", "any", "a comparison, a product"),
    Operator("Tile", "known repetitions", LOCAL),
    Operator("TopK", "known count; the first of equals", "comparisons in groups, products"),
    Operator("Transpose", "any", LOCAL),
    Operator("TreeEnsemble", AGGREGATED, TREES),
    Operator("TreeEnsembleClassifier", "thresholds; one score for two classes", TREES),
    Operator("TreeEnsembleRegressor", AGGREGATED, TREES),
    Operator("Trilu", "any", LOCAL),
    Operator("Unsqueeze", "any", LOCAL),
    Operator("Upsample", "known scales", LOCAL),
    Operator("Where", "any condition", "a product"),
    Operator("Xor", "any, broadcasting", "a product"),
    Operator("ZipMap", "at the end: scores, a column a class", LOCAL),
)


# What people ask for and can't have, by how its names begin: why, and the way out.
REFUSED: dict[str, tuple[str, str]] = {
    "NonMaxSuppression": (
        "how many boxes are left depends on secret numbers, and shapes are public",
        "Reveal boxes and scores, and let their receiver suppress.",
    ),
    "NonZero": (
        "the shape of its result depends on secret numbers, and shapes are public",
        "Multiply by a mask of zeros and ones, which keeps the shape.",
    ),
}


def find(name: str) -> Operator:
    """The operator of this name, in any case.

    Raises:
        UsageError: it can't be compiled, or there is none.
    """
    by_name = {operator.name.lower(): operator for operator in OPERATORS}
    if name.lower() in by_name:
        return by_name[name.lower()]
    for start, why in REFUSED.items():
        if name.lower().startswith(start.lower()):
            raise UsageError(f"`{name}` can't be compiled: {why[0]}.", why[1])
    close = [by_name[found].name for found in get_close_matches(name.lower(), by_name)]
    hint = f"Did you mean {' or '.join(close)}?" if close else "`veilgraph ops` lists all."
    raise UsageError(f"`{name}` is no operator that can be compiled.", hint)

"""Shapes of operators from a seed, by rules that are told in :mod:`benchmarks.grid`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Literal, TypeAlias

import numpy as np

from benchmarks import layer_shapes
from portkern import ops
from portkern.spec.op import Op, Scalar, Workload

Kind: TypeAlias = Literal["odd", "power", "model", "layers"]
KINDS: tuple[Kind, ...] = ("odd", "power", "model")
Dims: TypeAlias = dict[str, int]

LEAST, MOST = 1e3, 2e8  # elements of the largest tensor
WIDEST = 1e7  # ratio of two lengths
#: Operations a call may have, by whether a GPU runs it: a second of a GPU's or of two cores' time
#: would be spent on one cell otherwise.
WORK = {True: 2e12, False: 2e10}
#: The elements that the largest tensor stays under on a CPU, or a run would take hours.
MOST_ON_CPU = 3e7

#: Lengths that layers of published models have: widths and hidden sizes (BERT, GPT-2, Llama 2 and
#: 3, Mistral, T5, ViT, Whisper), vocabularies, and tokens of a batch.
WIDTHS = (384, 512, 768, 1024, 1152, 1280, 1600, 2048, 3072, 4096, 5120, 8192, 11008, 14336, 28672)
VOCABULARIES = (21128, 30522, 32000, 32128, 50257, 51865, 128256, 151936)
TOKENS = (1, 2, 7, 16, 77, 128, 197, 256, 577, 1024, 1500, 2048, 4096, 8192, 16384)
HEADS = (1, 6, 8, 12, 16, 20, 25, 32, 40, 64)
HEAD_SIZES = (32, 40, 48, 64, 72, 80, 96, 112, 128)
#: Channels in and out, the image's side, the filter's and the stride (AlexNet, VGG, ResNet,
#: MobileNet's pointwise layers, EfficientNet, ConvNeXt, U-Net, ViT's patches).
LAYERS = (
    (3, 64, 224, 7, 2), (3, 64, 224, 3, 1), (64, 64, 56, 3, 1), (64, 256, 56, 1, 1),
    (256, 128, 56, 1, 2), (128, 128, 28, 3, 1), (128, 512, 28, 1, 1), (256, 256, 14, 3, 1),
    (512, 512, 7, 3, 1), (512, 2048, 7, 1, 1), (2048, 512, 7, 1, 1), (64, 128, 112, 3, 1),
    (512, 512, 28, 3, 1), (64, 192, 27, 5, 1), (32, 64, 112, 1, 1), (96, 576, 14, 1, 1),
    (3, 768, 224, 16, 16), (3, 96, 224, 4, 4), (320, 320, 64, 3, 1), (640, 640, 32, 3, 1),
)  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """How an operator's lengths are drawn. ``free`` are spread over the whole range, ``few`` come
    from short lists; ``models`` are what lengths come from in the third kind; none is below
    ``least``. ``whole`` gives everything at once, for operators whose lengths belong together."""

    free: tuple[str, ...] = ()
    few: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    models: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    whole: Callable[[np.random.Generator, Kind], tuple[Dims, dict[str, Scalar]]] | None = None
    least: Mapping[str, int] = field(default_factory=dict)


def draw(
    op: str, count: int, stream: np.random.Generator, *, gpu: bool, kinds: Sequence[Kind] = KINDS
) -> list[Workload]:
    """``count`` different workloads of the operator, of these kinds in turn."""
    definition = ops.load(op)
    made: dict[str, Workload] = {}
    turns = cycle(kinds)
    kind = next(turns)
    while len(made) < count:
        whose, dims, scalars = _drawn(definition, stream, kind)
        if definition.derived:
            dims |= definition.derived(dims, scalars)
        workload = Workload(_name(whose, dims, scalars), dims, scalars)
        if _fits(definition, workload, gpu) and workload.name not in made:
            made[workload.name] = workload
            kind = next(turns)
    return list(made.values())


def _drawn(op: Op, stream: np.random.Generator, kind: Kind) -> layer_shapes.Drawn:
    """The kind, or the model whose layer it is, and the lengths and scalars."""
    name = op.signature.name
    if kind == "layers":
        model, dims, scalars = layer_shapes.LAYERS[name](stream)
        return re.sub(r"[^\w.]+", "-", model.rpartition("/")[2]), dims, scalars
    rule = RULES[name]
    dims, scalars = rule.whole(stream, kind) if rule.whole else _spread(op, rule, stream, kind)
    if name == "topk":
        dims["kept"] = min(dims["kept"], dims["cols"])
        scalars = {"k": dims["kept"]}
    return kind, dims, scalars


def _name(kind: str, dims: Dims, scalars: Mapping[str, Scalar]) -> str:
    lengths = "x".join(map(str, dims.values()))
    return f"{kind}-{lengths}" + "".join(f"-{name}{value}" for name, value in scalars.items())


def _spread(
    op: Op, rule: Rule, stream: np.random.Generator, kind: Kind
) -> tuple[Dims, dict[str, Scalar]]:
    """Ratios to the first length and the largest tensor's size, both log-uniform."""
    dims = {axis: int(stream.choice(values)) for axis, values in rule.few.items()}
    if kind == "model" and rule.models:
        for axis, values in rule.models.items():
            dims[axis] = int(stream.choice(values))
        return {axis: dims[axis] for axis in op.signature.axes}, {}
    wide = math.log(WIDEST)
    logs = {axis: stream.uniform(-wide, wide) for axis in rule.free}
    logs[rule.free[0]] = 0.0
    size = stream.uniform(math.log(LEAST), math.log(MOST))
    # All free lengths are multiplied by one factor, found by halving, so that the size is met.
    low, high = -2 * wide, 2 * wide + math.log(MOST)
    for _ in range(60):
        middle = (low + high) / 2
        lengths = {axis: max(1.0, math.exp(min(log + middle, 40.0))) for axis, log in logs.items()}
        met = math.log(_largest(op, dims | lengths))
        low, high = (middle, high) if met < size else (low, middle)
    for axis, length in lengths.items():
        dims[axis] = max(_rounded(length, kind), rule.least.get(axis, 1))
    return {axis: dims[axis] for axis in op.signature.axes}, {}


def _rounded(length: float, kind: Kind) -> int:
    if kind == "power":
        return int(2 ** round(math.log2(length)))
    whole = max(1, round(length))
    return whole | 1 if kind == "odd" else whole


def _largest(op: Op, dims: Mapping[str, float]) -> float:
    tensors = (*op.signature.inputs, *op.signature.outputs)
    return max(
        math.prod(dims[part] if isinstance(part, str) else part for part in tensor.shape)
        for tensor in tensors
        if all(not isinstance(part, str) or part in dims for part in tensor.shape)
    )


def _fits(op: Op, workload: Workload, gpu: bool) -> bool:
    if min(workload.dims.values()) < 1:
        return False
    largest, work = _largest(op, workload.dims), op.flops(workload.dims)
    most = MOST if gpu else MOST_ON_CPU
    return LEAST / 2 <= largest <= most and work <= WORK[gpu]


# ---- operators whose lengths belong together


def _convolution(stream: np.random.Generator, kind: Kind) -> tuple[Dims, dict[str, Scalar]]:
    if kind == "model":
        c, f, side, filter_side, stride = LAYERS[int(stream.integers(len(LAYERS)))]
        n = int(stream.choice((1, 2, 8, 16, 32, 64)))
        padding = 0 if stride == filter_side else filter_side // 2
        dims = {"n": n, "c": c, "h": side, "w": side, "f": f, "kh": filter_side, "kw": filter_side}
        return dims, {"stride": stride, "padding": padding}
    filter_side = int(stream.choice((1, 1, 3, 3, 3, 5, 7, 11)))
    stride = int(stream.choice((1, 1, 1, 2, 2, 3, 4)))
    lengths = {
        "n": _log(stream, 1, 64), "c": _log(stream, 1, 1024),
        "h": _log(stream, 4, 256), "w": _log(stream, 4, 256), "f": _log(stream, 1, 1024),
    }  # fmt: skip
    dims = {axis: _rounded(length, kind) for axis, length in lengths.items()}
    padding = int(stream.integers(0, filter_side // 2 + 1))
    return dims | {"kh": filter_side, "kw": filter_side}, {"stride": stride, "padding": padding}


def _pooled(stream: np.random.Generator, kind: Kind) -> tuple[Dims, dict[str, Scalar]]:
    dims, scalars = _convolution(stream, kind)
    window = int(stream.choice((2, 3)))
    return dims, {**scalars, "window": window, "pool_stride": int(stream.choice((1, 2, 2, window)))}


def _pool(stream: np.random.Generator, kind: Kind) -> tuple[Dims, dict[str, Scalar]]:
    dims, _ = _convolution(stream, kind)
    window = int(stream.choice((2, 2, 3, 3, 5)))
    scalars: dict[str, Scalar] = {
        "window": window,
        "stride": int(stream.choice((1, 2, 2, window))),
        "padding": int(stream.integers(0, window // 2 + 1)),
    }
    return {axis: dims[axis] for axis in ("n", "c", "h", "w")}, scalars


def _log(stream: np.random.Generator, low: float, high: float) -> float:
    return math.exp(stream.uniform(math.log(low), math.log(high)))


FLAT = tuple(t * w for t in TOKENS for w in (768, 3072, 4096, 11008, 14336))
ROWS = {"rows": TOKENS, "cols": WIDTHS}
CLASSES = {"rows": TOKENS, "cols": VOCABULARIES}
PRODUCT = {"m": TOKENS, "n": (*WIDTHS, *VOCABULARIES), "k": WIDTHS}
RULES: dict[str, Rule] = {
    **dict.fromkeys(("relu", "gelu", "silu_mul"), Rule(("n",), models={"n": FLAT})),
    "add": Rule(("m", "n"), models={"m": TOKENS, "n": WIDTHS}),
    **dict.fromkeys(("layernorm", "rmsnorm", "bias_gelu"), Rule(("rows", "cols"), models=ROWS)),
    **dict.fromkeys(("softmax", "argmax"), Rule(("rows", "cols"), models=CLASSES)),
    **dict.fromkeys(("cumsum", "transpose"), Rule(("rows", "cols"), models=ROWS)),
    "cross_entropy": Rule(
        ("rows", "classes"), models={"rows": TOKENS, "classes": VOCABULARIES}, least={"classes": 2}
    ),
    "topk": Rule(("rows", "cols"), {"kept": (1, 2, 5, 8, 16, 50, 64, 100)}, CLASSES),
    "sum": Rule(
        ("outer", "reduce", "inner"),
        models={"outer": (1, 8, 64), "reduce": TOKENS, "inner": (1, *WIDTHS)},
    ),
    **dict.fromkeys(
        ("matmul", "int8_matmul", "linear", "linear_bias"),
        Rule(("m", "n", "k"), models=PRODUCT),
    ),
    "bmm": Rule(
        ("batch", "m", "n", "k"),
        models={"batch": HEADS, "m": TOKENS, "n": TOKENS, "k": HEAD_SIZES},
    ),
    "embedding": Rule(
        ("vocab", "dim", "n"), models={"vocab": VOCABULARIES, "dim": WIDTHS, "n": TOKENS}
    ),
    "scatter_add": Rule(
        ("rows", "dim", "n"), models={"rows": VOCABULARIES, "dim": WIDTHS, "n": TOKENS}
    ),
    "rope": Rule(
        ("tokens",),
        {"heads": HEADS, "half": (16, 20, 32, 40, 48, 64)},
        {"tokens": TOKENS},
    ),
    "attention": Rule(
        ("length",),
        {"batch": (1, 1, 2, 4, 8, 16), "heads": HEADS, "dim": HEAD_SIZES},
        {"length": TOKENS},
    ),
    "conv2d": Rule(whole=_convolution),
    "maxpool2d": Rule(whole=_pool),
    "conv2d_relu_maxpool": Rule(whole=_pooled),
}

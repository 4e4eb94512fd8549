"""Kernels choose by shape; what they choose at sizes that no set of the operator has is right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from types import MappingProxyType

import pytest

from portkern import ops
from portkern.cells.selection import default_target
from portkern.evaluator.result import Result
from portkern.records.record import Verdict
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Backend, Missing
from portkern.spec.op import Workload
from portkern.testing import evaluate
from tests.tiers import EVERYTHING

#: One kernel is in one, the next in the other, unless everything is asked for.
DTYPES = ("float32", "bfloat16")


def turns(kernels: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Each with a dtype."""
    return [
        (*kernel, dtype)
        for number, kernel in enumerate(kernels)
        for dtype in (DTYPES if EVERYTHING else [DTYPES[number % 2]])
    ]


#: Vectors, thin matrices with packs and without. Few long rows, of which each has parts, and narrow
#: ones of which a block has many; short runs; few columns with packs and without. Few rows that get
#: much, with packs of several elements and in several tiles of rows; many rows that get more than
#: lists hold.
SHAPES = {
    "transpose": [
        {"rows": 1, "cols": 4099},
        {"rows": 2, "cols": 4096},
        {"rows": 16400, "cols": 3},
        {"rows": 333, "cols": 29},
        {"rows": 131, "cols": 207},
    ],
    # Of little depth: rows that a pack has several of, and a batch.
    "matmul": [
        {"m": 11, "n": 3845, "k": 1},
        {"m": 37, "n": 9, "k": 3},
        {"m": 64, "n": 96, "k": 4},
        {"m": 9, "n": 7, "k": 0},
    ],
    # Thin: byte by byte, in packs, a few columns, in parts. Small tiles that share their depth.
    "int8_matmul": [
        {"m": 3, "n": 520, "k": 8},
        {"m": 40, "n": 64, "k": 1600},
        {"m": 1, "n": 281, "k": 449},
        {"m": 5, "n": 64, "k": 300},
        {"m": 70, "n": 3, "k": 41},
        {"m": 2, "n": 33, "k": 9000},
        {"m": 30, "n": 50, "k": 3},
    ],
    "argmax": [{"rows": 530, "cols": 1}],
    "maxpool2d": [
        {"n": 1, "c": 3, "h": 7, "w": 99, "window": 2, "stride": 2, "padding": 0},
        {"n": 2, "c": 5, "h": 40, "w": 8, "window": 3, "stride": 1, "padding": 1},
        {"n": 2, "c": 3, "h": 33, "w": 47, "window": 5, "stride": 5, "padding": 2},
    ],
    "bmm": [{"batch": 5, "m": 11, "n": 7, "k": 2}, {"batch": 3, "m": 16, "n": 40, "k": 4}],
    "topk": [
        {"rows": 2, "cols": 20001, "k": 200},
        {"rows": 530, "cols": 1, "k": 1},
        {"rows": 37, "cols": 100, "k": 100},
        {"rows": 19, "cols": 256, "k": 8},
        {"rows": 7, "cols": 65, "k": 16},
        {"rows": 5, "cols": 510, "k": 32},
    ],
    "sum": [
        {"outer": 301, "reduce": 103, "inner": 1},
        {"outer": 3000, "reduce": 1, "inner": 1},
        {"outer": 37, "reduce": 50, "inner": 8},
        {"outer": 41, "reduce": 9, "inner": 5},
    ],
    "scatter_add": [
        {"rows": 1, "dim": 33, "n": 61},
        {"rows": 3, "dim": 64, "n": 2048},
        {"rows": 40, "dim": 12, "n": 1400},
        {"rows": 70, "dim": 1, "n": 2300},
        {"rows": 1500, "dim": 1, "n": 130000},
        {"rows": 13, "dim": 97, "n": 3821},
    ],
}
#: Shapes for kernels in OpenCL alone. Rows: narrow ones in a tile, of a work-item each or of
#: several, a vector apart where they would meet in the same banks; wide ones that begin anywhere;
#: few long ones, of which several groups have parts. Products of few columns with vectors and
#: without, alone and in parts; of few rows, likewise; of little depth; in tiles that are high,
#: wide, small and large, and in parts. Convolutions whose few tiles share the depth, of many
#: filters and of few. Heads of each width that there is a kernel for.
ROWS = [(301, 7), (3, 2), (140000, 3), (33, 64), (21, 241), (3, 257), (2, 2051), (2, 65537)]
IN_OPENCL = {
    **{
        op: [{"rows": rows, width: length} for rows, length in ROWS]
        for op, width in [
            *(("softmax", "cols"), ("layernorm", "cols"), ("rmsnorm", "cols"), ("argmax", "cols")),
            *(("cumsum", "cols"), ("cross_entropy", "classes")),
        ]
    },
    # Also of few columns and in parts, with vectors and without; many sums of few terms; a copy.
    "sum": [
        *({"outer": outer, "reduce": length, "inner": 1} for outer, length in ROWS),
        {"outer": 2, "reduce": 9000, "inner": 31},
        {"outer": 41, "reduce": 9, "inner": 5},
        {"outer": 1, "reduce": 30000, "inner": 64},
        {"outer": 1, "reduce": 30000, "inner": 65},
        {"outer": 5, "reduce": 7, "inner": 33},
        {"outer": 300, "reduce": 1, "inner": 5},
    ],
    # Narrow, with keys of either length; in parts; more than a part has.
    "topk": [
        {"rows": 37, "cols": 128, "k": 100},
        {"rows": 530, "cols": 1, "k": 1},
        {"rows": 2, "cols": 38405, "k": 200},
        {"rows": 3, "cols": 9000, "k": 700},
    ],
    "transpose": SHAPES["transpose"],
    # A few entries; few rows that get much; lists that are too short; bands of columns.
    "scatter_add": [
        *SHAPES["scatter_add"],
        {"rows": 700, "dim": 105, "n": 15},
        {"rows": 64, "dim": 8192, "n": 128},
    ],
    "matmul": [
        {"m": 3, "n": 2, "k": 1500},
        {"m": 70, "n": 1, "k": 304},
        {"m": 1, "n": 1, "k": 100001},
        {"m": 37, "n": 7, "k": 803},
        {"m": 5, "n": 70, "k": 9},
        {"m": 6, "n": 1000, "k": 3000},
        {"m": 16, "n": 31, "k": 900},
        {"m": 37, "n": 9, "k": 3},
        {"m": 30, "n": 200, "k": 70},
        {"m": 140, "n": 20, "k": 72},
        {"m": 70, "n": 100, "k": 601},
        {"m": 65, "n": 16800, "k": 20},
    ],
    "int8_matmul": [
        {"m": 3, "n": 64, "k": 500},
        {"m": 5, "n": 33, "k": 77},
        {"m": 70, "n": 3, "k": 41},
        {"m": 30, "n": 50, "k": 3},
        {"m": 40, "n": 72, "k": 300},
    ],
    "bmm": [
        {"batch": 3, "m": 2, "n": 2, "k": 700},
        {"batch": 2, "m": 50, "n": 1, "k": 300},
        {"batch": 5, "m": 7, "n": 11, "k": 2},
        {"batch": 4, "m": 7, "n": 50, "k": 300},
        {"batch": 2, "m": 70, "n": 90, "k": 300},
    ],
    "conv2d": [
        {"n": 1, "c": 60, "h": 9, "w": 8, "f": 70, "kh": 3, "kw": 3, "stride": 1, "padding": 1},
        {"n": 2, "c": 40, "h": 9, "w": 8, "f": 20, "kh": 2, "kw": 3, "stride": 2, "padding": 0},
        {"n": 1, "c": 2, "h": 130, "w": 140, "f": 70, "kh": 1, "kw": 3, "stride": 1, "padding": 0},
    ],
    "attention": [
        {"batch": 1, "heads": 1, "length": 70, "dim": dim} for dim in (31, 40, 64, 80, 96, 112, 136)
    ],
}
#: Shapes for kernels in Triton alone. Rows that begin anywhere in a vector, of one part and
#: several, the last of which is less than a vector. Rows that have programs of their own, with
#: lists of several steps; small tiles of narrow ones. Few of many that may be among the largest,
#: and more than are kept. A row for each thread. Deep convolutions of few tiles: of one image and
#: of several, of pools that overlap, that touch, that leave gaps and of one pixel.
IN_TRITON = {
    "cumsum": [
        {"rows": 7, "cols": 33},
        {"rows": 5, "cols": 2046},
        {"rows": 3, "cols": 4097},
        {"rows": 1, "cols": 9001},
    ],
    "cross_entropy": [{"rows": 3, "classes": 16385}, {"rows": 2, "classes": 20482}],
    "scatter_add": [
        {"rows": 83, "dim": 13, "n": 1085},
        {"rows": 300, "dim": 300, "n": 2000},
        {"rows": 5000, "dim": 3, "n": 900},
    ],
    "topk": [{"rows": 2, "cols": 20001, "k": 5}, {"rows": 1, "cols": 9000, "k": 1500}],
    "argmax": [{"rows": 301, "cols": 7}, {"rows": 9, "cols": 16}],
    "conv2d": [
        {"n": 3, "c": 117, "h": 9, "w": 5, "f": 20, "kh": 3, "kw": 3, "stride": 1, "padding": 1},
        {"n": 1, "c": 600, "h": 7, "w": 7, "f": 24, "kh": 1, "kw": 1, "stride": 1, "padding": 0},
        {"n": 5, "c": 600, "h": 1, "w": 1, "f": 30, "kh": 1, "kw": 1, "stride": 1, "padding": 0},
    ],
    "conv2d_relu_maxpool": [
        {
            **{"n": 1, "c": 600, "h": 7, "w": 6, "f": 24, "kh": 1, "kw": 1},
            **{"stride": 1, "padding": 0, "window": window, "pool_stride": pool_stride},
        }
        for window, pool_stride in [(3, 2), (2, 2), (2, 3), (1, 2)]
    ],
}
#: Shapes for kernels in Pallas alone: thin products and few tiles, whose depth is in parts or
#: whole; small products that share a program; many entries of few rows, few of many; rows of
#: several parts, the last of them short, and long rows that are many enough to be whole.
LONG_ROWS = ((1, 70001), (7, 20001), (300, 17000))
IN_PALLAS = {
    "matmul": [
        {"m": 3, "n": 2, "k": 30001},
        {"m": 5, "n": 70, "k": 2000},
        {"m": 70, "n": 3, "k": 301},
        {"m": 11, "n": 845, "k": 3},
        {"m": 33, "n": 17, "k": 3003},
        {"m": 150, "n": 190, "k": 130},
    ],
    "bmm": [
        {"batch": 3, "m": 1, "n": 1, "k": 15001},
        {"batch": 2, "m": 50, "n": 1, "k": 300},
        {"batch": 2, "m": 16, "n": 48, "k": 3001},
        {"batch": 40, "m": 5, "n": 7, "k": 9},
    ],
    "int8_matmul": [
        {"m": 2, "n": 33, "k": 9000},
        {"m": 70, "n": 3, "k": 41},
        {"m": 30, "n": 50, "k": 3000},
    ],
    "cross_entropy": [{"rows": rows, "classes": cols} for rows, cols in LONG_ROWS],
    "sum": [
        {"outer": 1, "reduce": 70001, "inner": 1},
        {"outer": 1, "reduce": 9001, "inner": 3},
        {"outer": 3, "reduce": 5000, "inner": 33},
    ],
    "scatter_add": [
        {"rows": 1, "dim": 700, "n": 5001},
        {"rows": 1, "dim": 2, "n": 4096},
        {"rows": 727, "dim": 1, "n": 30001},
        {"rows": 300, "dim": 33, "n": 20},
    ],
    **{
        op: [{"rows": rows, "cols": cols} for rows, cols in LONG_ROWS]
        for op in ("argmax", "cumsum", "layernorm", "rmsnorm", "softmax")
    },
}
#: Shapes for kernels in CUDA C++ alone: rows of many parts; few of many rows that get anything,
#: some of them twice; few entries, or some hundred of a few elements; warps that have part of a
#: row. Products of few columns: of short rows that no packs fill, and of longer ones, a block's
#: each or of which several lie alike and share what is read, alone and in parts; of few rows in
#: narrow tiles; small tiles, whole, over an edge and in parts. Sums of few rows for each column.
NATIVE = {
    "matmul": [
        {"m": 601, "n": 1, "k": 11},
        {"m": 270, "n": 3, "k": 15},
        {"m": 170, "n": 1, "k": 61},
        {"m": 77, "n": 1, "k": 133},
        {"m": 2101, "n": 1, "k": 133},
        {"m": 1, "n": 1, "k": 1231},
        {"m": 1, "n": 165, "k": 615},
        {"m": 7, "n": 1152, "k": 1024},
        {"m": 70, "n": 2, "k": 4002},
        {"m": 33, "n": 1, "k": 9001},
        {"m": 75, "n": 4, "k": 264},
        {"m": 40, "n": 72, "k": 136},
        {"m": 37, "n": 65, "k": 67},
        {"m": 16, "n": 64, "k": 1100},
        {"m": 1, "n": 4099, "k": 7},
        {"m": 64, "n": 136, "k": 70001},
    ],
    "bmm": [
        {"batch": 3, "m": 150, "n": 1, "k": 13},
        {"batch": 2, "m": 95, "n": 2, "k": 37},
        {"batch": 2, "m": 45, "n": 1, "k": 701},
        {"batch": 3, "m": 70, "n": 2, "k": 64},
        {"batch": 2, "m": 36, "n": 40, "k": 1100},
        {"batch": 1, "m": 19, "n": 33, "k": 2071},
    ],
    "topk": [
        {"rows": 2, "cols": 70001, "k": 3},
        {"rows": 1, "cols": 150000, "k": 200},
    ],
    "scatter_add": [
        {"rows": 8200, "dim": 128, "n": 2040},
        {"rows": 10000, "dim": 105, "n": 30},
        {"rows": 7, "dim": 33, "n": 5},
        {"rows": 3, "dim": 50, "n": 500},
        {"rows": 40, "dim": 240, "n": 70},
        {"rows": 3, "dim": 64, "n": 8},
        {"rows": 83, "dim": 13, "n": 1085},
        {"rows": 563, "dim": 175, "n": 2301},
    ],
    "sum": [
        {"outer": 8, "reduce": 16, "inner": 5120},
        {"outer": 3, "reduce": 197, "inner": 1152},
    ],
}
#: Float32 convolutions of a few tiles, whose depth blocks share: of filters that are whole packs
#: and of others; of no more depth than a part has.
DEEP = [
    {"n": 2, "c": 61, "h": 5, "w": 9, "f": 9, "kh": 3, "kw": 3, "stride": 1, "padding": 1},
    {"n": 1, "c": 96, "h": 9, "w": 8, "f": 40, "kh": 3, "kw": 3, "stride": 2, "padding": 0},
    {"n": 1, "c": 3, "h": 9, "w": 8, "f": 11, "kh": 3, "kw": 3, "stride": 1, "padding": 0},
]
#: Convolutions of a few filters: of all pixels in one launch, over the edge of images; of few
#: pixels, whose depth blocks share; of one channel and place. In float32 twice as many filters are
#: few.
FEW_FILTERS = [
    {"n": 3, "c": 13, "h": 40, "w": 37, "f": 1, "kh": 1, "kw": 1, "stride": 1, "padding": 0},
    {"n": 2, "c": 31, "h": 9, "w": 11, "f": 3, "kh": 5, "kw": 3, "stride": 2, "padding": 2},
    {"n": 1, "c": 90, "h": 7, "w": 6, "f": 2, "kh": 3, "kw": 3, "stride": 1, "padding": 1},
    {"n": 5, "c": 1, "h": 12, "w": 7, "f": 4, "kh": 1, "kw": 1, "stride": 3, "padding": 0},
]
#: Convolutions over a copy with channels innermost: one step; a depth that blocks share; more
#: channels than a block copies, in filters wider than high; tiles of 64 and of 128 filters.
CHANNELS_LAST = [
    {"n": 1, "c": 3, "h": 9, "w": 11, "f": 5, "kh": 3, "kw": 2, "stride": 1, "padding": 0},
    {"n": 1, "c": 130, "h": 7, "w": 6, "f": 37, "kh": 3, "kw": 3, "stride": 1, "padding": 1},
    {"n": 2, "c": 67, "h": 13, "w": 12, "f": 33, "kh": 2, "kw": 5, "stride": 3, "padding": 3},
    {"n": 3, "c": 2, "h": 53, "w": 55, "f": 50, "kh": 3, "kw": 3, "stride": 1, "padding": 1},
    {"n": 3, "c": 9, "h": 53, "w": 55, "f": 120, "kh": 1, "kw": 1, "stride": 1, "padding": 0},
]
#: The same in Triton: channels that are whole tiles of the depth, and others; over edges.
MANY_CHANNELS = [
    {"n": 1, "c": 64, "h": 7, "w": 6, "f": 19, "kh": 3, "kw": 3, "stride": 1, "padding": 1},
    {"n": 2, "c": 37, "h": 13, "w": 12, "f": 5, "kh": 2, "kw": 5, "stride": 3, "padding": 3},
    {"n": 3, "c": 130, "h": 9, "w": 5, "f": 70, "kh": 1, "kw": 1, "stride": 1, "padding": 0},
]
#: Images of so few pixels that a tile has several, copied so and not; each stride leaves four.
SMALL_IMAGES = [
    {"n": 9, "c": channels, "h": 5, "w": 6, "f": 6, "kh": 1, "kw": 1, "padding": 0}
    for channels in (20, 5)
]


@pytest.mark.full
@pytest.mark.drawn
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("op", "pooling"),
    [("conv2d", {}), ("conv2d_relu_maxpool", {"window": 3, "pool_stride": 2})],
    ids=["alone", "pooled"],
)
def test_a_convolution_that_is_copied_with_its_channels_innermost_is_right(
    op: str, pooling: dict[str, int], dtype: str, tmp_path: Path
) -> None:
    """Also where that would not pay."""
    compiled, to = _ready("cuda", "sm_90")
    shapes, always = [{**sizes, **pooling} for sizes in CHANNELS_LAST], {"REORDER_FROM": 0}
    results = _all_right(op, compiled, to, shapes, dtype, tmp_path, always)
    seen = [{one.name for one in result.launches} for result in results if result.launches]
    assert all("reorder" in names for names in seen)
    assert not seen or "add" in seen[1]


@pytest.mark.full
@pytest.mark.drawn
@pytest.mark.parametrize("where", ["sm_90", "gfx942"])
@pytest.mark.parametrize(
    ("op", "pooling", "dtype"),
    [
        ("conv2d", {}, "bfloat16"),
        ("conv2d", {}, "float32"),
        ("conv2d_relu_maxpool", {"window": 3, "pool_stride": 2}, "float32"),
        ("conv2d_relu_maxpool", {"window": 2, "pool_stride": 3}, "bfloat16"),
    ],
    ids=["alone-bfloat16", "alone-float32", "pooled-float32", "pooled-bfloat16"],
)
def test_a_convolution_with_its_channels_innermost_is_right_in_triton(
    op: str, pooling: dict[str, int], dtype: str, where: str, tmp_path: Path
) -> None:
    """Also where that would not pay."""
    compiled, to = _ready("triton", where)
    small = [{**sizes, "stride": 1 if pooling else 3} for sizes in SMALL_IMAGES]
    shapes = [{**sizes, **pooling} for sizes in [*MANY_CHANNELS, *small]]
    _all_right(op, compiled, to, shapes, dtype, tmp_path, {"LAST_FROM": 0})


@pytest.mark.full
@pytest.mark.drawn
@pytest.mark.parametrize(
    ("op", "pooling", "dtype"),
    [
        ("conv2d", {}, "float32"),
        ("conv2d_relu_maxpool", {"window": 2, "pool_stride": 1}, "bfloat16"),
    ],
    ids=["alone", "pooled"],
)
@pytest.mark.parametrize(("backend", "where"), [("cuda", "sm_80"), ("hip", "gfx942")])
def test_a_convolution_of_a_few_filters_is_right(
    op: str, pooling: dict[str, int], dtype: str, backend: str, where: str, tmp_path: Path
) -> None:
    compiled, to = _ready(backend, where)
    times = 2 if dtype == "float32" else 1
    shapes = [{**sizes, **pooling, "f": times * sizes["f"]} for sizes in FEW_FILTERS]
    results = _all_right(op, compiled, to, shapes, dtype, tmp_path)
    seen = [{one.name for one in result.launches} for result in results if result.launches]
    assert all(any("convolve" in name for name in names) for names in seen)
    # sum_parts adds the parts. Launched by a pointer, the executor of CUDA's source knows no name.
    shared = [bool({"kernel", "sum_parts"} & names) for names in seen]
    assert shared in ([], [False, True, True, False]), seen


@pytest.mark.full
@pytest.mark.drawn
@pytest.mark.parametrize("where", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    ("op", "pooling"),
    [("conv2d", {}), ("conv2d_relu_maxpool", {"window": 3, "pool_stride": 2})],
    ids=["alone", "pooled"],
)
def test_a_float32_convolution_whose_depth_blocks_share_is_right(
    op: str, pooling: dict[str, int], where: str, tmp_path: Path
) -> None:
    compiled, to = _ready("cuda", where)
    shapes = [{**sizes, **pooling} for sizes in DEEP]
    results = _all_right(op, compiled, to, shapes, "float32", tmp_path)
    seen = [{one.name for one in result.launches} for result in results if result.launches]
    assert ["sum_parts" in names for names in seen] in ([], [True, True, False])


#: What only Hopper runs, by wgmma or the copy engine: the kernel that it shows in, what it is of.
HOPPERS_OWN: list[tuple[str, str, str, dict[str, int], dict[str, int]]] = [
    ("tile_product", "matmul", "bfloat16", {}, {"m": 200, "n": 264, "k": 136}),
    ("tile_product", "bmm", "bfloat16", {}, {"batch": 3, "m": 200, "n": 264, "k": 72}),
    ("tile_product", "linear_bias", "bfloat16", {}, {"m": 200, "n": 264, "k": 264}),
    ("few_rows_mma", "matmul", "bfloat16", {}, {"m": 5, "n": 520, "k": 1048}),
    ("some_rows", "matmul", "float32", {}, {"m": 7, "n": 132, "k": 260}),
    ("matmul_wgmma", "matmul", "bfloat16", {"WIDE_PERCENT": 0}, {"m": 192, "n": 1024, "k": 4096}),
    ("matmul_split", "matmul", "float32", {"SPLIT_FROM": 100}, {"m": 512, "n": 520, "k": 400}),
    (
        "attention_flash",
        "attention",
        "bfloat16",
        {},
        {"batch": 1, "heads": 2, "length": 256, "dim": 64},
    ),
    (
        "attention_flash",
        "attention",
        "bfloat16",
        {},
        {"batch": 4, "heads": 12, "length": 320, "dim": 72},
    ),
    ("softmax_resident", "softmax", "float32", {}, {"rows": 268, "cols": 40004}),
    ("softmax_streamed", "softmax", "bfloat16", {}, {"rows": 267, "cols": 25600}),
    ("softmax_streamed", "softmax", "bfloat16", {}, {"rows": 266, "cols": 24707}),
    ("layernorm_shared", "layernorm", "float32", {}, {"rows": 2, "cols": 131072}),
]


@pytest.mark.full
@pytest.mark.drawn
@pytest.mark.parametrize(
    ("kernel", "op", "dtype", "settings", "sizes"),
    HOPPERS_OWN,
    ids=[f"{one[0]} of {one[1]} {number}" for number, one in enumerate(HOPPERS_OWN)],
)
def test_what_hopper_alone_has_is_right(
    kernel: str,
    op: str,
    dtype: str,
    settings: dict[str, int],
    sizes: dict[str, int],
    tmp_path: Path,
) -> None:
    compiled, to = _ready("cuda", "sm_90")
    [result] = _all_right(op, compiled, to, [sizes], dtype, tmp_path, settings)
    assert not result.launches or any(kernel in one.name for one in result.launches)


#: So many short rows that each is a thread's, of few and of more elements.
SHORT_ROWS: dict[str, list[dict[str, int]]] = {
    op: [{"rows": 180001, width: 3}, {"rows": 65537, width: 13}]
    for op, width in [
        *((op, "cols") for op in ("argmax", "cumsum", "layernorm", "rmsnorm", "softmax")),
        ("cross_entropy", "classes"),
    ]
} | {"sum": [{"outer": 65800, "reduce": 9, "inner": 1}, {"outer": 65537, "reduce": 13, "inner": 1}]}
NATIVE_ON = {"cuda": "sm_90", "hip": "gfx942"}
EMULATED = {**NATIVE_ON, "triton": "sm_90"}


@pytest.mark.full
@pytest.mark.drawn
@pytest.mark.parametrize(("op", "backend", "dtype"), turns(product(SHORT_ROWS, NATIVE_ON)))
def test_many_short_rows_are_right(op: str, backend: str, dtype: str, tmp_path: Path) -> None:
    compiled, to = _ready(backend, NATIVE_ON[backend])
    results = _all_right(op, compiled, to, SHORT_ROWS[op], dtype, tmp_path)
    seen = [one.name for result in results for one in result.launches]
    assert all("short" in name for name in seen)


@pytest.mark.full
@pytest.mark.drawn
@pytest.mark.parametrize(("op", "backend", "dtype"), turns(product(SHAPES, EMULATED)))
def test_a_shape_of_another_class_is_right(
    op: str, backend: str, dtype: str, tmp_path: Path
) -> None:
    compiled, to = _ready(backend, EMULATED[backend])
    shapes = SHAPES[op] + (NATIVE.get(op, []) if backend in ("cuda", "hip") else [])
    _all_right(op, compiled, to, shapes, dtype, tmp_path)


#: The operators whose kernels in CUDA C++ take another way for few elements, as these sizes are.
FEW = (
    *("add", "argmax", "bias_gelu", "cross_entropy", "cumsum", "gelu", "layernorm", "maxpool2d"),
    *("relu", "rmsnorm", "silu_mul", "softmax", "sum"),
)


@pytest.mark.full
@pytest.mark.drawn
@pytest.mark.parametrize(("backend", "op", "dtype"), turns(product(NATIVE_ON, FEW)))
def test_the_way_of_many_elements_is_right_for_few(
    op: str, backend: str, dtype: str, tmp_path: Path
) -> None:
    compiled, to = _ready(backend, NATIVE_ON[backend])
    workloads = list(ops.load(op).workloads["ci"])
    _all_pass(op, compiled, to, workloads, dtype, tmp_path, {"FEW": 0})


@pytest.mark.full
@pytest.mark.drawn
@pytest.mark.parametrize("where", ["sm_90", "opencl_generic"], ids=["as on a GPU", "on a CPU"])
@pytest.mark.parametrize(("op", "dtype"), turns(product(IN_OPENCL)))
def test_a_shape_of_another_class_is_right_in_opencl(
    op: str, dtype: str, where: str, tmp_path: Path
) -> None:
    compiled, to = _ready("opencl", where)
    _all_right(op, compiled, to, IN_OPENCL[op], dtype, tmp_path)


#: Rows of two lanes each, of some, and of a warp, the last with an element fewer than it holds; and
#: in whole packs, of which a thread has one.
RAGGED_ROWS = ((33, 17), (70, 103), (37, 231), (19, 637), (11, 1023), (40, 1024))
#: The settings by which a way that only many elements take is taken at sizes that can be emulated:
#: lines that begin anywhere, of less and of more than a tile; windows that overlap in rows without
#: packs; narrow rows that begin anywhere, in shared memory; a row for half a warp; in CUDA alone,
#: operands whose rows are copied to packs, both or one.
OF_MANY: dict[str, tuple[dict[str, int], list[dict[str, int]]]] = {
    "transpose": (
        {"SMALL": 0},
        [
            {"rows": 131, "cols": 207},
            {"rows": 385, "cols": 65},
            {"rows": 36, "cols": 301},
            {"rows": 258, "cols": 64},
        ],
    ),
    "maxpool2d": (
        {"FEW": 0},
        [
            {"n": 2, "c": 3, "h": 14, "w": 21, "window": 3, "stride": 1, "padding": 1},
            {"n": 1, "c": 5, "h": 9, "w": 13, "window": 3, "stride": 2, "padding": 0},
        ],
    ),
    "cumsum": (
        {"FEW": 0},
        [
            *({"rows": 3301, "cols": 3}, {"rows": 517, "cols": 13}, {"rows": 300, "cols": 8}),
            *({"rows": rows, "cols": cols} for rows, cols in RAGGED_ROWS),
        ],
    ),
    "cross_entropy": (
        {"FEW": 0},
        [{"rows": rows, "classes": classes} for rows, classes in RAGGED_ROWS],
    ),
    "sum": (
        {"FEW": 0},
        [{"outer": rows, "reduce": cols, "inner": 1} for rows, cols in RAGGED_ROWS],
    ),
    **{
        op: ({"FEW": 0}, [{"rows": rows, "cols": cols} for rows, cols in RAGGED_ROWS])
        for op in ("argmax", "layernorm", "rmsnorm", "softmax")
    },
    "topk": (
        {"HALVED_FROM": 0},
        [{"rows": 37, "cols": 100, "k": 5}, {"rows": 19, "cols": 256, "k": 12}],
    ),
    "int8_matmul": (
        {"PAD_FROM": 0},
        [
            {"m": 70, "n": 67, "k": 45},
            {"m": 37, "n": 96, "k": 50},
            {"m": 33, "n": 131, "k": 64},
        ],
    ),
}


#: Each but that of a kernel which has no such way.
MANY_CASES = [
    case for case in turns(product(NATIVE_ON, OF_MANY)) if case[:2] != ("hip", "int8_matmul")
]


@pytest.mark.parametrize(("backend", "op"), sorted({case[:2] for case in MANY_CASES}))
def test_a_way_of_many_elements_is_taken_by_a_knob(backend: str, op: str) -> None:
    [shipped] = catalogue.candidates(op, registry.load(backend))
    assert OF_MANY[op][0].keys() <= shipped.knobs.keys()


@pytest.mark.full
@pytest.mark.drawn
@pytest.mark.parametrize(("backend", "op", "dtype"), MANY_CASES)
def test_a_way_of_many_elements_is_right(op: str, backend: str, dtype: str, tmp_path: Path) -> None:
    compiled, to = _ready(backend, NATIVE_ON[backend])
    settings, shapes = OF_MANY[op]
    _all_right(op, compiled, to, shapes, dtype, tmp_path, settings)


@pytest.mark.full
@pytest.mark.drawn
@pytest.mark.parametrize(("op", "dtype"), turns(product(IN_TRITON)))
def test_a_shape_of_another_class_is_right_in_triton(op: str, dtype: str, tmp_path: Path) -> None:
    compiled, to = _ready("triton", "sm_90")
    _all_right(op, compiled, to, IN_TRITON[op], dtype, tmp_path)


@pytest.mark.full
@pytest.mark.drawn
@pytest.mark.parametrize(("op", "dtype"), turns(product(IN_PALLAS)))
def test_a_shape_of_another_class_is_right_in_pallas(op: str, dtype: str, tmp_path: Path) -> None:
    compiled, to = _ready("pallas", "sm_90")
    _all_right(op, compiled, to, IN_PALLAS[op], dtype, tmp_path)


@pytest.mark.full
@pytest.mark.drawn
@pytest.mark.parametrize("op", IN_OPENCL)
def test_a_shape_of_another_class_is_right_in_numba(op: str, tmp_path: Path) -> None:
    pytest.importorskip("numba")
    compiled = registry.load("cpu")
    to = default_target(compiled)
    _all_right(op, compiled, to, IN_OPENCL[op], "float32", tmp_path, language="numba")


@pytest.mark.full
def test_pools_of_any_size_are_right_in_opencl_on_a_cpu(tmp_path: Path) -> None:
    compiled, to = _ready("opencl", "opencl_generic")
    sizes = {"n": 1, "c": 2, "h": 70, "w": 71, "f": 75, "kh": 3, "kw": 3}
    scalars = {"stride": 1, "padding": 1, "window": 66, "pool_stride": 2}
    _all_right("conv2d_relu_maxpool", compiled, to, [sizes | scalars], "float32", tmp_path)


@pytest.mark.full
@pytest.mark.drawn
@pytest.mark.parametrize("op", ["matmul", "int8_matmul", "conv2d", "attention"])
def test_opencl_is_right_for_16_bits_where_no_tensor_cores_are(op: str, tmp_path: Path) -> None:
    compiled, to = _ready("opencl", "gfx942")
    _all_right(op, compiled, to, IN_OPENCL[op], "bfloat16", tmp_path)


def _ready(backend: str, where: str) -> tuple[Backend, target.Target]:
    """Skips where nothing can be built for it."""
    compiled, to = registry.load(backend), target.load(where)
    if isinstance(ready := compiled.probe(to), Missing):
        pytest.skip(f"{backend}: {ready}")
    return compiled, to


def _all_right(
    op: str,
    compiled: Backend,
    to: target.Target,
    shapes: list[dict[str, int]],
    dtype: str,
    folder: Path,
    settings: Mapping[str, int] = MappingProxyType({}),
    language: str = "",
) -> list[Result]:
    workloads = [_workload(op, f"class/{number}", dims) for number, dims in enumerate(shapes)]
    return _all_pass(op, compiled, to, workloads, dtype, folder, settings, language)


def _all_pass(
    op: str,
    compiled: Backend,
    to: target.Target,
    workloads: list[Workload],
    dtype: str,
    folder: Path,
    settings: Mapping[str, int],
    language: str = "",
) -> list[Result]:
    """Evaluates the backend's kernel; that in ``language`` where it has several."""
    kernels = catalogue.candidates(op, compiled)
    [shipped] = [kernel for kernel in kernels if language in ("", kernel.language)]
    candidate, own = shipped.turn(settings), ops.load(op)
    results = evaluate(candidate, own, compiled, to, workloads, dtype=dtype, folder=folder)
    assert isinstance(results, list), results
    assert [result.verdict for result in results] == [Verdict.PASSED] * len(results), results
    return results


def _workload(op: str, name: str, sizes: dict[str, int]) -> Workload:
    """A workload of these sizes; those that are not axes are scalars."""
    own = ops.load(op)
    scalars = {s.name: sizes[s.name] for s in own.signature.scalars if s.name in sizes}
    dims = {axis: size for axis, size in sizes.items() if axis not in scalars}
    more = own.derived(dims, scalars) if own.derived else {}
    return Workload(name, {**dims, **more}, scalars)

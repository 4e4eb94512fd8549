"""The right results of LeetCUDA's and good-kernels' functions, by name; in PyTorch on the CPU."""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

Tensor = torch.Tensor
Case = Callable[[Any], str]
#: How far a result may be from float64's, as a share of the largest element.
_ROUNDING = {
    torch.float32: 2e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
    torch.int32: 0.0,
    torch.int64: 0.0,
}


@dataclass
class Sizes:
    """``full``: as large as is quick to emulate. ``check``: small. ``odd``: nothing divides."""

    name: str

    def pick(self, full: Any, check: Any, odd: Any = None) -> Any:
        return {"full": full, "check": check, "odd": check if odd is None else odd}[self.name]


def cases(
    kind: str, functions: Sequence[str], size: str, more: Mapping[str, Any]
) -> Iterator[tuple[str, Case]]:
    if kind == "good_kernels":
        yield from good_kernel(Path(more["folder"]), Sizes(size))
        return
    for function in functions:
        yield from leetcuda(function, Sizes(size))


def compare(got: Tensor, expected: Tensor, share: float | None = None) -> str:
    """``match``, or what the first difference is."""
    if got.shape != expected.shape:
        return f"mismatch: shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    share = _ROUNDING[got.dtype] if share is None else share
    a, b = got.double(), expected.double()
    allowed = share * max(1e-30, float(b.abs().max())) if b.numel() else 0.0
    wrong = ~((a - b).abs() <= allowed) & ~(a.isnan() & b.isnan())
    count = int(wrong.sum())
    if not count:
        return "match"
    at = tuple(int(i) for i in wrong.nonzero()[0])
    first = f"{float(a[at]):.6g} at {list(at)}, expected {float(b[at]):.6g}"
    return f"mismatch: {count} of {a.numel()} elements, first {first}"


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


def dtype_in(name: str) -> torch.dtype:
    """The element type of the inputs: the first one in a function's name."""
    found = re.search(r"(?<![a-z])(bf16|f16|f32|i32|i8|fp8_e4m3|fp8_e5m2)", name)
    return {
        "bf16": torch.bfloat16,
        "f16": torch.float16,
        "i32": torch.int32,
        "i8": torch.int8,
        "fp8_e4m3": torch.float8_e4m3fn,
        "fp8_e5m2": torch.float8_e5m2,
    }.get(found[1] if found else "", torch.float32)


# ---- LeetCUDA -----------------------------------------------------------------------------

Maker = Callable[[str, Sizes], Iterator[tuple[str, Case]]]
_MAKERS: list[tuple[re.Pattern[str], Maker]] = []


def reference(pattern: str) -> Callable[[Maker], Maker]:
    def keep(maker: Maker) -> Maker:
        _MAKERS.append((re.compile(pattern), maker))
        return maker

    return keep


def leetcuda(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    for pattern, maker in _MAKERS:
        if pattern.match(name):
            yield from maker(name, sizes)
            return


_UNARY: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "elu": functional.elu,
    "gelu": lambda x: functional.gelu(x, approximate="tanh"),
    "swish": functional.silu,
    "sigmoid": torch.sigmoid,
    "hardswish": functional.hardswish,
    "hardshrink": functional.hardshrink,
}


@reference(r"(relu|elu|gelu|swish|sigmoid|hardswish|hardshrink)_(f16|f32)")
def unary(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    def case(library: Any) -> str:
        x = random(*sizes.pick((16, 512), (4, 256), (3, 7, 13)), dtype=dtype_in(name))
        y = torch.zeros_like(x)
        getattr(library, name)(x, y)
        # Half functions of CUDA's are approximations, and some kernels compute in half.
        return compare(y, _UNARY[name.partition("_")[0]](x.double()))

    yield name, case


@reference(r"elementwise_add_")
def add(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    def case(library: Any) -> str:
        shape, dtype = sizes.pick((16, 512), (4, 256), (3, 7, 13)), dtype_in(name)
        a, b = random(*shape, dtype=dtype), random(*shape, dtype=dtype, seed=2)
        c = torch.zeros_like(a)
        getattr(library, name)(a, b, c)
        return compare(c, a.double() + b.double())

    yield name, case


@reference(r"dot_prod_")
def dot(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    def case(library: Any) -> str:
        shape, dtype = sizes.pick((8, 512), (4, 256)), dtype_in(name)
        a = random(*shape, dtype=dtype).abs()
        b = random(*shape, dtype=dtype, seed=2).abs()
        got = getattr(library, name)(a, b)
        share = 5e-3 if dtype == torch.float16 else 1e-5
        return compare(got, (a.double() * b.double()).sum().reshape(1), share)

    yield name, case


@reference(r"block_all_reduce_sum_")
def block_sum(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    def case(library: Any) -> str:
        shape, dtype = sizes.pick((8, 512), (4, 512)), dtype_in(name)
        if dtype == torch.int8:
            x = random(*shape).mul(20).to(torch.int8)
            return compare(getattr(library, name)(x), x.long().sum().reshape(1), 0)
        x = random(*shape).abs().to(dtype)
        share = {torch.float32: 1e-5, torch.float16: 5e-3}.get(dtype, 5e-2)
        return compare(getattr(library, name)(x), x.double().sum().reshape(1), share)

    yield name, case


@reference(r"(online_|safe_|online_safe_)?softmax_\w+_per_token")
def softmax(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    def case(library: Any) -> str:
        x = random(*sizes.pick((16, 512), (4, 256)), dtype=dtype_in(name))
        y = torch.zeros_like(x)
        getattr(library, name)(x, y)
        return compare(y, x.double().softmax(1))

    yield name, case


@reference(r"layer_norm_")
def layer_norm(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    def case(library: Any) -> str:
        x = random(*sizes.pick((16, 512), (4, 256)), dtype=dtype_in(name))
        y = torch.zeros_like(x)
        getattr(library, name)(x, y, 1.5, 0.25)
        wide = x.double()
        unit = functional.layer_norm(wide, wide.shape[1:], eps=1e-5)
        return compare(y, unit * 1.5 + 0.25, 2e-2 if x.dtype == torch.float16 else 1e-4)

    yield name, case


@reference(r"rms_norm_")
def rms_norm(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    def case(library: Any) -> str:
        x = random(*sizes.pick((16, 512), (4, 256)), dtype=dtype_in(name))
        y = torch.zeros_like(x)
        getattr(library, name)(x, y, 1.5)
        wide = x.double()
        unit = wide * wide.pow(2).mean(1, keepdim=True).rsqrt()
        return compare(y, unit * 1.5, 2e-2 if x.dtype == torch.float16 else 1e-4)

    yield name, case


@reference(r"embedding_")
def embedding(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    def case(library: Any) -> str:
        rows, width = sizes.pick((64, 512), (32, 64))
        weight = random(rows, width, dtype=dtype_in(name))
        index = torch.arange(0, 3 * rows, 3, dtype=torch.int32) % rows
        out = torch.zeros(rows, width, dtype=weight.dtype)
        getattr(library, name)(index, weight, out)
        return compare(out, weight[index.long()].double(), 0)

    yield name, case


@reference(r"histogram_")
def histogram(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    def case(library: Any) -> str:
        count = sizes.pick(10000, 1024, 1021)
        values = (torch.arange(count, dtype=torch.int32) * 7) % 10
        got = getattr(library, name)(values)
        return compare(got, torch.bincount(values.long()))

    yield name, case


@reference(r"rope_")
def rope(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    def case(library: Any) -> str:
        tokens, width = sizes.pick((64, 256), (16, 64), (5, 24))
        x = random(tokens, width)
        out = torch.zeros_like(x)
        getattr(library, name)(x, out)
        pairs = torch.view_as_complex(x.double().reshape(tokens, -1, 2))
        angle = 10000.0 ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width)
        turned = pairs * torch.polar(
            torch.ones(tokens, width // 2, dtype=torch.float64),
            torch.arange(tokens, dtype=torch.float64)[:, None] * angle,
        )
        return compare(out, torch.view_as_real(turned).reshape(tokens, width), 1e-4)

    yield name, case


@reference(r"mat_transpose_(?!cute)")
def transpose(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    def case(library: Any) -> str:
        side = sizes.pick(256, 64)
        rows, columns = (side, side) if "diagonal" in name else (side, side // 2)
        x = random(rows, columns)
        y = torch.zeros(columns, rows)
        getattr(library, name)(x, y)
        return compare(y, x.t(), 0)

    yield name, case


@reference(r"nms$")
def nms(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    def case(library: Any) -> str:
        count, generator = sizes.pick(256, 100), torch.Generator().manual_seed(3)
        corners = torch.rand(count, 2, generator=generator)
        boxes = torch.cat([corners, corners + 0.3 * torch.rand(count, 2, generator=generator)], 1)
        scores = torch.rand(count, generator=generator)
        got = library.nms(boxes, scores, 0.3)
        kept = _greedy_nms(boxes, scores, 0.3)
        return compare(got.long().sort().values, torch.tensor(kept).sort().values)

    yield name, case


def _greedy_nms(boxes: Tensor, scores: Tensor, limit: float) -> list[int]:
    kept: list[int] = []
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    for i in scores.argsort(descending=True).tolist():
        overlap = False
        for j in kept:
            low, high = boxes[[i, j], :2].max(0).values, boxes[[i, j], 2:].min(0).values
            inter = float((high - low).clamp(min=0).prod())
            overlap |= inter / float(areas[i] + areas[j] - inter) > limit
        if not overlap:
            kept.append(i)
    return kept


@reference(r"merge_attn_states_cuda")
def merge_states(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):

        def case(library: Any, dtype: torch.dtype = dtype) -> str:
            tokens, heads, width = sizes.pick((64, 4, 128), (16, 2, 64), (13, 3, 64))
            a, b = (random(tokens, heads, width, dtype=dtype, seed=s) for s in (1, 2))
            la, lb = (random(heads, tokens, seed=s) for s in (3, 4))
            out, lse = torch.zeros_like(a), torch.zeros(heads, tokens)
            library.merge_attn_states_cuda(out, lse, a, la, b, lb)
            weight = torch.stack([la, lb]).double().softmax(0).transpose(1, 2)[..., None]
            found = compare(out, a.double() * weight[0] + b.double() * weight[1])
            if found != "match":
                return found
            return compare(lse, torch.logaddexp(la.double(), lb.double()))

        yield f"{name}[{str(dtype).removeprefix('torch.')}]", case


@reference(r"(s|h)gemv_")
def gemv(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    def case(library: Any) -> str:
        rows = sizes.pick(256, 32, 30)
        columns = 16 if "k16" in name else 256
        dtype = torch.float16 if name.startswith("h") else torch.float32
        a, x = random(rows, columns, dtype=dtype), random(columns, 1, dtype=dtype, seed=2)
        y = torch.zeros(rows, 1, dtype=dtype)
        getattr(library, name)(a, x, y)
        return compare(y, a.double() @ x.double(), 2e-2 if name.startswith("h") else 1e-5)

    yield name, case


@reference(r"(s|h)gemm_(?!.*_cute)")
def gemm(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    half = name.startswith("h")

    def case(library: Any, stages: int = 0, swizzle: bool = False) -> str:
        m, n, k = sizes.pick((256, 256, 128), (256, 256, 64))
        dtype = torch.float16 if half else torch.float32
        a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype, seed=2)
        given = b.t().contiguous().view(k, n) if re.search(r"_tn(_|$)", name) else b
        c = torch.zeros(m, n, dtype=dtype)
        if "cublas" in name and hasattr(library, "init_cublas_handle"):
            library.init_cublas_handle()
        more = (stages, swizzle, 256 if swizzle else 1) if stages else ()
        getattr(library, name)(a, given, c, *more)
        # float16 sums and TF32 products keep 10 bits.
        share = 2e-2 if half else 5e-3 if re.search("tf32|wmma", name) else 1e-5
        return compare(c, a.double() @ b.double(), share)

    if "stages" not in name:
        yield name, case
        return
    for stages, swizzle in ((2, False), (3, False), (2, True)):
        label = f"{name}[stages={stages}{', swizzle' if swizzle else ''}]"
        yield label, partial(case, stages=stages, swizzle=swizzle)


@reference(r"flash_attn_mma_stages_")
def flash_attention(name: str, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    def case(library: Any, stages: int, width: int) -> str:
        shape = (1, sizes.pick(2, 1), sizes.pick(256, 128), width)
        q, k, v = (random(*shape, dtype=torch.float16, seed=s) for s in (1, 2, 3))
        out = torch.zeros_like(q)
        turned = re.search(r"(shared_kv|shared_qkv|tiling_qk)_swizzle_qkv$", name) is not None
        given = v.transpose(-2, -1).contiguous() if turned else v
        getattr(library, name)(q, k, given, out, stages)
        score = q.double() @ k.double().transpose(-2, -1) / math.sqrt(width)
        return compare(out, score.softmax(-1) @ v.double(), 2e-2)

    for width in sizes.pick((64, 128), (64,)):
        for stages in (1, 2):
            label = f"{name}[d={width}, stages={stages}]"
            yield label, partial(case, stages=stages, width=width)


# ---- good-kernels -------------------------------------------------------------------------


def good_kernel(folder: Path, size: Sizes) -> Iterator[tuple[str, Case]]:
    """The published module (``src.py``) against its reference (``ref.py``), both as they are."""

    def case(library: Any, drift: float = 0.0) -> str:
        published = module(folder / "src.py", lambda **_: library)
        plain = module(folder / "ref.py", None)
        start, inputs = _good_inputs(folder.name, Sizes("check") if drift else size)
        if drift:  # along a row, so that parts of it have means of their own
            inputs = [x + torch.linspace(0, drift, x[0].numel()).view(x[0].shape) for x in inputs]
        torch.manual_seed(0)
        expected = plain.Model(*start)
        torch.manual_seed(0)
        got = published.ModelNew(*start)
        with torch.no_grad():
            out, right = got(*inputs), expected.double()(*(x.double() for x in inputs))
        return compare(out, right, _GOOD_SHARE.get(folder.name, 1e-4))

    yield folder.name, case
    if folder.name.startswith("LayerNorm") and size.name == "odd":
        yield f"{folder.name}, rows that drift", partial(case, drift=4.0)


#: The convolutions multiply in float16 and add in float32. LayerNorm2's inputs are near 1000.
_GOOD_SHARE = {"Conv2D": 2e-3, "Conv2D_ReLU_MaxPool": 2e-3, "LayerNorm2": 5e-3}


def _good_inputs(name: str, size: Sizes) -> tuple[Sequence[Any], list[Tensor]]:
    """Constructor's arguments and inputs, smaller than the published ones."""
    if name.startswith("Conv2D"):
        side = size.pick(95, 47, 53)
        return (), [random(size.pick(2, 1), 3, side, side)]
    if name.startswith("LayerNorm"):
        shape = size.pick((8, 64, 64), (4, 16, 32), (3, 5, 7))
        x = random(size.pick(4, 3), *shape)
        return (shape,), [x * 0.1 + 1000 if name == "LayerNorm2" else x]
    if name == "MatmulFP32":
        side = size.pick(256, 128, 100)
        return (), [random(side, side), random(side, side, seed=2)]
    return (), [random(*size.pick((8, 8192), (2, 4100), (2, 1003)))]


def module(file: Path, load_inline: Callable[..., Any] | None) -> types.SimpleNamespace:
    """A Python file run with another ``load_inline``; it is trusted no less than its kernels."""
    from torch.utils import cpp_extension

    before = cpp_extension.load_inline
    if load_inline is not None:
        cpp_extension.load_inline = load_inline
    try:
        names: dict[str, Any] = {"__name__": file.stem, "__file__": str(file)}
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)
    finally:
        cpp_extension.load_inline = before
    return types.SimpleNamespace(**names)

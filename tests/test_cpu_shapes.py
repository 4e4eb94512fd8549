"""The C++ kernels choose by shape: what they choose at drawn sizes is right on each CPU target."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from portkern import ops
from portkern.spec import catalogue, registry
from portkern.spec import target as targets
from portkern.spec.backend import Build, Call, Kernel, Missing
from portkern.toolchain import host

X86 = ("x86_64", "x86_64_avx2", "x86_64_avx512")
HERE = [name for name in X86 if host.runs_here(targets.load(name))]
#: The share of the largest result, where sums have up to a few thousand terms.
NEAR = {"float32": 1e-4, "bfloat16": 2e-2, "float16": 3e-3}
FILTERS, STRIDES, CHANNELS = (1, 2, 3, 5, 7, 11, 17, 40, 70), (1, 2, 2, 3, 4), (1, 2, 3, 9, 40)


@pytest.mark.sampled()
@pytest.mark.parametrize("op", ["conv2d", "conv2d_relu_maxpool"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float16"])
@pytest.mark.parametrize("where", HERE[::-1])
def test_a_convolution_of_drawn_sizes_is_the_frameworks(
    where: str, dtype: str, op: str, tmp_path: Path
) -> None:
    draw, kernel = random.Random(f"{where} {dtype} {op}"), None
    for _ in range(40):
        dims, scalars = _convolution(draw, pooled=op != "conv2d")
        kernel = kernel or _built(op, dtype, where, dims, tmp_path)
        x, weight, bias = (
            torch.randn(spec.sizes(dims)).to(getattr(torch, dtype))
            for spec in ops.load(op).signature.inputs
        )
        wanted = torch.conv2d(
            x.double(),
            weight.double(),
            bias.double(),
            stride=scalars["stride"],
            padding=scalars["padding"],
        )
        if op != "conv2d":
            wanted = torch.max_pool2d(wanted.relu(), scalars["window"], scalars["pool_stride"])
        y = torch.full_like(wanted, torch.nan, dtype=x.dtype)
        kernel.launch(Call([x, weight, bias], [y], dims, scalars))
        off = (y.double() - wanted).abs().max().item()
        assert off <= NEAR[dtype] * (1 + wanted.abs().max().item()), (dims, scalars)


@pytest.mark.sampled()
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("where", HERE[::-1])
def test_a_pooling_of_drawn_sizes_is_the_frameworks(where: str, dtype: str, tmp_path: Path) -> None:
    """Also of planes that are some bands of rows and a shorter one."""
    draw, kernel, own = random.Random(f"{where} {dtype} pool"), None, ops.load("maxpool2d")
    for _ in range(60):
        window, padding = draw.randint(1, 5), draw.randint(0, 1)
        scalars = {"window": window, "stride": draw.randint(1, 4), "padding": padding * window // 2}
        sizes = {"n": draw.randint(1, 3), "c": draw.randint(1, 5)}
        sizes |= {"h": draw.randint(window, 240), "w": draw.randint(window, 300)}
        dims = {**sizes, **own.derived(sizes, scalars)} if own.derived else sizes
        kernel = kernel or _built("maxpool2d", dtype, where, dims, tmp_path)
        x = torch.randn(own.signature.inputs[0].sizes(dims)).to(getattr(torch, dtype))
        wanted = torch.max_pool2d(x, window, scalars["stride"], scalars["padding"])
        y = torch.full_like(wanted, torch.nan)
        kernel.launch(Call([x], [y], dims, scalars))
        assert torch.equal(y, wanted), (dims, scalars)


@pytest.mark.sampled("op")
@pytest.mark.parametrize("op", ["cumsum", "matmul", "sum", "transpose", "embedding"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("where", HERE[::-1])
def test_narrow_rows_take_nothing_from_their_neighbours_and_write_nothing_behind(
    where: str, dtype: str, op: str, tmp_path: Path
) -> None:
    draw, kernel, kind = random.Random(f"{where} {dtype} {op}"), None, getattr(torch, dtype)
    for _ in range(60):
        rows = draw.choice((draw.randint(1, 9), draw.randint(1, 700)))
        cols = draw.choice((draw.randint(1, 9), draw.randint(1, 150)))
        x = torch.randn(rows, cols).to(kind)
        x[draw.randrange(rows), draw.randrange(cols)] = torch.inf
        dims, inputs, wanted = _of_rows(op, x, draw)
        kernel = kernel or _built(op, dtype, where, dims, tmp_path)
        memory = torch.full((wanted.numel() + 64,), 7.0, dtype=kind)
        y = memory[: wanted.numel()].view(wanted.shape)
        kernel.launch(Call(inputs, [y], dims, {}))
        assert memory[wanted.numel() :].eq(7.0).all(), dims
        near = NEAR[dtype] * (1 + wanted.nan_to_num(posinf=0.0).abs().max().item())
        assert torch.allclose(y.double(), wanted, rtol=0.0, atol=near), dims


def _of_rows(
    op: str, x: torch.Tensor, draw: random.Random
) -> tuple[dict[str, int], list[torch.Tensor], torch.Tensor]:
    """Axes, inputs and what is wanted, in float64, of an operator that takes rows."""
    rows, cols = x.shape
    if op == "cumsum":
        return {"rows": rows, "cols": cols}, [x], x.double().cumsum(-1)
    if op == "sum":
        return {"outer": rows, "reduce": cols, "inner": 1}, [x], x.double().sum(-1, keepdim=True)
    if op == "transpose":
        return {"rows": rows, "cols": cols}, [x], x.double().t()
    if op == "embedding":
        index = torch.randint(rows, (draw.randint(1, 300),))
        dims = {"vocab": rows, "dim": cols, "n": len(index)}
        return dims, [x, index], x.double()[index]
    n = draw.choice((draw.randint(1, 4), draw.randint(5, 20)))
    b = torch.rand(cols, n).add(0.5).to(x.dtype)
    return {"m": rows, "n": n, "k": cols}, [x, b], x.double() @ b.double()


def test_attention_of_a_nan_is_one_and_of_no_keys_is_zero(tmp_path: Path) -> None:
    dims = {"batch": 1, "kv_heads": 1, "group": 2, "queries": 5, "keys": 3, "dim": 24}
    scalars = {"window": 0, "softcap": 0.0}
    kernel = _built("grouped_attention", "float32", HERE[0], dims, tmp_path)
    op = ops.load("grouped_attention")
    q, k, v = (torch.randn(spec.sizes(dims)) for spec in op.signature.inputs)
    q[0, 0, 1, 3, 5] = torch.nan
    y = torch.full_like(q, 7.0)
    kernel.launch(Call([q, k, v], [y], dims, scalars))
    wanted = op.reference(q, k, v, **scalars)
    assert (y[0, 0, :, :2] == 0).all() and y[0, 0, 1, 3].isnan().all()
    assert torch.allclose(y, wanted, atol=1e-5, equal_nan=True)


def _convolution(draw: random.Random, *, pooled: bool) -> tuple[dict[str, int], dict[str, int]]:
    """Axes and scalars; drawn again where they leave no result."""
    kh, kw, stride = draw.choice(FILTERS), draw.choice(FILTERS), draw.choice(STRIDES)
    padding = min(draw.choice((0, 1, 2, 5)), kh - 1, kw - 1)
    h, w = draw.randint(1, 40), draw.randint(1, 60)
    oh, ow = ((size + 2 * padding - k) // stride + 1 for size, k in ((h, kh), (w, kw)))
    scalars = {"stride": stride, "padding": padding}
    if pooled:
        window, step = draw.choice((1, 2, 3)), draw.choice((1, 2, 3))
        oh, ow = (oh - window) // step + 1, (ow - window) // step + 1
        scalars |= {"window": window, "pool_stride": step}
    if oh <= 0 or ow <= 0:
        return _convolution(draw, pooled=pooled)
    n, f = draw.randint(1, 9), draw.choice((1, 3, 6, 13, 70))
    sizes = {"n": n, "c": draw.choice(CHANNELS), "h": h, "w": w, "f": f}
    return sizes | {"kh": kh, "kw": kw, "oh": oh, "ow": ow}, scalars


def _built(op: str, dtype: str, where: str, dims: dict[str, int], folder: Path) -> Kernel:
    backend, target, signature = registry.load("cpu"), targets.load(where), ops.load(op).signature
    kernels = catalogue.candidates(op, backend)
    candidate = next(kernel for kernel in kernels if kernel.language == "c++")
    build = Build(candidate, signature, dtype, target, dims, signature.scalar_values({}))
    venue = backend.venues(target).hardware
    if isinstance(venue, Missing):
        pytest.skip(str(venue))
    return backend.load(backend.build(build, folder), build, venue)

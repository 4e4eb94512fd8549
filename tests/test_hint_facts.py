"""Hints of targets say what compilers do: Triton's choice of instructions, clang's of atomics."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from portkern.spec import target
from portkern.toolchain.run_tool import package_dir

clang: Any = import_module("portkern.backends.hip.clang")
ATOMICS = """
#include <hip/hip_runtime.h>
extern "C" __global__ void f32_atomicAdd(float* p, float v) { atomicAdd(p, v); }
extern "C" __global__ void f32_unsafeAtomicAdd(float* p, float v) { unsafeAtomicAdd(p, v); }
extern "C" __global__ void f64_atomicAdd(double* p, double v) { atomicAdd(p, v); }
extern "C" __global__ void f64_unsafeAtomicAdd(double* p, double v) { unsafeAtomicAdd(p, v); }
"""
#: The atomics of each target that are compare-and-swap loops.
LOOPS: dict[str, set[str]] = {
    "gfx90a": {"f32_atomicAdd", "f64_atomicAdd"},
    "gfx942": set(),
    "gfx950": set(),
    "gfx1100": {"f32_atomicAdd", "f64_atomicAdd", "f64_unsafeAtomicAdd"},
    "gfx1201": {"f64_atomicAdd", "f64_unsafeAtomicAdd"},
}


@pytest.mark.sampled()
@pytest.mark.skipif(not isinstance(clang.find(), clang.Clang), reason=str(clang.find()))
@pytest.mark.parametrize("arch", list(LOOPS))
def test_atomics_are_loops_where_hints_say_so(arch: str, tmp_path: Path) -> None:
    tool, where = clang.find(), target.load(arch)
    assert isinstance(tool, clang.Clang)
    flags = tool.flags()
    (tmp_path / "atomics.hip").write_text(ATOMICS, encoding="utf-8")
    command = [tool.zig, "clang", "-x", "hip", f"--offload-arch={arch}", "--offload-device-only"]
    command += ["-O3", "-S", *flags[: flags.index("-c")], *clang.constants(tool, where, tmp_path)]
    command += ["atomics.hip", "-o", "atomics.s"]
    environment = clang.environment(tmp_path)
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=120)
    code = (tmp_path / "atomics.s").read_text("utf-8")
    bodies = dict(re.findall(r"^(f\d\d_\w+):(.*?)s_endpgm", code, re.MULTILINE | re.DOTALL))
    assert len(bodies) == 4
    assert {name for name, body in bodies.items() if "atomic_cmpswap" in body} == LOOPS[arch]
    default = where.features.extras.get("f32_atomic_add_default")
    loop = "f32_atomicAdd" in LOOPS[arch]
    assert default in (None, "cas_loop" if loop else "hardware")


PROGRAM = """
import re, sys, triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def product(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    of_a = tl.make_tensor_descriptor(a, [4096, 4096], [4096, 1], [BM, BK])
    of_b = tl.make_tensor_descriptor(b, [4096, 4096], [4096, 1], [BK, BN])
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        sums = tl.dot(of_a.load([0, k]), of_b.load([k, 0]), sums)
    tl.store(c + rows[:, None] * 4096 + columns[None, :], sums)

for arch, rows, warps in eval(sys.argv[1]):
    made = ASTSource(product, {"a": "*fp16", "b": "*fp16", "c": "*fp32", "K": "i32"},
                     {"BM": rows, "BN": 128, "BK": 64})
    options = {"num_warps": warps, "num_stages": 3}
    ptx = triton.compile(made, target=GPUTarget("cuda", arch, 32), options=options).asm["ptx"]
    kinds = set(re.findall(r"wgmma.mma|tcgen05.mma|mma.sync|cp.async.bulk.tensor", ptx))
    print(arch, rows, warps, *sorted(kinds))
"""
TMA = "cp.async.bulk.tensor"
#: The instructions that tl.dot and a descriptor become, by architecture, rows of a block and warps.
CHOSEN = {
    (90, 64, 4): [TMA, "wgmma.mma"],
    (90, 64, 2): [TMA, "mma.sync"],
    (90, 32, 4): [TMA, "mma.sync"],
    (100, 64, 4): [TMA, "tcgen05.mma"],
    (100, 32, 4): [TMA, "mma.sync"],
    (120, 64, 4): [TMA, "mma.sync"],
    (80, 64, 4): ["mma.sync"],
    (89, 64, 4): ["mma.sync"],
}


@pytest.mark.full
@pytest.mark.skipif(package_dir("triton") is None, reason="triton is not installed")
def test_triton_makes_of_products_what_hints_say(tmp_path: Path) -> None:
    (tmp_path / "products.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "products.py", repr(list(CHOSEN))]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    said = [line.split() for line in ran.stdout.splitlines()]
    assert {tuple(map(int, words[:3])): words[3:] for words in said} == CHOSEN

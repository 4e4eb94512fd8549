"""Matrix instructions that targets' files name are what compilers take for these targets."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from portkern.spec import target
from portkern.spec.target import MatrixInstruction
from portkern.toolchain.run_tool import package_dir

AMD = [name for name in target.names("architecture") if name.startswith("gfx")]
NVIDIA = [name for name in target.names("architecture") if name.startswith("sm_")]
_BITS = {"f64": 64, "f32": 32, "xf32": 32, "tf32": 32, "f16": 16, "bf16": 16, "fp8": 8, "i8": 8}
_BITS |= {"i4": 4, "i32": 32}
_C = {"f64": "double", "f32": "float", "xf32": "float", "f16": "_Float16", "i32": "int"}


def vector(element: str, count: int) -> str:
    """clang's type of so many, declared in place."""
    return element if count == 1 else f"__attribute__((ext_vector_type({count}))) {element}"


def operands(each: MatrixInstruction, call: str, shape: str, lanes: int) -> list[tuple[str, bool]]:
    """C types of a call's arguments, and whether each is a constant."""
    m, n, k = map(int, shape.split("x"))
    twice = "_w32" in call and "gfx12" not in call  # RDNA3 has A and B in both halves of a wave
    count = m * k // lanes * (2 if twice else 1)
    if each.inputs == "bf16":
        own = "mfma" in call and not call.endswith("_1k")
        taken = vector("__bf16" if own else "short", count)
    elif each.inputs in ("i8", "i4", "fp8"):
        words = max(count * _BITS[each.inputs] // 32, 1)
        whole = words == 2 and "mfma" in call  # eight bytes are a long there
        taken = "long" if whole else vector("int", words)
    else:
        taken = vector(_C[each.inputs], count)
    sums = vector(_C[each.sums], m * n // lanes)
    if "wmma_i32" in call:
        return [("bool", True), (taken, False)] * 2 + [(sums, False), ("bool", True)]
    if "mfma_scale" in call:
        wide = vector("int", 8)
        scaled: list[tuple[str, bool]] = [("int", True), ("int", False)]
        return [(wide, False)] * 2 + [(sums, False), ("int", True), ("int", True), *scaled * 2]
    modes: list[tuple[str, bool]] = [("int", True)] * (3 if "mfma" in call else 0)
    return [(taken, False), (taken, False), (sums, False), *modes]


def source(arch: str) -> str:
    """A function for each call."""
    one = target.load(arch)
    lines = []
    for each in one.features.matrix:
        for number, (shape, call) in enumerate(zip(each.shapes, each.calls, strict=True)):
            types = operands(each, call, shape, one.warp or 0)
            name = f"{each.name}_{each.inputs}_{number}"
            lines += [
                f"typedef {t} {name}_t{i};" for i, (t, fixed) in enumerate(types) if not fixed
            ]
            taken = [f"{name}_t{i} x{i}" for i, (_, fixed) in enumerate(types) if not fixed]
            given = ["0" if fixed else f"x{i}" for i, (_, fixed) in enumerate(types)]
            sums = 4 if "wmma_i32" in call else 2
            lines.append(f"void {name}({', '.join(taken)}, {name}_t{sums}* to)")
            lines.append(f"{{ *to = {call}({', '.join(given)}); }}")
    return "typedef _Bool bool;\n" + "\n".join(lines) + "\n"


@pytest.mark.skipif(find_spec("ziglang") is None, reason="ziglang is not installed")
@pytest.mark.parametrize("arch", AMD)
def test_clang_compiles_each_intrinsic_for_its_target(arch: str, tmp_path: Path) -> None:
    file = tmp_path / "calls.c"
    file.write_text(source(arch), encoding="utf-8")
    command = [sys.executable, "-m", "ziglang", "clang", "-target", "amdgcn-amd-amdhsa"]
    command += [f"-mcpu={arch}", "-nogpulib", "-c", str(file), "-o", str(tmp_path / "calls.o")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr


def registers(dtype: str, elements: int) -> str:
    """So many of PTX's, as an operand."""
    kind, width = {"f32": ("f", 32), "f64": ("d", 64), "s32": ("r", 32)}.get(dtype, ("r", 32))
    bits = {"tf32": 32, "f16": 16, "bf16": 16, "s8": 8, "e4m3": 8}.get(dtype, width)
    count = max(elements * bits // width, 1)
    return "{" + ", ".join(f"%{kind}{i}" for i in range(count)) + "}"


def statement(each: MatrixInstruction, call: str, shape: str) -> str:
    m, n, k = map(int, shape.split("x"))
    if each.name == "tcgen05":
        return f"{call} [%r0], %rd0, %rd1, %r1, %p0;"
    sums, first = (
        (call.split(".")[-1], call.split(".")[-2])
        if each.name == "mma.sync"
        else (
            call.split(".")[-3],
            call.split(".")[-1],
        )
    )
    if each.name == "wgmma":
        tail = {"f16": ", 1, 1, 0, 0", "bf16": ", 1, 1, 0, 0", "s8": ""}.get(first, ", 1, 1")
        return f"{call} {registers(sums, m * n // 128)}, %rd0, %rd1, %p0{tail};"
    d, a, b = (
        registers(t, size // 32) for t, size in ((sums, m * n), (first, m * k), (first, k * n))
    )
    return f"{call} {d}, {a}, {b}, {d};"


@pytest.mark.skipif(package_dir("triton") is None, reason="triton, whose ptxas this is, is missing")
@pytest.mark.parametrize("arch", NVIDIA)
def test_ptxas_assembles_each_instruction_for_its_target(arch: str, tmp_path: Path) -> None:
    folder = package_dir("triton")
    assert folder is not None
    tool = "ptxas-blackwell" if int(arch[3:]) >= 100 else "ptxas"
    for number, each in enumerate(target.load(arch).features.matrix):
        needed = each.needs or arch
        body = [
            statement(each, call, shape)
            for shape, call in zip(each.shapes, each.calls, strict=True)
        ]
        text = "\n".join(
            [
                f".version 8.7\n.target {needed}\n.address_size 64\n.visible .entry f() {{",
                ".reg .f32 %f<256>; .reg .f64 %d<16>; .reg .b32 %r<256>; .reg .b64 %rd<2>;",
                ".reg .pred %p<1>;",
                *body,
                "ret; }\n",
            ]
        )
        file = tmp_path / f"{number}.ptx"
        file.write_text(text, encoding="utf-8")
        command = [str(folder / "backends" / "nvidia" / "bin" / tool), f"-arch={needed}", str(file)]
        command += ["-o", str(tmp_path / "out.cubin")]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 0, (each, ran.stderr + ran.stdout)

"""``style=single_source``: CUDA's compiler sees the original, HIP's what the translation makes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Literal

import pytest

from portkern.cli import main
from portkern.port.translate import single_source, translate
from portkern.simt.execute import build, program, runtime_library
from portkern.simt.execute.options import ExecutorOptions
from portkern.spec import target as targets
from portkern.spec.backend import Missing
from tests.port_translate_programs import DEVICE, LOGICAL

executor = pytest.mark.skipif(
    isinstance(runtime_library.find(), Missing), reason=str(runtime_library.find())
)
HOST = """\
#pragma once
#include <cuda_runtime.h>
#define SHARE(v) \\
    __shfl_xor_sync(0xffffffff, v, 1)
#define CHECK(x) if ((x) != cudaSuccess) abort()
#ifdef __CUDACC__
__global__ void k(float* x) {
    x[threadIdx.x] = SHARE(x[threadIdx.x]);
#if __CUDA_ARCH__ >= 700
    x[0] = __shfl_sync(0xffffffff, x[0],
                       3);
#endif
}
#endif
inline void f(float* p) { CHECK(cudaMalloc(&p, 4)); }
"""


def both(text: str, name: str = "a.cu") -> str:
    return translate(text, name, style="single_source").text


def side(text: str, *, hip: bool) -> list[str]:
    """The lines that one of the compilers sees, of what the translation made two of."""
    lines, taken = [], [True]
    own: list[bool] = []
    for line in text.splitlines():
        word = line.split()[0] if line.split() else ""
        if line == "#if defined(__HIPCC__)":
            own.append(True)
            taken.append(hip)
        elif own and own[-1] and word == "#else":
            taken[-1] = not hip
        elif own and own[-1] and word == "#endif":
            own.pop()
            taken.pop()
        elif taken[-1]:
            if word in ("#if", "#ifdef", "#ifndef"):
                own.append(False)
            elif word == "#endif":
                own.pop()
            lines += [line]
    return [line for line in lines if not line.endswith(f'{single_source.HEADER}"')]


def conditions_apart(lines: list[str]) -> list[str]:
    """The lines without conditions, which hold in both files and are written otherwise."""
    return [line for line in lines if not line.lstrip().startswith(("#if", "#elif"))]


@pytest.mark.parametrize("text", [HOST, DEVICE, LOGICAL], ids=["host", "device", "program"])
def test_each_compiler_sees_its_own(text: str) -> None:
    made = both(text)
    assert conditions_apart(side(made, hip=False)) == conditions_apart(text.splitlines())
    hip = translate(text, "a.cu").text
    names = translate(text, "a.cu", style="single_source").names
    lines = " ".join(conditions_apart(side(made, hip=True)))
    for cuda, other in sorted(names.items(), key=lambda item: -len(item[0])):
        lines = lines.replace(cuda, other)
    assert lines.split() == " ".join(conditions_apart(hip.splitlines())).split()


def test_a_condition_asks_for_either_compiler() -> None:
    lines = both(HOST).splitlines()
    assert "#if defined(__CUDACC__) || defined(__HIPCC__)" in lines
    assert "#if (defined(__HIP_DEVICE_COMPILE__) || __CUDA_ARCH__ >= 700)" in lines
    assert "#ifdef __CUDACC__" not in lines


def test_names_stay_and_the_header_has_hips() -> None:
    made = translate(HOST, "src/deep/a.cuh", style="single_source")
    assert "cudaMalloc(&p, 4)" in made.text and "hipMalloc" not in made.text
    assert f'#include "../../{single_source.HEADER}"' in made.text.splitlines()
    header = single_source.header(made.names).splitlines()
    assert "#define cudaMalloc hipMalloc" in header
    assert not any("__CUDACC__" in line for line in header)


@pytest.mark.parametrize("text", [HOST, LOGICAL, HOST.replace("\n", "\r\n")])
def test_twice_is_once_and_ends_of_lines_stay(text: str) -> None:
    made = both(text)
    assert both(made) == made == translate(made, "a.cu").text
    assert ("\r\n" in text) == ("\r\n" in made) and made.count("\r\n") in (0, made.count("\n"))


def test_a_text_without_cuda_stays() -> None:
    assert both("int f() { return 1; }\n", "a.cpp") == "int f() { return 1; }\n"


@pytest.mark.full
@executor
@pytest.mark.parametrize(
    ("target", "language"), [("sm_90", "cuda"), ("gfx942", "hip"), ("gfx1100", "hip")]
)
def test_it_computes_what_the_original_does(
    target: str, language: Literal["cuda", "hip"], tmp_path: Path
) -> None:
    made = translate(LOGICAL, "a.cu", style="single_source")
    (tmp_path / single_source.HEADER).write_text(single_source.header(made.names))
    outputs = []
    runs: list[tuple[str, str, str, Literal["cuda", "hip"]]] = [
        ("original", LOGICAL, "sm_90", "cuda"),
        ("both", made.text, target, language),
    ]
    for name, text, where, tongue in runs:
        file = tmp_path / f"{name}.cu"
        file.write_text(text, encoding="utf-8")
        options = build.CompileOptions(target=targets.load(where), language=tongue)
        built = build.build_program(file, tmp_path / name, options)
        ran = program.run(
            built, ExecutorOptions(), target=targets.load(where), language=tongue, timeout_s=60
        )
        assert ran.status == 0 and not ran.findings, ran
        outputs.append(ran.output.splitlines())
    assert outputs[0] == outputs[1]


@pytest.mark.full
@executor
def test_a_library_becomes_one_source_by_its_patch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    library = tmp_path / "library"
    (library / "src").mkdir(parents=True)
    (library / "src" / "share.cu").write_text(
        "#include <cuda_runtime.h>\n__global__ void share(float* y, const float* x, int n) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    float v = __shfl_down_sync(0xffffffff, i < n ? x[i] : 0, 1);\n"
        "    if (i < n) y[i] = v;\n}\n"
        "int main() {\n    float *x, *y;\n    cudaMalloc(&x, 400);\n    cudaMalloc(&y, 400);\n"
        "    cudaMemset(x, 1, 400);\n    share<<<1, 128>>>(y, x, 100);\n"
        "    return cudaDeviceSynchronize() != cudaSuccess;\n}\n"
    )
    monkeypatch.chdir(tmp_path)
    asked = ["port", "library", "to=gfx942", "style=single_source"]
    assert main.run(asked) == 0, capsys.readouterr()
    assert "1 of 1 kernels proven in emulation, 1 built for gfx942" in capsys.readouterr().out
    patch = tmp_path / "reports" / "port-library" / "port.patch"
    subprocess.run(["git", "apply", str(patch)], cwd=library, check=True)
    ported = tmp_path / "reports" / "port-library" / "tree"
    for file in ("src/share.cu", single_source.HEADER):
        assert (library / file).read_bytes() == (ported / file).read_bytes()
    assert main.run(["port", "library", "to=gfx942", "style=single_sauce"]) == 2
    assert "did you mean 'single_source'?" in capsys.readouterr().err

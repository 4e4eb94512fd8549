"""Programs of several files: which files they are, and that their kernels are proven together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from portkern.port import build_notes, library, linked, run
from portkern.port.build_notes import BuildNotes
from portkern.port.kernel_port import PortFile, ProofLine
from portkern.port.key import Keys
from portkern.port.proof import Outcome
from portkern.port.proving import Prover
from portkern.port.request import PortRequest
from portkern.port.result import PortResult
from portkern.port.translated import translated
from portkern.port.workshop import Workshop
from portkern.simt.execute import runtime_library
from portkern.spec import target
from portkern.spec.backend import Missing

MAIN = """#include <cstdio>
#include "shift.h"
int main() {
  float host[64], *x;
  cudaMalloc(&x, sizeof(host));
  fill(host, 64);
  cudaMemcpy(x, host, sizeof(host), cudaMemcpyHostToDevice);
  shift_all(x, 64);
  cudaMemcpy(host, x, sizeof(host), cudaMemcpyDeviceToHost);
  printf("%g\\n", host[40]);
}
"""
KERNELS = """#include "shift.h"
struct Step { float by; int lane; };
__global__ void shift(float* x, Step step) {
  x[threadIdx.x] = __shfl_xor_sync(0xffffffff, x[threadIdx.x], step.lane) + step.by;
}
void shift_all(float* x, int n) { shift<<<1, n>>>(x, Step{2.f, 1}); }
"""
HEADER = "#include <cuda_runtime.h>\nvoid shift_all(float*, int);\nvoid fill(float*, int);\n"
HOST = "void fill(float* x, int n) { for (int i = 0; i < n; i++) x[i] = i; }\n"
MAKEFILE = """NAMES = main.cu kernels.cu
SOURCES = $(NAMES) fill.cpp
main: $(SOURCES:.cu=.o)
"""


def written(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"main.cu": MAIN, "kernels.cu": KERNELS, "shift.h": HEADER, "fill.cpp": HOST}
    for name, text in {**texts, **files}.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "text", "others"),
    [
        ("Makefile", MAKEFILE, {"kernels.cu", "fill.cpp"}),
        ("Makefile", "main: main.o kernels.o\n\tnvcc $^ -o $@\n", {"kernels.cu"}),
        (
            "Makefile",
            "main:\n\tnvcc $(wildcard *.cu) fill.cpp -o main\n",
            {"kernels.cu", "fill.cpp"},
        ),
        ("Makefile", "main: main.cu\nkernels.o: kernels.cu shift.h\n", set()),
        ("CMakeLists.txt", "set(S kernels.cu)\nadd_executable(m main.cu ${S})\n", {"kernels.cu"}),
        ("CMakeLists.txt", "add_library(m main.cu kernels.cu)\n", set()),
    ],
)
def test_build_files_say_what_a_program_consists_of(
    name: str, text: str, others: set[str], tmp_path: Path
) -> None:
    found = linked.programs(library.read(written(tmp_path / "lib", **{name: text})))
    assert {str(main) for main in found} == ({"main.cu"} if others else set())
    assert {file.name for files in found.values() for file in files} == others


def test_a_file_that_another_includes_is_not_linked_with_it(tmp_path: Path) -> None:
    folder = written(tmp_path / "lib", **{"main.cu": f'#include "kernels.cu"\n{MAIN}'})
    (folder / "Makefile").write_text("main: main.cu kernels.cu\n", encoding="utf-8")
    assert linked.programs(library.read(folder)) == {}


def test_two_programs_in_one_list_are_none(tmp_path: Path) -> None:
    folder = written(tmp_path / "lib", **{"kernels.cu": MAIN, "Makefile": MAKEFILE})
    assert linked.programs(library.read(folder)) == {}


def test_the_plan_links_what_belongs_together(tmp_path: Path) -> None:
    result = PortResult("lib", tmp_path, tmp_path / "tree", "hip", ("gfx942",), (), ())
    with_ = {"main.cu": ("kernels.cu", "fill.cpp")}
    notes = BuildNotes(("main.cu", "kernels.cu", "b.cu"), ("main.cu",), (), (), linked=with_)
    plan = build_notes.script(result, notes, tmp_path)
    assert "\nlinked=(kernels.cu fill.cpp); program main.cu\n" in plan
    assert "\nobject b.cu\n" in plan and "object kernels.cu" not in plan
    assert "gfx942 main.cu kernels.cu fill.cpp -o main" in build_notes.markdown(result, notes)


def test_what_a_program_does_not_show_is_shown_by_a_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "lib", Makefile=MAKEFILE)
    request = PortRequest(folder, "hip", (target.load("gfx942"),), tmp_path / "tree")
    read = library.read(folder)
    files = {file.source.path: file for file in translated(read, request)}
    lines = {
        "main.cu": ProofLine(outcome=Outcome.UNPROVEN, why="the program did not end"),
        "kernels.cu": ProofLine(outcome=Outcome.PROVEN),
    }
    monkeypatch.setattr(
        Prover, "_prove", lambda _, asked: {("kernels.cu", "shift"): lines[str(asked[0])]}
    )
    path, out = PurePosixPath("kernels.cu"), tmp_path / "tree"
    with Workshop(request, read, out) as shop:
        prover = Prover(request, read, files, out, tmp_path / "report", shop)
        shown = prover.proof(files[path], files[path].kernels[0], [path])
    assert shown.outcome == Outcome.PROVEN
    assert shown.why == "in a case of its own, as the program did not end"


@pytest.mark.full
@pytest.mark.skipif(isinstance(runtime_library.find(), Missing), reason=str(runtime_library.find()))
def test_kernels_of_a_linked_file_are_proven_by_the_program(tmp_path: Path) -> None:
    """A case alone could not make up a ``Step`` for the kernel."""
    folder = written(tmp_path / "lib", Makefile=MAKEFILE)
    request = PortRequest(folder, "hip", (target.load("gfx942"),), tmp_path / "tree", run_s=60.0)
    run.run(request, tmp_path / "report")
    (port,) = PortFile(tmp_path / "report").read()[0]
    assert (port.kernel, port.path) == ("shift", "kernels.cu")
    assert (port.proof.outcome, port.proof.inputs) == ("proven in emulation", "the program's own")
    assert "kernels.cu" in port.proof.command


def test_a_file_that_is_linked_has_a_part_in_the_answer(tmp_path: Path) -> None:
    folder = written(tmp_path / "lib", Makefile=MAKEFILE)
    request = PortRequest(folder, "hip", (target.load("gfx942"),), tmp_path / "tree")
    path, host = PurePosixPath("kernels.cu"), folder / "fill.cpp"
    keys = Keys(library.read(folder), {}, request)
    before = keys.of(path, [], "gfx942", [host])
    assert keys.of(path, [], "gfx942", [host]) == before
    host.write_text(HOST.replace("= i", "= 2 * i"), encoding="utf-8")
    assert keys.of(path, [], "gfx942", [host]) != before


STEP = """#include "forces.cuh"
__global__ void step(float* x, const int* kind, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += force(x[i], kind[i]);
}
void advance(float* x, const int* kind, int n) { step<<<(n + 127) / 128, 128>>>(x, kind, n); }
"""
FORCES = """#include "forces.cuh"
__constant__ float spring[4];
__device__ float force(float x, int kind) { return -spring[kind & 3] * x; }
void set_springs(const float* v) { cudaMemcpyToSymbol(spring, v, 16); }
"""
FORCES_HEADER = """#pragma once
#include <cuda_runtime.h>
extern __constant__ float spring[4];
__device__ float force(float x, int kind);
"""
LIBRARY = """add_library(sim STATIC step.cu forces.cu)
set_target_properties(sim PROPERTIES CUDA_SEPARABLE_COMPILATION ON)
"""
SETUP = """from setuptools import setup
from torch.utils.cpp_extension import CUDAExtension
setup(name="sim", ext_modules=[CUDAExtension("sim", sources=["step.cu", "forces.cu"])])
"""


@pytest.mark.full
@pytest.mark.parametrize(("name", "text"), [("CMakeLists.txt", LIBRARY), ("setup.py", SETUP)])
def test_device_code_of_another_file_of_the_same_list_is_built_with_it(
    name: str, text: str, tmp_path: Path
) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    texts = {"step.cu": STEP, "forces.cu": FORCES, "forces.cuh": FORCES_HEADER, name: text}
    for file, content in texts.items():
        (folder / file).write_text(content, encoding="utf-8")
    targets = (target.load("gfx942"), target.load("gfx1100"))
    request = PortRequest(folder, "hip", targets, tmp_path / "tree", prove=False)
    result = run.run(request, tmp_path / "report")
    assert [port.not_built for port in result.ports] == ["", ""]
    assert all(
        port.stands and port.resources.relocatable for port in result.ports if port.resources
    )
    said = (tmp_path / "report" / "BUILD.md").read_text()
    assert "hipcc -O3 -fgpu-rdc" in said and "-fgpu-rdc --hip-link" in said
    assert "'forces.cu'" in said


def test_build_lines_ask_for_relocatable_code_only_where_it_is_needed(tmp_path: Path) -> None:
    result = PortResult("lib", tmp_path, tmp_path / "tree", "hip", ("gfx942",), (), ())
    plain = BuildNotes(("a.cu", "b.cu"), ("a.cu",), (), (), linked={"a.cu": ("b.cu",)})
    assert "rdc" not in build_notes.markdown(result, plain)
    needed = replace(plain, relocatable=True)
    assert "hipcc -O3 -fgpu-rdc --offload-arch=gfx942 a.cu b.cu" in build_notes.markdown(
        result, needed
    )
    assert '--offload-arch="$GPU" -fgpu-rdc' in build_notes.script(result, needed, tmp_path)

"""A kernel that cannot be built is left out, with its reason; the others of its file are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from portkern.cuda_source.syntax import parse
from portkern.port import device_build, kernels_alone, partial_build
from portkern.port.device_build import DeviceBuilt, NotBuilt
from portkern.port.file_port import base_name
from portkern.port.proof import Outcome, ProofSource, prove
from portkern.port.proof.slice import Slices, written
from portkern.port.proof.texts import SourceTexts
from portkern.port.translate import translate
from portkern.simt.execute import runtime_library
from portkern.spec import registry, target
from portkern.spec.backend import Missing

MIXED = """\
#include <cuda_runtime.h>
#include <nowhere/absent.h>
namespace lib {
template <class T> __device__ T twice(T x) { return x + x; }
__device__ void odd(float* x) { asm volatile("frobnicate.f32 %0, %0;" : "+f"(*x)); }
}  // namespace lib
#define LAUNCHER(name) \\
    void run_##name(float* y, float* x) { name##_kernel<<<1, 256>>>(y, x, 256); }
__global__ void good_kernel(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = lib::twice(x[i]);
}
__global__ void odd_kernel(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { y[i] = x[i]; lib::odd(&y[i]); }
}
__global__ void broken_kernel(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + undeclared_thing;
}
LAUNCHER(good)
LAUNCHER(odd)
LAUNCHER(broken)
struct Host { Absent a; };
typedef struct { Absent a; } Typedefed;
int main() { Host h; run_good(0, 0); }
"""


def sliced(text: str, *kernels: str, without: tuple[str, ...] = ()) -> str:
    return Slices([text]).of(kernels, without)[0]


def test_a_slice_has_what_the_kernel_uses_on_its_lines() -> None:
    kept = sliced(MIXED, "good_kernel", without=("nowhere/absent.h",))
    lines = MIXED.splitlines()
    shown = [n for n, line in enumerate(kept.splitlines()) if line.strip()]
    assert [lines[n] for n in shown] == [kept.splitlines()[n] for n in shown]
    gone = ("frobnicate", "odd_kernel", "undeclared_thing", "LAUNCHER(good)", "Absent", "main")
    assert [word for word in gone if word in kept] == []
    for word in ("lib::twice(x[i])", "T twice(T x)", "cuda_runtime.h", "}  // namespace lib"):
        assert word in kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("struct S { int n; };\n__global__ void k(S s) {}", True),
        ("struct S { int n; };\n__global__ void k(int s) {}", False),
        ("#define USE S\nstruct S { int n; };\n__global__ void k(USE s) {}", True),
        ("struct S { int n; };\nS everywhere;\n__global__ void k() {}", True),
        ("void S() {}\n__global__ void k() {}\ntemplate void S<int>(int);\n", False),
        ("void S();\n__global__ void k() {}\nvoid S() {}\n", False),
        # A condition of the preprocessor that a definition is torn by stays whole.
        ("#if A\nvoid S(int a)\n#endif\n{}\n__global__ void k() {}", True),
        ('extern "C" {\nvoid S() {}\n}\n__global__ void k() {}', False),
        ("template <class T> class S : Base<T> { T t; };\n__global__ void k(S<int> s) {}", True),
        ("#define MAKE(x) __device__ int x##_f() { return S(); }\nint S() {}\nMAKE(a)\n"
         "__global__ void k() { a_f(); }", True),
        ("typedef struct __align__(16) { int n; } S;\n__global__ void k(S s) {}", True),
        ("typedef struct __align__(16) { int n; } S;\n__global__ void k() {}", False),
        ("struct alignas(16) S { int n; };\n__global__ void k(S s) {}", True),
        # A value of a parameter makes no variable of a prototype.
        ("void h(int a = S());\nint S() {}\nvoid h(int a) { S(); }\n__global__ void k() {}", False),
    ],
)  # fmt: skip
def test_definitions_stay_where_the_kernel_leads_to_them(text: str, kept: bool) -> None:
    cut = sliced(text, "k")
    assert ("S" in cut) == kept
    assert "void k(" in cut and len(cut) == len(text)


def test_headers_above_the_file_are_cut_beside_it(tmp_path: Path) -> None:
    deep = tmp_path / "lib" / "cuda"
    deep.mkdir(parents=True)
    (tmp_path / "lib" / "config.h").write_text("#define N 8\nAbsent f();\n", encoding="utf-8")
    file = deep / "k.cu"
    file.write_text('#include "../config.h"\n__global__ void k(int* x) { *x = N; }\n', "utf-8")
    texts = SourceTexts(ProofSource(file, "cuda", whole=(tmp_path / "lib",)))
    cut = Slices([text.text for text in texts.files]).of(["k"])
    path = written(texts, cut, tmp_path / "slices")
    assert "#define N 8" in (path.parent / ".." / "config.h").read_text("utf-8")
    assert "Absent" not in (path.parent / ".." / "config.h").read_text("utf-8")


def test_who_uses_a_line_is_known_through_functions_and_macros() -> None:
    slices = Slices([MIXED])
    kernels = ("good_kernel", "odd_kernel", "broken_kernel")
    assert slices.users(0, 5, kernels) == {"odd_kernel"}
    assert slices.users(0, 4, kernels) == {"good_kernel"}
    assert slices.users(0, 19, kernels) == {"broken_kernel"}
    assert slices.users(0, 1, kernels) == set()


@pytest.mark.full
@pytest.mark.skipif(isinstance(runtime_library.find(), Missing), reason=str(runtime_library.find()))
def test_the_other_kernels_of_a_file_are_proven(tmp_path: Path) -> None:
    original, ported = tmp_path / "mixed.cu", tmp_path / "mixed.hip"
    original.write_text(MIXED, encoding="utf-8")
    ported.write_text(translate(MIXED, "mixed.cu").text, encoding="utf-8")
    proofs = prove(
        ProofSource(original, "cuda"),
        ProofSource(ported, "hip"),
        target=target.load("gfx942"),
        other=None,
        kernels=parse(MIXED).kernels,
        workdir=tmp_path / "work",
    )
    good, odd, broken = proofs
    assert good.outcome is Outcome.PROVEN, good
    assert "without <nowhere/absent.h>, which is not here" in good.inputs
    # The launch in the file covers its 256 elements exactly: no thread is beyond the end.
    assert good.path == ported and good.coverage is not None and good.coverage.part == 0.5
    assert odd.outcome is Outcome.NEEDS_HARDWARE and "mixed.cu:5: error: SX001" in odd.why
    assert broken.outcome is Outcome.UNPROVEN and "mixed.cu:19" in broken.why
    assert not any("slices" in proof.why for proof in proofs)


@pytest.mark.full
def test_the_other_kernels_of_a_file_are_built(tmp_path: Path) -> None:
    answer = registry.load("hip").probe(target.load("gfx942"))
    if isinstance(answer, Missing):
        pytest.skip(str(answer))
    text = MIXED.replace("#include <nowhere/absent.h>", "struct Absent {};")
    file = tmp_path / "mixed.hip"
    file.write_text(translate(text, "mixed.cu").text, encoding="utf-8")

    def compile_file(path: Path) -> DeviceBuilt | NotBuilt:
        where = target.load("gfx942")
        return device_build.build(path, where, include=[tmp_path], workdir=tmp_path / "work")

    built = partial_build.build(ProofSource(file, "hip"), compile_file, tmp_path / "slices")
    assert isinstance(built, DeviceBuilt), built
    assert [kernel.kernel.partition("(")[0] for kernel in built.kernels] == ["good_kernel"]
    assert "asm" in built.rejected["odd_kernel"].reason
    assert "undeclared_thing" in built.rejected["broken_kernel"].reason


@pytest.mark.full
def test_kernels_are_built_without_host_code_whose_headers_are_absent(tmp_path: Path) -> None:
    answer = registry.load("hip").probe(target.load("gfx942"))
    if isinstance(answer, Missing):
        pytest.skip(str(answer))
    file = tmp_path / "mixed.hip"
    template = (
        "namespace mine {\ntemplate <int N = 64>\n__global__ void wide_kernel(float* y, int n) {\n"
        "    if (threadIdx.x < n) y[threadIdx.x] = N;\n}\n}\nAbsent f(Absent);\n"
        "std::map<int, int> brought_by_the_absent_header;\n"
    )
    file.write_text(translate(MIXED + template, "mixed.cu").text, encoding="utf-8")

    def compile_file(path: Path) -> DeviceBuilt | NotBuilt:
        where = target.load("gfx942")
        return device_build.build(path, where, include=[tmp_path], workdir=tmp_path / "work")

    source, header = ProofSource(file, "hip"), "nowhere/absent.h"
    built = kernels_alone.build(source, header, compile_file, tmp_path / "slices")
    assert built is not None
    assert {base_name(kernel.kernel) for kernel in built.kernels} == {"good_kernel", "wide_kernel"}
    assert set(built.rejected) == {"odd_kernel", "broken_kernel"}
    assert built.remark == "host code was left out, for this machine lacks <nowhere/absent.h>"

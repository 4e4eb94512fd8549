"""Proof per kernel: an original at 32 lanes and its port at 64, in the SIMT executor."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from portkern.cuda_source.syntax import parse
from portkern.errors import ConfigError
from portkern.port.proof import KernelProof, Outcome, ProofLimits, ProofSource, prove
from portkern.port.proof.arguments import smaller
from portkern.port.proof.case import read_cases
from portkern.port.proof.compare import Judged, Types, compare
from portkern.port.proof.element import aliases
from portkern.port.proof.expression import Names
from portkern.port.proof.findings import Inheritance, Text
from portkern.port.proof.outcome import WROTE_NOTHING
from portkern.port.proof.recording import Content, LaunchRecord, read
from portkern.port.proof.runs import Program, ProgramRun, Runs
from portkern.port.proof.text_output import difference
from portkern.port.translate import translate
from portkern.simt.diagnostics import Diagnostic
from portkern.simt.execute import machine, runtime_library
from portkern.simt.execute.options import Order
from portkern.spec import target
from portkern.spec.backend import Missing

COMPILES = pytest.mark.skipif(
    isinstance(runtime_library.find(), Missing), reason=str(runtime_library.find())
)

#: The texts of each kernel: CUDA, a port that is right, one that is not, and what shows that; LINE
#: marks the place that a finding must name.
KERNELS: Mapping[str, tuple[str, str, str, str]] = {
    "sum_by_shared_partials": (
        """(float* out, const float* x, int n) {
    float sum = threadIdx.x < n ? x[threadIdx.x] : 0;
    for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffff, sum, o);
    __shared__ float part[32];
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0;
    for (int i = 0; i < blockDim.x / 32; ++i) total += part[i];
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}""",
        """(float* out, const float* x, int n) {
    float sum = threadIdx.x < n ? x[threadIdx.x] : 0;
    for (int o = 16; o > 0; o /= 2) sum += __shfl_xor(sum, o, 32);
    __shared__ float part[32];
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0;
    for (int i = 0; i < blockDim.x / 32; ++i) total += part[i];
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}""",
        """(float* out, const float* x, int n) {
    float sum = threadIdx.x < n ? x[threadIdx.x] : 0;
    for (int o = warpSize / 2; o > 0; o /= 2) sum += __shfl_xor(sum, o);
    __shared__ float part[32];
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0;
    for (int i = 0; i < blockDim.x / 32; ++i) total += part[i];
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}""",
        "'out'[0] is",
    ),
    "count_by_leaders": (
        """(int* count, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int mine = i < n && x[i] > 0;
    for (int o = 16; o > 0; o /= 2) mine += __shfl_xor_sync(0xffffffff, mine, o);
    if (threadIdx.x % 32 == 0) atomicAdd(count, mine);
}""",
        """(int* count, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int mine = i < n && x[i] > 0;
    for (int o = warpSize / 2; o > 0; o /= 2) mine += __shfl_xor(mine, o);
    if (threadIdx.x % warpSize == 0) atomicAdd(count, mine);
}""",
        """(int* count, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int mine = i < n && x[i] > 0;
    for (int o = warpSize / 2; o > 0; o /= 2) mine += __shfl_xor(mine, o);
    if ((threadIdx.x & 31) == 0) atomicAdd(count, mine);
}""",
        "'count'[0] is",
    ),
    "any_by_mask": (
        """(int* out, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int any = __any_sync(0xffffffff, i < n && x[min(i, n - 1)] > 2.5f);
    if (i < n) out[i] = any + 1;
}""",
        """(int* out, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long votes = __ballot(i < n && x[min(i, n - 1)] > 2.5f);
    if (i < n) out[i] = ((votes >> (threadIdx.x % warpSize / 32 * 32)) & 0xffffffff) != 0 ? 2 : 1;
}""",
        """(int* out, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int any = __any_sync(0xffffffffull, i < n && x[min(i, n - 1)] > 2.5f);  // LINE
    if (i < n) out[i] = any + 1;
}""",
        "SX310",
    ),
    "votes_in_32_bits": (
        """(int* out, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned votes = __ballot_sync(0xffffffff, i < n && x[min(i, n - 1)] > 0);
    if (i < n && threadIdx.x % 32 == 0) atomicAdd(out, __popc(votes));
}""",
        """(int* out, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long votes = __ballot(i < n && x[min(i, n - 1)] > 0);
    if (i < n && threadIdx.x % warpSize == 0) atomicAdd(out, __popcll(votes));
}""",
        """(int* out, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned votes = __ballot(i < n && x[min(i, n - 1)] > 0);
    if (i < n && threadIdx.x % warpSize == 0) atomicAdd(out, __popc(votes));
}""",
        "'out'[0] is",
    ),
    "rank_by_shifted_mask": (
        """(int* out, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    unsigned votes = __ballot_sync(0xffffffff, i < n && x[min(i, n - 1)] > 0);
    if (i < n) out[i] = __popc(votes & ((1u << lane) - 1));
}""",
        """(int* out, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    unsigned votes = __ballot(i < n && x[min(i, n - 1)] > 0) >> (threadIdx.x % warpSize - lane);
    if (i < n) out[i] = __popc(votes & ((1u << lane) - 1));
}""",
        """(int* out, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % warpSize;
    unsigned long long votes = __ballot(i < n && x[min(i, n - 1)] > 0);
    if (i < n) out[i] = __popcll(votes & ((1u << lane) - 1));  // LINE
}""",
        "SX502",
    ),
    "neighbour_through_shared": (
        """(float* out, const float* x, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0;
    __syncwarp();
    float other = tile[threadIdx.x ^ 1];
    if (i < n) out[i] = other;
}""",
        """(float* out, const float* x, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    float other = tile[threadIdx.x ^ 1];
    if (i < n) out[i] = other;
}""",
        """(float* out, const float* x, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0;

    float other = tile[threadIdx.x ^ 1];  // LINE
    if (i < n) out[i] = other;
}""",
        "SX",
    ),
    "lock_of_each_lane": (
        """(int* lock, int* sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 64) return;
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence();
    *(volatile int*)sum = *(volatile int*)sum + n;
    __threadfence();
    atomicExch(lock, 0);
}""",
        """(int* lock, int* sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 64) return;
    for (bool waits = true; waits;)
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *(volatile int*)sum = *(volatile int*)sum + n;
            __threadfence();
            atomicExch(lock, 0);
            waits = false;
        }
}""",
        """(int* lock, int* sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 64) return;
    while (atomicCAS(lock, 0, 1) != 0) {}  // LINE
    __threadfence();
    *(volatile int*)sum = *(volatile int*)sum + n;
    __threadfence();
    atomicExch(lock, 0);
}""",
        "SX312",
    ),
    "barrier_after_return": (
        """(float* out, const float* x, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    if (i < n) out[i] = tile[255 - threadIdx.x];
}""",
        """(float* out, const float* x, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    if (i < n) out[i] = tile[255 - threadIdx.x];
}""",
        """(float* out, const float* x, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    tile[threadIdx.x] = x[i];
    __syncthreads();  // LINE
    out[i] = tile[255 - threadIdx.x];
}""",
        "SX",
    ),
    "gather": (
        """(float* out, const float* x, const int* index, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[index[i]];
}""",
        """(float* out, const float* x, const int* index, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[index[i]];
}""",
        """(float* out, const float* x, const int* index, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) out[i] = x[index[min(i, n - 1)]];  // LINE
}""",
        "SX101",
    ),
    "shared_defect": (
        """(float* out, const float* x, int n) {
    __shared__ float tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 64) out[threadIdx.x] = tile[threadIdx.x + 64];  // LINE
    if (n < 0) out[0] = 1;
    if (n == -2) out[1] = 1;
}""",
    )
    * 3
    + ("SX",),
}
GOOD = [name for name in KERNELS if name != "shared_defect"]


def source(which: int, header: str) -> str:
    parts = (
        f"__global__ void {name}{texts[which]}\n{launch(name, texts[which])}"
        for name, texts in KERNELS.items()
    )
    return f"#include <{header}>\n" + "".join(parts)


def launch(name: str, text: str) -> str:
    """A function of the host that launches a kernel for each of its ``n`` elements."""
    parameters = text[: text.index("{")].strip()
    given = ", ".join(re.findall(r"(\w+)\s*[,)]", parameters))
    return f"void run_{name}{parameters} {{ {name}<<<(n + 255) / 256, 256>>>({given}); }}\n"


@functools.cache
def proofs(which: int, folder: Path) -> Mapping[str, KernelProof]:
    original, ported = folder / "kernels.cu", folder / f"kernels{which}.hip"
    original.write_text(source(0, "cuda_runtime.h"), encoding="utf-8")
    ported.write_text(source(which, "hip/hip_runtime.h"), encoding="utf-8")
    return proven(original, ported, folder / f"work{which}")


def proven(
    original: Path, ported: Path, workdir: Path, *, case: Path | None = None, **limits: Any
) -> Mapping[str, KernelProof]:
    kernels = parse(ported.read_text("utf-8")).kernels
    both = prove(
        ProofSource(original, "cuda"),
        ProofSource(ported, "hip"),
        target=target.load("gfx942"),
        other=target.load("gfx1100"),
        kernels=kernels,
        workdir=workdir,
        case=case,
        limits=ProofLimits(**{"run_s": 30.0, **limits}),
    )
    assert [proof.kernel for proof in both] == [kernel.name for kernel in kernels]
    return {proof.kernel: proof for proof in both}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proof")


@pytest.mark.full
@COMPILES
@pytest.mark.parametrize("name", GOOD)
def test_a_correct_port_is_proven(name: str, folder: Path) -> None:
    proof = proofs(1, folder)[name]
    assert (proof.outcome, proof.findings) == (Outcome.PROVEN, ()), proof
    assert proof.coverage is not None and proof.coverage.part > 0.7


@pytest.mark.full
@COMPILES
@pytest.mark.parametrize("name", GOOD)
def test_a_bug_of_wide_waves_is_shown(name: str, folder: Path) -> None:
    proof = proofs(2, folder)[name]
    text, sign = KERNELS[name][2], KERNELS[name][3]
    assert proof.outcome is Outcome.WRONG and sign in proof.why, proof
    marked = next((n for n, line in enumerate(text.splitlines()) if "LINE" in line), None)
    if marked is not None:
        assert f"kernels2.hip:{proof.line + marked}: error" in proof.why
    assert proof.counterexample is not None
    case = proof.counterexample.read_text("utf-8")
    assert "int main(" in case and f"{name}<<<" in case
    assert f"portkern run {proof.counterexample} target=gfx942 sanitize=all" in proof.command


@pytest.mark.full
@COMPILES
def test_a_defect_of_the_original_is_not_the_ports(folder: Path) -> None:
    proof = proofs(1, folder)["shared_defect"]
    assert proof.findings == () and proof.outcome is not Outcome.WRONG
    assert any(f.file.endswith("kernels.cu") and f.line for f in proof.original_findings)


RACE = Diagnostic("SX201", "two writes", "/a/k.cu", 3, kernel="k<int>", also="/a/k.cu:5")


@pytest.mark.parametrize(
    ("found", "own"),
    [
        ({"line": 4, "also": "/b/k.hip:9"}, False),
        ({"line": 9, "also": "/b/k.hip:4"}, False),  # met first from its other place
        ({"line": 6, "also": "/b/k.hip:9"}, False),
        ({"line": 3, "also": "/b/k.hip:9"}, True),  # a line above, which moved
        ({"line": 4, "also": "", "kernel": "ns::k<float>"}, False),
        ({"line": 4, "also": "", "kernel": "other"}, True),
        ({"line": 4, "also": "", "code": "SX203"}, True),
        ({"line": 4, "also": "", "file": "/b/header.h"}, True),
    ],
)
def test_a_finding_is_the_originals_in_one_kernel_at_one_of_its_places(
    found: Mapping[str, object], own: bool
) -> None:
    original = "a\nb\nwrite\nc\nread\nd\ne\nf\n"
    texts = [
        Text(Path(name), text, (), ())
        for name, text in (("/a/k.cu", original), ("/b/k.hip", f"#include <hip>\n{original}"))
    ]
    finding = replace(RACE, **{"file": "/b/k.hip", **found})  # type: ignore[arg-type]
    inheritance = Inheritance([(texts[0], texts[1])])
    assert inheritance.own([finding], [RACE]) == ((finding,) if own else ())


def test_what_ends_a_launch_hides_what_comes_after_it() -> None:
    """Inputs that were made up may be too small for the original already."""
    original = Diagnostic("SX101", "past the end", "/a/k.cu", 3, kernel="k<int>")
    finding = replace(original, file="/b/k.hip", line=70)
    inheritance = Inheritance([])
    assert inheritance.own([finding], [original]) == ()
    assert inheritance.own([replace(finding, code="SX104")], [original]) == ()
    elsewhere = replace(finding, kernel="other")
    assert inheritance.own([elsewhere], [original]) == (elsewhere,)
    assert inheritance.own([finding], [replace(original, code="SX201")]) == (finding,)


@pytest.mark.full
@COMPILES
def test_whole_warps_that_return_early_are_a_part_of_a_wave(tmp_path: Path) -> None:
    text = """__global__ void sum(float* y, const float* x, int n) {
    __shared__ float part[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    if (threadIdx.x >= 32 && n < 5000) return;
    part[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    if (i < n) y[i] = part[threadIdx.x ^ 1];
}
void run(float* y, float* x, int n) { sum<<<(n + 63) / 64, 64>>>(y, x, n); }
"""
    original, ported = tmp_path / "sum.cu", tmp_path / "sum.hip"
    original.write_text(text, encoding="utf-8")
    ported.write_text(f"#include <hip/hip_runtime.h>\n{text}", encoding="utf-8")
    proof = proven(original, ported, tmp_path / "work")["sum"]
    assert (proof.outcome, proof.findings) == (Outcome.PROVEN, ()), proof


@pytest.mark.full
@COMPILES
def test_what_the_inputs_did_not_reach_is_said(folder: Path, tmp_path: Path) -> None:
    text = """__global__ void clip(float* x, int n, int mode) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] < 0) x[i] = 0;
    if (mode == 77)
        x[i] = 1;
    if (mode == 78 && i == 9)
        x[i] = 2;
}
void run(float* x, int n, int mode) { clip<<<(n + 255) / 256, 256>>>(x, n, mode); }
"""
    original, ported = tmp_path / "clip.cu", tmp_path / "clip.hip"
    original.write_text(text, encoding="utf-8")
    ported.write_text(f"#include <hip/hip_runtime.h>\n{text}", encoding="utf-8")
    proof = proven(original, ported, tmp_path / "work")["clip"]
    assert proof.outcome is Outcome.PROVEN and proof.coverage is not None
    assert (proof.coverage.lines, proof.coverage.lines_total) == (6, 8)
    assert proof.coverage.branches < proof.coverage.branches_total
    assert "its inputs reached 6 of 8 lines" in proof.why
    # One line is enough to be said: a mode that nothing launches.
    steps = "".join(f"    x[i] += {step};\n" for step in range(1, 40))
    long = text.replace(
        "    if (mode == 78 && i == 9)\n        x[i] = 2;\n", f"    if (i >= n) return;\n{steps}"
    )
    original.write_text(long, encoding="utf-8")
    ported.write_text(f"#include <hip/hip_runtime.h>\n{long}", encoding="utf-8")
    most = proven(original, ported, tmp_path / "most")["clip"]
    assert most.outcome is Outcome.PROVEN and most.coverage is not None
    assert most.coverage.lines == most.coverage.lines_total - 1 and most.coverage.part > 0.8
    assert f"its inputs reached {most.coverage.lines} of {most.coverage.lines_total}" in most.why
    # The proposed case is edited, and then it reaches more.
    original.write_text(text, encoding="utf-8")
    ported.write_text(f"#include <hip/hip_runtime.h>\n{text}", encoding="utf-8")
    case = tmp_path / "work" / "clip.yaml"
    entry = yaml.safe_load(case.read_text("utf-8"))
    assert [a["kind"] for a in entry["arguments"]] == ["buffer", "scalar", "scalar"]
    entry["arguments"][2]["value"] = 77
    entry["arguments"][0]["size"] = 2048
    case.write_text(yaml.safe_dump(entry), encoding="utf-8")
    again = proven(original, ported, tmp_path / "again", case=case)["clip"]
    assert again.outcome is Outcome.PROVEN and again.coverage is not None
    assert again.coverage.lines == 7 and "mode=77" in again.inputs


PROGRAM = r"""#include <cstdio>
#include <cstdlib>
HEADER
__global__ void first(float* x) { x[threadIdx.x] = threadIdx.x; }
__global__ void second(float* x, float* y) {
    float v = x[threadIdx.x];
    for (int o = 16; o > 0; o /= 2) v += SHUFFLE;
    y[threadIdx.x] = v;
}
__global__ void third(const float* y, float* z) { z[threadIdx.x] = y[threadIdx.x] * 2; }
__global__ void apart(float* z) { z[threadIdx.x] = 5; }
int main(int argc, char** argv) {
    float *x, *y, *z, *w, host[64];
    APIMalloc(&x, 256); APIMalloc(&y, 256); APIMalloc(&z, 256); APIMalloc(&w, 256);
    BEFORE
    first<<<1, 64>>>(x);
    second<<<1, 64>>>(x, y);
    third<<<1, 64>>>(y, z);
    apart<<<1, 64>>>(w);
    AFTER
    APIMemcpy(host, z, 256, APIMemcpyDeviceToHost);
    printf("%g after %d ms\n", host[40], rand());
    return 0;
}
"""


def program(folder: Path, name: str, shuffle: str, *, before: str = "", after: str = "") -> Path:
    api = "hip" if name.endswith("hip") else "cuda"
    header = f"#include <{'hip/hip_runtime.h' if api == 'hip' else 'cuda_runtime.h'}>"
    text = PROGRAM.replace("HEADER", header).replace("SHUFFLE", shuffle).replace("API", api)
    path = folder / name
    text = text.replace("BEFORE", before).replace("AFTER", after)
    path.write_text(text, encoding="utf-8")
    return path


CUDA_SHUFFLE = "__shfl_xor_sync(0xffffffff, v, o)"


@pytest.mark.full
@COMPILES
def test_a_program_is_compared_launch_by_launch(tmp_path: Path) -> None:
    original = program(tmp_path, "p.cu", CUDA_SHUFFLE)
    ported = program(tmp_path, "p.hip", "__shfl_xor(v, o == 16 ? 32 : o)")
    results = proven(original, ported, tmp_path / "work")
    assert results["first"].outcome is Outcome.PROVEN
    assert results["second"].outcome is Outcome.WRONG
    assert "launch 1: 'y'[0] is" in results["second"].why
    assert results["second"].counterexample == ported
    assert results["third"].outcome is not Outcome.WRONG  # it reads what was wrong before it
    assert results["apart"].outcome is Outcome.PROVEN
    assert results["apart"].inputs == "the program's own"


@pytest.mark.full
@COMPILES
def test_a_program_that_hangs_or_needs_arguments_leaves_its_kernels_to_cases(
    tmp_path: Path,
) -> None:
    original = program(tmp_path, "p.cu", CUDA_SHUFFLE, before="for (volatile int i = 0;; ++i) {}")
    ported = program(tmp_path, "p.hip", "__shfl_xor(v, o, 32)")
    results = proven(original, ported, tmp_path / "work", run_s=2)
    assert results["third"].outcome is Outcome.PROVEN
    assert "the program did not end in 2 s" in results["third"].why


@pytest.mark.full
@COMPILES
def test_a_program_that_is_late_runs_with_smaller_numbers(tmp_path: Path) -> None:
    steps = "for (volatile long i = 0; i < atol(argv[1]) * 1000000000; ++i) {}"
    original = program(tmp_path, "p.cu", CUDA_SHUFFLE, before=f"if (atol(argv[1]) > 4) {steps}")
    ported = program(tmp_path, "p.hip", "__shfl_xor(v, o, 32)")
    given = ("4096", "file")
    fewer = smaller(given)
    results = proven(original, ported, tmp_path / "work", run_s=2, arguments=given, smaller=fewer)
    assert fewer == (("64", "file"), ("1", "file"))
    assert results["second"].outcome is Outcome.PROVEN
    assert results["second"].inputs == "its program with smaller numbers 1 file"
    assert results["second"].command.endswith("-- 1 file")


@pytest.mark.drawn
@COMPILES
def test_a_program_without_an_end_shows_its_first_launches(tmp_path: Path) -> None:
    after = "for (;;) third<<<1, 64>>>(y, z);"
    original = program(tmp_path, "p.cu", CUDA_SHUFFLE, after=after)
    ported = program(tmp_path, "p.hip", "__shfl_xor(v, o == 16 ? 32 : o)", after=after)
    results = proven(original, ported, tmp_path / "work", run_s=2)
    assert {results[name].outcome for name in ("first", "apart")} == {Outcome.PROVEN}
    assert results["second"].outcome is Outcome.WRONG
    assert re.fullmatch(r"the first \d+ launches of the program's own", results["first"].inputs)


@COMPILES
def test_a_run_of_the_port_that_is_cut_short_accuses_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Runs.run

    def cut(
        runs: Runs, program: Program, *, order: Order = "forward", **options: Any
    ) -> ProgramRun:
        whole = run(runs, program, order=order, **options)
        if order != "random":
            return whole
        late = replace(whole.outcome, status=None)
        return replace(whole, outcome=late, launches=whole.launches[:1])

    monkeypatch.setattr(Runs, "run", cut)
    original = program(tmp_path, "p.cu", CUDA_SHUFFLE)
    ported = program(tmp_path, "p.hip", "__shfl_xor(v, o, 32)")
    results = proven(original, ported, tmp_path / "work")
    assert Outcome.WRONG not in {proof.outcome for proof in results.values()}
    assert "order random the program did not end" in results["second"].why


@pytest.mark.full
@COMPILES
def test_shuffles_by_pytorchs_names_are_proven(tmp_path: Path) -> None:
    text = """#include <ATen/cuda/DeviceUtils.cuh>
__global__ void sum(float* y, const float* x) {
    float v = x[threadIdx.x];
    for (int o = 1; o < 32; o *= 2) v += WARP_SHFL(v, (threadIdx.x + o) & 31);
    y[threadIdx.x] = v;
}
void run(float* y, float* x) { sum<<<1, 128>>>(y, x); }
"""
    original, ported = tmp_path / "sum.cu", tmp_path / "sum.hip"
    original.write_text(text, encoding="utf-8")
    for made, outcome in ((translate(text, "sum.cu").text, Outcome.PROVEN), (text, Outcome.WRONG)):
        ported.write_text(f"#include <hip/hip_runtime.h>\n{made}", encoding="utf-8")
        assert proven(original, ported, tmp_path / outcome.name)["sum"].outcome is outcome


@pytest.mark.full
@COMPILES
@pytest.mark.parametrize(
    ("own", "outcome", "why"),
    [
        ("", Outcome.PROVEN, ""),
        ("if (sizeof(T) == 8 && N == 64) y[i] += 1;", Outcome.WRONG, "'y'[0]"),
        ("static_assert(N == 64 || sizeof(T) == 8, NULL);", Outcome.UNPROVEN, "the port's case"),
    ],
)
def test_each_instance_that_is_launched_counts(
    own: str, outcome: Outcome, why: str, tmp_path: Path
) -> None:
    text = """template <typename T, int N> __global__ void scaled(T* y, const T* x, int n) {
    int i = blockIdx.x * N + threadIdx.x;
    if (i >= n) return;
    y[i] = x[i] * N;
    OWN
}
template <typename T> void run(T* y, const T* x, int n) {
    if (n > 100) scaled<T, 128><<<(n + 127) / 128, 128>>>(y, x, n);
    else scaled<T, 64><<<(n + 63) / 64, 64>>>(y, x, n);
}
"""
    every = "void all(float* a, double* b, int n) { run(a, a, n); run(b, b, n); }\n"
    original, ported = tmp_path / "scaled.cu", tmp_path / "scaled.hip"
    original.write_text(text.replace("OWN", "") + every, encoding="utf-8")
    ported.write_text(
        f"#include <hip/hip_runtime.h>\n{text.replace('OWN', own)}{every}", encoding="utf-8"
    )
    proof = proven(original, ported, tmp_path / "work")["scaled"]
    assert proof.outcome is outcome and why in proof.why


@pytest.mark.full
@COMPILES
def test_an_instance_that_does_not_compile_is_followed_by_the_next(tmp_path: Path) -> None:
    text = """template <class T>
__global__ void gather(float* y, const float* x, const T* at, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = *(x + at[i]);
}
"""
    original, ported = tmp_path / "gather.cu", tmp_path / "gather.hip"
    original.write_text(text, encoding="utf-8")
    ported.write_text(f"#include <hip/hip_runtime.h>\n{text}", encoding="utf-8")
    proof = proven(original, ported, tmp_path / "work")["gather"]
    assert proof.outcome is Outcome.UNPROVEN and proof.inputs.startswith("gather<int>: ")
    assert "which instance is launched is not known" in proof.why


@pytest.mark.full
@COMPILES
@pytest.mark.parametrize(
    ("parameters", "body", "launch", "outcome"),
    [
        pytest.param(
            "unsigned* w, int n",
            "if (i < n && w[i] > 0xffffff) w[i] ^= (w[i] >> SHIFT) << 3;",
            "w, n",
            Outcome.PROVEN,
            id="all bits of packed numbers",
        ),
        pytest.param(
            "unsigned* w, int tiles",
            "for (int t = 0; t < tiles; ++t) w[t * 512 + i] += SHIFT;",
            "w, n / 100000",
            Outcome.PROVEN,
            id="a number that small sizes make 0",
        ),
        pytest.param(
            "unsigned* w, int order, int n",
            "if (order == 5 && i < n) w[i] += SHIFT; else if (order == 8 && i < n) w[i] = 1;",
            "w, order, n",
            Outcome.PROVEN,
            id="a number that the kernel compares with others",
        ),
        pytest.param(
            "unsigned* w, int n", "if (n < -n) w[i] = SHIFT;", "w, n", Outcome.UNPROVEN, id="never"
        ),
    ],
)
def test_where_nothing_is_written_other_values_are_tried(
    parameters: str, body: str, launch: str, outcome: Outcome, tmp_path: Path
) -> None:
    text = f"""__global__ void k({parameters}) {{
    int i = blockIdx.x * 128 + threadIdx.x;
    {body}
}}
void run(unsigned* w, int n) {{ k<<<4, 128>>>({launch}); }}
"""
    original = tmp_path / "k.cu"
    original.write_text(text.replace("SHIFT", "24"), encoding="utf-8")
    found = []
    for shift in ("24", "23"):
        ported = tmp_path / f"k{shift}.hip"
        made = text.replace("SHIFT", shift)
        ported.write_text(f"#include <hip/hip_runtime.h>\n{made}", encoding="utf-8")
        found.append(proven(original, ported, tmp_path / shift)["k"])
    right, wrong = found
    assert right.outcome is outcome, right.why
    if outcome is Outcome.PROVEN:
        assert right.inputs.endswith("; nothing was written with the values tried first")
        assert wrong.outcome is Outcome.WRONG
    else:
        assert right.why == WROTE_NOTHING


@pytest.mark.full
@COMPILES
def test_a_race_is_not_the_ports_where_the_originals_gpu_refuses_the_kernel(tmp_path: Path) -> None:
    text = """__global__ void pairs(float* y) {
    __shared__ float s[12544];  // more than CUDA allows, less than LDS has
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x / 2] = s[threadIdx.x];
}
void run(float* y) { pairs<<<1, 64>>>(y); }
"""
    original, ported = tmp_path / "pairs.cu", tmp_path / "pairs.hip"
    original.write_text(text, encoding="utf-8")
    ported.write_text(f"#include <hip/hip_runtime.h>\n{text}", encoding="utf-8")
    proof = proven(original, ported, tmp_path / "work")["pairs"]
    assert proof.outcome is Outcome.UNPROVEN
    assert proof.why.startswith("the original's launch failed: ") and "SX402" in proof.why


LAST_BLOCK = """#include <cuda_runtime.h>
__global__ void total(const int* x, volatile int* part, int* out, unsigned* done) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        part[blockIdx.x] = x[blockIdx.x];
        FENCE
        last = atomicAdd(done, 1) == gridDim.x - 1;
        FENCE
    }
    __syncthreads();
    if (last && threadIdx.x == 0)
        for (int b = 0; b < gridDim.x; ++b) *out += part[b];
}
int main() {
    int *x, *part, *out, h[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    unsigned* done;
    cudaMalloc(&x, 32), cudaMalloc(&part, 32), cudaMalloc(&out, 4), cudaMalloc(&done, 4);
    cudaMemset(out, 0, 4), cudaMemset(done, 0, 4);
    cudaMemcpy(x, h, 32, cudaMemcpyHostToDevice);
    total<<<8, 32>>>(x, part, out, done);
    cudaDeviceSynchronize();
}
"""


@pytest.mark.full
@COMPILES
@pytest.mark.parametrize(
    ("fence", "outcome"), [("__threadfence();", Outcome.PROVEN), ("", Outcome.UNPROVEN)]
)
def test_a_race_of_the_originals_own_program_leaves_its_kernel_unproven(
    fence: str, outcome: Outcome, tmp_path: Path
) -> None:
    text = LAST_BLOCK.replace("FENCE", fence)
    text = text.replace("volatile ", "") if not fence else text
    original, ported = tmp_path / "last.cu", tmp_path / "last.hip"
    original.write_text(text, encoding="utf-8")
    ported.write_text(
        text.replace("cuda_runtime", "hip/hip_runtime").replace("cuda", "hip"), encoding="utf-8"
    )
    proof = proven(original, ported, tmp_path / "work")["total"]
    assert proof.outcome is outcome, proof.why
    assert ("differs between vendors' GPUs" in proof.why) == (not fence)


FAILS = """#include <cuda_runtime.h>
__global__ void scale(float* x, int n) { BODY }
int main() {
    const int n = 33000;
    static float h[n];
    float* x;
    cudaMalloc(&x, sizeof h);
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    scale<<<16, 256>>>(x, n);
    cudaDeviceSynchronize();
}
"""
STRIDES = "for ({} i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) x[i] *= 2;"


@pytest.mark.full
@COMPILES
@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (STRIDES.format("int"), Outcome.PROVEN),
        (STRIDES.format("short"), Outcome.UNPROVEN),  # -32,768 comes behind 32,767
        (STRIDES.format("int").replace("x[i]", "x[n > 32768 ? i + n : i]"), Outcome.UNPROVEN),
    ],
)
def test_a_launch_of_a_program_that_fails_in_the_original_is_shown_by_no_other_inputs(
    body: str, outcome: Outcome, tmp_path: Path
) -> None:
    text = FAILS.replace("BODY", body)
    original, ported = tmp_path / "scale.cu", tmp_path / "scale.hip"
    original.write_text(text, encoding="utf-8")
    ported.write_text(
        text.replace("cuda_runtime", "hip/hip_runtime").replace("cuda", "hip"), encoding="utf-8"
    )
    proof = proven(original, ported, tmp_path / "work")["scale"]
    assert proof.outcome is outcome, proof.why
    assert proof.why.startswith("the original's launch failed: ") == (outcome is Outcome.UNPROVEN)


PERSISTENT = """#include <cuda_runtime.h>
__global__ void sum(const int* x, int* y, int n) {
    int s = 0;
    for (int i = blockIdx.x; i < n; i += gridDim.x) s += x[i];
    y[blockIdx.x] = s;
}
int main() {
    static int h[1000];
    int *x, *y, blocks, count;
    ASKED;
    blocks = BLOCKS;
    cudaMalloc(&x, sizeof h);
    cudaMalloc(&y, SIZE * 4);
    for (int i = 0; i < 1000; ++i) h[i] = i;
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    sum<<<blocks, 1>>>(x, y, 1000);
    cudaDeviceSynchronize();
}
"""


@pytest.mark.parametrize(
    ("name", "largest"),
    [("gfx942", "mi300x"), ("gfx950", "mi355x"), ("sm_90", "h100"), ("gfx90a", ""), ("mi300x", "")],
)
def test_the_largest_known_gpu_of_a_bare_architecture_has_more_units(
    name: str, largest: str
) -> None:
    assert str(machine.with_most_units(target.load(name)) or "") == largest


ATTRIBUTE = "cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0)"
PROPERTY = "cudaDeviceProp p; cudaGetDeviceProperties(&p, 0); count = p.multiProcessorCount"
LARGEST = "with more multiprocessors (304, as mi300x has) the port has "


@pytest.mark.full
@COMPILES
@pytest.mark.parametrize(
    ("asked", "blocks", "size", "why"),
    [
        (ATTRIBUTE, "2 * count", "264", LARGEST),  # an H100 has 132, the executor's GPU 128
        (PROPERTY, "2 * count", "264", LARGEST),
        ("cudaOccupancyMaxPotentialBlockSize(&count, &blocks, sum)", "count", "264", LARGEST),
        (ATTRIBUTE, "2 * count", "blocks", ""),
        (ATTRIBUTE, "(count < 132 ? count : 132) * 2", "264", ""),
        ("count = 132", "2 * count", "264", ""),
    ],
)
def test_memory_that_is_too_small_on_the_largest_gpu_of_an_architecture_proves_nothing(
    asked: str, blocks: str, size: str, why: str, tmp_path: Path
) -> None:
    text = PERSISTENT.replace("ASKED", asked).replace("BLOCKS", blocks).replace("SIZE", size)
    original, ported = tmp_path / "sum.cu", tmp_path / "sum.hip"
    original.write_text(text, encoding="utf-8")
    ported.write_text(translate(text, "sum.cu").text, encoding="utf-8")
    proof = proven(original, ported, tmp_path / "work")["sum"]
    assert proof.outcome is (Outcome.UNPROVEN if why else Outcome.PROVEN), proof.why
    assert proof.why.startswith(why), proof.why


SWITCHED = """#include <cuda_runtime.h>
template <int B> __global__ void sum(const int* x, int* y) {
    __shared__ int s[B];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * B + t];
    if (SYNCS) __syncthreads();
    y[blockIdx.x * B + t] = s[B - 1 - t];
}
#define CASE(b) case b: sum<b><<<1024 / b, b>>>(x, y); break
int main(int argc, char**) {
    int h[1024], *x, *y;
    for (int i = 0; i < 1024; ++i) h[i] = i;
    cudaMalloc(&x, sizeof h), cudaMalloc(&y, sizeof h);
    cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
    for (int b = 64; b <= 256; b *= 2)
        if (ASKED) switch (b) { CASE(64); CASE(256); }
    cudaDeviceSynchronize();
}
"""


@pytest.mark.full
@COMPILES
@pytest.mark.parametrize(
    ("syncs", "asked", "outcome", "inputs"),
    [
        pytest.param("true", "b > 32", Outcome.PROVEN, False, id="all run"),
        pytest.param("true", "b > 64 * argc", Outcome.PROVEN, True, id="one in a case of its own"),
        pytest.param("B > 64", "b > 64 * argc", Outcome.UNPROVEN, True, id="that one races"),
    ],
)
def test_an_instance_that_the_program_does_not_launch_counts(
    syncs: str, asked: str, outcome: Outcome, inputs: bool, tmp_path: Path
) -> None:
    text = SWITCHED.replace("SYNCS", syncs).replace("ASKED", asked)
    original, ported = tmp_path / "sum.cu", tmp_path / "sum.hip"
    original.write_text(text, encoding="utf-8")
    ported.write_text(
        text.replace("cuda_runtime", "hip/hip_runtime").replace("cuda", "hip"), encoding="utf-8"
    )
    proof = proven(original, ported, tmp_path / "work")["sum"]
    assert proof.outcome is outcome, proof.why
    assert ("; sum<64>: " in proof.inputs) == inputs
    assert proof.why.startswith("instance sum<64>, which ") == (outcome is Outcome.UNPROVEN)


@pytest.mark.full
@COMPILES
def test_a_port_that_crashes_is_not_proven(tmp_path: Path) -> None:
    original = program(tmp_path, "p.cu", CUDA_SHUFFLE)
    ported = program(tmp_path, "p.hip", "__shfl_xor(v, o, 32)", before="if (argc == 1) abort();")
    results = proven(original, ported, tmp_path / "work")
    assert results["first"].outcome is not Outcome.PROVEN


@COMPILES
def test_what_cannot_be_made_up_or_run_says_why(tmp_path: Path) -> None:
    text = """struct Node { Node* next; };
__global__ void chase(Node* list, int* out) { out[0] = list->next != nullptr; }
__global__ void matrix(float** rows) { rows[0][0] = 1; }
__global__ void sample(cudaTextureObject_t t, float* out) { out[0] = 1; }
"""
    original, ported = tmp_path / "k.cu", tmp_path / "k.hip"
    original.write_text(text, encoding="utf-8")
    ported.write_text(text.replace("cudaTexture", "hipTexture"), encoding="utf-8")
    results = proven(original, ported, tmp_path / "work")
    assert results["chase"].outcome is Outcome.UNPROVEN and "Node*" in results["chase"].why
    assert results["matrix"].outcome is Outcome.UNPROVEN
    assert results["sample"].outcome is Outcome.NEEDS_HARDWARE


# ---- the parts, without a compiler


def launched(number: int, after: Mapping[int, bytes], kernel: str = "k<float>") -> LaunchRecord:
    contents = {
        buffer: Content(len(data), data.hex()[:64] or "0", data) for buffer, data in after.items()
    }
    arguments = tuple((buffer, 0) for buffer in after)
    return LaunchRecord(number, kernel, (1, 1, 1), (64, 1, 1), 0, arguments, {}, contents)


def floats(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


@pytest.mark.parametrize(
    ("a", "b", "judged"),
    [
        (floats(1, 2, 3), floats(1, 2, 3), Judged.EQUAL),
        (floats(1, 2, 1e6), floats(1.01, 2, 1e6), Judged.ROUNDED),
        (floats(1, 2, 3), floats(1.01, 2, 3), Judged.DIFFERENT),
        (floats(1, 2, 3), floats(3, 1, 2), Judged.REORDERED),
        (floats(1, float("nan")), floats(1, float("nan")), Judged.EQUAL),
        (floats(1, float("nan")), floats(1, 5), Judged.DIFFERENT),
        (floats(1, float("inf")), floats(1, float("-inf")), Judged.DIFFERENT),
    ],
)
def test_floats_may_differ_by_the_order_of_a_sum(a: bytes, b: bytes, judged: Judged) -> None:
    kernels = parse("template <class T> __global__ void k(T* x) { *x = 1; }").kernels
    results = compare([launched(0, {0: a})], [launched(0, {0: b})], Types(kernels, {}))
    assert [result.judged for result in results] == [judged]


def test_what_the_originals_own_order_changes_is_allowed_a_few_times_over() -> None:
    types = Types(parse("__global__ void k(float* x) { *x = 1; }").kernels, {})
    first = [launched(0, {0: floats(1, 100)}, "k")]
    of_order = compare(first, [launched(0, {0: floats(1, 100.01)}, "k")], types)
    (difference,) = of_order[0].differences
    assert of_order[0].judged is Judged.DIFFERENT and difference.rounding is not None
    assert difference.rounding == pytest.approx(0.01, rel=1e-3)
    noise = {(0, 0): difference.rounding}
    for value, judged in ((100.03, Judged.ROUNDED), (100.05, Judged.DIFFERENT)):
        ported = [launched(0, {0: floats(1, value)}, "k")]
        assert [r.judged for r in compare(first, ported, types, noise)] == [judged]
    far = compare(first, [launched(0, {0: floats(1, 101)}, "k")], types)
    assert far[0].differences[0].rounding is None  # no order of a sum does that


#: A sum by atomics on the way to which 50 times as much cancels: its last digits are of the order.
ATOMIC = """__global__ void sum(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, half = n / 2;
    float large = (i < half ? 50.f : -50.f) * (1 + i % half % 7 * 0.37f);
    if (i < n) atomicAdd(y, large + FACTOR + 0.01f * x[i]);
}
void run(float* y, const float* x, int n) { sum<<<(n + 255) / 256, 256>>>(y, x, n); }
"""


@pytest.mark.full
@COMPILES
@pytest.mark.parametrize(("factor", "outcome"), [("1.f", Outcome.PROVEN), ("1.02f", Outcome.WRONG)])
def test_sums_by_atomics_are_compared_as_near_as_their_order_allows(
    factor: str, outcome: Outcome, tmp_path: Path
) -> None:
    original, ported = tmp_path / "sum.cu", tmp_path / "sum.hip"
    original.write_text(ATOMIC.replace("FACTOR", "1.f"), encoding="utf-8")
    text = f"#include <hip/hip_runtime.h>\n{ATOMIC}".replace("FACTOR", factor)
    ported.write_text(text, encoding="utf-8")
    proof = proven(original, ported, tmp_path / "work")["sum"]
    assert proof.outcome is outcome, proof
    if outcome is Outcome.PROVEN:
        assert "as near to the original's results as these are in other orders" in proof.why


def test_integers_may_not() -> None:
    kernels = parse("__global__ void k(int* x) { *x = 1; }").kernels
    a, b = (np.array([5, n], np.int32).tobytes() for n in (1_000_000, 1_000_001))
    results = compare([launched(0, {0: a}, "k")], [launched(0, {0: b}, "k")], Types(kernels, {}))
    assert str(results[0].difference).startswith("'x'[1] is 1000001, expected 1000000")


GIVEN = "__global__ void k(TYPES) { *y = 1; }"


@pytest.mark.parametrize(
    ("types", "given", "judged"),
    [
        ("float* y, int* at, const float* bias", 3, Judged.DIFFERENT),
        ("float* y, int* at, const float* bias", 2, Judged.UNJUDGED),
        ("int* y, int* at, const float* bias", 3, Judged.DIFFERENT),
        ("int* at, int* y, unsigned* no, float* bias", 3, Judged.DIFFERENT),
        ("Unknown at, float* y", 2, Judged.UNJUDGED),
    ],
)
def test_integers_are_not_taken_for_floats_where_a_pointer_is_null(
    types: str, given: int, judged: Judged
) -> None:
    kernels = parse(GIVEN.replace("TYPES", types)).kernels
    same = {n: floats(1, 2) for n in range(given)}
    first, second = ({**same, 1: np.array([5, n], np.int32).tobytes()} for n in (-1, -2))
    found = compare([launched(0, first, "k")], [launched(0, second, "k")], Types(kernels, {}))
    assert found[0].judged is judged, found


@pytest.mark.parametrize(
    ("types", "judged"),
    [
        ("float* y, float* z, const int* at", Judged.ROUNDED),
        ("float* y, int* z, const int* at", Judged.UNJUDGED),
    ],
)
def test_floats_are_known_beside_null_pointers_where_all_that_they_may_be_are_floats(
    types: str, judged: Judged
) -> None:
    kernels = parse(GIVEN.replace("TYPES", types)).kernels
    first, second = (launched(0, {0: floats(n, 2e6), 1: b""}, "k") for n in (1, 1.01))
    found = compare([first], [second], Types(kernels, {}))
    assert found[0].judged is judged, found


def test_a_buffer_that_two_parameters_or_overloads_have_is_of_either_type() -> None:
    one = parse("__global__ void k(int* y) { *y = 1; }").kernels
    other = parse("__global__ void k(float* y) { *y = 1; }").kernels
    a, b = (np.array([n], np.int32).tobytes() for n in (-1, -2))
    for kernels, judged in (
        ((*one, *other), Judged.UNJUDGED),
        ((*other, *other), Judged.EQUAL),
        ((*one, *one), Judged.DIFFERENT),
    ):
        found = compare([launched(0, {0: a}, "k")], [launched(0, {0: b}, "k")], Types(kernels, {}))
        assert found[0].judged is judged, found


def test_other_launches_and_missing_ones_differ() -> None:
    types = Types((), {})
    one, other = launched(0, {0: b"1234"}), launched(0, {0: b"1234"}, "m")
    assert compare([one], [other], types)[0].why == "the port launches 'm' here"
    assert compare([one, one], [one], types)[-1].why == "the port ended before this launch"


def test_a_recording_that_is_cut_off_keeps_its_beginning() -> None:
    line = (
        b'{"launch": 0, "kernel": "k", "grid": [1, 1, 1], "block": [64, 1, 1], "shared": 0, '
        b'"arguments": [[0, 0]], "before": [], "failed": false, '
        b'"after": [[0, 4, "a", 4, 6]], "blob": 4}\nabcd'
    )
    same = line.replace(b'"a", 4,', b'"a", -2,').replace(b'"blob": 4}\nabcd', b'"blob": 0}\n')
    launches = read(line + same + line[:-2])
    assert [launch.after[0].data for launch in launches] == [b"abcd", b"abcd"]
    assert read(b"") == () and read(b"{}\n") == ()


def test_printed_numbers_are_compared_and_times_are_not() -> None:
    assert difference("sum 1.0000\ntook 3 ms\n", "sum 1.0001\ntook 9 ms\n") == ""
    assert difference("PASS\n", "FAIL\n") == "it printed 'FAIL', the original 'PASS'"
    assert difference("sum 1\n", "sum 2\n") and difference("a\n", "a\nb\n")


def test_sizes_of_launches_are_computed_as_far_as_names_are_known() -> None:
    text = """#define TPB 128
    void f(int N) {
        const int block = TPB * 2;
        dim3 grid(CEIL_DIV(N, block), 3);
    """
    names = Names(text, {"N": 1000})
    assert names.shape("grid", len(text)) == (4, 3, 1)
    assert names.shape("dim3(block / 2, 2)", len(text)) == (128, 2, 1)
    assert names.value("grid.x * sizeof(float)", len(text)) == 16
    assert names.value("unknown(3)", len(text)) is None


def test_a_type_that_a_macro_chooses_follows_the_macros() -> None:
    text = """#if defined(ENABLE_BF16)
typedef __nv_bfloat16 floatX;
#elif defined(ENABLE_FP16)
typedef half floatX;
#else
typedef float floatX;
#endif
"""
    assert aliases(text)["floatX"] == "float"
    assert aliases(text, ["ENABLE_FP16=1"])["floatX"] == "half"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1", "is not YAML"),
        ("kernel: k\nsize: 3\n", "Got size in a case"),
        ("kernel: k\ngrid: [0]\n", "expected one to three numbers above 0"),
        ("kernel: k\narguments: [{name: x, kind: buffer, size: 0}]\n", "expected 1 to"),
        ("kernel: k\narguments: [{name: x, kind: buffer, values: odd}]\n", "Got values 'odd'"),
        ("kernel: k\narguments: [{name: x}]\n", "expected kind: buffer, scalar, tensor or"),
        (
            "kernel: k\narguments: [{name: x, kind: buffer}, {name: x, kind: scalar}]\n",
            "Got 2 arguments called 'x', expected one",
        ),
    ],
)
def test_a_wrong_case_says_what_is_wrong(text: str, message: str, tmp_path: Path) -> None:
    case = tmp_path / "kernel.yaml"
    case.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
        read_cases(case)

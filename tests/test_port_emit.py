"""Kernels as OpenCL C and as C++ for CPUs: emitted, run, and equal to what they were made from."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from portkern.errors import BackendUnavailable
from portkern.port import emit_proof, emit_run
from portkern.port.emit.context import EmitContext
from portkern.port.emit.emitted import Emitted
from portkern.port.emit.limits import RefusedEmission
from portkern.port.emit_program import EmittedFile
from portkern.port.emit_proof import EmittedProver
from portkern.port.proof import KernelProof, Outcome, ProofLimits, ProofSource
from portkern.port.proof.case import ProofCase, read_cases
from portkern.port.proof.texts import SourceTexts
from portkern.port.request import PortRequest

WAYS = ("cpu", "opencl")
KERNELS = """
#define TILE 16
#define FLOAT4(value) (reinterpret_cast<float4*>(&(value))[0])

__device__ float scaled(const float* x, int i) { return x[i] * 2.0f; }

__global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    c[i] = scaled(a, i) + b[i];
}

__global__ void add4(float* a, float* b, int n) {
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 3 < n) {
        float4 r = FLOAT4(a[i]);
        FLOAT4(b[i]) = make_float4(r.x + 1.0f, sqrtf(fabsf(r.y)), fmaxf(r.z, 0.0f), -r.w);
    }
}

__global__ void transpose(const float* x, float* y, int rows, int cols) {
    __shared__ float tile[TILE][TILE + 1];
    int col = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    if (row < rows && col < cols) tile[threadIdx.y][threadIdx.x] = x[row * cols + col];
    __syncthreads();
    col = blockIdx.y * TILE + threadIdx.x;
    row = blockIdx.x * TILE + threadIdx.y;
    if (row < cols && col < rows) y[row * rows + col] = tile[threadIdx.x][threadIdx.y];
}

__global__ void matmul(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float a[TILE][TILE];
    __shared__ float b[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
        const int k = t * TILE;
        a[threadIdx.y][threadIdx.x] =
            row < M && k + threadIdx.x < K ? A[row * K + k + threadIdx.x] : 0.0f;
        b[threadIdx.y][threadIdx.x] =
            col < N && k + threadIdx.y < K ? B[(k + threadIdx.y) * N + col] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += a[threadIdx.y][i] * b[i][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}

template <typename T>
__global__ void block_sum(const T* x, T* out, int n) {
    extern __shared__ float partial[];
    const int tid = threadIdx.x;
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + tid; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    partial[tid] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) partial[tid] += partial[tid + s];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = (T)partial[0];
}

__global__ void histogram(const int* x, int* counts, float* weights, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&counts[x[i] % 8], 1);
        atomicAdd(weights + x[i] % 8, 0.5f);
    }
}

__global__ void shuffled(float* x, int n) {
    float v = x[threadIdx.x];
    v += __shfl_down_sync(0xffffffff, v, 1);
    x[threadIdx.x] = v;
}

void launch(float* a, float* b, float* c, int* k, int* l, int n, int M, int N, int K) {
    add<<<(n + 255) / 256, 256>>>(a, b, c, n);
    add4<<<(n / 4 + 255) / 256, 256>>>(a, b, n);
    block_sum<float><<<8, 256, 256 * sizeof(float)>>>(a, b, n);
    block_sum<int><<<8, 256, 256 * sizeof(float)>>>(k, l, n);
    transpose<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(a, b, M, N);
    matmul<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(a, b, c, M, N, K);
    histogram<<<(n + 255) / 256, 256>>>(k, l, a, n);
}
"""


def texts_of(folder: Path, text: str) -> SourceTexts:
    folder.chmod(0o755)
    (folder / "kernels.cu").write_text(text, encoding="utf-8")
    return SourceTexts(ProofSource(folder / "kernels.cu", "cuda"))


def emitted(folder: Path, text: str, way: str) -> dict[str, Emitted | RefusedEmission]:
    texts = texts_of(folder, text)
    context = EmitContext(texts)
    return {k.name: emit_run.emit(k, texts, context, way) for k in texts.own.kernels}


def proven(
    folder: Path, text: str, way: str, cases: dict[str, ProofCase] | None = None
) -> dict[str, KernelProof]:
    try:
        emit_proof.environment(way)
    except BackendUnavailable as error:
        pytest.skip(str(error))
    texts = texts_of(folder, text)
    context = EmitContext(texts)
    made = [emit_run.emit(k, texts, context, way) for k in texts.own.kernels]
    files = [
        EmittedFile(item, emit_run.write(item, way, folder / "out"))
        for item in made
        if isinstance(item, Emitted)
    ]
    with EmittedProver(texts, way, cases or {}, folder / "work", ProofLimits()) as prover:
        return {proof.kernel: proof for proof in prover.prove(files)}


def one(name: str) -> str:
    """The text with one kernel and what all of them share."""
    begin = KERNELS.index("__global__")
    parts = KERNELS[begin:].split("\n\n")
    launches = parts[-1]
    kernel = next(part for part in parts if f" {name}(" in part and "__global__" in part)
    lines = [
        line
        for line in launches.splitlines()
        if "<<<" not in line or re.match(rf"\s*{name}\s*<", line)
    ]
    return "\n\n".join([KERNELS[:begin], kernel, "\n".join(lines)])


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_emitted_kernels_compute_what_the_originals_do(tmp_path: Path, way: str) -> None:
    proofs = proven(tmp_path, KERNELS, way)
    outcomes = {name: (proof.outcome, proof.why) for name, proof in proofs.items()}
    names = ["add", "add4", "transpose", "matmul", "block_sum", "histogram"]
    assert outcomes == {name: (Outcome.PROVEN, outcomes[name][1]) for name in names}


@pytest.mark.parametrize("way", WAYS)
def test_a_kernel_with_a_barrier_is_proven(tmp_path: Path, way: str) -> None:
    (proof,) = proven(tmp_path, one("transpose"), way).values()
    assert proof.outcome is Outcome.PROVEN, proof.why
    assert proof.coverage is not None and proof.coverage.lines == proof.coverage.lines_total


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_what_differs_is_found_wrong(tmp_path: Path, way: str) -> None:
    """The emitted file is changed by hand."""
    try:
        emit_proof.environment(way)
    except BackendUnavailable as error:
        pytest.skip(str(error))
    texts = texts_of(tmp_path, one("add"))
    (kernel,) = texts.own.kernels
    item = emit_run.emit(kernel, texts, EmitContext(texts), way)
    assert isinstance(item, Emitted)
    path = emit_run.write(item, way, tmp_path / "out")
    code = path if way == "cpu" else path.with_suffix(".cl")
    code.write_text(code.read_text("utf-8").replace("+ b[i]", "- b[i]"), encoding="utf-8")
    keep = tmp_path / "cases"
    with EmittedProver(texts, way, {}, tmp_path / "work", ProofLimits(), keep) as prover:
        (proof,) = prover.prove([EmittedFile(item, path)])
    assert proof.outcome is Outcome.WRONG
    said = re.search(r"'c'\[0\] is \S+, expected \S+(?= \()", proof.why)
    assert said is not None
    assert proof.counterexample is not None and proof.counterexample.is_relative_to(keep)
    # What replays it needs nothing of the work folder.
    shutil.rmtree(tmp_path / "work")
    again = subprocess.run(proof.command, shell=True, capture_output=True, text=True)
    assert again.stdout.strip() == said[0], again.stderr


@pytest.mark.parametrize("way", WAYS)
def test_warp_functions_are_refused_by_line(tmp_path: Path, way: str) -> None:
    made = emitted(tmp_path, KERNELS, way)
    refused = made["shuffled"]
    assert isinstance(refused, RefusedEmission)
    line = KERNELS[: KERNELS.index("__shfl_down_sync")].count("\n") + 1
    assert str(refused) == f"line {line}: '__shfl_down_sync' is a function of warps"
    assert all(isinstance(item, Emitted) for name, item in made.items() if name != "shuffled")


@pytest.mark.parametrize(
    ("body", "way", "why"),
    [
        ("if (threadIdx.x > 3) return; __syncthreads();", "opencl", "threads that return here"),
        ("if (threadIdx.x > 3) __syncthreads();", "opencl", "a barrier under a condition"),
        ("auto f = [&](int i) { x[i] = 0; }; f(0);", "cpu", "a lambda"),
        ('asm("mov.u32 %0, 1;");', "cpu", "'asm' is inline assembly"),
        ("auto t = x[0]; x[1] = t;", "opencl", "a local of type auto"),
        ("for (;;) { __syncthreads(); }", "cpu", "a loop around a barrier without a condition"),
        ("float* p; x[0] = *p;", "opencl", "what 'p' points to cannot be decided"),
        (
            "for (int i = 0; i < n; ++i) { if (x[i] > 0) break; __syncthreads(); }",
            "cpu",
            "break out of a loop with a barrier in it",
        ),
    ],
)
def test_what_has_no_counterpart_is_refused_with_its_line(
    tmp_path: Path, body: str, way: str, why: str
) -> None:
    text = f"__global__ void k(float* x, int n) {{\n    {body}\n}}\n"
    refused = emitted(tmp_path, text, way)["k"]
    assert isinstance(refused, RefusedEmission)
    assert refused.line == 2
    assert why in refused.reason


def test_pointers_get_the_space_of_what_they_point_to(tmp_path: Path) -> None:
    text = """
__device__ float first(const float* p) { return p[0]; }
__global__ void k(const float* x, float* y) {
    __shared__ float s[32];
    float* own = s + 1;
    const float* row = x + blockIdx.x;
    own[threadIdx.x] = row[0];
    y[0] = first(own) + first(x);
}
"""
    made = emitted(tmp_path, text, "opencl")["k"]
    assert isinstance(made, Emitted)
    assert "__kernel void k(__global const float* x, __global float* y)" in made.text
    assert "__local float s[32];" in made.text
    assert "__local float* own = s + 1;" in made.text
    assert "__global const float* row = x +" in made.text
    assert "static float first_local(__local const float* p)" in made.text
    assert "first_local(own) + first_global(x)" in made.text


def test_a_template_becomes_a_function_for_each_instance(tmp_path: Path) -> None:
    made = emitted(tmp_path, KERNELS, "opencl")["block_sum"]
    assert isinstance(made, Emitted)
    assert [i.name for i in made.instances] == ["block_sum_float", "block_sum_int"]
    assert "__kernel void block_sum_int(__global const int* x, __global int* out" in made.text


def test_threads_that_disagree_on_a_barrier_prove_nothing_on_a_cpu(tmp_path: Path) -> None:
    text = """
__global__ void k(const float* x, float* y, int n) {
    __shared__ float s[256];
    s[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 128) { __syncthreads(); }
    y[threadIdx.x] = s[threadIdx.x];
}
void launch(const float* x, float* y, int n) { k<<<1, 256>>>(x, y, n); }
"""
    proof = proven(tmp_path, text, "cpu")["k"]
    assert proof.outcome is not Outcome.PROVEN


def test_a_second_run_goes_on_from_what_is_known(tmp_path: Path) -> None:
    """And kernels of one name in two files are two."""
    folder = tmp_path / "library"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.cu").write_text(one("add"), encoding="utf-8")
    request = PortRequest(
        path=folder,
        to="hip",
        targets=(),
        emitted=("cpu",),
        out=tmp_path / "out",
        prove=False,
        jobs=1,
    )
    first = emit_run.run(request, tmp_path / "run")
    assert (first.reused, len(first.ports)) == (0, 2)
    written = sorted(str(p.relative_to(tmp_path / "out")) for p in tmp_path.glob("out/*/add.cpp"))
    assert written == ["one/add.cpp", "two/add.cpp"]
    (folder / "two.cu").write_text(one("add") + "// changed\n", encoding="utf-8")
    second = emit_run.run(request, tmp_path / "run")
    assert (second.reused, len(second.ports)) == (1, 2)


@pytest.mark.full
def test_functions_of_single_precision_take_whole_numbers_in_opencl(tmp_path: Path) -> None:
    text = """__global__ void k(float* x, int n) {
    x[threadIdx.x] = sqrtf(n) + fmaxf(n, 0) + powf(2, n);
}
void launch(float* x, int n) { k<<<1, 32>>>(x, n); }
"""
    (proof,) = proven(tmp_path, text, "opencl").values()
    assert proof.outcome is Outcome.PROVEN, proof.why


@pytest.mark.full
def test_the_verb_writes_source_and_says_what_is_known(tmp_path: Path) -> None:
    folder = tmp_path / "library"
    folder.mkdir()
    text = one("add") + one("shuffled").split("\n\n")[-2]
    (folder / "kernels.cu").write_text(text, encoding="utf-8")
    argv = [sys.executable, "-m", "portkern.cli", "port", str(folder), "to=cpu"]
    argv.append(f"reports={tmp_path / 'reports'}")
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path)
    tree = next((tmp_path / "reports").glob("port-*")) / "tree"
    assert done.returncode == 1, done.stderr
    assert "1 of 2 kernels proven in emulation, 1 needs a human" in done.stdout
    assert sorted(path.name for path in tree.iterdir()) == ["add.cpp", "portkern_cpu.h"]


def test_a_case_by_hand_gives_the_inputs(tmp_path: Path) -> None:
    text = (
        "__global__ void twice(const float* x, float* y, int n) {\n"
        "    if (threadIdx.x < n) y[threadIdx.x] = 2.0f * x[threadIdx.x];\n}\n"
    )
    (tmp_path / "case.yaml").write_text(
        "kernel: twice\ngrid: 1\nblock: 32\narguments:\n"
        "- {name: x, kind: buffer, dtype: float, size: 20, values: uniform}\n"
        "- {name: y, kind: buffer, dtype: float, size: 20, values: zeros, output: true}\n"
        "- {name: n, kind: scalar, dtype: int, value: 20}\n",
        encoding="utf-8",
    )
    cases = dict(read_cases(tmp_path / "case.yaml"))
    proof = proven(tmp_path, text, "cpu", cases)["twice"]
    assert proof.outcome is Outcome.PROVEN, proof.why
    assert "x[20]" in proof.inputs

"""The kernels that did the work of a call are found, and work that others did in a kernel's name is
refused."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from portkern import ops
from portkern.cells.selection import host_targets
from portkern.evaluator import attribution
from portkern.evaluator.attribution import AttributedKernel, Proof
from portkern.evaluator.result import Result
from portkern.guard import TorchOps
from portkern.records.record import Record, Verdict
from portkern.sandbox.message import FormError, read
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Backend, Missing, Ready, Resources, Venue
from portkern.spec.candidate import Candidate
from portkern.spec.companions import Companions
from portkern.spec.op import Workload
from portkern.spec.target import Target
from portkern.testing import evaluate
from portkern.worker.profile import CallProfile, without_mark
from portkern.worker.protocol import SeenLaunch, Trace

from .report_records import records

MKL: Any = torch.backends.mkl
X = torch.randn(64, 64)
RELU = ops.load("relu")
CUDA_RELU = """
__global__ void positive(const scalar_t* x, scalar_t* y, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] > (scalar_t)0 || x[i] != x[i] ? x[i] : (scalar_t)0;
}
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
  if (n) positive<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
  return cudaGetLastError();
}
"""
CUDA_ON_HOST = """
__global__ void positive(const scalar_t* x, scalar_t* y, int64_t n) {}
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] > (scalar_t)0 || x[i] != x[i] ? x[i] : (scalar_t)0;
  return 0;
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proof")


def traced(call: Callable[[], object]) -> Trace:
    with CallProfile() as profile:
        call()
    return profile.trace


def names(launches: Sequence[SeenLaunch]) -> list[str]:
    return [launch.name for launch in launches]


# ---- what a trace sees


def test_operators_are_told_by_what_was_called_and_not_by_what_that_calls() -> None:
    trace = traced(lambda: (torch.softmax(X, -1), X @ X))
    assert names(trace.operators) == ["aten::softmax", "aten::matmul"]
    assert trace.ended is False and trace.missing == ""


def test_operators_of_other_threads_are_seen() -> None:
    def elsewhere() -> None:
        thread = threading.Thread(target=lambda: torch.cumsum(X, 0))
        thread.start()
        thread.join()

    assert "aten::cumsum" in names(traced(elsewhere).operators)


def test_a_kernel_that_ends_the_profile_is_noticed() -> None:
    end = torch.autograd._disable_profiler  # type: ignore[attr-defined]
    assert traced(lambda: (torch.relu(X), end())).ended is True


@pytest.mark.skipif(not MKL.is_available(), reason="this torch has no oneMKL")
def test_routines_of_the_vendor_are_seen_and_other_words_stay_printed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    trace = traced(lambda: (sys.stdout.write("said by the kernel\n"), torch.mm(X, X)))
    assert trace.routines == ("SGEMM",)
    assert capfd.readouterr().out == "said by the kernel\n"


# ---- what is concluded

WORK = AttributedKernel(
    Candidate("softmax", "cuda", "cuda", "__global__ void scale() {} // at::native fill", "run"),
    (Resources("reduce<4>"),),
    "forbid",
    gpu=True,
)
HOST = replace(WORK, gpu=False)


def launch(name: str, us: float = 10.0) -> SeenLaunch:
    return SeenLaunch(name, 1, us)


def held(
    work: AttributedKernel = WORK,
    *,
    us: float = 100.0,
    operators: Sequence[SeenLaunch] = (),
    launches: Sequence[SeenLaunch] = (),
    routines: Sequence[str] = (),
    missing: str = "",
) -> Proof:
    trace = Trace(tuple(operators), tuple(launches), tuple(routines), missing=missing)
    return attribution.hold(trace, work, seconds=us / 1e6)


@pytest.mark.parametrize(
    "operator",
    [
        "aten::softmax",
        "aten::_softmax",
        "aten::relu_",
        "aten::matmul",
        "aten::conv2d",
        "aten::native_layer_norm",
        "aten::_scaled_mm",
        "Torch-Compiled Region: 0/0",
    ],
)
def test_an_operator_that_is_the_work_is_refused_however_short(operator: str) -> None:
    found = held(HOST, operators=[launch(operator, 0.1)])
    assert found.verdict is Verdict.REJECTED
    assert found.problem == f"torch's {operator} did the work; torch_ops=allow accepts it"


@pytest.mark.parametrize(
    "operator",
    [
        "aten::empty_like",
        "aten::copy_",
        "aten::_to_copy",
        "aten::t",
        "aten::contiguous",
        "aten::as_strided",
        "aten::zeros",
        "aten::item",
        "aten::detach",
    ],
)
def test_making_moving_and_viewing_tensors_is_not_work(operator: str) -> None:
    assert held(HOST, operators=[launch(operator, 99.0)]) == Proof()


def test_other_operators_are_refused_when_they_took_most_of_the_time() -> None:
    some = [launch("aten::mul", 30.0), launch("aten::exp", 35.0)]
    assert held(HOST, operators=some).problem.startswith("torch's aten::exp did the work")
    assert held(HOST, operators=some, us=1000.0) == Proof()


def test_what_the_policy_allows_is_a_note() -> None:
    found = held(replace(HOST, torch_ops="allow"), operators=[launch("aten::mm")])
    assert (found.verdict, found.problem) == (Verdict.PASSED, "")
    assert [str(finding) for finding in found.findings] == [
        "note: library torch's aten::mm did the work"
    ]


def test_a_routine_that_native_code_calls_is_refused() -> None:
    assert held(HOST, routines=["SGEMM"]).problem.startswith("the library routine SGEMM did")


@pytest.mark.parametrize(
    "kernel",
    [
        "scale(float*)",
        "void (anonymous namespace)::scale<float, 4>(float*)",
        "scale.kd",
        "void mine::reduce<4>(int)",
        "reduce",
    ],
)
def test_kernels_of_the_source_and_of_the_artifact_are_its_own(kernel: str) -> None:
    found = held(launches=[launch(kernel)])
    assert found.verdict is Verdict.PASSED
    assert [one.name for one in found.launches] == [kernel]


@pytest.mark.parametrize(
    "kernel",
    [
        "void at::native::vectorized_elementwise_kernel<4>(int)",
        "ampere_sgemm_128x64_nn",
        "void at::native::scale<4>(float*)",
        "fill",
        "cublas",
        "Cijk_Ailk_Bljk_SB_MT64x64",
    ],
)
def test_a_kernel_that_is_not_its_own_did_the_work_when_it_took_most_of_the_time(
    kernel: str,
) -> None:
    found = held(launches=[launch("scale", 10.0), launch(kernel, 11.0)])
    assert found.verdict is Verdict.REJECTED
    assert found.problem.startswith(f"the kernel {kernel} did the work")
    assert held(launches=[launch("scale", 12.0), launch(kernel, 11.0)]).problem == ""


def test_the_kernel_that_ends_a_profile_need_not_be_the_last_one() -> None:
    names = [
        "relu_kernel(float const*, float*, long)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)",
        "relu_kernel(float const*, float*, long)",
    ]
    kernels = [SimpleNamespace(name=partial(str, name)) for name in names]
    assert without_mark(kernels) == [kernels[0], kernels[2]]
    assert without_mark(kernels[:2]) == without_mark([kernels[0], kernels[2]]) == kernels[:1]


def test_no_launch_at_all_is_refused_and_a_missing_proof_only_noted() -> None:
    assert held().verdict is Verdict.REJECTED
    assert held().problem == "it launched no kernel, expected at least one"
    missing = held(missing="no profiler here")
    assert missing.verdict is Verdict.PASSED
    assert [finding.code for finding in missing.findings] == ["unproved"]
    assert "no profiler here" in missing.findings[0].message


def test_a_trace_that_was_ended_is_suspicious() -> None:
    assert attribution.hold(Trace(ended=True), WORK, seconds=1.0).verdict is Verdict.SUSPICIOUS


@pytest.mark.parametrize("said", [{"launches": 3}, {"operators": [{}]}, {"routines": [1]}])
def test_a_trace_of_another_form_cannot_be_read(said: dict[str, object]) -> None:
    with pytest.raises(FormError):
        read(Trace, said)


def test_records_from_before_there_were_launches_can_be_read() -> None:
    line = records()[0].to_json().replace('"launches":[],', "")
    assert "launches" not in line
    assert Record.from_json(line).launches == []


# ---- evaluated


def on(
    backend: Backend, where: Target, op: str, source: str, folder: Path, **more: object
) -> Result:
    language = next(iter(backend.languages.values()))
    candidate = Candidate(op, backend.name, language, source, op, style=backend.style)
    return evaluated(backend, where, candidate, folder)


def evaluated(
    backend: Backend,
    where: Target,
    candidate: Candidate,
    folder: Path,
    torch_ops: TorchOps = "forbid",
    workload: Workload | None = None,
) -> Result:
    for there in (backend.probe(where), backend.venues(where).best):
        if isinstance(there, Missing):
            pytest.skip(f"{backend.name}: {there}")
    op = ops.load(candidate.op)
    chosen = [workload or op.workloads["ci"][0]]
    results = evaluate(candidate, op, backend, where, chosen, folder=folder, torch_ops=torch_ops)
    assert isinstance(results, list), results
    return results[0]


CUDA, CPU = registry.load("cuda"), registry.load("cpu")
SM_90, HERE = target.load("sm_90"), target.load(host_targets()[0])


@pytest.mark.full
def test_the_executor_counts_the_launches_of_each_kernel(folder: Path) -> None:
    result = on(CUDA, SM_90, "relu", CUDA_RELU, folder)
    assert result.verdict is Verdict.PASSED, result.detail
    assert [(one.name, one.count) for one in result.launches] == [("positive", 1)]


@pytest.mark.full
def test_a_kernel_that_a_header_of_the_project_launches_by_another_name_is_its_own(
    folder: Path,
) -> None:
    header = CUDA_RELU.replace('extern "C" int relu(', "inline int start(").replace(
        "if (n) positive<<<", "const auto chosen = positive;\n  if (n) chosen<<<"
    )
    source = (
        '#include "start.cuh"\n'
        'extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {\n'
        "  return start(x, y, n, stream);\n}\n"
    )
    beside = Companions("relu.cu", (("start.cuh", header),))
    own = Candidate("relu", CUDA.name, "cuda", source, "relu", companions=beside)
    result = evaluated(CUDA, SM_90, own, folder)
    assert result.verdict is Verdict.PASSED, result.detail


def test_device_source_that_computes_on_the_host_is_refused(folder: Path) -> None:
    result = on(CUDA, SM_90, "relu", CUDA_ON_HOST, folder)
    assert result.verdict is Verdict.WRONG
    assert "SX114" in result.detail or "SX115" in result.detail  # host code on device memory


LIGHT = "def relu(x):\n    return x.clamp_min(0)\n"
LARGE = Workload("large", {"n": 1 << 22})


@pytest.mark.full
def test_an_operator_with_a_harmless_name_is_seen_by_its_time(folder: Path) -> None:
    candidate = Candidate("relu", "cpu", "numba", LIGHT, "relu", style="return")
    result = evaluated(CPU, HERE, candidate, folder, workload=LARGE)
    assert result.verdict is Verdict.REJECTED
    assert result.detail.startswith("torch's aten::clamp_min did the work")
    allowed = evaluated(CPU, HERE, candidate, folder, "allow", LARGE)
    assert allowed.verdict is Verdict.PASSED
    assert [finding.code for finding in allowed.findings] == ["library"]


GPU = [name for name in host_targets() if target.load(name).is_gpu]


@pytest.mark.skipif(not GPU, reason="no GPU here")
@pytest.mark.parametrize("backend", [registry.load(name) for name in ("cuda", "hip", "triton")])
@pytest.mark.parametrize("op", ["relu", "softmax", "layernorm", "matmul"])
def test_the_profile_of_a_gpu_shows_the_kernels_of_the_catalogue(
    backend: Backend, op: str, folder: Path
) -> None:
    where = target.load(GPU[0])
    hardware = backend.venues(where).hardware if backend.supports(where) else Missing("no support")
    if not isinstance(hardware, Venue) or not isinstance(backend.probe(where), Ready):
        pytest.skip(f"{backend.name}: {hardware}")
    for candidate in catalogue.candidates(op, backend):
        result = evaluated(backend, where, candidate, folder)
        assert result.verdict is Verdict.PASSED, result.detail
        assert result.launches and all(one.us > 0 for one in result.launches)
        assert "unproved" not in [finding.code for finding in result.findings]


@pytest.mark.skipif(not GPU, reason="no GPU here")
def test_a_librarys_kernel_on_a_gpu_is_refused_by_name(folder: Path) -> None:
    source = (
        "import triton\nimport triton.language as tl\n\n"
        "@triton.jit\ndef show(x, BLOCK: tl.constexpr):\n    tl.load(x)\n\n"
        "def relu(x, y):\n    y.copy_(x.clamp_min(0))\n    show[(1,)](x, BLOCK=1)\n"
    )
    backend, where = registry.load("triton"), target.load(GPU[0])
    hardware = backend.venues(where).hardware
    if isinstance(hardware, Missing):
        pytest.skip(f"triton: {hardware}")
    candidate = Candidate("relu", "triton", "triton", source, "relu")
    result = evaluated(backend, where, candidate, folder, workload=LARGE)
    assert result.verdict is Verdict.REJECTED
    assert "at::native" in result.detail

"""The emulator venue of the cuda and hip backends, through the verbs and the evaluator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from portkern.cli import main
from portkern.simt.execute import runtime_library

pytestmark = pytest.mark.skipif(
    not isinstance(runtime_library.find(), runtime_library.Toolbox),
    reason=str(runtime_library.find()),
)

KERNEL = """
__global__ void k(const scalar_t* x, scalar_t* y, int64_t n) {{
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    {body}
}}
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {{
    if (n) k<<<(unsigned)((n + 127) / 128), 128, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}}
"""
RIGHT = "if (i < n) y[i] = x[i] > 0 ? x[i] : scalar_t(0);"


@pytest.fixture
def check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """``portkern check`` of a relu with this body; the first record of its JSON document."""
    monkeypatch.chdir(tmp_path)

    def run(body: str, *options: str, target: str = "sm_90", source: str = "") -> dict[str, Any]:
        Path("relu.cu").write_text(source or KERNEL.format(body=body), encoding="utf-8")
        argv = ["op=relu", "backend=cuda", "source=relu.cu", f"target={target}", "venue=emulator"]
        main.run(["check", *argv, "json=true", *options])
        record: dict[str, Any] = json.loads(capsys.readouterr().out)["records"][0]
        return record

    return run


def codes(record: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in record["findings"]}


@pytest.mark.full
def test_a_right_kernel_passes_under_all_checkers(check: Any) -> None:
    record = check(RIGHT, "sanitize=all")
    assert (record["verdict"], record["evidence"]) == ("passed", "emulated"), record["detail"]
    assert record["findings"] == []
    assert record["venue"].startswith("emulator: SIMT executor, sm_90 (warp 32), sanitize:")
    assert record["missing"] == "only the emulator was asked for"


@pytest.mark.full
def test_a_right_result_does_not_excuse_a_race(check: Any) -> None:
    body = RIGHT + "\n    if (i > 0 && i < n) y[i - 1] = y[i - 1] + scalar_t(0);"
    record = check(body, "sanitize=races")
    assert record["verdict"] == "wrong" and {"SX202"} <= codes(record), record
    assert record["findings"][0]["place"].startswith("relu.cu:")


@pytest.mark.full
def test_a_read_past_the_end_is_named_with_its_line(check: Any) -> None:
    record = check(RIGHT.replace("i < n", "i <= n"), "sanitize=[bounds]")
    assert record["verdict"] == "wrong"
    assert "SX101" in codes(record) and "relu.cu:4" in record["detail"]


@pytest.mark.full
def test_a_kernel_that_never_ends_runs_out_of_time(check: Any) -> None:
    record = check("volatile int on = 1; while (on) {}", "sanitize=none")
    assert record["verdict"] == "timed_out" and "SX405" in record["detail"], record["detail"]


@pytest.mark.full
def test_a_null_pointer_crashes_nothing_but_the_kernel(check: Any) -> None:
    record = check("if (i < n) ((scalar_t*)0)[i] = x[i];")
    assert record["verdict"] == "crashed" and "SX112" in record["detail"], record["detail"]


@pytest.mark.full
def test_what_the_executor_has_no_model_of_is_unavailable_and_still_built(check: Any) -> None:
    record = check(RIGHT + '\n    unsigned r; asm volatile("mov.u32 %0, %envreg3;" : "=r"(r));')
    assert (record["verdict"], record["evidence"]) == ("unavailable", "built"), record
    assert "SX001" in record["detail"] and "relu.cu:5" in record["detail"]


@pytest.mark.full
def test_a_result_that_depends_on_the_schedule_is_found(check: Any) -> None:
    body = """
    __shared__ int first;
    if (threadIdx.x == 0) first = -1;
    __syncthreads();
    atomicCAS(&first, -1, (int)threadIdx.x);
    __syncthreads();
    if (i < n) y[i] = x[i] > 0 ? x[i] : scalar_t(first * 1e-3f);"""
    record = check(body, "sanitize=[schedule]")
    assert record["verdict"] == "wrong" and "SX601" in codes(record), record


@pytest.mark.parametrize(
    ("option", "words"),
    [("venue=emulater", "did you mean 'emulator'?"), ("sanitize=raes", "did you mean 'races'?")],
)
def test_a_mistyped_option_is_answered_with_the_right_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, words: str
) -> None:
    status = main.run(["matrix", "ops=relu", "targets=sm_90", "backends=cuda", option])
    assert status == 2 and words in capsys.readouterr().err


@pytest.mark.full
def test_races_are_looked_for_unless_they_are_not_asked_for(check: Any) -> None:
    body = "__shared__ float sum; if (threadIdx.x == 0) sum = 0; sum += 0; " + RIGHT
    record = check(body)
    assert record["verdict"] == "wrong" and "SX201" in codes(record), record["detail"]
    record = check(RIGHT, "sanitize=none")
    [note] = record["findings"]
    assert (note["code"], note["severity"]) == ("races-not-looked-for", "note")
    assert record["verdict"] == "passed" and "races: not looked for" in note["message"]
    assert check(RIGHT)["findings"] == []


HOST_WORK = """
#include <cstdlib>
__global__ void k(const scalar_t* x, scalar_t* y, int64_t n, int64_t done) {{
    int64_t i = threadIdx.x;
    if (i < done) y[i] = x[i] > 0 ? x[i] : scalar_t(0);
}}
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {{
    if (!n) return 0;
    k<<<1, 32, 0, stream>>>(x, y, n, {done});
    {body}
    return (int)cudaGetLastError();
}}
"""
COPIES = """scalar_t* host = (scalar_t*)malloc(n * sizeof(scalar_t));
    cudaMemcpy(host, x, n * sizeof(scalar_t), cudaMemcpyDeviceToHost);
    for (int64_t i = 0; i < n; ++i) host[i] = host[i] > 0 ? host[i] : scalar_t(0);
    {back} free(host);"""
THROUGH = """scalar_t* work; cudaMalloc((void**)&work, n * sizeof(scalar_t));
    cudaMemcpy(work, host, n * sizeof(scalar_t), cudaMemcpyHostToDevice);
    cudaMemcpy(y, work, n * sizeof(scalar_t), cudaMemcpyDeviceToDevice); cudaFree(work);"""
DIRECT = "cudaMemcpy(y, host, n * sizeof(scalar_t), cudaMemcpyHostToDevice);"
LOOP = "for (int64_t i = {first}; i < n; ++i) y[i] = x[i] > 0 ? x[i] : scalar_t(0);"


@pytest.mark.full
@pytest.mark.parametrize(
    ("done", "body", "expected"),
    [
        (0, LOOP.format(first=0), {"SX114", "SX115"}),
        (32, LOOP.format(first=32), {"SX114"}),
        (0, COPIES.format(back=DIRECT), {"SX115", "SX116"}),
        (0, COPIES.format(back=THROUGH), {"SX115", "SX116"}),
        (32, COPIES.format(back=THROUGH), {"SX115", "SX116"}),
    ],
    ids=["loop", "kernel for the first", "copies", "copies through a buffer", "both"],
)
def test_what_the_host_computes_does_not_pass(
    done: int, body: str, expected: set[str], check: Any, tmp_path: Path
) -> None:
    record = check("", "sanitize=none", source=HOST_WORK.format(done=done, body=body))
    assert (record["verdict"], codes(record)) == ("wrong", expected), record["detail"]

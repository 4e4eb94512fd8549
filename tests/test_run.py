"""``portkern run``: programs in the SIMT executor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from portkern.cli import main
from portkern.simt.execute import runtime_library
from portkern.spec.backend import Missing

SUM = """
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
__global__ void add(int* x) { BODY }
int main(int argc, char** argv) {
  int *x, host = 0;
  cudaMalloc(&x, sizeof(int));
  cudaMemset(x, 0, sizeof(int));
  add<<<1, 64>>>(x);
  cudaMemcpy(&host, x, sizeof(int), cudaMemcpyDeviceToHost);
  printf("%d %s\\n", host, argc > 1 ? argv[1] : "-");
  return STATUS;
}
"""
BLAS = """
#include <cstdio>
#include <cublas_v2.h>
#include <cuda_runtime.h>
int main() {
  float *x, host[2] = {3, 4}, length = 0;
  cudaMalloc(&x, sizeof host);
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  cublasHandle_t handle;
  cublasCreate(&handle);
  if (cublasSnrm2(handle, 2, x, 1, &length) != CUBLAS_STATUS_SUCCESS) return 1;
  printf("%g\\n", length);
  return 0;
}
"""
EXTENSION = """
#include <torch/extension.h>
torch::Tensor same(torch::Tensor x) { return x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("same", &same, "What it was given"); }
"""
COMPILES = pytest.mark.skipif(
    isinstance(runtime_library.find(), Missing), reason=str(runtime_library.find())
)


def portkern(*argv: str) -> int:
    return main.run(["run", *argv])


def written(folder: Path, text: str) -> str:
    file = folder / "program.cu"
    file.write_text(text, encoding="utf-8")
    return str(file)


@COMPILES
@pytest.mark.parametrize("where", ["sm_90", "gfx942"])
def test_a_program_runs_at_the_targets_width(
    where: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = written(tmp_path, SUM.replace("BODY", "if (threadIdx.x == 0) *x = warpSize;"))
    assert portkern(source, f"target={where}", "define=[STATUS=0]", "--", "--help") == 0
    assert capfd.readouterr().out == f"{32 if where == 'sm_90' else 64} --help\n"


@COMPILES
def test_a_race_is_named_by_its_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = written(tmp_path, SUM.replace("BODY", "*x += 1;"))
    assert portkern(source, "sanitize=all", "define=[STATUS=0]") == 1
    assert "program.cu:5: error: " in capfd.readouterr().err


@COMPILES
def test_a_failing_program_exits_1(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = written(tmp_path, SUM.replace("BODY", "atomicAdd(x, 1);"))
    assert portkern(source, "define=[STATUS=7]", "json=true") == 1
    answer = json.loads(capfd.readouterr().out)
    assert (answer["status"], answer["output"], answer["exit_code"]) == (7, "64 -\n", 1)


@COMPILES
def test_a_program_may_call_cublas(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert portkern(written(tmp_path, BLAS)) == 0
    assert capfd.readouterr().out == "5\n"


@COMPILES
def test_an_extension_lists_its_functions(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert portkern(written(tmp_path, EXTENSION)) == 0
    told = capfd.readouterr()
    assert told.out == "same(arg0: Tensor) -> Tensor  What it was given\n"
    assert "portkern.simt.torch_extension.bindings.load" in told.err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "source= is required"),
        (["none.cu"], "Cannot read none.cu"),
        (["none.cu", "target=x86_64"], "Got target=x86_64, expected a GPU"),
        (["none.cu", "sanitize=race"], "did you mean 'races'?"),
        (["none.cu", "sanitize=width"], "Got sanitize=width, expected all, none or of races"),
        (["none.cu", "timeout_s=0"], "Got timeout_s=0, expected it above 0"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert portkern(*argv) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1

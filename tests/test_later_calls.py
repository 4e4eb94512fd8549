"""Effects of emulated kernels that the outputs of their first calls do not show."""

from __future__ import annotations

from pathlib import Path

import pytest

from portkern import ops
from portkern.evaluator import correctness
from portkern.evaluator.result import Result
from portkern.records.record import Verdict
from portkern.spec import registry, target
from portkern.spec.backend import Ready
from portkern.spec.candidate import Candidate
from portkern.spec.op import Workload
from portkern.testing import evaluate

RELU = ops.load("relu")


def ending(candidate: Candidate, where: str, n: int, folder: Path) -> Result:
    backend = registry.load(candidate.backend)
    state = backend.probe(target.load(where))
    if not isinstance(state, Ready):
        pytest.skip(str(state))
    results = evaluate(
        candidate, RELU, backend, target.load(where), [Workload("one", {"n": n})], folder=folder
    )
    assert isinstance(results, list), results
    return results[0]


HIP = """
__global__ void k(const scalar_t* x, scalar_t* y, int64_t n, bool bad) {{
  const int64_t i = blockIdx.x * 64 + threadIdx.x;
  if (i < n && !bad) y[i] = x[i] < scalar_t(0) ? scalar_t(0) : x[i];
}}
static int calls = 0;
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, hipStream_t stream) {{
  ++calls;
  k<<<(n + 63) / 64, 64, 0, stream>>>(x, y, n, {bad});
  return 0;
}}
"""


@pytest.mark.sampled()
@pytest.mark.parametrize("bad", ["calls > 40", "calls > 150", "calls > 20 && calls % 2"])
def test_an_emulated_kernel_that_is_right_for_some_calls_is_wrong(
    bad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(correctness, "LATER_S", 60.0)  # on a busy machine two are few calls
    candidate = Candidate("relu", "hip", "hip", HIP.format(bad=bad), entry="relu")
    found = ending(candidate, "gfx942", 100, tmp_path)
    assert found.verdict is Verdict.WRONG, found
    assert found.detail.startswith("in a later call: "), found.detail


def test_an_emulated_kernel_that_is_right_each_time_passes(tmp_path: Path) -> None:
    candidate = Candidate("relu", "hip", "hip", HIP.format(bad="false"), entry="relu")
    assert ending(candidate, "gfx942", 100, tmp_path).verdict is Verdict.PASSED

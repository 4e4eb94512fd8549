"""A Python kernel that returns something else than its outputs is told what it returned and what
is expected: which outputs, of which shape and dtype."""

from __future__ import annotations

from pathlib import Path

import pytest

from portkern import ops
from portkern.cells.selection import default_target
from portkern.records.record import Verdict
from portkern.spec import registry
from portkern.spec.backend import Missing
from portkern.spec.candidate import Candidate
from portkern.testing import evaluate

#: Backends whose kernels may return, and what they call an array.
RETURNING = (
    ("pallas", "pallas", "jax.Array"),
    ("triton", "triton", "torch.Tensor"),
    ("cpu", "numba", "torch.Tensor"),
)


def told(backend_name: str, language: str, op_name: str, source: str, folder: Path) -> str:
    backend, op = registry.load(backend_name), ops.load(op_name)
    target = default_target(backend)
    state = backend.probe(target)
    if isinstance(state, Missing):
        pytest.skip(str(state))
    results = evaluate(
        Candidate(op_name, backend_name, language, source, op_name, style="return"),
        op,
        backend,
        target,
        list(op.workloads["ci"][:1]),
        folder=folder,
    )
    assert isinstance(results, list), results
    assert results[0].verdict in (Verdict.CRASHED, Verdict.WRONG, Verdict.BUILD_FAILED)
    return results[0].detail


@pytest.mark.parametrize(("backend", "language", "array"), RETURNING)
def test_a_kernel_that_forgets_to_return_is_told_what_is_expected(
    backend: str, language: str, array: str, tmp_path: Path
) -> None:
    source = "def relu(x, **_):\n    y = abs(x)\n"
    detail = told(backend, language, "relu", source, tmp_path)
    assert f"relu returned None, expected a {array}: y float32[1000]" in detail


@pytest.mark.parametrize(("backend", "language", "array"), RETURNING)
def test_one_of_several_outputs_that_is_none_is_told(
    backend: str, language: str, array: str, tmp_path: Path
) -> None:
    source = "def topk(x, *, k, **_):\n    return x, None\n"
    detail = told(backend, language, "topk", source, tmp_path)
    kind = "ArrayImpl" if array == "jax.Array" else "Tensor"
    assert f"topk returned a tuple of {kind}, None, expected a tuple of 2 of {array}: " in detail
    assert "values float32[" in detail and "indices int64[" in detail


@pytest.mark.parametrize(("backend", "language", "array"), RETURNING)
def test_outputs_of_another_number_are_told_by_name(
    backend: str, language: str, array: str, tmp_path: Path
) -> None:
    source = "def relu(x, **_):\n    return x, x\n"
    detail = told(backend, language, "relu", source, tmp_path)
    assert detail.endswith("the kernel returned 2 outputs, expected 1: y float32[1000]")

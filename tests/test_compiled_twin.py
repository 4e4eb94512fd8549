"""What is interpreted, held against what is compiled of the same source."""

from __future__ import annotations

from pathlib import Path

import pytest

from portkern import ops
from portkern.evaluator.result import Result
from portkern.isa.venue import venue
from portkern.records.record import Verdict
from portkern.spec import registry, target
from portkern.spec.backend import Missing
from portkern.spec.candidate import Candidate
from portkern.testing import evaluate

LACK = next(
    (
        one
        for one in (
            registry.load("triton").probe(target.load("sm_90")),
            venue(target.load("gfx942")),
        )
        if isinstance(one, Missing)
    ),
    None,
)
pytestmark = pytest.mark.skipif(LACK is not None, reason=str(LACK))

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def relu_kernel(x, y, n, one, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    {body}
    tl.store(y + at, value, mask=at < n)

def relu(x, y):
    n = x.numel()
    if n:
        relu_kernel[(triton.cdiv(n, 1024),)](x, y, n, 1, BLOCK=1024)
"""
RIGHT = "value = tl.where(value < 0.0, 0.0, value)"
#: An argument that is 1 is a constant of the compiled kernel, and a tensor of the interpreter.
TELLS = f"""if isinstance(one, tl.tensor):
        {RIGHT}"""


def evaluated(body: str, folder: Path, where: str = "sm_90", sets: str = "ci") -> list[Result]:
    op = ops.load("relu")
    source = KERNEL.format(body=body)
    candidate = Candidate("relu", "triton", "triton", source, "relu")
    sizes = list(op.workloads[sets])
    backend = registry.load("triton")
    results = evaluate(candidate, op, backend, target.load(where), sizes, folder=folder)
    assert isinstance(results, list), results
    return results


def test_who_tells_the_interpreter_from_the_compiler_is_wrong_at_every_size(tmp_path: Path) -> None:
    results = evaluated(TELLS, tmp_path)
    assert [result.verdict for result in results] == [Verdict.WRONG] * len(results)
    assert len(results) > 1
    for result in results:
        assert "compiled for gfx942 and executed there, not interpreted" in result.detail
        assert "elements are off" in result.detail


@pytest.mark.full
def test_a_right_kernel_is_right_as_it_is_compiled_and_nothing_is_noted(tmp_path: Path) -> None:
    results = evaluated(RIGHT, tmp_path)
    assert [result.verdict for result in results] == [Verdict.PASSED] * len(results)
    assert {found.code for one in results for found in one.findings} == {"unproved"}


def test_what_cannot_be_executed_is_noted_and_no_fault_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = Missing("no model of such a target")
    monkeypatch.setattr(type(registry.load("triton")), "compiled_twin", lambda *_: why)
    results = evaluated(TELLS, tmp_path)
    assert [result.verdict for result in results] == [Verdict.PASSED] * len(results)
    told = [f.message for one in results for f in one.findings if f.code == "compiled-not-executed"]
    assert told == [
        "what is compiled of it was not executed beside the emulator: no model of such a target"
    ]

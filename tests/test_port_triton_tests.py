"""Triton kernels are proven on what the library's own tests launch."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from portkern.cli import main
from portkern.evaluator import object_program
from portkern.port import triton_recorded, triton_tests
from portkern.port.kernel_port import ProofLine
from portkern.port.triton_answers import differs, differs_in_small_ones
from portkern.port.triton_recorded import Recorded
from portkern.port.triton_tests import (
    LaunchWay,
    SuiteLaunch,
    SuiteMemory,
    SuiteTensor,
    TritonRecording,
    _Counted,
    paired,
)
from portkern.sandbox.message import FormError
from portkern.simt.torch_extension.suite import OUT_OF_TIME, Told
from portkern.spec import registry, target
from portkern.spec.backend import Missing

OPS = """import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128}, num_warps=4)],
    key=["n"],
)
@triton.jit
def scaled(out, x, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def picked(out, x, index, stride, BIAS, BLOCK: tl.constexpr, HAS_BIAS: tl.constexpr):
    row = tl.load(index + tl.program_id(0))
    at = tl.arange(0, BLOCK)
    y = tl.load(x + row * stride + at)
    if HAS_BIAS:
        y += tl.load(BIAS + at)
    tl.store(out + tl.program_id(0) * stride + at, y)


@triton.jit
def summed(out, x, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    y = tl.load(x + row * n + at, mask=at < n, other=0.0)
    tl.store(out + row, tl.sum(y.to(tl.float32), axis=0))


@triton.jit
def flagged(out, x, BLOCK: tl.constexpr, ROOT: tl.constexpr):
    at = tl.arange(0, BLOCK)
    y = tl.load(x + at)
    if ROOT:
        y = tl.sqrt(y)
    tl.store(out + at, y)


@triton.jit
def by_vendor(out, x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at), mask=at < n)


@triton.jit
def never(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), 1.0)


def settings(n):
    return triton.next_power_of_2(n)


def scale(x, factor):
    out = torch.empty_like(x)
    scaled[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](out, x, x.numel(), factor)
    return out


def pick(x, index, bias=None):
    out = torch.empty(len(index), x.shape[1], device=x.device)
    picked[(len(index),)](out, x, index, x.stride(0), bias, x.shape[1], bias is not None)
    return out


def total(x):
    assert x.is_cuda
    out = torch.empty(x.shape[0], device=x.device)
    summed[(x.shape[0],)](out, x, x.shape[1], settings(x.shape[1]))
    return out


def flag(x, root=False):
    out = torch.empty_like(x)
    flagged[(1,)](out, x, x.numel(), root)
    return out


def vendor(x):
    out = torch.zeros_like(x)
    less = 1 if torch.version.hip else 0
    by_vendor[(1,)](out, x, x.numel(), x.numel() >> less)
    return out
"""
TESTS = """import pytest
import torch

from rows import ops


@pytest.mark.parametrize("n", [100, 300])
def test_values_are_scaled(n):
    x = torch.randn(n, device="cuda")
    torch.testing.assert_close(ops.scale(x, 2.5), x * 2.5)


@pytest.mark.parametrize("bias", [False, True])
def test_rows_are_picked(bias):
    x, index = torch.randn(40, 32, device="cuda"), torch.tensor([39, 0, 7], device="cuda")
    given = torch.randn(32, device="cuda") if bias else None
    y = ops.pick(x, index, given)
    torch.testing.assert_close(y, x[index] + (given if bias else 0))


def test_rows_are_summed():
    x = torch.randn(5, 24, device="cuda", dtype=torch.float16)
    torch.testing.assert_close(ops.total(x), x.float().sum(1), rtol=1e-3, atol=1e-3)


def test_a_flag_is_off_and_half_is_left():
    x = torch.rand(32, device="cuda")
    assert torch.equal(ops.flag(x), x)
    assert ops.vendor(x)[:16].equal(x[:16])


def test_that_fails():
    assert ops.total(torch.ones(2, 4, device="cuda")).sum() == 9
"""


@pytest.mark.full
def test_kernels_are_proven_on_what_tests_launch_and_named_where_they_launch_less(
    tmp_path: Path,
) -> None:
    if isinstance(missing := registry.load("triton").probe(target.load("gfx942")), Missing):
        pytest.skip(str(missing))
    lib, reports = tmp_path / "rows", tmp_path / "reports"
    files = {"rows/__init__.py": "", "rows/ops.py": OPS, "tests/test_rows.py": TESTS}
    for name, text in files.items():
        (lib / name).parent.mkdir(parents=True, exist_ok=True)
        (lib / name).write_text(text, encoding="utf-8")
    given = ["port", str(lib), "to=gfx942,gfx1100", "tests=pytest tests", f"reports={reports}"]
    assert main.run([*given, "run=r"]) == 1
    said = json.loads((reports / "r" / "summary.json").read_text())
    kernels = {entry["kernel"]: entry for entry in said["kernels"]}
    for name in ("scaled", "picked", "summed"):
        assert kernels[name]["outcome"] == "proven in emulation", kernels[name]
        assert kernels[name]["inputs"].startswith("recorded from pytest tests")
    assert (
        "2 launches, 4 with their configurations, 2 of them as compiled" in kernels["scaled"]["why"]
    )
    assert "float32, int64" in kernels["picked"]["inputs"]
    assert kernels["flagged"]["outcome"] == "not proven"
    assert "no test launches an instance that reaches line" in kernels["flagged"]["why"]
    assert kernels["by_vendor"]["outcome"] == "wrong"
    assert "'out'" in kernels["by_vendor"]["why"]
    assert kernels["never"]["why"].endswith("no test launches it")
    assert "6 of 7 tests pass" in said["tests"][0]
    assert any("fails: AssertionError" in line for line in said["tests"])


INTERPRETER = importlib.import_module("portkern.backends.triton.library_interpreter")


def launch(**changed: object) -> SuiteLaunch:
    way = LaunchWay({"BLOCK": 4}, (1,), {"num_warps": 4})
    x = SuiteTensor("x", "float32", (4,), (1,), 0)
    memory = (SuiteMemory("x", "float32", 16, between=(0.0, 1.0)),)
    own = SuiteLaunch("a.py", "k", 1, "t", 0, (way,), "i", "s", "", {"n": 4}, {"x": x}, memory)
    return replace(own, **changed)  # type: ignore[arg-type]


def test_a_launch_is_held_to_the_one_that_the_same_test_makes_on_the_target() -> None:
    first, second = launch(), launch(number=1)
    assert paired([first, second], [first, second]) == ([(first, first), (second, second)], "")
    pairs, why = paired([first, second], [first])
    assert pairs == [(first, first)] and why == "t does not launch it so often there"
    _, why = paired([first], [launch(scalars={"n": 3})])
    assert why == "t gives launch 1 other inputs there"
    other_block = launch(ways=(LaunchWay({"BLOCK": 8}, (2,), {}),))
    assert paired([first], [other_block]) == ([(first, other_block)], "")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_recorded_numbers_are_made_anew_between_their_bounds(dtype: str) -> None:
    told = {"name": "x", "dtype": dtype, "bytes": 4000, "exactly": None, "of": None}
    values = [
        INTERPRETER._again({**told, "between": [2.0, 4.0]}, np.random.default_rng(seed))
        for seed in (1, 2)
    ]
    if dtype == "bfloat16":
        values = [(one.astype(np.uint32) << 16).view(np.float32) for one in values]
    assert all(one.nbytes == 4000 or dtype == "bfloat16" for one in values)
    assert all(2 <= one.min() < 2.5 and 3.5 < one.max() <= 4 for one in values)
    assert (values[0] != values[1]).any()
    few = {**told, "of": [0.0, 1.0], "between": None}
    assert set(np.unique(INTERPRETER._again(few, np.random.default_rng(1)) != 0)) == {False, True}


def written(values: Sequence[float] | np.ndarray[Any, Any]) -> dict[str, object]:
    """An answer about a kernel that wrote these."""
    array = np.array(values, np.float32)
    return {"written": {"out": INTERPRETER._told(array, np.arange(len(array)), "float32")}}


def recording(*launches: SuiteLaunch, **of_count: Any) -> TritonRecording:
    counted = _Counted("a.py", "k", 1, "i", len(launches))
    return TritonRecording((), launches, (replace(counted, **of_count),))


def proof(
    monkeypatch: pytest.MonkeyPatch,
    original: TritonRecording,
    on_target: TritonRecording,
    said: Mapping[tuple[int, str, bool], float] | None = None,
) -> ProofLine:
    """The proof where each launch writes 1, but for those ``said``, by the launch's line, target
    and whether backwards."""

    def answers(worker: str, root: Path, requests: Sequence[Any], *_: object) -> dict[int, object]:
        found: dict[int, object] = {}
        for r in requests:
            value = (said or {}).get((r.recorded["line"], r.target, r.backwards), 1.0)
            values = written([value] * 4)
            lines = {"lines": ["2"], "all_lines": ["2"], "read": ["x"]}
            found[r.number] = {**values, "whole": values["written"], **lines}
        return found

    monkeypatch.setattr(triton_recorded, "answers", answers)
    monkeypatch.setattr(object_program, "lacking", lambda target: "left out here")
    tested = triton_tests.TestedLibrary("pytest", original, {"gfx942": on_target})
    line = Recorded(Path(), tested, 1).proof(("a.py", "k"), "gfx942")
    assert line is not None
    return line


def test_what_only_the_target_launches_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    own = recording(launch())
    assert str(proof(monkeypatch, own, own).outcome) == "proven in emulation"
    late = replace(own, told=(*own.told, Told("late", "failed", OUT_OF_TIME)))
    said = f"recorded from pytest (1 of {len(late.told)} tests had no time): "
    assert proof(monkeypatch, late, own).inputs.startswith(said)
    often = proof(monkeypatch, own, recording(launch(), count=2))
    assert str(often.outcome) == "not proven"
    assert often.why.endswith("it launches it 2 times, 1 in the original")
    other_test = proof(monkeypatch, own, recording(launch(), tests="of another test"))
    assert "goes another way on gfx942" in other_test.why
    lost = proof(monkeypatch, own, recording(launch(), lost="t"))
    assert lost.why == "t launches it on gfx942 and does not pass there"


def test_a_number_far_above_the_others_hides_no_error_of_theirs() -> None:
    right = [*np.linspace(0.1, 1, 999), -1e9]
    wrong = [1.5 * one for one in right[:-1]] + right[-1:]
    assert not differs(written(right), written(wrong))
    said = differs_in_small_ones(written(right), written(wrong))
    assert said == "elements of 'out' that are small beside its largest differ"
    rounded = [one * (1 + 1e-6) for one in right]
    assert not differs_in_small_ones(written(right), written(rounded))
    assert not differs_in_small_ones(written([0.0, 0.0]), written([0.0, 0.0]))


def test_a_wrong_launch_is_told_before_one_that_shows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = recording(launch(), launch(line=2, number=1))
    said = {(1, "sm_90", True): 2.0, (2, "gfx942", False): 9.0}
    line = proof(monkeypatch, own, own, said)
    assert (str(line.outcome), "'out'" in line.why) == ("wrong", True)


def test_a_kernel_is_not_wrong_for_integers_that_are_others_on_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def own(exactly: str, dtype: str) -> TritonRecording:
        x = SuiteTensor("x", dtype, (4,), (1,), 0)
        memory = (SuiteMemory("x", dtype, 16, exactly=exactly),)
        return recording(launch(tensors={"x": x}, memory=memory))

    wrong = {(1, "gfx942", False): 9.0}
    line = proof(monkeypatch, own("a", "int32"), own("b", "int32"), wrong)
    assert str(line.outcome) == "not proven" and "gives 'x' other values there" in line.why
    line = proof(monkeypatch, own("a", "float32"), own("b", "float32"))
    assert str(line.outcome) == "proven in emulation"


def test_the_target_is_given_the_numbers_of_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []

    def answers(worker: str, root: Path, requests: Sequence[Any], *_: object) -> dict[int, object]:
        given.extend(r.recorded["memory"][0]["between"] for r in requests)
        return {}

    monkeypatch.setattr(triton_recorded, "answers", answers)
    monkeypatch.setattr(object_program, "lacking", lambda target: "left out here")
    other = recording(launch(memory=(SuiteMemory("x", "float32", 16, between=(0.0, 5.0)),)))
    Recorded(
        Path(), triton_tests.TestedLibrary("pytest", recording(launch()), {"gfx942": other}), 1
    )
    assert set(given) == {(0.0, 1.0)}


def test_ways_keep_their_order_and_a_launch_has_one() -> None:
    first, second = LaunchWay({"B": 1}, (1,), {"num_warps": 4}), LaunchWay({"B": 2}, (1,), {})
    again = replace(first, knobs={"num_warps": 8})
    assert triton_recorded._distinct([first, second, again]) == [first, second]
    with pytest.raises(FormError, match="no way"):
        launch(ways=())


def test_a_wrong_column_is_seen_in_a_long_buffer() -> None:
    right = np.ones((4096, 1024), np.float32)
    wrong = right.copy()
    wrong[:, 1:] = -7
    assert not differs(written(right.ravel()), written(right.ravel()))
    assert differs(written(right.ravel()), written(wrong.ravel()))


def test_a_seed_beyond_64_bits_loses_its_launch_alone() -> None:
    recorder = importlib.import_module("portkern.backends.triton.library_tests")
    assert recorder._constant("SEED", 1 << 63) == {
        "unknown": "constexpr SEED has more than 63 bits"
    }
    with pytest.raises(recorder.Unkept, match="'seed' has more than 63 bits"):
        recorder._content({"seed": 1 << 63})
    assert recorder._content({"seed": 3})["scalars"] == {"seed": 3}


def test_lines_of_helpers_count_where_a_kernel_may_call_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = "from triton import language as tl\nfrom triton.runtime.interpreter import "
    head += "InterpretedFunction as jit\n"
    helper = "@jit\ndef helper(x, FLAG):\n    if FLAG:\n        x = x * 3\n    return x\n"
    kernel = "@jit\ndef kernel(x, FLAG):\n    return helpers_of.helper(x, FLAG)\n"
    (tmp_path / "helpers_of.py").write_text(head + helper, encoding="utf-8")
    (tmp_path / "kernel_of.py").write_text(f"{head}import helpers_of\n{kernel}", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("kernel_of").kernel
    lines = INTERPRETER._Lines(function)
    with lines.counted():
        assert function.rewrite()(2, False) == 2
    assert lines.all - lines.seen == {"helpers_of:6"}
    assert lines.seen == {"helpers_of:5", "helpers_of:7", "6"}

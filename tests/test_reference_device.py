"""References are made on the kernel's GPU where it gives the host's answers, else on the host."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest
import torch

from portkern import ops
from portkern.evaluator import reference, reference_device
from portkern.evaluator.reference_device import ReferenceDevice
from portkern.evaluator.trial import Trial, TrialOptions
from portkern.spec.op import Op, Workload

LARGE = Workload("large", {"rows": 1024, "cols": 1024})
ON_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")


@pytest.fixture
def softmax() -> Op:
    return ops.load("softmax")


def test_kernels_of_a_cpu_are_compared_on_the_host(softmax: Op) -> None:
    chosen = ReferenceDevice(softmax, "float32")
    assert chosen.choose(LARGE, {"cpu"}) == chosen.choose(LARGE, {""}) == "cpu"


def test_a_gpu_that_torch_cannot_open_is_not_used(
    softmax: Op, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert ReferenceDevice(softmax, "float32").choose(LARGE, {"cuda:0"}) == "cpu"


def test_small_workloads_do_not_open_the_gpu(softmax: Op) -> None:
    small = softmax.workloads["ci"][0]
    assert ReferenceDevice(softmax, "float32").choose(small, {"cuda:0"}) == "cpu"


def test_answers_that_differ_from_the_hosts_are_not_believed(softmax: Op) -> None:
    right = torch.tensor([1.0, 2.0, float("inf")], dtype=torch.float64)
    close = reference_device.is_close
    assert close(right, right * (1 + 1e-14))
    assert not close(right, right * (1 + 1e-7))  # as float32 or TF32 would give
    assert not close(right, torch.tensor([1.0, float("nan"), float("inf")], dtype=torch.float64))
    assert close(torch.tensor([3]), torch.tensor([3]))
    assert not close(torch.tensor([3]), torch.tensor([4]))


def test_a_workload_that_the_gpu_cannot_hold_is_done_on_the_host() -> None:
    asked: list[str] = []

    def work(device: str) -> str:
        asked.append(device)
        if device != "cpu":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return "done"

    assert reference_device.with_host_in_reserve("cuda:0", work) == "done"
    assert asked == ["cuda:0", "cpu"]


def test_a_gpu_that_fails_the_evaluator_costs_no_verdict(
    softmax: Op, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same workload is evaluated once more, with references from the host."""
    devices: list[str] = []

    def fail(op: Op, workload: Workload, dtype: str, distribution: str, *, device: str) -> NoReturn:
        devices.append(device)
        raise torch.AcceleratorError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(ReferenceDevice, "choose", lambda self, *_: "cpu" if self.failed else "gpu")
    monkeypatch.setattr(reference, "make_case", fail)
    with (
        Trial(softmax, "float32", [], TrialOptions()) as trial,
        pytest.raises(torch.AcceleratorError),
    ):
        monkeypatch.setattr(trial, "_compare", lambda _w, cases, *_: list(cases))
        trial.run(LARGE)
    assert devices == ["gpu", "cpu"]


@ON_GPU
def test_a_gpu_gives_the_answers_that_the_host_gives(softmax: Op) -> None:
    chosen = ReferenceDevice(softmax, "float32")
    assert chosen.choose(LARGE, {"cuda:0"}) == "cuda:0"
    for distribution in ("normal", "heavy", *softmax.adversaries):
        case = reference.make_case(softmax, LARGE, "float32", distribution, device="cuda:0")
        on_host = reference.answer(softmax, LARGE, distribution, case.inputs)
        for there, here in zip(case.exact, on_host.exact, strict=True):
            assert reference_device.is_close(here.nan_to_num(), there.cpu().nan_to_num())


@ON_GPU
def test_a_case_made_on_a_gpu_tells_right_from_wrong(softmax: Op) -> None:
    from portkern.evaluator import compare

    case = reference.make_case(softmax, LARGE, "float32", "normal", device="cuda:0")
    [own] = (output.cpu() for output in case.own)
    assert not compare.compare(actual=[own], case=case).problem
    own[700, 3] += 1e-4
    assert "1 of" in compare.compare(actual=[own], case=case).problem
    assert case.inputs[0].device.type == "cpu" and replace(case).placed[0].is_cuda

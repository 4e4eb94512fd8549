"""The worker's side: what it needs installed, and what it is told."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from portkern import ops
from portkern.evaluator import worker_reports
from portkern.evaluator.build import failure_of
from portkern.records.record import Verdict
from portkern.sandbox.message import Failed
from portkern.sandbox.session import Unconfined
from portkern.spec import registry
from portkern.spec.candidate import Candidate
from portkern.toolchain.torch_device import TorchDevice
from portkern.worker import plan_launches, protocol, worker

from .kernels import RIGHT, relu

#: Dependencies of portkern that a machine which only runs cells may lack.
NOT_NEEDED = ("hydra", "omegaconf", "rich", "scipy", "jinja2", "filelock", "psutil", "mlflow")


def test_it_starts_without_the_evaluators_dependencies() -> None:
    """numpy, torch, pydantic and pyyaml are enough to load every backend and target (pyelftools
    is imported by builds, in what reads object files)."""
    code = (
        "import sys\n"
        f"for name in {NOT_NEEDED!r}: sys.modules[name] = None\n"
        "import portkern.worker.forkserver\n"
        "from portkern.spec import registry, target\n"
        "backends = [registry.load(name) for name in registry.BUILTIN]\n"
        "targets = [target.load(name) for name in target.names()]\n"
        "print(sum(b.supports(t) for b in backends for t in targets))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_the_worker_of_a_candidate_is_never_told_the_answer() -> None:
    """Only those of the baseline and of imported references carry the reference; tolerances are in
    none. The seeds are those of a round's inputs, which it holds as well, and so are the base,
    whether it is rolled and what stays of it; places are asked for once their calls are over.
    Launches of a plan are made by a worker of their own, of inputs and empty outputs."""
    read = (protocol.Describe, protocol.WritePlain)
    imported = (protocol.Compute, protocol.Derive, protocol.Draw, *read)
    compiling = (protocol.BuildProgram, protocol.BuildFile, protocol.RunTool)
    of_no_candidate = (*compiling, protocol.ListExtension, protocol.Execute, protocol.Replay)
    others = {protocol.Reference, *imported, *of_no_candidate}
    asked = {kind for kind in protocol.REQUESTS.values() if kind not in others}
    told = {field.name for kind in asked for field in fields(kind)}
    assert told == {
        "build",
        "artifact",
        "venue",
        "inputs",
        "outputs",
        "results",
        "after",
        "before",
        "nbytes",
        "guards",
        "dims",
        "scalars",
        "seeds",
        "calls",
        "call",
        "traced",
        "base",
        "rolled",
        "structured",
        "places",
        "masks",
        "placed",
    }
    assert not {"answers", "check"} & set(vars(worker))


class Pretender(torch.Tensor):
    """A tensor that might answer every comparison as it likes."""


X = torch.zeros(4, 8)


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (torch.zeros(8, 4).t(), "has the strides [1, 4], expected it contiguous"),
        (torch.zeros(1, 8).expand(4, 8), "has the strides [0, 1]"),
        (X, "lies in the memory of the input 'x', expected a tensor of its own"),
        (X.clone().as_subclass(Pretender), "is a Pretender, expected a torch.Tensor"),
        (torch.zeros(4, 8, device="meta"), "is on meta, expected the device of the inputs"),
        (torch.zeros(4, 8), ""),
    ],
)
def test_a_returned_tensor_is_new_contiguous_and_on_the_device(
    returned: torch.Tensor, told: str
) -> None:
    odd = worker_reports.oddity(
        ops.load("softmax"), worker.layout(returned, [X], TorchDevice("cpu"))
    )
    assert odd.startswith(told) and bool(odd) == bool(told)


@pytest.mark.parametrize("name", ["BackendUnavailable", "JailError", "Unconfined", "Missing"])
def test_no_name_of_an_error_excuses_a_kernel_whose_code_has_run(name: str) -> None:
    raised = Failed(name, "not here", "Traceback")
    assert failure_of(raised, "the kernel").verdict is Verdict.CRASHED


def test_a_toolchain_may_be_absent_only_where_no_code_of_the_candidate_can_have_run() -> None:
    raised = Failed("BackendUnavailable", "no compiler")
    assert failure_of(raised, "the build", untouched=True).verdict is Verdict.UNAVAILABLE
    assert failure_of(Unconfined("No containment"), "the build").verdict is Verdict.UNAVAILABLE
    python, native = Candidate("relu", "cpu", "numba", "", "relu"), relu(RIGHT)
    assert registry.load("cpu").runs_at_build(python)
    assert not registry.load("cpu").runs_at_build(native)
    for name in ("cuda", "hip"):
        [language, *_] = registry.load(name).languages.values()
        assert not registry.load(name).runs_at_build(
            replace(native, backend=name, language=language)
        )
    for name in ("triton", "pallas", "opencl"):
        [language] = registry.load(name).languages.values()
        assert registry.load(name).runs_at_build(replace(python, backend=name, language=language))


@pytest.mark.parametrize("name", ["LaunchTimeout", "BuildTimeout"])
def test_a_claim_that_time_was_over_is_held_against_the_evaluators_clock(name: str) -> None:
    at_once, late = (Failed(name, "too late", "", after_s=after_s) for after_s in (0.01, 4.0))
    assert failure_of(at_once, "the kernel").verdict is Verdict.CRASHED
    assert failure_of(late, "the kernel").verdict is Verdict.TIMED_OUT


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor: nothing to choose")
def test_the_main_thread_keeps_its_processor_from_staging_to_timing_and_others_have_the_rest() -> (
    None
):
    code = (
        "import os, threading\n"
        "from portkern.worker.processors import Processors\n"
        "os.sched_setaffinity(0, range(os.cpu_count()))\n"
        "may = os.sched_getaffinity(0)\n"
        "held = Processors()\n"
        "other = threading.Thread(target=threading.Event().wait, daemon=True)\n"
        "other.start()\n"
        "held.hold()\n"
        "main = os.sched_getaffinity(0)\n"
        "held.spread()\n"
        "beside = os.sched_getaffinity(other.native_id)\n"
        "held.free()\n"
        "print(len(may), len(main), len(beside), len(main & beside))\n"
        "assert os.sched_getaffinity(0) == may\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    may, main, beside, both = map(int, done.stdout.split())
    assert may == 1 or (main, beside, both) == (1, 1, 0)


@pytest.mark.parametrize(
    "plan", ["[", "[]", "{}", '{"fixed": [[3, 1.0]], "temporaries": [], "steps": []}']
)
def test_a_plan_that_is_none_is_an_answer(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = protocol.Replay(objects={}, plan=plan, tensors=(), numbers=())
    told: Any = object()
    assert "the plan is not one" in plan_launches.replay(asked, told).problem

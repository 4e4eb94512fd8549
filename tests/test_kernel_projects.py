"""Kernels of others become a project: KernelBench's runs and FlashInfer-Bench's Solutions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from portkern.cli import main
from portkern.records.record import RecordFile, Verdict

DATA = Path(__file__).parent / "data" / "model_new"
RIGHT = (DATA / "honest" / "1_ScaledTanh.triton.py").read_text()
WRONG = RIGHT.replace("* 1.5", "* 1.45")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two samples that KernelBench took to be right, and what is not a kernel."""
    monkeypatch.chdir(tmp_path)
    level = tmp_path / "operators" / "kernelbench" / "level1"
    level.mkdir(parents=True)
    shutil.copy(DATA / "problems" / "1_ScaledTanh.py", level)
    assert main.run(["op", str(level / "1_ScaledTanh.py")]) == 0
    folder = tmp_path / "runs" / "night"
    folder.mkdir(parents=True)
    samples = {
        (1, 0): RIGHT,
        (1, 1): WRONG,
        (1, 2): "import torch\n",
        (1, 3): "class ModelNew(:",
        (7, 0): RIGHT,
    }
    for (problem, sample), text in samples.items():
        (folder / f"level_1_problem_{problem}_sample_{sample}_kernel.py").write_text(text)
    entry = {
        "compiled": True,
        "correctness": True,
        "runtime": 0.25,
        "metadata": {"hardware": "L40S"},
    }
    results = [{"sample_id": sample, **entry} for sample in (0, 1)]
    (folder / "eval_results.json").write_text(json.dumps({"1": results, "9": [entry]}))
    return folder


@pytest.mark.full
def test_a_run_of_kernelbench_is_judged_again(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main.run(["import", "kernelbench_runs", str(run)]) == 1
    said = capsys.readouterr().out
    assert "level_1_problem_1_sample_2_kernel.py: skipped: it defines no class ModelNew" in said
    assert "sample_3_kernel.py: skipped: it is not Python" in said
    assert "problem_7_sample_0_kernel.py: skipped: no operator level1/7_*.py" in said
    assert "problem 9, sample 0: skipped: it has a result in eval_results.json and no file" in said
    folder = tmp_path / "kernels" / "kernelbench_runs" / "night"
    assert json.loads((folder / "said.json").read_text())["scaled_tanh.s1.py"]["correctness"]
    project = folder / "portkern.yaml"
    assert f"project={project.relative_to(tmp_path)}" in said
    options = ["targets=sm_90", "workloads=ci", "dtypes=float32", "track=false", "run=again"]
    assert main.run(["matrix", f"project={project}", *options]) == 1
    records = RecordFile(tmp_path / "reports" / "again" / "records.jsonl").read()[0]
    assert {
        one.variant: one.verdict for one in records if one.verdict is not Verdict.UNSUPPORTED
    } == {
        "s0": Verdict.PASSED,
        "s1": Verdict.WRONG,
    }


@pytest.mark.full
def test_a_run_without_a_kernel_that_can_be_taken_writes_nothing(run: Path, tmp_path: Path) -> None:
    assert main.run(["import", "kernelbench_runs", str(run), "ops=elsewhere"]) == 3
    assert not (tmp_path / "kernels").exists()
    assert main.run(["import", "kernelbench_runs", str(tmp_path / "runs")]) == 2


SOLUTION = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def run(x):
    y = torch.empty_like(x)
    scale[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
"""


def solution(name: str, **changes: Any) -> dict[str, Any]:
    spec = {
        "language": "triton",
        "target_hardware": ["NVIDIA_H100"],
        "entry_point": "main.py::run",
        "dependencies": [],
        "destination_passing_style": False,
    }
    document = {"name": name, "definition": "doubled", "author": "somebody", "spec": spec | changes}
    return {**document, "sources": [{"path": "main.py", "content": SOLUTION}]}


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "set"
    definition = {
        "name": "doubled",
        "op_type": "elementwise",
        "axes": {"n": {"type": "var"}},
        "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
        "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
        "reference": "import torch\n\n\ndef run(x):\n    return x * 2\n",
    }
    workload = {"uuid": "1", "axes": {"n": 100}, "inputs": {"x": {"type": "random"}}}
    files = {
        "definitions/elementwise/doubled.json": definition,
        "solutions/somebody/a.json": solution("mine-1"),
        "solutions/somebody/b.json": solution("cuda", language="cuda"),
        "solutions/somebody/c.json": {"name": "torn"},
        "solutions/somebody/d.json": solution("other") | {"definition": "absent"},
    }
    for path, document in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(document))
    lines = {
        "workloads/elementwise/doubled.jsonl": {"definition": "doubled", "workload": workload},
        "traces/somebody/a.jsonl": {"solution": "mine-1", "evaluation": {"status": "PASSED"}},
    }
    for path, document in lines.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(document) + "\n" + "{torn\n" * path.startswith("t"))
    return folder


@pytest.mark.full
def test_solutions_in_triton_are_kernels_of_their_definitions(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["import", "flashinfer_solutions", str(traces), "json=true"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["written"] == ["doubled.mine_1.py"]
    reasons = [one["reason"] for one in said["skipped"]]
    assert [reason.split(",")[0].split(":")[0] for reason in reasons] == [
        "it is in cuda",
        "it is not a Solution",
        "no Definition 'absent' is beside it",
    ]
    folder = tmp_path / "kernels" / "flashinfer_solutions" / "set"
    [kernel] = yaml.safe_load((folder / "portkern.yaml").read_text())["kernels"]
    assert (kernel["entry"], kernel["style"]) == ("run", "return")
    noted = json.loads((folder / "said.json").read_text())["doubled.mine_1.py"]
    assert noted["statuses"] == {"PASSED": 1}
    options = ["targets=sm_90", "workloads=ci", "track=false", "run=again"]
    assert main.run(["matrix", f"project={folder / 'portkern.yaml'}", *options]) == 0
    records = RecordFile(tmp_path / "reports" / "again" / "records.jsonl").read()[0]
    assert [str(one.verdict) for one in records] == ["passed"]

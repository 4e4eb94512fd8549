"""Tasks for agents: what is written has been shown to tell right from wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from portkern.cells.selection import load_op
from portkern.cli import main
from portkern.cli.verbs import export_harbor
from portkern.errors import ConfigError
from portkern.learn import harbor
from portkern.learn.harbor import HarborOptions, HarborTask, Unproven

OPTIONS = HarborOptions(workloads=("ci",), timed=False)
RIGHT = {"reward": 0.3, "built": 1.0, "correct": 1.0, "legal": 1.0}
WRONG = {"reward": 0.0, "built": 1.0, "correct": 0.0, "legal": 1.0}
UNBUILT = {"reward": 0.0, "built": 0.0, "correct": 0.0, "legal": 1.0}


def graded(
    monkeypatch: pytest.MonkeyPatch,
    oracle: Mapping[str, float] = RIGHT,
    nothing: Mapping[str, float] = WRONG,
    copies: Mapping[str, float] = WRONG,
) -> HarborTask:
    """A task whose grader says so."""
    task = HarborTask.of("relu", "cpu", "x86_64", OPTIONS)

    def scores(self: HarborTask, folder: Path, source: str) -> Mapping[str, float]:
        idle = source == harbor.nothing_of(self.task)
        return oracle if source == self.oracle else nothing if idle else copies

    monkeypatch.setattr(HarborTask, "_graded", scores)
    return task


def test_a_proven_task_has_all_that_harbor_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = graded(monkeypatch).write(tmp_path)
    said = tomllib.loads((folder / "task.toml").read_text())
    assert said["task"]["name"] == f"portkern/{folder.name}"
    assert said["verifier"]["environment_mode"] == "separate"
    assert said["agent"]["user"] == "agent"
    assert said["artifacts"] == ["/workdir/kernel.cpp"]
    for place in ("environment/Dockerfile", "tests/Dockerfile", "tests/test.sh"):
        assert "$" not in (folder / place).read_text().replace('"${', "").replace('"$tests', "")
    assert (folder / "tests/test.sh").stat().st_mode & 0o111
    assert "relu" in (folder / "instruction.md").read_text()
    assert {path.name for path in (folder / "environment").iterdir()} == {"Dockerfile"}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"oracle": WRONG}, "its own kernel gets"),
        ({"nothing": RIGHT}, "does nothing"),
        ({"nothing": UNBUILT}, "does nothing"),
        ({"copies": RIGHT}, "none is built and wrong"),
        ({"copies": UNBUILT}, "none is built and wrong"),
    ],
)
def test_what_is_not_proven_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], said: str
) -> None:
    with pytest.raises(Unproven, match=said):
        graded(monkeypatch, **how).write(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "backend", "target", "said"),
    [
        ("relu", "cpu", "gfx942", "does not compile"),
        ("relu", "cpu", "nowhere", "No target"),
        ("reluu", "cpu", "x86_64", "did you mean 'relu'"),
    ],
)
def test_what_cannot_be_a_task_says_why(name: str, backend: str, target: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        HarborTask.of(name, backend, target, OPTIONS)


@pytest.mark.parametrize("word", ["a b.py", "a;b.py", "$x.py", "a'b.py", "é.py"])
def test_a_files_name_that_a_shell_would_read_otherwise_is_refused(
    tmp_path: Path, word: str
) -> None:
    assert not harbor._PLAIN_NAME.fullmatch(word)
    assert harbor._PLAIN_NAME.fullmatch("19_ReLU.py")


@pytest.mark.parametrize(
    ("backend", "target"), [("cpu", "x86_64"), ("triton", "sm_90"), ("cuda", "sm_90")]
)
def test_a_kernel_that_does_nothing_has_the_entry_that_is_asked_for(
    backend: str, target: str
) -> None:
    task = HarborTask.of("softmax", backend, target, OPTIONS)
    source = harbor.nothing_of(task.task)
    assert "softmax(" in source
    assert task.answer == f"kernel{task.task.suffix}"


def test_a_kernel_that_does_nothing_declares_no_structures_again(tmp_path: Path) -> None:
    """Declarations stand before every source of an operator with more than 16 tensors."""
    problem = tmp_path / "deep.py"
    problem.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n"
        "        layers = [torch.nn.Linear(8, 8) for _ in range(9)]\n"
        "        self.layers = torch.nn.Sequential(*layers)\n\n"
        "    def forward(self, x):\n        return self.layers(x)\n\n\n"
        "def get_inputs():\n    return [torch.randn(4, 8)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    source = harbor.nothing_of(HarborTask.of(str(problem), "cpu", "x86_64", OPTIONS).task)
    assert "const deep_in* in" in source
    assert "struct" not in source


def test_copies_differ_in_one_sign_of_the_code() -> None:
    source = "// a + b\nint f(int a) {\n  return a + 1;  // a + 2\n}\n"
    assert list(harbor.changed(source)) == [source.replace("return a + 1", "return a - 1")]


@pytest.mark.full
def test_a_files_task_keeps_its_name_by_which_its_entry_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = tmp_path / "19_ReLU.py"
    problem.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x):\n        return torch.relu(x)\n\n\n"
        "def get_inputs():\n    return [torch.randn(16, 64)]\n"
    )
    monkeypatch.setattr(HarborTask, "prove", lambda *_: None)
    task = HarborTask.of(str(problem), "cpu", "x86_64", OPTIONS)
    folder = task.write(tmp_path / "out")
    asked = json.loads((folder / "tests" / "question.json").read_text())
    assert (asked["op"], asked["entry"]) == (problem.name, task.task.op.name)
    assert {path.name for path in (folder / "tests").iterdir()} >= {problem.name, "grade.py"}
    assert (folder / "environment" / problem.name).read_text() == problem.read_text()
    assert f"int {task.task.op.name}(" in task.oracle
    for own in (folder / "tests").glob("19_ReLU.*"):
        own.rename(own.with_name(own.name.replace("19_ReLU", "problem")))
    assert load_op(str(folder / "tests" / "problem.py")).name == task.task.op.name


@pytest.mark.skipif(shutil.which("harbor") is None, reason="Harbor's command is not installed")
def test_harbors_own_command_finds_nothing_in_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lint() -> list[dict[str, str]]:
        command = ["harbor", "lint", "--json", str(folder)]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        found: list[dict[str, str]] = json.loads(said)
        return found

    folder = graded(monkeypatch).write(tmp_path)
    assert lint() == []
    config = folder / "task.toml"
    config.write_text(config.read_text().replace('"separate"', '"nowhere"'))
    assert "environment_mode" in str(lint())


@pytest.mark.drawn
def test_a_task_is_proven_in_truth_and_grades_what_agents_leave(tmp_path: Path) -> None:
    words = ["ops=relu", "targets=x86_64", f"out={tmp_path}", "timed=false"]
    assert main.run(["export", "harbor", *words]) == 0
    [folder] = tmp_path.iterdir()
    task = HarborTask.of("relu", "cpu", "x86_64", OPTIONS)
    for source in ("#include </etc/passwd>\n", "\x00" * 100):
        assert task._graded(folder, source)["reward"] == 0
    question = folder / "tests" / "question.json"
    asked = json.loads(question.read_text())
    question.write_text(json.dumps({**asked, "backend": "opencl", "target": "gfx942"}))
    with pytest.raises(Unproven, match="cannot be graded here"):
        task._graded(folder, task.oracle)


@pytest.mark.parametrize(
    ("file", "backend", "target"),
    [
        ("grade.py", "cpu", "x86_64"),
        ("Grade.py", "cpu", "x86_64"),
        ("kernel.py", "triton", "gfx942"),
    ],
)
def test_a_file_called_as_a_tasks_own_is_refused(
    file: str, backend: str, target: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(
        "import torch\n\ndef twice(x):\n    return x * 2\n\n"
        "def get_inputs():\n    return [torch.rand(8)]\n"
    )
    with pytest.raises(ConfigError, match="which a task has itself"):
        HarborTask.of(str(tmp_path / file), backend, target, OPTIONS)


def test_a_folder_of_problems_is_all_files_in_it_by_number(tmp_path: Path) -> None:
    for name in ("19_ReLU.py", "2_Mul.py", "own.py", "__init__.py", "notes.md"):
        (tmp_path / name).write_text("")
    (tmp_path / "3_Folder.py").mkdir()
    names = [Path(name).name for name in export_harbor.named(str(tmp_path))]
    assert names == ["2_Mul.py", "19_ReLU.py", "own.py"]
    assert list(export_harbor.named("softmax")) == ["softmax"]
    assert len(export_harbor.named("core")) > 20
    with pytest.raises(ConfigError, match="expected a file for each operator"):
        export_harbor.named(str(tmp_path / "3_Folder.py"))


def test_a_task_is_graded_on_the_sets_that_its_operator_has() -> None:
    task = HarborTask.of("relu", "cpu", "x86_64", HarborOptions())
    assert task._question()["workloads"] == ["ci", "heldout", "edge"]
    few = replace(task.task.op, workloads={"ci": task.task.op.workloads["ci"]})
    assert replace(task, task=replace(task.task, op=few))._question()["workloads"] == ["ci"]

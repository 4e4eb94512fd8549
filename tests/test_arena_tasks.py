"""Programs of a port as tasks of AgentKernelArena, and the runner that they come with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from portkern.cli import main

PLAN = """\
build() { hipcc -O3 --offload-arch="$GPU" -I. "$@"; }
program() { # SOURCE ARGUMENTS
object part.cu
linked=(part.cu); program sub/prog.cu -n 'two words'
linked=(); program quiet.cu
linked=(); program wrong.cu
"""
CUDA = "// {}: not translated\nint main() {{ f<<<1, 1>>>(); }}\n"


def port(folder: Path, **changes: Any) -> Path:
    """Writes the files of a port that tasks are made from."""
    library, made = folder / "library", folder / "port"
    names = ["sub/prog.cu", "part.cu", "quiet.cu", "wrong.cu", "alone.cu"]
    for name in names:
        for root, text in ((library, CUDA.format(name)), (made / "tree", "// HIP\n")):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
    (made / "tree" / "portkern_portable.h").write_text("// the port's own\n", encoding="utf-8")
    (library / "secret.txt").write_text("not of the port\n", encoding="utf-8")
    kernels = [
        {"path": name, "kernel": f"k{number}", "good": name != "wrong.cu"}
        for number, name in enumerate(names)
    ]
    summary = {"root": str(library), "to": "hip", "kernels": kernels} | changes
    (made / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    (made / "plan.sh").write_text(PLAN, encoding="utf-8")
    (made / "expected").mkdir()
    for name in ("sub_prog.cu", "wrong.cu"):
        text = "sum 42\ntime 3.1 ms\nmax 7\n"
        (made / "expected" / f"{name}.txt").write_text(text, encoding="utf-8")
    return made


def export(made: Path, out: Path) -> int:
    return main.run(["export", "agentkernelarena", str(made), f"out={out}"])


def test_a_proven_program_of_a_port_is_a_task_of_the_type_that_the_arena_has_none_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(port(tmp_path), tmp_path / "out") == 1
    said = capsys.readouterr()
    assert "1 of 4 items" in said.out
    assert "quiet.cu: it printed nothing here" in said.err
    assert "wrong.cu: a kernel of it is not proven" in said.err
    assert "alone.cu: it is not a program" in said.err
    (task,) = (tmp_path / "out/tasks/cuda2hip/portkern").iterdir()
    config = yaml.safe_load((task / "config.yaml").read_text("utf-8"))
    assert config["task_type"] == "cuda2hip"
    assert config["source_file_path"] == ["source/sub/prog.cu", "source/part.cu"]
    assert config["target_kernel_functions"] == ["k0", "k1"]
    assert all((task / name).is_file() for name in config["source_file_path"])
    for kind in ("compile", "correctness", "performance"):
        (command,) = config[f"{kind}_command"]
        assert command == f"python3 scripts/task_runner.py {kind}"
    assert "not translated" in (task / "source/sub/prog.cu").read_text("utf-8")
    assert not list(task.rglob("secret.txt")) and not list(task.rglob("portkern_portable.h"))
    facts = json.loads((task / "scripts/task.json").read_text("utf-8"))
    assert facts == {"source": "sub/prog.cu", "linked": ["part.cu"],
                     "arguments": ["-n", "two words"], "flags": ["-I."]}  # fmt: skip


@pytest.mark.parametrize(
    ("printed", "status", "error"),
    [
        ("sum 42\ntime 9 ms\n\nmax 7", 0, ""),
        ("sum 41\ntime 3.1 ms\nmax 7", 1, "line 1 is 'sum 41', expected 'sum 42'"),
        ("sum 42", 1, "1 lines, expected 2"),
        ("sum 42\nmax 7\nmore", 1, "3 lines, expected 2"),
        ("", 1, "0 lines, expected 2"),
    ],
)
def test_the_runner_holds_what_is_printed_against_the_original_without_times(
    tmp_path: Path, printed: str, status: int, error: str
) -> None:
    export(port(tmp_path), tmp_path / "out")
    (task,) = (tmp_path / "out/tasks/cuda2hip/portkern").iterdir()
    (task / "build").mkdir()
    program = task / "build" / "program"
    program.write_text(f'#!/bin/sh\n[ "$2" = "two words" ] && printf "{printed}"\n')
    program.chmod(0o755)
    command = [sys.executable, str(task / "scripts/task_runner.py"), "correctness"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == status, ended.stderr
    report = json.loads((task / "build/correctness_report.json").read_text("utf-8"))
    assert (report["status"], report["error"]) == ("fail" if status else "ok", error or None)


def test_a_compiler_that_is_not_there_is_an_error_in_words(tmp_path: Path) -> None:
    export(port(tmp_path), tmp_path / "out")
    (task,) = (tmp_path / "out/tasks/cuda2hip/portkern").iterdir()
    command = [sys.executable, str(task / "scripts/task_runner.py"), "compile"]
    nothing = {"PATH": str(tmp_path)}
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=nothing, check=False
    )
    assert ended.returncode == 1 and ended.stderr.startswith("hipcc: ")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"to": "cuda"}, "is not of a port to HIP"),
        ({"kernels": "none"}, "is not of a port to HIP"),
        ({"root": 7}, "is not of a port to HIP"),
    ],
)
def test_a_folder_of_anything_else_is_a_usage_error(
    tmp_path: Path, changes: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(port(tmp_path, **changes), tmp_path / "out") == 2
    assert said in capsys.readouterr().err


def test_names_of_a_plan_lead_nowhere(tmp_path: Path) -> None:
    made = port(tmp_path)
    (tmp_path / "library" / "part.cu").unlink()
    (tmp_path / "library" / "part.cu").symlink_to("/etc/passwd")
    evil = "linked=(); program ../secret.cu\nlinked=(); program /etc/passwd\n"
    (made / "plan.sh").write_text(PLAN + evil, encoding="utf-8")
    assert export(made, tmp_path / "out") == 3
    assert not list((tmp_path / "out").rglob("passwd"))

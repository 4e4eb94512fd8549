"""The recipes that docs/ci/ shows to copy: their commands are commands, and one recipe is run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from packaging.requirements import Requirement

from portkern.cli import main
from portkern.cli.config import resolve
from portkern.cli.verbs.matrix import MatrixOptions
from portkern.execution.plan import ExecutionPlan
from portkern.records.record import RecordFile
from tests.test_regression import record

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "docs" / "ci").iterdir())
RELU = """extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? scalar_t(0) : x[i];
    return 0;
}
"""


def commands(recipe: Path) -> list[list[str]]:
    """Portkern's commands in the recipe, split into words, with 1 for what the CI system fills
    in."""
    text = recipe.read_text(encoding="utf-8").replace("${{ matrix.targets }}", "host")
    text = text.replace("$TARGETS", "host")
    text = re.sub(r"\$\{\{[^}]*\}\}|\$\w+", "1", text)
    text = re.sub(r"\\\n\s*|\n\s+(?=run=|baseline=)", " ", text)
    lines = (line.strip() for line in text.splitlines() if re.match(r"\s*\S*portkern [a-z]", line))
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_the_commands_of_a_recipe_are_commands(recipe: Path) -> None:
    asked = [words for words in commands(recipe) if words[1] == "matrix"]
    assert asked
    for _, verb, *overrides in asked:
        options = resolve(verb, MatrixOptions, overrides)
        assert list(options.baseline) == ["last_green", "none"]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_a_recipe_installs_what_there_is_from_where_it_is(recipe: Path) -> None:
    """A package index is not such a place: a name alone could be anybody's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = recipe.read_text(encoding="utf-8")
    (place,) = re.findall(r"PORTKERN\s*[:=]\s*'?([^\s']+)", text)
    extras = ",".join(re.findall(r"""(?i:extras): ["']?([a-z]+(?:,[a-z]+)*)""", text))
    text = re.sub(r"\$\{\{ matrix.extras \}\}|\$EXTRAS", extras, text)
    asked = [Requirement(one.replace("$PORTKERN", place)) for one in re.findall(r'"(.+?)"', text)
             if one.startswith("portkern[")]  # fmt: skip
    assert asked
    for requirement in asked:
        assert requirement.extras <= project["optional-dependencies"].keys()
        assert requirement.url == place


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_the_steps_of_a_recipe_are_scripts(recipe: Path) -> None:
    """A shell parses them, with what the CI system fills in."""
    written = steps(recipe)
    assert written
    for step in written:
        script = re.sub(r"\$\{\{[^}]*\}\}", "1", step)
        argv = ["bash", "-n", "-c", script]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.full
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_what_a_recipe_runs_can_be_planned(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command to its end, but for the kernels: which cells it has is known."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "relu.cpp").write_text(RELU)
    for _, verb, *overrides in commands(recipe):
        if verb == "matrix":
            left = [word for word in overrides if not word.startswith("baseline=")]
            assert main.run([verb, *left, "plan=night.json"]) == 0
            assert any(cell.kernel for cell in ExecutionPlan.read(tmp_path / "night.json").cells)
        elif verb != "import":
            assert main.run([verb, *overrides]) == 0


def test_systems_merge_machines_by_the_same_command() -> None:
    """One of them is run below."""
    merging = [words for recipe in RECIPES for words in commands(recipe) if words[1] == "import"]
    said = [[word for word in words if not word.startswith("reports=")] for words in merging]
    assert len(said) == 3 and said[0] == said[1] == said[2]


def steps(recipe: Path) -> list[str]:
    """The shell's scripts of a recipe."""
    text = recipe.read_text(encoding="utf-8")
    if recipe.name.startswith("Jenkinsfile"):
        return [
            long or short
            for long, short in re.findall(r"sh (?:'''(.*?)'''|'(.*?)')", text, re.DOTALL)
        ]
    read: Any = yaml.safe_load(text)
    if recipe.name.startswith("gitlab"):
        jobs = [job for job in read.values() if isinstance(job, dict)]
        parts = ("before_script", "script", "after_script")
        return [line for job in jobs for part in parts for line in job.get(part, ())]
    return [step["run"] for job in read["jobs"].values() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("recipe", [r for r in RECIPES if r.suffix == ".yml"], ids=lambda p: p.name)
def test_a_recipe_is_yaml(recipe: Path) -> None:
    assert isinstance(yaml.safe_load(recipe.read_text(encoding="utf-8")), dict)


def judge(
    folder: Path, number: int, recipe: str = "github-cpu.yml", name: str = "judge"
) -> subprocess.CompletedProcess[str]:
    """The step of that name of a recipe's job ``matrix``, as a runner runs it."""
    workflow: Any = yaml.safe_load((ROOT / "docs" / "ci" / recipe).read_text("utf-8"))
    (step,) = (s for s in workflow["jobs"]["matrix"]["steps"] if s.get("name") == name)
    facts = {"github.event_name": "schedule", "github.run_id": str(number)}
    script = re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda match: facts[match[1]], step["run"])
    summary = str(folder / "summary.md")
    return shell(folder, script, GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=summary)


def shell(folder: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A step as a runner runs it, by what is installed here."""
    script = script.replace(".venv/bin/", "").replace("track=true", "track=false")
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=os.environ | path | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.full
def test_the_recipe_without_a_gpu_tells_a_night_on_which_a_kernel_broke(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "relu.cpp").write_text(RELU)
    first = judge(tmp_path, 1)
    assert first.returncode == 0, first.stderr
    (kernels / "relu.cpp").write_text(RELU.replace("x[i] < 0", "x[i] < 1"))
    second = judge(tmp_path, 2)
    assert second.returncode == 1
    assert "::error file=kernels/relu.cpp,line=1,title=wrong%3A relu cpu@" in second.stderr
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "schedule-2 against schedule-1: 2 new failure" in summary


def night_of(recipe: str, folder: Path, source: str, number: int) -> list[int]:
    """How the steps of a recipe that are not installations end, one after another. Between the
    machines' job and the one that merges, what was sent is out of the way, as on other agents."""
    (folder / "kernels").mkdir(exist_ok=True)
    (folder / "kernels" / "relu.cpp").write_text(source)
    variables = {"CI_PIPELINE_ID": str(number), "BUILD_NUMBER": str(number), "MACHINE": "cpu"}
    variables |= {"TARGETS": "host", "REPORTS": "reports"}
    sent, codes = folder / "sent", []
    for step in steps(ROOT / "docs" / "ci" / recipe):
        if re.search(r"pip install|-m venv|apt-get", step):
            continue
        if " import " in step:
            if sent.exists():
                shutil.copytree(sent, folder / "machines", dirs_exist_ok=True)
            variables["REPORTS"] = "merged"
        done = shell(folder, step, **variables)
        codes.append(done.returncode)
        if "machines/$MACHINE" in step:
            shutil.copytree(folder / "machines", sent)
    return codes


@pytest.mark.full
@pytest.mark.parametrize(
    ("recipe", "left"), [("gitlab.yml", "reports/night-2"), ("Jenkinsfile", "newest")]
)
def test_recipes_of_other_systems_tell_a_night_on_which_a_kernel_broke(
    recipe: str, left: str, tmp_path: Path
) -> None:
    first = night_of(recipe, tmp_path, RELU, 1)
    assert first and not any(first)
    wrong = night_of(recipe, tmp_path, RELU.replace("x[i] < 0", "x[i] < 1"), 2)
    assert wrong[0] == 1 and not any(wrong[1:])
    told = json.loads((tmp_path / left / "regressions.json").read_text())
    assert told["before"] == "night-1" and told["counts"]["new failure"] == 2
    assert ElementTree.parse(tmp_path / left / "junit.xml").getroot().get("failures") == "2"


@pytest.mark.full
@pytest.mark.parametrize(
    ("recipe", "left"),
    [("gitlab-matrix.yml", "reports/night-1"), ("Jenkinsfile-matrix", "newest")],
)
def test_a_machine_whose_night_is_red_is_in_the_merged_one(
    recipe: str, left: str, tmp_path: Path
) -> None:
    codes = night_of(recipe, tmp_path, RELU.replace("x[i] < 0", "x[i] < 1"), 1)
    assert codes.count(1) == 2, "the machine's gate, and that of all"
    assert ElementTree.parse(tmp_path / left / "junit.xml").getroot().get("failures") == "2"
    assert "red" in (tmp_path / left / "matrix.html").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_recipe_of_three_machines_makes_one_page_of_those_that_are_there(
    tmp_path: Path,
) -> None:
    gpu: dict[str, Any] = {"backend": "cuda", "language": "cuda", "target": "h200"}
    for night in (1, 2):
        of_cpu = record(night=night)
        of_gpu = record(night=night, venue="hardware: NVIDIA H200", **gpu)
        RecordFile(tmp_path / "machines" / "machine-cpu" / "records.jsonl").append([of_cpu])
        RecordFile(tmp_path / "machines" / "machine-nvidia" / "records.jsonl").append([of_gpu])
        done = judge(tmp_path, night, "github-matrix.yml", "merge")
        assert done.returncode == 0, done.stderr
    page = (tmp_path / "reports" / "night-1" / "matrix.html").read_text(encoding="utf-8")
    assert "not compared: " in page, "why nothing was compared stands on the page"
    shutil.rmtree(tmp_path / "machines" / "machine-nvidia")
    RecordFile(tmp_path / "machines" / "machine-cpu" / "records.jsonl").append([record(night=3)])
    done = judge(tmp_path, 3, "github-matrix.yml", "merge")
    assert done.returncode == 1
    assert "1 lost coverage" in done.stdout and "@h200 relu[" in done.stdout

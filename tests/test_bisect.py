"""``portkern bisect``: the commit since which a kernel fails."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portkern.cells.selection import host_targets
from portkern.cli import main
from portkern.cli.verbs import bisect, red_cell
from portkern.records.record import Record, RecordFile
from portkern.regression.bisection import first_bad
from portkern.regression.runs import FACTS, RECORDS, Revision, RunFacts
from tests.test_regression import failed, record

RELU = """extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? scalar_t(0) : x[i];
    return 0;
}
"""


@given(st.integers(1, 200), st.data())
def test_the_first_bad_state_is_found_in_few_looks(count: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, count))
    silent = data.draw(st.sets(st.integers(1, count - 1), max_size=5)) if count > 1 else set()
    looked: list[int] = []

    def judge(state: int) -> bool | None:
        looked.append(state)
        return None if state in silent else state >= first

    found = first_bad(0, count, judge)
    assert found.good < first <= found.bad
    assert {*range(found.good + 1, found.bad)} <= silent
    assert found.certain or silent
    assert len(looked) == len({*looked}) <= count.bit_length() + len(silent)


def git(folder: Path, *words: str) -> str:
    name = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    done = subprocess.run(
        ["git", "-C", folder, *name, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Kernels in a folder of it: right, not building, wrong from the fourth commit on."""
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "json.py").write_text("raise SystemExit('not the module of this name')")
    git(tmp_path, "init", "--quiet")
    wrong = RELU.replace("scalar_t(0)", "scalar_t(1)")
    texts = [RELU, f"// more\n{RELU}", RELU.replace("return 0;", "return"), wrong, f"//\n{wrong}"]
    for number, text in enumerate(texts):
        (kernels / "relu.cpp").write_text(text)
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "--quiet", "-m", f"change {number}")
    monkeypatch.chdir(kernels)
    return tmp_path


QUICK = ["op=relu", "backend=cpu", "source=relu.cpp", "rounds=2", "budget_s=0"]


def test_what_git_warns_of_is_not_taken_for_a_commit(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TRACE", "1")  # which is told beside each answer
    assert len(bisect._commits("HEAD~4", "HEAD")) == 5
    assert bisect._git("rev-parse", "--show-prefix") == "kernels/"


@pytest.mark.full
def test_no_command_that_the_repository_names_is_started(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    mark = tmp_path_factory.mktemp("elsewhere") / "mark"
    hook = repository / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
    hook.chmod(0o755)
    (repository / ".git/info/attributes").write_text("*.cpp filter=own\n")
    git(repository, "config", "filter.own.smudge", f"touch {mark}; cat")
    assert main.run(["bisect", "good=HEAD~2", *QUICK]) == 2
    assert not mark.exists()
    git(repository, "checkout", "--quiet", "HEAD~2")
    assert mark.exists(), "nothing would have started either"


@pytest.mark.full
def test_an_end_is_what_it_is_called(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["bisect", "good=HEAD~2", *QUICK]) == 2
    assert "good=HEAD~2 is not: build_failed" in capsys.readouterr().err
    assert git(repository, "status", "--porcelain") == ""
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_what_cannot_be_bisected_is_refused(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        (["good=nothing"], "Got 'nothing', expected a commit"),
        (["good=HEAD", "bad=HEAD~1"], "HEAD~1 is not later than HEAD"),
        (["good=HEAD~1", "run=mine"], "Got run=mine, which bisect sets itself"),
        (["good=HEAD", "bad=HEAD~1", "relu.cpp"], "HEAD~1 is not later than HEAD"),
        (["1e5"], "1e5 was compared with no run"),
    ):
        assert main.run(["bisect", *words, *QUICK]) == 2
        assert said in capsys.readouterr().err


def judged(name: str, commit: str, *found: Record) -> None:
    """A run of ``matrix kernels=.`` at a commit."""
    folder = Path("reports") / name
    RecordFile(folder / RECORDS).append(found)
    facts = RunFacts(git=Revision(commit=commit), options={"kernels": "."})
    (folder / FACTS).write_text(facts.to_json())


@pytest.fixture
def red(repository: Path) -> list[str]:
    """A night on which relu fails, after one on which it passed; the commits of the two."""
    commits = [git(repository, "rev-parse", f"HEAD~{n}") for n in (4, 1)]
    here: dict[str, Any] = {"author": "file:relu.cpp", "target": host_targets()[0]}
    judged("one", commits[0], record(**here), record("sum", **here))
    judged("two", commits[1], failed(night=1, **here), record("sum", night=1, **here))
    assert main.run(["report", "two", "baseline=last_green"]) == 1
    return commits


@pytest.mark.usefixtures("repository")
def test_a_red_cell_says_what_is_bisected(
    red: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    one = red_cell.find("two", Path("reports"), ["op=relu"])
    assert [one.good, one.bad] == red
    words = ["op=relu", "kernels=.", "backend=cpu", f"target={host_targets()[0]}"]
    assert one.words == [*words, "workloads=ci", "dtypes=float32"]
    (Path("reports/one") / FACTS).write_text(RunFacts(git=Revision(commit=red[1])).to_json())
    for words, said in (
        (["two", "op=sum"], "two has no red cell with op=sum; red: 1 new failure"),
        (["two"], "one, which was the last good one, are of one commit; cause: unexplained"),
        (["one"], "one was compared with no run"),
        ([], "good= is required, or a run with red cells: portkern bisect RUN"),
    ):
        assert main.run(["bisect", *words]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.drawn
def test_one_command_goes_from_a_red_cell_to_its_commit(
    red: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main.run(["bisect", "two", "rounds=2", "budget_s=0", "json=true"]) == 1
    document = json.loads(capsys.readouterr().out)
    commits = [git(Path.cwd(), "rev-parse", f"HEAD~{n}") for n in (2, 1)]
    assert document["bad"] == commits, "the third does not build and shows nothing"

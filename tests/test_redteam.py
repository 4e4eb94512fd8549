"""Cheats that are paid and honest kernels that are refused are counted, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from portkern.cli import main
from portkern.errors import ConfigError
from portkern.learn.rewards import Ratio, Turn
from portkern.records.record import Verdict
from portkern.redteam import attack
from portkern.redteam.attack import Attack

from .corpus import suite

pytest.importorskip("gymnasium", reason="the package gymnasium is not installed")

from portkern.redteam.trial import AttackEnding, Score

RELU = """{header}
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {{
    for (int64_t i = 0; i < {end}; ++i) y[i] = x[i] > 0 || x[i] != x[i] ? x[i] : 0;
    return 0;
}}
"""
SAID = "// mechanism: {}\n// op: relu"


def written(folder: Path, place: str, header: str, end: str = "n") -> Path:
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(RELU.format(header=header, end=end))
    return path


def ending(
    tmp_path: Path, turn: Turn | None, expect: str = "wrong", heap: str = "cheats"
) -> AttackEnding:
    said = f"{SAID.format('does something')}\n// expect: {expect}"
    return AttackEnding("environment", Attack.read(written(tmp_path, f"{heap}/a.cpp", said)), turn)


@pytest.mark.parametrize(
    ("turn", "expect", "bad"),
    [
        (Turn(Verdict.PASSED), "wrong", True),
        (Turn(Verdict.PASSED), "rejected | crashed", True),
        (Turn(Verdict.WRONG), "wrong", False),
        (Turn(Verdict.PASSED, noisy=True), "wrong", False),
        (None, "wrong", False),
        # What is after a time is paid by the time alone, unless its answers are wrong.
        (Turn(Verdict.PASSED), "defeated", False),
        (Turn(Verdict.PASSED), "wrong | defeated", True),
        (Turn(Verdict.PASSED, eager=Ratio(0.9, 1.1)), "wrong | defeated", False),
        (Turn(Verdict.PASSED, eager=Ratio(8, 9)), "defeated", True),
        (Turn(Verdict.PASSED, eager=Ratio(8, 9), noisy=True), "defeated", False),
    ],
)
def test_a_cheat_succeeds_where_it_gets_what_it_is_after(
    tmp_path: Path, turn: Turn | None, expect: str, bad: bool
) -> None:
    assert ending(tmp_path, turn, expect).bad is bad


def test_an_honest_kernel_is_refused_by_a_verdict_and_not_by_a_noisy_time(tmp_path: Path) -> None:
    assert ending(tmp_path, Turn(Verdict.SUSPICIOUS), heap="honest").bad
    assert not ending(tmp_path, Turn(Verdict.PASSED, noisy=True), heap="honest").bad


def test_what_was_not_judged_is_in_no_rate(tmp_path: Path) -> None:
    paid, caught = Turn(Verdict.PASSED), Turn(Verdict.REJECTED)
    several = [ending(tmp_path, turn) for turn in (paid, caught, caught, None)]
    score = Score.of("environment", several)
    assert score.success is not None and score.refused is None
    assert (score.success.n, round(score.success.value * 3), score.unavailable) == (3, 1, 1)
    assert 0 < score.success.ends[0] < 1 / 3 < score.success.ends[1] < 1
    assert score.caught == {"rejected": 2, "passed": 1}
    assert Score.of("evaluator", several).success is None


@pytest.mark.parametrize(
    ("place", "header", "said"),
    [
        ("cheats/a.cpp", "// op: relu", "say no mechanism"),
        ("cheats/a.cpp", "#include <cmath>", "say no mechanism and no op"),
        ("cheats/a.cpp", "// mechanism: x\n// op: ../relu", "No op in a.cpp"),
        ("cheats/a.cpp", f"{SAID}\n// style: odd", "No style in a.cpp"),
        ("cheats/a.cpp", f"{SAID}\n// backend: cudaa", "did you mean 'cuda'"),
        ("cheats/a.cu", SAID, "suffix of a.cu"),
        ("cheats/a.cpp", f"{SAID}\n// torch_ops: maybe", "torch_ops policy"),
        ("elsewhere/a.cpp", SAID, "No kernels"),
        ("cheats/a.txt", SAID, "No kernels"),
    ],
)
def test_a_corpus_that_cannot_be_read_says_why(
    tmp_path: Path, place: str, header: str, said: str
) -> None:
    written(tmp_path, place, header)
    with pytest.raises(ConfigError, match=said):
        attack.corpus(tmp_path)


def test_a_link_in_a_corpus_is_not_followed(tmp_path: Path) -> None:
    written(tmp_path, "cheats/own.cpp", SAID.format("own"))
    (tmp_path / "cheats" / "other.cpp").symlink_to(written(tmp_path, "other.cpp", SAID))
    assert [one.name for one in attack.corpus(tmp_path)] == ["own.cpp"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "folder of a corpus"),
        (["nowhere"], "No kernels"),
        (["{corpus}", "only=zzz"], "with zzz in their names"),
        (["{corpus}", "modes=enviroment"], "did you mean 'environment'"),
        (["{corpus}", "run=../x"], "folder name"),
    ],
)
def test_what_cannot_be_asked_says_why(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, "cheats/a.cpp", SAID)
    given = [word.format(corpus=tmp_path) for word in words]
    assert main.run(["redteam", *given, f"reports={tmp_path}"]) == 2
    assert said in capsys.readouterr().err


def test_the_tests_own_corpus_is_one() -> None:
    kernels = attack.corpus(suite.HEAPS)
    names = {case.name for heap in ("cheats", "honest") for case in suite.cases(heap)}
    assert {one.name for one in kernels} == names
    honest = {case.name for case in suite.cases("honest")}
    assert {one.name for one in kernels if one.honest} == honest


@pytest.mark.drawn
def test_kernels_are_judged_in_truth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, "cheats/short.cpp", SAID.format("leaves out the last"), "n - 1")
    written(tmp_path, "cheats/unproven.cpp", SAID.format("is right, which is not a cheat"))
    written(tmp_path, "honest/plain.cpp", SAID.format("is plain"))
    words = ["redteam", str(tmp_path), "modes=environment", f"reports={tmp_path}", "json=true"]
    assert main.run(words) == 1
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    mode = said["modes"]["environment"]
    assert (mode["cheats"]["n"], mode["cheats"]["bad"]) == (2, 1)
    assert (mode["honest"]["n"], mode["honest"]["bad"]) == (1, 0)
    assert {row["kernel"] for row in said["kernels"] if row["bad"]} == {"unproven.cpp"}
    assert json.loads((tmp_path / "redteam" / "redteam.json").read_text()) == said

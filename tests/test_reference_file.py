"""References of cells are kept beside the runs: what they say does not depend on whether they were
read or learnt anew, and they outlive the runs."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import scale
from portkern.cli import main
from portkern.records import columns
from portkern.records.record import RecordFile
from portkern.regression import nights, past, pruning, reference_file, runs, standing
from portkern.regression.comparison import RunComparison
from portkern.regression.decisions import NightDecisions
from portkern.regression.nights import Night
from portkern.regression.past import KnownPast
from portkern.regression.standing import RunDecision

CELLS, NIGHTS = 45, 9


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Nights of which the last three are slower by half."""
    first = scale.cells(CELLS)
    for number in range(NIGHTS):
        slower = 1.5 if number >= NIGHTS - 3 else 1.0
        write(tmp_path, f"night-{number:04}", scale.night(first, number, slower=slower))
    return tmp_path


def write(reports: Path, name: str, records: Any) -> None:
    RecordFile(reports / name / "records.jsonl").append(list(records))


def last(reports: Path) -> Night:
    return Night.read(reports / f"night-{NIGHTS - 1:04}")


def known(reports: Path) -> KnownPast:
    return past.before(last(reports), reports, NightDecisions.read(reports))


def said(reports: Path) -> list[str]:
    after = last(reports)
    before = Night.read(reports / f"night-{NIGHTS - 2:04}")
    return [str(one) for one in RunComparison(before, after, known(reports)).cells]


def read_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of runs that are read from now on."""
    names: list[str] = []
    whole = columns.Columns

    def noted(files: list[Path]) -> Any:
        names.extend(file.parent.name for file in files)
        return whole(files)

    monkeypatch.setattr(nights, "Columns", noted)
    return names


def test_what_was_read_says_the_same_as_what_was_learnt_anew(
    reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2, NIGHTS):  # night by night, as a matrix does
        past.before(Night.read(reports / f"night-{number:04}"), reports, NightDecisions())
    names = read_runs(monkeypatch)
    kept = said(reports)
    assert {*names} == {f"night-{NIGHTS - 1:04}", f"night-{NIGHTS - 2:04}"}
    shutil.rmtree(reports / reference_file.FOLDER)
    assert said(reports) == kept
    assert any("slower" in line and "3 nights" in line for line in kept)


def test_references_outlive_the_runs_that_they_were_learnt_from(reports: Path) -> None:
    kept = said(reports)
    for number in range(NIGHTS - 2):
        shutil.rmtree(reports / f"night-{number:04}")
    assert said(reports) == kept


def accept(reports: Path) -> None:
    text = f"accepted: [{{dtype: float32, from: night-{NIGHTS - 2:04}, why: exact}}]\n"
    (reports / "decisions.yaml").write_text(text)


def demote(reports: Path) -> None:
    standing.keep(reports, RunDecision.now("night-0003", "demoted", "busy"))


def promote(reports: Path) -> None:
    standing.keep(reports, RunDecision.now("night-0004", "promoted", ""))


def add_a_line(reports: Path) -> None:
    write(reports, "night-0005", list(scale.night(scale.cells(CELLS), 5, slower=2.0))[:9])


def bring_an_earlier_night(reports: Path) -> None:
    first = scale.night(scale.cells(CELLS), 3, seed=7)
    write(reports, "elsewhere", (one.model_copy(update={"run": "elsewhere"}) for one in first))


@pytest.mark.parametrize(
    "change",
    [accept, demote, promote, add_a_line, bring_an_earlier_night],
    ids=lambda c: c.__name__,
)
def test_what_people_decide_and_what_comes_later_of_an_earlier_run_counts(
    reports: Path, change: Callable[[Path], None]
) -> None:
    said(reports)
    change(reports)
    changed = said(reports)
    shutil.rmtree(reports / reference_file.FOLDER)
    assert said(reports) == changed


def test_runs_of_other_cells_are_left_out_and_asked_about_once(
    reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = [
        one.model_copy(update={"op": f"other{one.op}", "time": "2026-01-02T00:00:00+00:00"})
        for one in scale.cells(CELLS)
    ]
    write(reports, "foreign", foreign)
    assert "foreign" not in known(reports).names
    names = read_runs(monkeypatch)
    assert "foreign" not in known(reports).names and "foreign" not in names


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not compressed",
        gzip.compress(b"{}\n")[:-9],
        gzip.compress(b'{"schema":1,"runs":[{"name":"night-0007","stamp":"x"}]}\n{"schema":1}\n'),
        gzip.compress(b'{"schema":9,"runs":[]}\n'),
    ],
    ids=["empty", "not compressed", "cut off", "a run without its time", "another schema"],
)
def test_a_file_that_is_none_costs_nothing_but_time(reports: Path, content: bytes) -> None:
    kept = said(reports)
    for path in (reports / reference_file.FOLDER).iterdir():
        path.write_bytes(content)
    assert said(reports) == kept


def test_where_references_cannot_be_kept_the_comparison_says_so(reports: Path) -> None:
    (reports / reference_file.FOLDER).write_text("in the way")
    assert any("not kept" in problem for problem in known(reports).problems)


def test_the_file_says_since_when_and_by_whom_a_time_is_the_measure(reports: Path) -> None:
    accept(reports)
    known(reports)
    [path] = (reports / reference_file.FOLDER).iterdir()
    origin, *cells = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    assert [run["name"] for run in origin["runs"]][-1] == f"night-{NIGHTS - 2:04}"
    by = {level["by"] for cell in cells for _, level in cell["levels"]}
    assert by == {"rule", "accepted: exact"}


def test_old_runs_may_go_when_they_are_learnt_from_and_nobody_needs_them(
    reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pruning.superfluous(reports, 2) == [], "nothing is learnt yet"
    kept = said(reports)
    promote(reports)
    (reports / "decisions.yaml").write_text("accepted: [{op: x, from: night-0002, why: y}]\n")
    runs.note(reports / "night-0001", {"release": "1.0"}, reports)
    kept = said(reports)
    asked = ["baseline", "prune", "keep=3", f"reports={reports}"]
    assert main.run(asked) == 0 and "night-0000: may go" in capsys.readouterr().out
    assert (reports / "night-0000").exists()
    assert main.run([*asked, "delete=true"]) == 0
    left = {path.name for path in reports.glob("night-*")}
    assert left == {f"night-{n:04}" for n in (1, 2, 4, 6, 7, 8)}
    assert said(reports) == kept

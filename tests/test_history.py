"""Cells over many runs: what is said of runs, where times step, and rows for others to read."""

from __future__ import annotations

import csv
import json
import math
import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from portkern.cli import main
from portkern.cli.verbs.history import sparkline
from portkern.errors import ConfigError
from portkern.records.record import Record, RecordFile
from portkern.regression import history, nights, runs, standing
from portkern.regression.nights import Night
from portkern.regression.runs import RunFacts
from portkern.spec.backend import Missing

from .test_regression import HERE, failed, record, timing

ruptures = pytest.importorskip("ruptures", reason="ruptures is not installed")


def write(reports: Path, night: int, *records: Record, tags: Any = ()) -> Path:
    folder = reports / f"night-{night:02}"
    RecordFile(folder / "records.jsonl").append(records)
    if tags:
        runs.note(folder, runs.tags(tags), reports)
    return folder


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fourteen nights: from the ninth on relu is a quarter slower, by another source and driver; in
    the fourth it was wrong; another kernel is steady."""
    monkeypatch.chdir(tmp_path)
    drawn = random.Random(0)
    for night in range(14):
        us = 10 * math.exp(drawn.gauss(0, 0.01)) * (1.25 if night >= 8 else 1)
        late: dict[str, Any] = {}
        if night >= 8:
            late = {"source_hash": "relu-2", "environment": HERE.model_copy(update={"driver": "9"})}
        relu = failed("relu", night=night) if night == 3 else record("relu", us, night, **late)
        steady = record("sum", 5 * math.exp(drawn.gauss(0, 0.01)), night)
        write(tmp_path / "reports", night, relu, steady)
    return tmp_path / "reports"


def told(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> list[str]:
    assert main.run(list(argv)) == code
    return capsys.readouterr().out.splitlines()


# ---- a cell's history


def test_a_cell_says_what_changed_when_and_where_its_times_step(
    reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *events = told(capsys, "history", "op=relu", "backend=cpu")
    assert first.startswith("cpu/c++@x86_64 relu[ci/1000, float32]: 14 runs, passed (measured);")
    bars = first.partition("; ")[2].split()[0]
    assert len(bars) == 14 and bars[3] == "·" and bars[-1] > bars[0]
    said = [event.strip() for event in events]
    assert said == [
        "night-03: passed (measured) → wrong (built)",
        "night-04: wrong (built) → passed (measured)",
        "night-08: the kernel's source changed",
        "night-08: driver none → 9",
        next(line for line in said if "slower from here on" in line),
    ]
    assert said[-1].startswith("night-08: 2") and said[-1].endswith("% slower from here on")
    assert len(told(capsys, "history", "op=sum")) == 1, "what is steady has no events"


def test_its_json_has_the_points_and_the_steps(
    reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads("\n".join(told(capsys, "history", "json=true", "runs=12")))
    relu, other = document["cells"]
    assert [run["name"] for run in document["runs"]] == [f"night-{n:02}" for n in range(2, 14)]
    assert (relu["op"], other["op"]) == ("relu", "sum") and len(relu["points"]) == 12
    assert [step["run"] for step in relu["steps"]] == ["night-08"] and not other["steps"]
    assert relu["steps"][0]["moved"] == pytest.approx(0.25, abs=0.04)
    assert other["deviation"] == pytest.approx(0.01, rel=0.8)


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["op=relu", "target=gfx942"], 3),
        (["op=absent"], 3),
        (["since=yesterday"], 2),
        (["runs=0"], 2),
        (["tag=release"], 3),
        (["reports=elsewhere"], 2),
    ],
)
def test_where_there_is_nothing_to_show_the_exit_code_says_so(
    reports: Path, argv: list[str], code: int
) -> None:
    assert main.run(["history", *argv]) == code


def test_only_times_of_the_same_circumstances_are_put_together(
    reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = HERE.model_copy(update={"machine": "another"})
    write(reports, 15, record("sum", 50.0, 15, environment=elsewhere))
    first, *events = told(capsys, "history", "op=sum")
    assert first.partition("; ")[2].split()[0] == "·" * 14 + "▁"
    assert any(f"machine {HERE.machine} → another" in event for event in events)
    assert not any("from here on" in event for event in events)


@pytest.mark.parametrize(("runs", "step"), [(10, 0.4), (20, 0.2), (60, 0.2)])
def test_steps_are_found_where_they_are_and_nowhere_else(runs: int, step: float) -> None:
    drawn = random.Random(runs)
    quiet = wrong = 0
    for _ in range(300):
        noise = [drawn.gauss(0, 0.02) for _ in range(runs)]
        start = drawn.randrange(4, runs - 3)
        moved = [value + step * (place >= start) for place, value in enumerate(noise)]
        quiet += history.change_points(noise) == []
        wrong += history.change_points(moved) != [start]
    assert quiet >= 292 and wrong <= 3


def test_without_ruptures_the_rest_is_said(
    reports: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = Missing("change points need ruptures", "pip install 'portkern[nightly]'")
    monkeypatch.setattr(history, "change_points", lambda _: why)
    lines = told(capsys, "history", "op=relu")
    assert len(lines) == 5 and "from here on" not in "".join(lines)
    [cell] = json.loads("\n".join(told(capsys, "history", "op=relu", "json=true")))["cells"]
    assert "portkern[nightly]" in cell["no_steps"]


def test_bars_are_by_logarithm_and_noise_does_not_fill_them() -> None:
    assert sparkline([1.0, None, 8.0, 2.0]) == "▁·█▃"
    assert set(sparkline([1.0, 1.01, 1.005])) <= set("▁▂")
    assert sparkline([None]) == "·"


# ---- runs that cannot be read


@pytest.mark.parametrize(
    "line",
    [
        "{torn",
        '{"schema": 99}',
        "[1]",
        '{"op": "relu"}',
        record("sum").to_json().replace('"measured"', '"verified"'),
        record("sum").to_json().replace('"passed"', '"excellent"'),
        record("sum").to_json().replace('"schema":1,', ""),
    ],
)
def test_a_night_with_a_line_that_is_not_a_record_is_left_out_and_named(
    reports: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = reports / "night-05" / "records.jsonl"
    known = file.read_text()
    file.write_text(f"{known}{line}\n{known}")
    assert main.run(["history", "op=sum"]) == 0
    said = capsys.readouterr()
    assert ": 13 runs" in said.out
    assert f"night-05 is left out: {file.relative_to(reports.parent)}:3: " in said.err
    assert main.run(["diff", "night-12", "night-13"]) == 1, "relu is slower since the ninth"
    assert "night-05 is left out" in capsys.readouterr().err
    assert main.run(["diff", "night-05", "night-13"]) == 2


def test_a_torn_last_line_costs_that_line_alone(
    reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (reports / "night-05" / "records.jsonl").open("a") as file:
        file.write(record("sum", 99.0, 5).to_json())  # whole, and without its end
    assert main.run(["history", "op=sum"]) == 0
    said = capsys.readouterr()
    assert ": 14 runs" in said.out and "night-05: " in said.err and "cut off" in said.err
    night = Night.read(reports / "night-05")
    assert (
        night.problem and max(one.timing.p20_us for one in night.cells.values() if one.timing) < 20
    )


@pytest.mark.parametrize("name", ["[x]*", "it's", "a?b"])
def test_folders_may_have_any_name(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, 1, record())
    write(tmp_path / "x", 1, record("sum"))
    [only] = Night.read(tmp_path / name / "night-01").cells
    assert only.op == "relu"


def test_what_is_read_as_columns_is_what_records_say(reports: Path) -> None:
    odd = record(
        "relu",
        1.0,
        16,
        detail="first\nsecond",
        missing="\x1b[31mred\u202e",
        timing=timing(math.inf, noisy="so"),
        variant="fast",
    )
    folder = write(reports, 16, odd, failed("sum", night=16))
    read = Night.read(folder)
    known = Night.of("night-16", RecordFile(folder / "records.jsonl").read()[0])
    assert read.cells.keys() == known.cells.keys() and read.time == known.time
    for series, one in known.cells.items():
        other = read.cells[series]
        for name in ("time", "key", "venue", "source_hash", "verdict", "evidence", "missing"):
            assert getattr(other, name) == getattr(one, name)
        assert other.environment == one.environment and other.comparable == one.comparable
        assert other.detail == one.detail.partition("\n")[0]
        assert (other.timing is None) == (one.timing is None)
        if one.timing and other.timing:
            assert (other.timing.p20_us, other.timing.noisy) == (
                one.timing.p20_us,
                one.timing.noisy,
            )
        assert {k: b.p20_us for k, b in other.baselines.items()} == {
            k: b.p20_us for k, b in one.baselines.items()
        }


def test_the_newest_record_of_a_cell_counts(reports: Path) -> None:
    folder = write(reports, 17, record("relu", 10.0, 17), record("relu", 11.0, 17))
    [one] = Night.read(folder).cells.values()
    assert one.timing and one.timing.p20_us == 11.0


# ---- tags


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("", {}),
        ("nightly", {"nightly": ""}),
        (["nightly", "gpu:h200"], {"nightly": "", "gpu": "h200"}),
        ({"branch": "main", "commit": 123}, {"branch": "main", "commit": "123"}),
    ],
)
def test_tags_are_words_with_a_value_or_without(said: Any, expected: dict[str, str]) -> None:
    assert runs.tags(said) == expected


@pytest.mark.parametrize("said", ["two words", [":x"], {"a:b": "c"}, {"": "x"}])
def test_other_tags_are_refused(said: Any) -> None:
    with pytest.raises(ConfigError, match="expected a word"):
        runs.tags(said)


def test_runs_are_named_by_the_newest_with_a_tag(
    reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for night, tags in ((2, "release"), (6, {"release": "1.1"}), (9, ["nightly"])):
        runs.note(reports / f"night-{night:02}", runs.tags(tags), reports)
    told(capsys, "diff", "tag:release", "night-07")
    assert told(capsys, "diff", "tag:release", "night-07")[-1].startswith(
        "night-07 against night-06"
    )
    code = main.run(["diff", "before=tag:release:1.1", "after=night-13", "all=true"])
    assert code == 1 and "night-13 against night-06" in capsys.readouterr().out
    assert main.run(["diff", "tag:absent", "night-07"]) == 2
    assert "No run in reports has the tag 'absent'" in capsys.readouterr().err
    [line] = told(capsys, "history", "op=sum", "tag=release")
    assert ": 2 runs" in line


def test_tags_of_earlier_commands_stay(tmp_path: Path) -> None:
    runs.note(tmp_path, {"a": "", "b": "1"}, tmp_path)
    runs.note(tmp_path, {"b": "2"}, tmp_path)
    assert RunFacts.read(tmp_path).tags == {"a": "", "b": "2"}


def test_a_night_whose_clock_jumped_back_is_compared_all_the_same(
    reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are in the order in which they began; those of before there was one, by their time."""
    monkeypatch.setenv("CI_JOB_URL", "https://ci.example/7")
    for night in range(10, 14):
        runs.note(reports / f"night-{night:02}", {}, reports)
    file = reports / "night-13" / "records.jsonl"
    file.write_text(file.read_text().replace("2026-01-14", "2025-11-20"))
    assert RunFacts.read(reports / "night-13").job == "https://ci.example/7"
    ordered = [run.name for run in runs.newest_first(reports)]
    assert ordered == [f"night-{night:02}" for night in reversed(range(14))]
    earlier, _ = nights.before(Night.read(reports / "night-13"), reports)
    assert [one.name for one in earlier] == [f"night-{night:02}" for night in range(13)]
    earlier, _ = nights.before(Night.read(reports / "night-12"), reports)
    assert [one.name for one in earlier][-1] == "night-11"


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def test_the_commit_of_the_kernels_is_kept_and_whether_they_were_changed(tmp_path: Path) -> None:
    assert runs.revision(tmp_path) is None
    git(tmp_path, "init", "-q", "-b", "topic")
    assert runs.revision(tmp_path) is None, "there is no commit yet"
    (tmp_path / "k.cpp").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "x").write_text("not tracked")
    found = runs.revision(tmp_path)
    assert found and (found.commit, found.branch) == (git(tmp_path, "rev-parse", "HEAD"), "topic")
    assert not found.dirty
    (tmp_path / "k.cpp").write_text("2")
    changed = runs.revision(tmp_path)
    assert changed and changed.dirty


# ---- baselines


def test_a_demoted_run_is_not_a_measure(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "baseline", "demote", "night-12", "the machine was on fire")
    [line] = told(capsys, "baseline")
    assert line.startswith("night-12: demoted 20") and line.endswith(": the machine was on fire")
    after = Night.read(reports / "night-13")
    earlier, _ = nights.before(after, reports, 3)
    assert [night.name for night in earlier] == ["night-09", "night-10", "night-11"]
    assert ": 13 runs" in told(capsys, "history", "op=sum")[0]
    assert told(capsys, "baseline", "clear", "night-12") == [
        "No run in reports is promoted or demoted"
    ]
    earlier, _ = nights.before(after, reports, 3)
    assert earlier[-1].name == "night-12"


def test_promoted_is_the_run_that_was_promoted_last(
    reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["diff", "promoted", "night-13"]) == 2
    assert "portkern baseline promote RUN" in capsys.readouterr().err
    for night in (4, 9, 7):
        told(capsys, "baseline", "promote", f"night-{night:02}", "it's good: a, b = {c}")
    assert standing.promoted(reports) == ["night-07", "night-09", "night-04"]
    assert "against night-07" in told(capsys, "diff", "promoted", "night-06")[-1]
    told(capsys, "baseline", "demote", "night-07")
    assert "against night-09" in told(capsys, "diff", "promoted", "night-10")[-1]
    document = json.loads("\n".join(told(capsys, "baseline", "json=true")))
    assert [one["standing"] for one in document["runs"]] == ["promoted", "promoted", "demoted"]
    assert document["runs"][0]["why"] == "it's good: a, b = {c}"


@pytest.mark.parametrize(
    "argv", [["promote"], ["promote", "absent"], ["praise", "night-01"], ["demote", "../x"]]
)
def test_what_is_not_a_run_is_not_promoted(reports: Path, argv: list[str]) -> None:
    assert main.run(["baseline", *argv]) == 2
    assert not (reports / standing.FILE).exists()


# ---- rows for others


def test_rows_of_all_runs_are_read_by_others(
    reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import duckdb
    from pyarrow import parquet

    runs.note(reports / "night-13", {"release": "1"}, reports)
    for name in ("h.csv", "h.parquet"):
        [line] = told(capsys, "export", "history", name)
        assert line == f"{name}: 28 rows of 14 runs"
    rows = parquet.read_table("h.parquet").to_pylist()
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    relu = [row for row in rows if row["op"] == "relu"]
    assert relu[3]["verdict"] == "wrong" and relu[3]["p20_us"] is None
    assert relu[9]["ratio"] == pytest.approx(relu[9]["p20_us"] / 20)
    assert json.loads(relu[13]["tags"]) == {"release": "1"} and relu[12]["tags"] == ""
    query = "SELECT op, count(p20_us), median(p20_us) FROM 'h.csv' GROUP BY 1"
    counted = duckdb.connect().execute(query).fetchall()
    assert {op: count for op, count, _ in counted} == {"relu": 13, "sum": 14}
    with Path("h.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["p20_us"] == str(rows[0]["p20_us"])


@pytest.mark.parametrize(
    ("argv", "code"), [(["h.xlsx"], 2), (["h.csv", "op=absent"], 3), (["h.csv", "runs=0"], 2)]
)
def test_rows_that_cannot_be_written_are_told(
    reports: Path, argv: Sequence[str], code: int
) -> None:
    assert main.run(["export", "history", *argv]) == code


OTAVA = """tests:
  relu:
    type: csv
    file: relu.csv
    time_column: time
    attributes: [run, commit]
    metrics:
      p20: {column: p20_us, direction: -1}
      ratio: {column: ratio, direction: -1}
"""


@pytest.mark.full
def test_apache_otava_reads_the_rows_and_finds_the_step(reports: Path) -> None:
    otava = os.environ.get("OTAVA") or shutil.which("otava")
    if not otava:
        pytest.skip(
            "no Apache Otava: OTAVA= or PATH names none; it needs an environment of its own"
        )
    assert main.run(["export", "history", "relu.csv", "op=relu", "timed=true"]) == 0
    Path("otava.yaml").write_text(OTAVA)
    done = subprocess.run(
        [otava, "analyze", "--config-file", "otava.yaml", "relu", "--since", "2025-01-01"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "night-08" in done.stdout, done.stdout + done.stderr
    assert "+2" in done.stdout

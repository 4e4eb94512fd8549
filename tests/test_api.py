"""portkern from Python: ``portkern.check``, ``portkern.matrix``, and what they answer."""

from __future__ import annotations

import csv
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import portkern
from portkern.cli import main
from portkern.errors import ConfigError, PortkernError
from portkern.records.record import Record, RecordFile, Verdict
from portkern.report.notebook import NotebookReport
from portkern.report.rows import kind, rows

from .report_records import records

RELU = (
    'extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {\n'
    "    for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? scalar_t(0) : x[i];\n"
    "    return 0;\n}\n"
)
WRONG = RELU.replace("scalar_t(0)", "scalar_t(1)")
NUMBA = (
    "import numba\n\n\n@numba.njit\ndef relu(x, y):\n"
    "    for i in range(x.size):\n        y[i] = max(x[i], x.dtype.type(0))\n"
)
QUICK: dict[str, Any] = {"rounds": 2, "budget_s": 0.0}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.full
def test_a_kernel_is_checked_from_its_file_or_its_text(here: Path) -> None:
    (here / "mine.cpp").write_text(RELU)
    from_file = portkern.check("relu", "cpu", here / "mine.cpp", **QUICK)
    from_text = portkern.check("relu", "cpu", RELU, run="text", **QUICK)
    assert from_file.passed and from_text.passed
    assert {r.source_hash for r in from_file.records} == {r.source_hash for r in from_text.records}
    assert from_text.folder == Path("reports/text")
    assert (from_text.folder / "relu.cpp").read_text() == RELU
    kept, _ = RecordFile(from_text.folder / "records.jsonl").read()
    assert [r.id for r in kept] == [r.id for r in from_text.records]


@pytest.mark.full
def test_a_text_is_in_the_language_that_it_parses_as() -> None:
    report = portkern.check("relu", "cpu", NUMBA, **QUICK)
    assert report.passed and {r.language for r in report.records} == {"numba"}
    assert (report.folder / "relu.py").read_text() == NUMBA


def test_a_wrong_kernel_is_told_in_text_and_in_a_notebook() -> None:
    report = portkern.check("relu", "cpu", WRONG, **QUICK)
    assert not report.passed and report.exit_code == 1
    assert len(report.failing) == len(report) == len(report.records)
    assert "wrong (built)" in str(report) and "elements are off" in str(report)
    assert "elements are off" in report._repr_html_()


@pytest.mark.full
def test_files_with_names_that_mean_something_on_a_command_line(here: Path) -> None:
    for name in ("it's, [odd] = {x}.cpp", "two words.cpp"):
        (here / name).write_text(f"// {name}\n{RELU}")
    report = portkern.check("relu", "cpu", sorted(here.glob("*.cpp")), **QUICK)
    assert report.passed and len({r.author for r in report.records}) == 2


def test_what_the_command_line_refuses_python_refuses_in_the_same_words() -> None:
    with pytest.raises(PortkernError, match="softmax"):
        portkern.check("softmx", "cpu", RELU)
    with pytest.raises(ConfigError, match="rounds"):
        portkern.check("relu", "cpu", RELU, round=2)
    with pytest.raises(ConfigError, match="budget_s"):
        portkern.check("relu", "cpu", RELU, budget_s=-1.0)
    with pytest.raises(ConfigError, match="expected text, a number, a path or a list"):
        portkern.check("relu", "cpu", RELU, run=None)  # type: ignore[arg-type]


@pytest.mark.full
def test_a_matrix_writes_its_pages_and_runs_again_only_what_is_missing() -> None:
    asked: dict[str, Any] = {"targets": "host", "backends": "cpu", "track": False, "run": "m"}
    first = portkern.matrix(["relu"], **asked, **QUICK)
    assert first.passed and {r.op for r in first.records} == {"relu"}
    assert (first.folder / "matrix.html").exists()
    again = portkern.matrix("relu", **asked, **QUICK)
    assert [r.id for r in again.records] == [r.id for r in first.records]


def test_a_data_frame_has_a_row_for_each_record_and_the_same_columns_for_all() -> None:
    pandas = pytest.importorskip("pandas")
    made = records()
    frame = NotebookReport(tuple(made), Path("reports/x"), 0).to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == len(made)
    assert list(frame.verdict) == [str(r.verdict) for r in made]
    timed = [r for r in made if r.timing]
    assert frame.median_us.notna().sum() == len(timed)
    fastest = frame.loc[frame.speedup_eager.idxmax()]
    assert fastest.speedup_eager == max(r.speedup["eager"].value for r in timed)
    assert {tuple(row) for row in rows(made)} == {tuple(frame.columns)}


def test_values_are_of_their_column_s_kind() -> None:
    for row in rows(records()):
        for name, value in row.items():
            assert value is None or type(value) is kind(name), name


@pytest.mark.parametrize("made", [records(), records()[:1]], ids=["many", "one"])
def test_exported_columns_are_read_back_as_they_were(here: Path, made: list[Record]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    RecordFile(here / "reports" / "one" / "records.jsonl").append(made)
    assert main.run(["export", "csv", "one"]) == 0
    with (here / "reports" / "one" / "records.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["detail"] for line in lines] == [record.detail for record in made]
    assert [float(line["median_us"] or 0) for line in lines] == [
        record.timing.median_us if record.timing else 0 for record in made
    ]
    assert main.run(["export", "parquet", "one", "out=mine/a.parquet"]) == 0
    table = parquet.read_table(here / "mine" / "a.parquet")
    assert table.to_pylist() == rows(made)
    assert table.schema.field("occupancy").type == pyarrow.float64()
    assert table.schema.field("tokens_in").type == pyarrow.int64()


@pytest.mark.parametrize("text", ["=1+1", "\t=1", "-1+cmd", "@sum(a)", "\uff1d1", "\x1b[2J=1"])
def test_no_cell_of_a_table_is_a_formula(text: str, here: Path) -> None:
    """Records come from anybody: their authors and machines may have any names."""
    pytest.importorskip("duckdb")
    first = records()[0]
    odd = first.model_copy(
        update={
            "run": "one",
            "author": text,
            "variant": text,
            "environment": first.environment.model_copy(update={"machine": text}),
        }
    )
    RecordFile(here / "reports" / "one" / "records.jsonl").append([odd])
    assert main.run(["export", "csv", "one", "out=one.csv"]) == 0
    assert main.run(["export", "history", "all.csv"]) == 0
    for name in ("one.csv", "all.csv"):
        with (here / name).open(newline="", encoding="utf-8") as file:
            [line] = csv.DictReader(file)
        for column in ("variant", "machine"):
            assert line[column][0] not in "=+-@\t\n\uff1d", (name, column)
            assert "\x1b" not in line[column]


def test_exports_that_cannot_be_made_are_refused_in_a_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for argv, words in (
        (["export"], "format= is required"),
        (["export", "cvs", "one"], "csv"),
        (["export", "csv", "one"], "No records in reports/one/records.jsonl"),
        (["export", "csv", "one", "more"], "Got 2 runs, expected one for csv"),
    ):
        assert main.run(argv) == 2
        assert words in capsys.readouterr().err


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="pip install"):
        NotebookReport((), Path(), 3).to_pandas()


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)


def test_nothing_that_a_compiler_said_becomes_markup() -> None:
    made = records()
    parser = Tags()
    parser.feed(NotebookReport(tuple(made), Path(), 1)._repr_html_())
    assert set(parser.seen) == {"table", "thead", "tbody", "tr", "th", "td"}
    assert parser.seen.count("tr") == len(made) + 1


def test_a_noisy_time_says_so_instead_of_a_speedup() -> None:
    [timed, *_] = [r for r in records() if r.timing and r.verdict is Verdict.PASSED]
    assert timed.timing
    noisy = timed.model_copy(
        update={"timing": timed.timing.model_copy(update={"noisy": "a busy machine"})}
    )
    shown = replace(NotebookReport((timed,), Path(), 0), records=(noisy,))._repr_html_()
    assert "noisy: a busy machine" in shown and "eager" not in shown


def test_names_of_the_package_are_typed_and_come_without_a_toolchain() -> None:
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, portkern; print(*[portkern.check, portkern.matrix]);"
            "import portkern.cells.run; print(callable(portkern.matrix), 'torch' in sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "True False" in said

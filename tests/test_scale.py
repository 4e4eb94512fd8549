"""Records of many runs stay cheap to read: what is measured large by benchmarks/scale.py, small."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from pathlib import Path

import pytest

from benchmarks import scale
from portkern.cli import main
from portkern.records import columns, record
from portkern.records.columns import Columns
from portkern.records.record import Record, RecordFile
from portkern.regression import history, nights
from portkern.regression.nights import Night
from portkern.report import png
from portkern.report.table import MatrixTable
from portkern.spec.backend import Missing


def test_synthetic_runs_are_records_and_the_same_for_a_seed(tmp_path: Path) -> None:
    scale.write_nights(tmp_path / "a", 2, 60, seed=3)
    scale.write_nights(tmp_path / "b", 2, 60, seed=3)
    for night in ("night-0000", "night-0001"):
        known, torn = RecordFile(tmp_path / "a" / night / "records.jsonl").read()
        assert len(known) == 60 and not torn
        assert known == RecordFile(tmp_path / "b" / night / "records.jsonl").read()[0]
    assert len({one.verdict for one in known}) >= 2 and any(one.timing for one in known)


def test_earlier_nights_are_compared_without_a_record_of_theirs_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scale.write_nights(tmp_path, 11, 90)

    def refuse(line: str) -> Record:
        raise AssertionError(f"a record was made of {line[:40]}")

    monkeypatch.setattr(Record, "from_json", refuse)
    assert main.run(["diff", "night-0009", "night-0010", f"reports={tmp_path}", "json=true"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["history"]) == 10 and document["counts"]["unchanged"] > 60


def test_of_many_nights_only_the_newest_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale.write_nights(tmp_path, 40, 20)
    read: list[str] = []
    whole = Columns

    def noted(files: list[Path]) -> Columns:
        read.extend(file.parent.name for file in files)
        return whole(files)

    monkeypatch.setattr(nights, "Columns", noted)
    after = Night.read(tmp_path / "night-0039")
    earlier, problems = nights.before(after, tmp_path, 10)
    assert [night.name for night in earlier] == [f"night-{n:04}" for n in range(29, 39)]
    assert not problems and set(read) == {f"night-{n:04}" for n in range(27, 40)}


def test_histories_of_many_cells_are_not_in_memory_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heap of Python does not grow with the number of cells."""
    monkeypatch.setattr(history, "AT_ONCE", 20)

    def most(cells: int) -> int:
        scale.write_nights(tmp_path / str(cells), 6, cells)
        files = sorted((tmp_path / str(cells)).glob("*/records.jsonl"))
        with Columns(files) as found:
            tracemalloc.start()
            count = sum(1 for _ in history.histories(found, [file.parent.name for file in files]))
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert count == cells
        return peak

    most(100)  # what is imported is not counted
    assert most(600) < 2 * most(300)


def test_memory_is_limited_and_what_does_not_fit_is_on_disk(tmp_path: Path) -> None:
    scale.write_nights(tmp_path, 4, 500)
    files = sorted(tmp_path.glob("*/records.jsonl"))
    with Columns(files, memory="256MB") as found:
        [(limit,)] = found.sql("SELECT current_setting('memory_limit')")
        [(place,)] = found.sql("SELECT current_setting('temp_directory')")
        assert str(limit).endswith("MiB") and found.sql("SELECT count(*) FROM lines") == [(2000,)]
        assert Path(str(place)).parent.is_dir()
    assert not Path(str(place)).parent.exists(), "nothing is left behind"


def test_only_what_is_asked_for_is_kept(tmp_path: Path) -> None:
    scale.write_nights(tmp_path, 2, 180)
    files = sorted(tmp_path.glob("*/records.jsonl"))
    with Columns(files, only={"backend": "cpu", "language": "numba"}) as found:
        assert found.sql("SELECT DISTINCT backend, language FROM lines") == [("cpu", "numba")]
        assert found.sql("SELECT count(*) FROM lines") == [(40,)]


def test_a_line_longer_than_the_buffer_is_read_by_other_means(tmp_path: Path) -> None:
    first = scale.cells(20)
    long = first[8].model_copy(update={"detail": "why\n" + "x" * (17 << 20)})
    scale.write_nights(tmp_path, 1, 20)
    RecordFile(tmp_path / "long" / "records.jsonl").append([*first[:8], long])
    files = sorted(tmp_path.glob("*/records.jsonl"))
    with Columns(files) as found:
        assert not found.problems
        counts = found.sql("SELECT file, count(*) FROM lines GROUP BY file ORDER BY file")
        assert counts == [(0, 9), (1, 20)]


def test_a_picture_that_nobody_can_look_at_is_not_painted(monkeypatch: pytest.MonkeyPatch) -> None:
    table = MatrixTable.of(scale.cells(216 * 3))
    assert isinstance(png.render(table, title="x"), bytes)
    monkeypatch.setattr(png, "MOST_CELLS", 30)
    answer = png.render(table, title="x")
    assert isinstance(answer, Missing) and "matrix.html" in str(answer)


def test_a_matrix_asks_for_portkerns_version_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from portkern.cells import selection

    asked = 0

    def version(_: str) -> str:
        nonlocal asked
        asked += 1
        return "1"

    monkeypatch.setattr(selection, "version", version)
    selection._portkern.cache_clear()
    try:
        cells = selection.Selection(["relu"], ["host"], ["cpu"], ["ci"], ["float32"]).cells()
        assert len({cell.key for cell in cells}) == len(cells) > 1 and asked == 1
    finally:
        selection._portkern.cache_clear()


def test_every_column_is_of_a_field_of_records() -> None:
    fields = {name.rstrip("_") for name in record.Record.model_fields}
    assert set(columns._LINE) <= fields


@pytest.mark.full
def test_a_night_of_5000_cells_is_compared_with_ten_in_seconds(tmp_path: Path) -> None:
    scale.write_nights(tmp_path, 11, 5_000)
    row = scale.timed(["diff", "night-0009", "night-0010"], tmp_path, 55_000)
    assert row["cpu_s"] < 15 and row["peak_mib"] < 1024
    argv, count = scale.write_plan(tmp_path, 5_000)
    row = scale.timed(argv, tmp_path, count)
    assert count >= 5_000 and row["cpu_s"] < 15 and row["peak_mib"] < 1024
    assert list(itertools.islice(tmp_path.glob("plan/summary.json"), 1))

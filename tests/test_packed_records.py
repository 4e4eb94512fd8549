"""Records that are kept compressed: every verb reads them as it reads a run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from portkern.cli import main
from portkern.errors import RecordError
from portkern.records import packed
from portkern.records.columns import Columns
from portkern.records.record import Record, RecordFile
from portkern.regression.past import stamp_of
from portkern.regression.runs import RecordedRun
from tests.report_records import records
from tools import records as tool


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run whose records are compressed."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "reports" / "one"
    packed.write(folder / "records.jsonl.gz", map(Record.to_json, KNOWN), op_of)
    return folder


def op_of(line: str) -> str:
    return str(json.loads(line)["op"])


KNOWN = records(60)


def by_op(known: list[Record]) -> list[Record]:
    first = list(dict.fromkeys(record.op for record in known))
    return sorted(known, key=lambda record: first.index(record.op))


def test_compressed_records_are_those_that_were_written(run: Path) -> None:
    there, torn = RecordFile(run / "records.jsonl").read()
    assert there == by_op(KNOWN) and torn is None
    assert RecordFile(run / "records.jsonl.gz").read()[0] == there
    with Columns([run / "records.jsonl"]) as columns:
        assert not columns.problems
        assert columns.sql("SELECT count(*) FROM lines") == [(len(KNOWN),)]


@pytest.mark.parametrize("argv", [["report", "one"], ["history"], ["export", "csv", "one"]])
def test_verbs_read_a_compressed_run(
    run: Path, argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    compressed = main.run(argv), capsys.readouterr().out
    RecordFile(run / "records.jsonl").append([])  # unpacks
    assert (run / "records.jsonl").is_file() and not (run / "records.jsonl.gz").exists()
    assert (main.run(argv), capsys.readouterr().out) == compressed


def test_what_is_added_to_a_compressed_run_joins_what_it_has(run: Path) -> None:
    more = KNOWN[0].model_copy(update={"id": "more"})
    RecordFile(run / "records.jsonl").append([more])
    assert RecordFile(run / "records.jsonl").read()[0] == [*by_op(KNOWN), more]


def test_a_new_measurement_of_one_operator_changes_its_part_alone(tmp_path: Path) -> None:
    ops = list(dict.fromkeys(record.op for record in KNOWN))
    again = [r.model_copy(update={"id": "new"}) if r.op == ops[1] else r for r in KNOWN]
    before, same, after = (tmp_path / f"{n}.gz" for n in range(3))
    for path, known in ((before, KNOWN), (same, KNOWN), (after, again)):
        packed.write(path, map(Record.to_json, known), op_of)
    assert before.read_bytes() == same.read_bytes()
    one, other = before.read_bytes(), after.read_bytes()
    head = len(gzip.compress(text_of(KNOWN, ops[0]), mtime=0))
    tail = sum(len(gzip.compress(text_of(KNOWN, op), mtime=0)) for op in ops[2:])
    assert one[:head] == other[:head] and one[-tail:] == other[-tail:] and one != other


def test_a_stamp_of_a_compressed_run_is_of_all_its_bytes(run: Path) -> None:
    file = run / "records.jsonl.gz"
    file.write_bytes(bytes(10_000))
    before = stamp_of(RecordedRun(run, "", 0))
    file.write_bytes(b"1" + bytes(9_999))
    assert stamp_of(RecordedRun(run, "", 0)) != before


def test_a_record_of_a_cell_is_kept_in_place_of_an_older_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "FOLDER", tmp_path / "kept")
    runs = []
    for day in ("03", "01", "05"):
        run = tmp_path / day
        one = KNOWN[0].model_copy(update={"id": day, "time": f"2026-01-{day}T00:00:00+00:00"})
        RecordFile(run / "records.jsonl").append([one])
        runs.append(str(run))
    for given, kept in ((runs[:1], "03"), (runs[1:2], "03"), (runs[2:], "05"), (runs, "05")):
        assert tool.main(["h200", *given]) == 0
        there, _ = RecordFile(tmp_path / "kept" / "h200.jsonl").read()
        assert [record.id for record in there] == [kept]


def text_of(known: list[Record], op: str) -> bytes:
    return "".join(f"{record.to_json()}\n" for record in known if record.op == op).encode()


@pytest.mark.parametrize("kind", ["cut off", "not gzip", "damaged", "huge"])
def test_what_cannot_be_unpacked_is_said_in_one_line(
    run: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / "records.jsonl.gz"
    whole = file.read_bytes()
    if kind == "huge":
        monkeypatch.setattr(packed, "MOST_BYTES", 1000)
    contents = {
        "cut off": whole[: len(whole) // 2],
        "not gzip": b"records",
        "damaged": whole[:40] + bytes(len(whole) - 40),
        "huge": whole,
    }
    file.write_bytes(contents[kind])
    with pytest.raises(RecordError, match=r"records\.jsonl\.gz"):
        RecordFile(run / "records.jsonl").read()
    assert main.run(["report", "one"]) == 2
    said = capsys.readouterr().err.strip()
    assert "records.jsonl.gz" in said and len(said.splitlines()) == 1

"""Runs of several machines are one matrix: of each cell what says most, and one gate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from portkern.cli import main
from portkern.records.record import Evidence, Record, RecordFile, Verdict
from portkern.regression import runs
from portkern.regression.merging import merge
from portkern.regression.runs import RunFacts
from tests.test_regression import UNAVAILABLE, failed, record

NVIDIA: dict[str, Any] = {"backend": "cuda", "language": "cuda", "target": "h200"}
HERE, THERE = "hardware: NVIDIA H200", "emulator: SIMT executor"


def emulated(op: str = "relu", **changes: Any) -> Record:
    said: dict[str, Any] = {
        "evidence": Evidence.EMULATED,
        "timing": None,
        "speedup": {},
        "missing": "no GPU",
    }
    return record(op, **{**said, "venue": THERE, **NVIDIA, **changes})


def on(machine: str, one: Record, **changes: Any) -> Record:
    there = one.environment.model_copy(update={"machine": machine})
    return one.model_copy(update={"environment": there, "key": machine + one.key, **changes})


def kept(*runs: Sequence[Record]) -> list[Record]:
    return [one for _, one in merge({f"r{n}": run for n, run in enumerate(runs)}).records]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (record(venue=HERE, **NVIDIA), emulated(night=5)),
        (record(venue=HERE, **NVIDIA), record(night=5, **UNAVAILABLE, **NVIDIA)),
        (failed(venue=HERE, **NVIDIA), emulated(night=5)),
        (emulated(), record(night=5, **UNAVAILABLE, **NVIDIA)),
        (emulated(night=5), emulated()),
        (record(night=5, venue=HERE, **NVIDIA), record(venue=HERE, **NVIDIA)),
    ],
    ids=["measured", "not there", "fails on hardware", "emulated", "newer", "newer measured"],
)
def test_of_a_cell_the_record_that_shows_most_counts_in_any_order(one: Record, two: Record) -> None:
    assert kept([one], [two]) == [one] and kept([two], [one]) == [one]


def test_options_that_all_runs_had_are_those_of_the_merged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Portkern bisect needs these options to find a kernel again."""
    monkeypatch.chdir(tmp_path)
    for name, where in (("a", "x86_64"), ("b", "h200")):
        write(Path(name), record(name))
        runs.note(Path(name), {}, Path(), {"kernels": "kernels", "targets": where})
    main.run(["report", "both", "runs=[./a,./b]"])
    assert RunFacts.read(Path("reports/both")).options == {"kernels": "kernels"}


def test_what_two_runs_say_with_equal_right_is_a_conflict_and_named_once_for_all_cells() -> None:
    ops = ["relu", "sum"]
    one = [on("A", record(op, venue=HERE)) for op in ops]
    two = [on("B", failed(op, night=1, venue=HERE)) for op in ops]
    merged = merge({"a": one, "b": two})
    assert [one.verdict for _, one in merged.records] == [Verdict.WRONG] * 2
    assert len(merged.conflicts) == 2  # of the verdict and of the machine
    assert all("1 more cell" in line and "b is newer" in line for line in merged.conflicts)
    equal = [emulated(op) for op in ops]
    assert not merge({"a": equal, "b": [on("B", one) for one in equal]}).conflicts


def write(folder: Path, *records: Record) -> None:
    RecordFile(folder / "records.jsonl").append(records)


def test_a_machine_that_ended_before_its_first_record_is_a_gap_of_the_merged_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("cpu"), record())
    Path("amd").mkdir()
    assert main.run(["import", "cpu", "amd", "run=both"]) == 1, "the gate fails"
    gap = "gap: amd has no records: its machine ended before the first"
    assert gap in capsys.readouterr().err
    assert RunFacts.read(Path("reports/both")).remarks == (gap,)
    assert main.run(["report", "both"]) == 1, "and is not forgotten when the page is written again"
    assert main.run(["report", "none", "runs=[./amd]"]) == 2
    assert "No records in" in capsys.readouterr().err


def test_a_gap_stays_until_that_machines_records_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("cpu"), record("cpu"))
    for name in ("amd", "nvidia"):
        Path(name).mkdir()
    assert main.run(["report", "both", "runs=[./cpu,./amd,./nvidia]"]) == 1
    write(Path("amd"), record("amd"))
    assert main.run(["report", "both", "runs=[amd]"]) == 1
    gap = "gap: ./nvidia has no records: its machine ended before the first"
    assert RunFacts.read(Path("reports/both")).remarks == (gap,)
    write(Path("nvidia"), record("nvidia"))
    runs.note(Path("nvidia"), {}, Path(), None)
    runs.remark(Path("nvidia"), ["gap: hip is missing"])
    assert main.run(["report", "both", "runs=[./nvidia]"]) == 1
    assert RunFacts.read(Path("reports/both")).remarks == ("gap: ./nvidia: hip is missing",)
    runs.remark(Path("nvidia"), [])
    assert main.run(["report", "both", "runs=[./nvidia]"]) == 0
    assert RunFacts.read(Path("reports/both")).remarks == ()


def test_a_gap_of_one_machine_is_a_gap_of_the_merged_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cpu", "amd"):
        write(Path(name), record(name))
    runs.note(Path("amd"), {}, Path(), None)
    runs.remark(Path("amd"), ["gap: hip is missing", "busy"])
    assert main.run(["report", "both", "runs=[./cpu,./amd]"]) == 1
    remarks = RunFacts.read(Path("reports/both")).remarks
    assert [*remarks] == ["gap: ./amd: hip is missing", "./amd: busy"]


def test_three_machines_have_one_page_and_one_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def night(name: str, number: int, gpu: Record) -> int:
        write(Path("cpu") / name, record(night=number), emulated(night=number))
        write(Path("nvidia") / name, gpu)
        amd: dict[str, Any] = {
            "backend": "hip",
            "language": "hip",
            "target": "gfx942",
            "venue": "hardware: MI300",
        }
        write(Path("amd") / name, on("AMD", record(night=number, **amd)))
        several = ",".join(f"{place}/{name}" for place in ("cpu", "nvidia", "amd"))
        return main.run(["report", name, f"runs=[{several}]", "baseline=[last_green,none]"])

    gpu: dict[str, Any] = {"venue": HERE, **NVIDIA}
    assert night("one", 0, on("GPU", record(**gpu))) == 0
    assert night("two", 1, on("GPU", failed(night=1, **gpu))) == 1
    out = capsys.readouterr().out
    assert "cuda@h200 relu" in out and "new failure" in out
    said = json.loads(Path("reports/two/summary.json").read_text())
    assert said["cells"] == 3 and said["passed"] == 2
    again = "report two runs=[nvidia/two] baseline=last_green".split()
    assert main.run(again) == 1, "the others are kept"
    assert json.loads(Path("reports/two/summary.json").read_text())["cells"] == 3
    assert main.run(["report", "two", "runs=[nowhere/two]"]) == 2
    place = Path("reports/two/run.json")
    said = json.loads(place.read_text()) | {"remarks": ["gap: hip is missing", "old"]}
    place.write_text(json.dumps(said))
    assert main.run(["report", "two", "baseline=[nowhere,none]"]) == 1
    remarks = json.loads(place.read_text())["remarks"]
    assert remarks[0] == "gap: hip is missing" and "not compared" in remarks[1]
    assert len(remarks) == 2 and not Path("reports/two/regressions.json").exists()


def test_an_object_that_was_executed_says_more_than_a_build_that_failed() -> None:
    executed = emulated(evidence=Evidence.EXECUTED, venue="object: AMD executor, gfx942 (wave 64)")
    broken = emulated(verdict=Verdict.BUILD_FAILED, evidence=Evidence.NONE, venue="")
    [best] = kept([on("b", broken)], [on("a", executed)])
    assert best.evidence is Evidence.EXECUTED

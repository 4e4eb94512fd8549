"""Records: what may be said of a cell, and a file that survives its writer."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portkern import ops
from portkern.errors import RecordError
from portkern.records.answer import CellAnswer, CellQuestion
from portkern.records.record import (
    Environment,
    Evidence,
    Record,
    RecordFile,
    Speedup,
    Timing,
    Verdict,
    WorkloadRef,
)
from portkern.spec import target
from portkern.spec.backend import Resources
from portkern.spec.candidate import Candidate
from portkern.spec.op import Workload

TIMING = Timing(median_us=1.0, p20_us=0.9, p80_us=1.1, n=3, samples=[0.9, 1.0, 1.1], method="clock")


def record(**changes: Any) -> Record:
    fields: dict[str, Any] = {
        "run": "r",
        "id": "0",
        "time": "2026-01-01T00:00:00+00:00",
        "key": "k",
        "op": "relu",
        "workload": WorkloadRef(set="ci", name="8", dims={"n": 8}, dtype="float32"),
        "backend": "cpu",
        "language": "c++",
        "target": "x86_64",
        "venue": "hardware: CPU",
        "source_hash": "0",
        "author": "catalogue",
        "verdict": Verdict.PASSED,
        "evidence": Evidence.MEASURED,
        "timing": TIMING,
        "environment": Environment(machine="m", device="CPU", harness_version="0"),
    }
    return Record(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timing": None}, "timing goes with measured"),
        ({"evidence": Evidence.EMULATED}, "timing goes with measured"),
        ({"verdict": Verdict.WRONG}, "only a passed cell is measured"),
        ({"verdict": Verdict.PASSED, "evidence": Evidence.BUILT, "timing": None}, "ran somewhere"),
        (
            {
                "evidence": Evidence.VERIFIED,
                "timing": None,
                "speedup": {"eager": Speedup(value=2.0, ci95=(1.9, 2.1))},
            },
            "a speedup needs a timing",
        ),
    ],
)
def test_a_state_that_must_not_exist_cannot_be_built(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record(**changes)


@given(
    st.text(),
    st.dictionaries(st.text(min_size=1), st.floats(allow_nan=False, allow_infinity=False)),
)
def test_a_record_survives_its_line(detail: str, seconds: dict[str, float]) -> None:
    one = record(detail=detail, seconds=seconds)
    line = one.to_json()
    assert "\n" not in line
    assert Record.from_json(line) == one


def test_a_record_is_json_for_others_whatever_overflowed() -> None:
    one = record(seconds={"run": math.inf})
    said = json.dumps(one.document(), allow_nan=False)
    assert Record.from_json(said) == one


def test_the_line_speaks_the_designs_names() -> None:
    data = json.loads(record().to_json())
    assert (data["schema"], data["verdict"], data["evidence"]) == (1, "passed", "measured")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ('{"schema": 99}', "schema 99, this portkern reads 1"),
        ("[]", "schema None"),
        ('{"schema": 1}', "Field required"),
        (record().to_json().replace('"passed"', '"pased"'), "verdict: "),
        (record().to_json().replace('"run":', '"rum":'), "run: Field required"),
        (record().to_json().replace('"passed"', r'"\ud800"'), r"'\\ud800' is half of a character"),
        (record(detail="x").to_json().replace('"x"', r'"x\udfff"'), "half of a character"),
    ],
)
def test_a_malformed_line_is_one_line_of_error(line: str, message: str) -> None:
    with pytest.raises(RecordError, match=message) as problem:
        Record.from_json(line)
    assert "\n" not in str(problem.value)


def test_a_bad_line_is_named_with_its_file_and_number(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(record().to_json() + "\nnonsense\n" + record().to_json() + "\n")
    with pytest.raises(RecordError, match=r"records\.jsonl:2: not JSON"):
        RecordFile(path).read()


def test_a_torn_last_line_is_reported_and_cut_off_by_the_next_append(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "records.jsonl")
    file.append([record(id="1")])
    with file.path.open("a") as out:
        out.write(record(id="2").to_json()[:40])
    records, torn = file.read()
    assert [r.id for r in records] == ["1"]
    assert str(torn).endswith("records.jsonl:2: the last line is cut off and was ignored")
    file.append([record(id="3")])
    records, torn = file.read()
    assert [r.id for r in records] == ["1", "3"]
    assert torn is None


def test_without_samples_all_else_of_a_record_is_there(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    known = [record(detail='"samples":[1, 2]'), record(detail='\\"samples":[')]
    RecordFile(file).append(known)
    assert known[0].timing is not None and known[0].timing.samples
    bare = {"timing": known[0].timing.model_copy(update={"samples": []})}
    assert RecordFile(file, samples=False).read() == (
        [one.model_copy(update=bare) for one in known],
        None,
    )


def test_without_samples_equal_parts_of_records_are_one_and_no_other(tmp_path: Path) -> None:
    """A whole number and a fraction of the same value are told apart."""
    here = record().environment
    sizes = [
        WorkloadRef(set="ci", name="n", dims={"n": 1}, dtype="float32", scalars={"by": value})
        for value in (1, 1.0, True, 1)
    ]
    for other in (here, here.model_copy(update={"driver": "600"})):
        known = [record(workload=size, environment=other) for size in sizes]
        RecordFile(tmp_path / "records.jsonl").append(known)
    found, _ = RecordFile(tmp_path / "records.jsonl", samples=False).read()
    assert [repr(one.workload.scalars["by"]) for one in found] == ["1", "1.0", "True", "1"] * 2
    assert [one.environment.driver for one in found] == [here.driver] * 4 + ["600"] * 4
    assert found[0].workload is found[3].workload is found[7].workload
    assert found[0].environment is found[3].environment is not found[4].environment


def test_a_missing_file_holds_no_records(tmp_path: Path) -> None:
    assert RecordFile(tmp_path / "none.jsonl").read() == ([], None)


def test_a_writer_killed_at_any_moment_loses_no_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\n"
        "from portkern.records.record import Record, RecordFile\n"
        "file = RecordFile(Path(sys.argv[1])); line = sys.stdin.read(); n = 0\n"
        "while True:\n"
        "    file.append([Record.from_json(line)]); n += 1; print(n, flush=True)\n"
    )
    argv = [sys.executable, "-c", code, str(path), os.fspath(Path(__file__).parents[1])]
    for delay in (0.0, 0.02, 0.05):
        writer = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert writer.stdin and writer.stdout
        before = len(RecordFile(path).read()[0])
        writer.stdin.write(record().to_json())
        writer.stdin.close()
        writer.stdout.readline()
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        told = writer.stdout.read().split()
        writer.wait()
        writer.stdout.close()
        records, _ = RecordFile(path).read()
        assert len(records) >= before + (int(told[-1]) if told else 1)


def question() -> CellQuestion:
    op, kernel = ops.load("relu"), Candidate("relu", "cuda", "cuda", "__global__ …", "relu")
    work = Workload("8", {"n": 8})
    return CellQuestion(
        "k", op, "ci", work, "float32", "cuda", "cuda", target.load("sm_90"), kernel, ("a note",)
    )


def test_a_record_of_an_answer_says_why_there_is_no_more_evidence() -> None:
    where = Environment(machine="m", device="", harness_version="0")
    failed = CellAnswer(Verdict.BUILD_FAILED, "no such type\nat line 3", Evidence.NONE, where)
    record = failed.record("r", question())
    assert record.missing == "no such type"
    assert record.detail == "no such type\nat line 3"
    assert (record.backend, record.target, record.guard) == ("cuda", "sm_90", ["a note"])
    assert record.source_hash == question().candidate.digest  # type: ignore[union-attr]
    ran = CellAnswer(Verdict.PASSED, "", Evidence.EMULATED, where, missing="no GPU")
    assert ran.record("r", question()).missing == "no GPU"
    timed = CellAnswer(Verdict.PASSED, "", Evidence.MEASURED, where, timing=TIMING)
    assert timed.record("r", question()).missing == ""
    with pytest.raises(ValueError, match="timing goes with measured"):
        CellAnswer(Verdict.PASSED, "", Evidence.MEASURED, where).record("r", question())


def test_a_record_has_the_occupancy_of_builds_whose_block_is_known() -> None:
    where = Environment(machine="m", device="", harness_version="0")
    used = (Resources("a", registers=32, threads=256), Resources("b", registers=32))
    answer = CellAnswer(Verdict.UNAVAILABLE, "no GPU", Evidence.BUILT, where, resources=used)
    known, unknown = answer.record("r", question()).resources
    assert known.occupancy == pytest.approx(1.0)
    assert unknown.occupancy is None

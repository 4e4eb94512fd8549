"""A matrix run end to end on this machine's CPU: verdicts, evidence, reuse and interruption."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portkern import ops
from portkern.cells import run as matrix_run
from portkern.cells import selection, together
from portkern.cells.budget import Budget
from portkern.cells.carrying import CarriedCells
from portkern.cells.run import Matrix, MatrixProgress
from portkern.cells.selection import SelectedCell, Selection, host_targets
from portkern.cells.shard import Shard
from portkern.errors import BackendUnavailable, ConfigError, StorageError
from portkern.evaluator import build
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import BuildRequest, Built
from portkern.records.record import Evidence, Record, RecordFile, Verdict
from portkern.spec.backend import Missing, Venue, Venues
from portkern.spec.candidate import Candidate
from portkern.testing import QUICK

from .kernels import RIGHT, relu
from .test_regression import failed
from .test_regression import record as passed

NUMBA = (
    "import numba\n\n\n@numba.njit\ndef relu(x, y):\n"
    "    for i in range(x.size):\n        y[i] = max(x[i], x.dtype.type(0))\n"
)
WRONG = RIGHT.replace("x[i] < 0", "x[i] < 1")

HOST = host_targets()[0]


def cells(candidate: Candidate | None = None, **changes: list[str]) -> list[SelectedCell]:
    fields: dict[str, Any] = {
        "ops": ["relu"],
        "targets": [HOST],
        "backends": ["cpu"],
        "workloads": ["ci"],
        "dtypes": ["float32"],
    }
    found = Selection(**(fields | changes)).cells()
    if candidate is None:
        return found
    return [replace(cell, candidate=candidate) for cell in found if cell.language == "c++"]


def run(
    asked: list[SelectedCell], folder: Path, *, fresh: bool = False
) -> tuple[list[Record], list[MatrixProgress]]:
    seen: list[MatrixProgress] = []
    matrix = Matrix(
        asked,
        "test",
        RecordFile(folder / "records.jsonl"),
        ArtifactCache(folder / "artifacts"),
        QUICK,
        fresh=fresh,
        report=seen.append,
    )
    return matrix.execute(), seen


def test_every_cell_ends_in_a_record_in_the_file(tmp_path: Path) -> None:
    asked = cells(targets=[HOST, "aarch64", "sm_90"])
    records, seen = run(asked, tmp_path)
    assert [r.key for r in records] == [c.key for c in asked]
    written, torn = RecordFile(tmp_path / "records.jsonl").read()
    assert {r.key for r in written} == {r.key for r in records}
    assert torn is None
    assert seen[-1].done == seen[-1].total == len(asked)
    for record in records:
        assert record.evidence is Evidence.MEASURED or record.missing, record


@pytest.mark.full
def test_measured_cells_carry_times_and_speedups_and_others_do_not(tmp_path: Path) -> None:
    records, _ = run(cells(targets=[HOST, "sm_90"]), tmp_path)
    here = [r for r in records if r.target == HOST]
    assert {(r.verdict, r.evidence) for r in here} == {(Verdict.PASSED, Evidence.MEASURED)}
    for record in here:
        assert record.timing and record.timing.median_us > 0
        low, high = record.speedup["eager"].ci95
        assert low <= record.speedup["eager"].value <= high
        assert record.errors is not None
    assert {r.timing for r in records if r.target == "sm_90"} == {None}


@pytest.mark.parametrize(
    ("body", "verdict", "evidence"),
    [
        ("return 0;", Verdict.WRONG, Evidence.BUILT),
        ("abort();", Verdict.CRASHED, Evidence.BUILT),
        ("return nonsense;", Verdict.BUILD_FAILED, Evidence.NONE),
    ],
)
def test_a_bad_kernel_is_a_record_with_its_reason(
    tmp_path: Path, body: str, verdict: Verdict, evidence: Evidence
) -> None:
    records, _ = run(cells(relu(body)), tmp_path)
    assert {(r.verdict, r.evidence) for r in records} == {(verdict, evidence)}
    assert all(r.detail and r.timing is None for r in records)


def test_a_failed_build_carries_the_compilers_words(tmp_path: Path) -> None:
    [record, *_] = run(cells(relu("return nonsense;")), tmp_path)[0]
    assert "relu.cpp" in record.detail
    assert "nonsense" in record.detail
    assert "was not declared" in record.detail


def test_records_are_reused_until_something_changes(tmp_path: Path) -> None:
    first, _ = run(cells(relu(RIGHT)), tmp_path)
    again, seen = run(cells(relu(RIGHT)), tmp_path)
    assert [r.id for r in again] == [r.id for r in first]
    assert [p.record for p in seen] == [None]
    changed, _ = run(cells(relu(" " + RIGHT)), tmp_path)
    assert not {r.id for r in changed} & {r.id for r in first}
    fresh, _ = run(cells(relu(RIGHT)), tmp_path, fresh=True)
    assert not {r.id for r in fresh} & {r.id for r in first}


def test_a_crash_is_tried_again_and_a_wrong_result_is_not(tmp_path: Path) -> None:
    for body, kept in (("abort();", False), ("return 0;", True)):
        first, _ = run(cells(relu(body)), tmp_path)
        again, _ = run(cells(relu(body)), tmp_path)
        assert ([r.id for r in first] == [r.id for r in again]) is kept


@pytest.mark.full
def test_targets_that_share_artifact_and_venue_share_one_run(tmp_path: Path) -> None:
    asked = cells(targets=["opencl_generic", "x86_64"], backends=["opencl"])
    records, _ = run(asked, tmp_path)
    if {r.verdict for r in records} == {Verdict.UNAVAILABLE}:
        pytest.skip(records[0].detail)
    times = {r.target: r.timing for r in records if r.workload.name == "1000"}
    assert len(times) == 2
    assert times["opencl_generic"] == times["x86_64"]


def run_and_count_stopped(
    asked: list[SelectedCell], folder: Path
) -> tuple[list[Record], list[int]]:
    """And how many processes stood still when each record came."""
    stopped: list[int] = []

    def look(progress: MatrixProgress) -> None:
        if progress.record is not None:
            mine = psutil.Process().children(recursive=True)
            stopped.append(sum(one.status() == psutil.STATUS_STOPPED for one in mine))

    file, builds = RecordFile(folder / "records.jsonl"), ArtifactCache(folder / "artifacts")
    return Matrix(asked, "test", file, builds, QUICK, report=look).execute(), stopped


def test_an_operator_is_tried_in_emulators_before_the_next_one_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One processor makes the order plain; a build that cannot be kept leaves earlier records."""
    model = Venues(Missing("this machine has none"), Venue("emulator", "a model"))
    monkeypatch.setattr(SelectedCell, "venues", model)
    asked = [cell for cell in cells(ops=["relu", "gelu", "add"]) if cell.language == "c++"]
    told: list[str] = []
    build_all = build.build_all

    def building(requests: Sequence[BuildRequest], *args: Any, **more: Any) -> list[Built]:
        [request] = requests
        told.append(f"build {request.candidate.op}")
        if request.candidate.op == "add":
            raise StorageError("no space")
        return build_all(requests, *args, **more)

    def look(progress: MatrixProgress) -> None:
        if progress.record is not None:
            assert progress.record.verdict is Verdict.PASSED, progress.record
            told.append(f"record {progress.record.op}")

    monkeypatch.setattr(matrix_run, "_threads", lambda: 1)
    monkeypatch.setattr(build, "build_all", building)
    file, builds = RecordFile(tmp_path / "records.jsonl"), ArtifactCache(tmp_path / "artifacts")
    with pytest.raises(StorageError, match="no space"):
        Matrix(asked, "test", file, builds, QUICK, report=look).execute()
    order = [f"{what} {op}" for op in ("relu", "gelu") for what in ("build", "record")]
    assert list(dict.fromkeys(told)) == [*order, "build add"]
    assert told.count("record relu") == sum(cell.op.name == "relu" for cell in asked)


@pytest.mark.full
def test_kernels_that_wait_for_their_turn_are_loaded_and_stand_still(tmp_path: Path) -> None:
    records, stopped = run_and_count_stopped(cells(ops=["relu", "gelu"]), tmp_path)
    assert {record.verdict for record in records} == {Verdict.PASSED}
    assert stopped[0] >= 2  # gelu's in both languages
    assert stopped[-1] == 0


@pytest.mark.full
def test_kernels_that_are_checked_together_stand_still_while_another_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kernel has two workloads and stands still behind them, as on a GPU."""
    monkeypatch.setattr(together, "on_gpu", lambda group: True)
    monkeypatch.setattr(together, "_most_on_gpu", lambda groups: 2)
    asked = [cell for cell in cells(ops=["relu", "gelu"]) if cell.language == "c++"]
    records, stopped = run_and_count_stopped(asked, tmp_path)
    assert {record.verdict for record in records} == {Verdict.PASSED}
    assert all(record.timing is not None for record in records)
    assert all(stopped)


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    argv = [
        sys.executable,
        "-m",
        "portkern.cli",
        "matrix",
        "ops=[relu,add]",
        f"targets=[{HOST}]",
        "backends=cpu",
        "run=killed",
        "rounds=1",
        "budget_s=0",
        f"reports={tmp_path}",
        "track=false",
        "json=true",
    ]
    path = tmp_path / "killed" / "records.jsonl"
    first = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (path.exists() and path.stat().st_size) and first.poll() is None:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = RecordFile(path).read()[0]
    assert 0 < len(before) < 8
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["exit_code"] == 0
    after = RecordFile(path).read()[0]
    assert len(after) == len({r.key for r in after}) == 8
    assert {r.id for r in before} <= {r.id for r in after}


# ---- what stands as it is


def calm(records: list[Record]) -> list[Record]:
    """The records as they would be on a machine that nobody else uses."""
    return [
        one.model_copy(
            update={"timing": one.timing and one.timing.model_copy(update={"noisy": ""})}
        )
        for one in records
    ]


def carried(asked: list[SelectedCell], folder: Path, known: CarriedCells) -> list[bool]:
    matrix = Matrix(
        asked,
        "again",
        RecordFile(folder / "again.jsonl"),
        ArtifactCache(folder / "artifacts"),
        QUICK,
        carried=known,
    )
    return [bool(record.carried) for record in matrix.execute()]


def test_what_nobody_changed_is_built_and_stands_as_it_is_but_on_a_stated_cycle(
    tmp_path: Path,
) -> None:
    asked = cells(relu(RIGHT))[:1]
    records = calm(run(asked, tmp_path)[0])
    assert records[0].code and records[0].asked == asked[0].asked
    due = zlib.crc32(asked[0].asked.encode()) % 7
    known = CarriedCells.of([records], 7, due + 1)
    assert carried(asked, tmp_path, known) == [True]
    [kept] = RecordFile(tmp_path / "again.jsonl").read()[0]
    assert (kept.carried, kept.run, kept.timing) == ("test", "again", records[0].timing)
    assert not CarriedCells.of([[kept]], 7, due + 1).known, (
        "a time is carried from where it was taken"
    )
    for number, changed in enumerate(
        (
            CarriedCells.of([records], 7, due),
            CarriedCells.of(
                [[one.model_copy(update={"code": "0" * 16}) for one in records]], 7, due + 1
            ),
            CarriedCells.of(
                [[one.model_copy(update={"asked": "other"}) for one in records]], 7, due + 1
            ),
        )
    ):
        assert carried(asked, tmp_path / str(number), changed) == [False]


def test_of_several_records_of_a_question_the_newest_counts() -> None:
    """Else a night is green by what a kernel was before it failed."""
    right, wrong = (one.model_copy(update={"asked": "it"}) for one in (passed(), failed(night=1)))
    assert right.key == wrong.key and right.comparable and wrong.timing is None
    for several in ([[right, wrong]], [[wrong], [right]]):
        assert Budget.of(60, several, ["b", "a"]).known[right.key] is wrong
        assert (
            CarriedCells.of(several, 7, 1).known["it"] is wrong
        )  # by which nothing is carried over
    assert Budget.of(60, [[wrong, right]], ["a"]).known[right.key] is right
    assert CarriedCells.of([[wrong, right]], 7, 1).known["it"] is right


def test_a_newer_compiler_that_makes_the_same_code_is_not_a_reason_to_time_it_again(
    tmp_path: Path,
) -> None:
    asked = cells(relu(RIGHT))[:1]
    [record] = calm(run(asked, tmp_path)[0])
    tools = record.environment.toolchain | {"c++": "g++ 99.1"}
    there = record.environment.model_copy(update={"toolchain": tools})
    number = zlib.crc32(asked[0].asked.encode()) % 7 + 1
    older = record.model_copy(update={"environment": there, "key": "of another compiler"})
    assert carried(asked, tmp_path, CarriedCells.of([[older]], 7, number)) == [True]
    elsewhere = there.model_copy(update={"machine": "another"})
    moved = record.model_copy(update={"environment": elsewhere})
    assert carried(asked, tmp_path / "b", CarriedCells.of([[moved]], 7, number)) == [False]


def test_what_is_compiled_as_it_is_loaded_stands_where_its_tools_are_the_same(
    tmp_path: Path,
) -> None:
    """Its code is known too late to be compared with, and equal tools make the same of it."""
    candidate = Candidate("relu", "cpu", "numba", NUMBA, "relu", author="test")
    asked = cells(candidate)[:1]
    [record] = calm(run(asked, tmp_path)[0])
    assert record.code and record.code_bytes
    number = zlib.crc32(asked[0].asked.encode()) % 7 + 1
    assert carried(asked, tmp_path, CarriedCells.of([[record]], 7, number)) == [True]
    older = record.model_copy(update={"key": "of another Numba"})
    again = Matrix(
        asked,
        "b",
        RecordFile(tmp_path / "b.jsonl"),
        ArtifactCache(tmp_path / "artifacts"),
        QUICK,
        carried=CarriedCells.of([[older]], 7, number),
    ).execute()
    assert [(one.carried, one.code) for one in again] == [("", record.code)], "in another process"


def test_a_run_whose_minutes_are_over_takes_what_changed_first_and_carries_the_rest_over(
    tmp_path: Path,
) -> None:
    old, new, least = cells(relu(RIGHT))[:1], cells(relu(f"// more\n{RIGHT}"))[:1], 1e-9
    records = run(old, tmp_path)[0]
    carried = records[0].model_copy(update={"run": "night-2", "carried": "night-1"})

    def spent(asked: list[SelectedCell], minutes: float, name: str) -> list[Record]:
        budget = Budget.of(minutes, [[carried], records], ["night-2", "night-1", "test"])
        file, builds = RecordFile(tmp_path / f"{name}.jsonl"), ArtifactCache(tmp_path / "artifacts")
        return Matrix(asked, name, file, builds, QUICK, budget=budget).execute()

    budget = Budget.of(60, [[carried], records], ["night-2", "night-1", "test"])
    assert list(budget.batches([*old, *new])) == [new, old]
    [kept, unseen] = spent([*old, *new], least, "a")
    assert (kept.carried, kept.run, kept.verdict) == ("night-1", "a", records[0].verdict)
    assert unseen.verdict is Verdict.UNAVAILABLE
    assert "new or changed, and not looked at: budget_minutes=1e-09" in unseen.detail
    assert [bool(one.carried) for one in spent([*old, *new], 60, "b")] == [False, False]
    wrong = {one.key: one for one in run(cells(relu(WRONG))[:1], tmp_path / "w")[0]}
    [still] = Matrix(
        cells(relu(WRONG))[:1],
        "c",
        RecordFile(tmp_path / "c.jsonl"),
        ArtifactCache(tmp_path / "artifacts"),
        QUICK,
        budget=Budget(least, wrong, {"test": 0}),
    ).execute()
    assert still.verdict is Verdict.WRONG and still.carried, "what was bad is so until it is seen"


@given(
    st.dictionaries(st.text("abc", min_size=1), st.integers(1, 9), min_size=3), st.integers(1, 3)
)
def test_jobs_together_have_each_operator_once_and_none_has_much_more(
    sizes: dict[str, int], jobs: int
) -> None:
    parts = [Shard(number, jobs).names(sizes) for number in range(1, jobs + 1)]
    assert sorted(name for part in parts for name in part) == sorted(sizes)
    filled = [sum(sizes[name] for name in part) for part in parts]
    assert max(filled) - min(filled) <= max(sizes.values())


def test_an_operator_without_workloads_of_the_sets_ends_no_shard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = ops.load("relu")
    named = replace(known.signature, name="bare")
    bare = replace(known, signature=named, workloads={"ci": known.workloads["ci"]})
    monkeypatch.setattr(selection, "load_op", {"relu": known, "bare": bare}.__getitem__)
    asked = Selection(["relu", "bare"], [HOST], ["cpu"], ["edge"], ["float32"])
    assert {cell.op.name for cell in asked.cells()} == {"relu"}
    assert list(Shard(1, 1).part(asked).ops) == ["relu", "bare"]
    with pytest.raises(BackendUnavailable, match="bare has no workloads in edge"):
        replace(asked, ops=["bare"]).cells()


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/0", "a/b", "1/2/3", "-1/2"])
def test_a_shard_is_one_of_several_jobs(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a job and how many there are"):
        Shard.parse(text)

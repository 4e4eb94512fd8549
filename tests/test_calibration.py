"""A calibration kernel of each device, timed in each night: did the machine move, or a tool?"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from portkern import ops
from portkern.cells import calibration
from portkern.cells.selection import Selection, host_targets
from portkern.cli import main
from portkern.records.record import Record, RecordFile
from portkern.regression.cell_change import Cause
from portkern.regression.comparison import RunComparison
from portkern.regression.decisions import NightDecisions
from portkern.regression.judgement import Judgement
from portkern.regression.nights import CALIBRATION, Night
from portkern.regression.past import KnownPast
from portkern.regression.reference import References
from portkern.regression.reference_file import LearntRun, ReferenceOrigin, path_of, read, write
from portkern.regression.rule import ChangeKind
from portkern.spec import catalogue, registry
from tests.test_merged_runs import on
from tests.test_regression import HERE, record, timing

#: What they were when they were first timed. Another text is another kernel, whose times begin
#: anew on all machines.
SOURCES = {
    "cpu": "15237edc14c60b63",
    "cuda": "97e22e4b173ce2d6",
}
NIGHTS = 8
GCC = {"toolchain": {"c++": "g++ 12", "torch": "2.12"}}


def fixed(us: float, night: int = 0, **changes: Any) -> Record:
    """A race of a calibration kernel."""
    where = HERE.model_copy(update=changes.pop("where", GCC))
    said: dict[str, Any] = {"variant": "calibration", "code": "1", "baselines": {}}
    return record("matmul", us, night, environment=where, **{**said, **changes})


def cell(us: float, eager: float = 20.0, night: int = 0, **where: Any) -> Record:
    place = HERE.model_copy(update={**GCC, **where})
    return record("relu", us, night, baselines={"eager": timing(eager)}, environment=place)


def past(count: int = NIGHTS) -> list[Night]:
    """Quiet nights with one cell and two races of the calibration kernel."""
    draw = random.Random(1)

    def near(us: float) -> float:
        return us * math.exp(draw.gauss(0, 0.003))

    return [
        Night.of(
            f"night-{n:02}",
            [cell(near(10.0), near(20.0), n)],
            (),
            [fixed(near(100.0), n), fixed(near(100.0) * 1.3, n)],
        )
        for n in range(count)
    ]


def told(history: Sequence[Night], new: Record, races: Sequence[Record]) -> RunComparison:
    """The night after ``history``: the cell, timed three times alike."""
    return RunComparison.of(history[-1], Night.of("after", [new], [new, new], races), history)


def told_by(references: References) -> list[str]:
    """The judgement of the references about a night on which the machine is slower."""
    night = Night.of("after", [cell(10.0, 20.0, 20)], (), [fixed(142.0, 20)])
    return Judgement(references, night).machine


def test_a_machine_that_is_slower_by_its_calibration_kernel_alone_is_named_and_blames_no_one() -> (
    None
):
    """One cell has one eager beside it, which is too few to say so."""
    slow = cell(14.0, 28.0, 20)
    without = told(past(), slow, [])
    found = told(past(), slow, [fixed(142.0, 20)])
    assert not any("busy" in line for line in without.machine)
    [line] = [line for line in found.machine if "busy or is another" in line]
    assert "calibration kernels by +4" in line
    assert not found.regressed


@pytest.mark.parametrize(
    ("device", "is_control"),
    [("NVIDIA H200", False), ("AMD Instinct MI300X", False), ("pthread-EPYC 9", True)],
)
def test_a_calibration_kernel_of_the_processor_is_not_a_control_of_a_gpu(
    device: str, is_control: bool
) -> None:
    """OpenCL's kernels run on the processor under another name of it."""
    machine = {"machine": "Linux x86_64, 2 CPUs, EPYC 9"}
    place = {**GCC, **machine, "device": "EPYC 9"}

    def at(us: float, night: int) -> Record:
        one = cell(us, 20.0, night, **machine, device=device)
        return one.model_copy(update={"backend": "opencl", "baselines": {}})

    history = [
        Night.of(f"night-{n:02}", [at(10.0, n)], (), [fixed(100.0, n, where=place)] * 2)
        for n in range(NIGHTS)
    ]
    slow = [at(14.0, 20)] * 3
    night = Night.of("after", slow[:1], slow[1:], [fixed(142.0, 20, where=place)])
    [one] = RunComparison.of(history[-1], night, history).cells
    assert one.regressed is not is_control, one.detail
    assert is_control or "too few controls" in one.detail


def test_of_a_merged_night_each_machine_has_the_times_of_its_own() -> None:
    """The kernel is one series on both, and the slower machine is not hidden by the other."""
    other = {**GCC, "machine": "another machine"}
    races = [fixed(142.0, 20), fixed(60.0, 20, where=other)]
    night = Night.of("after", [cell(14.0, 28.0, 20)], (), races)
    assert [[one.environment.machine for one in own] for _, own in night.calibrated()] == [
        [HERE.machine],
        ["another machine"],
    ]
    found = RunComparison.of(past()[-1], night, past())
    assert any("calibration kernels by +4" in line for line in found.machine)


def test_another_torch_is_not_taken_for_another_machine() -> None:
    """Its eager kernels are slower, and nothing else is."""
    new = cell(10.0, 26.0, 20, toolchain={"c++": "g++ 12", "torch": "2.13"})
    found = told(past(), new, [fixed(100.0, 20)])
    assert any("calibration kernel in cpu moved by" in line for line in found.machine)
    assert not any("busy" in line for line in found.machine)
    [one] = found.cells
    assert one.change in (ChangeKind.SUSPECT, ChangeKind.UNCHANGED) and not one.regressed
    assert one.change is ChangeKind.UNCHANGED or one.cause is Cause.METHOD


@pytest.mark.parametrize("eager", [15.0, 26.0])
def test_an_odd_race_beside_eager_of_another_torch_is_told_by_the_kernels_own_time(
    eager: float,
) -> None:
    """A change of eager's time is not the machine's share of the kernel's time."""
    torch = {"c++": "g++ 12", "torch": "2.13"}
    odd, *further = (cell(us, eager, 20, toolchain=torch) for us in (11.0, 10.0, 10.02))
    night = Night.of("after", [odd], further, [fixed(100.0, 20)])
    [one] = RunComparison.of(past()[-1], night, past()).cells
    assert one.change is ChangeKind.UNCHANGED and abs(one.moved or 1.0) < 0.01
    slower = [cell(11.0, eager, 20, toolchain=torch)] * 3
    night = Night.of("after", slower[:1], slower[1:], [fixed(100.0, 20)])
    [one] = RunComparison.of(past()[-1], night, past()).cells
    assert one.change is ChangeKind.SLOWER and 0.08 < (one.moved or 0) < 0.12


def test_after_three_nights_eager_of_the_new_torch_is_the_measure() -> None:
    history = past()
    for n in range(NIGHTS, NIGHTS + 6):
        new = cell(10.0, 26.0, n, toolchain={"c++": "g++ 12", "torch": "2.13"})
        history.append(Night.of(f"night-{n:02}", [new], [new, new], [fixed(100.0, n)]))
    new = cell(10.0, 26.0, 20, toolchain={"c++": "g++ 12", "torch": "2.13"})
    found = told(history, new, [fixed(100.0, 20)])
    assert [one.change for one in found.cells] == [ChangeKind.UNCHANGED]
    slower = cell(13.0, 26.0, 20, toolchain={"c++": "g++ 12", "torch": "2.13"})
    assert [one.change for one in told(history, slower, []).cells] == [ChangeKind.SLOWER]


@pytest.mark.parametrize(
    ("changes", "told_of"),
    [
        ({"code": "2", "where": {"toolchain": {"c++": "g++ 13"}}}, "begins anew: c++ g++ 12"),
        ({"where": {**GCC, "driver": "600"}}, "begins anew: driver none → 600"),
        ({"code": "1", "where": {"toolchain": {"c++": "g++ 13", "torch": "3"}}}, "moved by +4"),
    ],
    ids=["other code", "other driver", "same code by another compiler"],
)
def test_a_calibration_kernel_is_a_control_while_its_machine_code_and_driver_are_as_they_were(
    changes: dict[str, Any], told_of: str
) -> None:
    found = told(past(), cell(14.0, 28.0, 20), [fixed(142.0, 20, **changes)])
    [line] = [line for line in found.machine if "its calibration kernel" in line]
    assert told_of in line
    assert any("busy" in line for line in found.machine) == ("moved by" in told_of)


def test_it_says_nothing_before_five_nights_and_is_not_a_cell_of_the_run() -> None:
    found = told(past(4), cell(14.0, 28.0, 20), [fixed(142.0, 20)])
    assert any("has 4 earlier nights, expected 5" in line for line in found.machine)
    assert {one.series.op for one in found.cells} == {"relu"}
    gone = told(past(), cell(10.0, 20.0, 20), [])  # nor is it missed
    assert not gone.regressed


def test_what_is_learnt_of_it_is_kept_in_the_file_of_references(tmp_path: Path) -> None:
    known = KnownPast.of(past(), NightDecisions())
    runs = tuple(LearntRun(name=name, stamp="") for name in known.names)
    write(tmp_path, ReferenceOrigin(runs=runs), known.references)
    again = read(path_of(tmp_path, known.names[-1]), NightDecisions(), frozenset())
    [key] = [key for key in again.cells if key[0].variant == "calibration"]
    assert again.cells[key].levels == known.references.cells[key].levels
    assert told_by(again) == told_by(known.references)


def test_races_of_all_machines_are_in_the_merged_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        RecordFile(Path(name, "records.jsonl")).append([on(name, record(name))])
        RecordFile(Path(name, CALIBRATION)).append([fixed(100.0, id=name)])
    for _ in range(2):  # again, each is there once
        main.run(["report", "both", "runs=[./a,./b]"])
    kept = RecordFile(Path("reports/both", CALIBRATION)).read()[0]
    assert sorted(one.id for one in kept) == ["a", "b"]


def test_sources_of_calibration_kernels_never_change() -> None:
    found = {}
    for name in SOURCES:
        kernel = catalogue.calibration(calibration.OP, registry.load(name))
        assert kernel is not None
        found[name] = hashlib.sha256(kernel.source.encode()).hexdigest()[:16]
    assert found == SOURCES


def test_the_sizes_of_calibration_kernels_are_workloads() -> None:
    op = ops.load(calibration.OP)
    for which, size in calibration.SIZES.values():
        assert size in {one.name for one in op.workloads[which]}


def test_a_night_times_the_calibration_kernel_of_the_processor_before_and_after_its_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["ops=relu", "backends=cpu", f"targets=[{host_targets()[0]}]", "rounds=1"]
    words = ["matrix", *asked, "budget_s=0", "track=false"]
    assert main.run([*words, "run=alone"]) == 0
    assert main.run([*words, "run=night", "baseline=[last_green,none]"]) in (0, 1)
    assert not Path("reports/alone", CALIBRATION).exists()
    races = RecordFile(Path("reports/night", CALIBRATION)).read()[0]
    assert [(one.op, one.variant, one.backend) for one in races] == [
        ("matmul", "calibration", "cpu")
    ] * 2
    assert all(one.timing and one.code and not one.baselines for one in races)
    assert len({one.code for one in races}) == 1
    [cells, *_] = RecordFile(Path("reports/night/records.jsonl")).read()[0]
    assert cells.environment.toolchain["torch"]


def test_no_kernel_is_timed_for_cells_that_only_an_emulator_runs() -> None:
    cells = Selection(["relu"], ["gfx942"], ["hip"], ["ci"], ["float32"]).cells()
    assert calibration.cells(cells) == []

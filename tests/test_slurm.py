"""Matrices as jobs of submitit, which runs them as processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
import yaml

from portkern.cells.selection import host_targets
from portkern.cli import main
from portkern.errors import BackendUnavailable
from portkern.execution.slurm_fleet import SlurmCluster, SlurmFleet
from portkern.records.record import Record, RecordFile, Verdict

HOST = host_targets()[0]
#: What this machine is not.
OTHER = "gfx942"
QUICK = ["rounds=1", "budget_s=0", "track=false", "json=true", "backends=cpu"]


def cluster(folder: Path, *targets: str, jobs: int = 1, **more: object) -> str:
    """A file that describes this machine as a cluster of one partition."""
    pytest.importorskip("submitit", reason="submitit is not installed; pip install portkern[slurm]")
    partition = {"name": "here", "targets": list(targets or (HOST,)), "jobs": jobs}
    said = {"cluster": "local", "folder": str(folder / "jobs"), "partitions": [partition]}
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(said | more))
    return f"address={path}"


def matrix(folder: Path, *options: str) -> int:
    return main.run(["matrix", *QUICK, *options, f"reports={folder}", "run=night"])


def records(folder: Path) -> list[Record]:
    return RecordFile(folder / "night/records.jsonl").read()[0]


def verdicts(found: Sequence[Record]) -> dict[tuple[str, str, str, str], Verdict]:
    by_cell = {(r.op, r.workload.name, r.language, r.target): r.verdict for r in found}
    assert len(by_cell) == len(found), "a cell is there twice"
    return by_cell


@pytest.mark.drawn
def test_jobs_give_the_verdicts_that_this_machine_gives(tmp_path: Path) -> None:
    asked = ["ops=[relu,add]", f"targets={HOST}"]
    there = ["execution=slurm", cluster(tmp_path, jobs=2)]
    assert matrix(tmp_path / "here", *asked) == 0
    assert matrix(tmp_path / "there", *asked, *there) == 0
    assert verdicts(records(tmp_path / "there")) == verdicts(records(tmp_path / "here"))
    left = [path for path in (tmp_path / "jobs").rglob("*") if path.is_file()]
    assert not left, "what jobs were sent is gone with them"
    before = (tmp_path / "there/night/records.jsonl").read_bytes()
    assert matrix(tmp_path / "there", *asked, *there) == 0
    assert (tmp_path / "there/night/records.jsonl").read_bytes() == before


@pytest.mark.full
def test_a_job_that_is_killed_costs_no_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = ["execution=slurm", cluster(tmp_path)]
    killed: list[int] = []
    watcher = threading.Thread(target=_kill_the_first, args=(tmp_path / "jobs", killed))
    watcher.start()
    code = matrix(tmp_path, "ops=relu", f"targets={HOST}", *there)
    watcher.join()
    assert killed, "no job was there to be killed"
    assert code == 0
    assert set(verdicts(records(tmp_path)).values()) == {Verdict.PASSED}
    assert "relu float32" in capsys.readouterr().err, "the loss is said"


def _kill_the_first(jobs: Path, killed: list[int]) -> None:
    """The processes of the first job, once it has begun."""
    until = time.monotonic() + 120
    while time.monotonic() < until and not list(jobs.glob("begun-*")):
        time.sleep(0.02)
    for process in psutil.Process().children(recursive=True):
        if "submitit.core._submit" in " ".join(process.cmdline()):
            os.kill(process.pid, signal.SIGKILL)
            killed.append(process.pid)


@pytest.mark.full
def test_a_machine_that_is_not_what_its_partition_promises_runs_nothing(tmp_path: Path) -> None:
    there = ["execution=slurm", cluster(tmp_path, HOST, OTHER)]
    assert matrix(tmp_path, "ops=relu", f"targets={HOST}", *there) == 3
    details = {record.detail for record in records(tmp_path)}
    assert all(f"is no {OTHER}; correct the partition's targets" in why for why in details)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("partitions: []", "partitions: Tuple should have at least 1 item"),
        ("[1, 2]", "expected partitions with a name and targets"),
        ("partitions: [{name: a, targets: [h10]}]", "No target 'h10'; did you mean 'h100'?"),
        ("partitions: [{name: ../a, targets: [h100]}]", "partitions.0.name: "),
        ("partitions: [{name: a, targets: [h100], gpu: 1}]", "partitions.0.gpu: Extra inputs"),
        ("partitions: [", "while parsing"),
        (
            'partitions: [{name: a, targets: [h100], submit: {slurm_partition: "x\\nid > y"}}]',
            "'slurm_partition' has a character",
        ),
    ],
)
def test_a_file_that_describes_no_cluster_is_one_line(
    said: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(said)
    asked = ["matrix", "ops=relu", "execution=slurm", f"reports={tmp_path}"]
    for address in (path, tmp_path / "none.yaml"):
        assert main.run([*asked, f"address={address}"]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"portkern: error: {address}: ")
        assert message in line or address != path
    assert main.run(asked) == 2
    assert "needs address=FILE" in capsys.readouterr().err


def test_a_parameter_that_submitit_does_not_know_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    partition = {"name": "here", "targets": [HOST], "submit": {"gpus": 1}}
    address = cluster(tmp_path, partitions=[partition])
    asked = ["matrix", "ops=relu", "execution=slurm", address, f"reports={tmp_path}"]
    assert main.run(asked) == 2
    assert "partition here: submit: " in capsys.readouterr().err


def test_without_slurm_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(cluster(tmp_path, cluster="slurm").partition("=")[2])
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackendUnavailable, match="No Slurm here: "):
        SlurmFleet(SlurmCluster.read(path))


def test_the_fleet_needs_no_submitit_to_be_imported() -> None:
    code = "import sys, portkern.execution.slurm_fleet; print('submitit' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.strip().lower()) is False

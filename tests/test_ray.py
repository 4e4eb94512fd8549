"""Matrices on a real Ray cluster of several nodes, all on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest

from portkern.cells.selection import host_targets
from portkern.cli import main
from portkern.execution import node
from portkern.records.record import Record, RecordFile, Verdict

ROOT = Path(__file__).parents[1]
HOST = host_targets()[0]
#: What this machine is not.
OTHER = "gfx942"
QUICK = ["rounds=1", "budget_s=0", "track=false", "json=true"]
SMALL = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


@dataclass
class Cluster:
    """``ray`` is :class:`ray.cluster_utils.Cluster`; nodes are this machine each, in processes of
    their own."""

    ray: Any
    cache: Path
    nodes: list[Any] = field(default_factory=list)

    def add(self, resources: dict[str, float], **environment: str) -> Any:
        own = {"PORTKERN_CACHE_DIR": str(self.cache), **environment}
        added = self.ray.add_node(**SMALL, resources=resources, env_vars=own)
        self.nodes.append(added)
        return added

    def remove(self, added: Any, *, abruptly: bool = False) -> None:
        self.nodes.remove(added)
        self.ray.remove_node(added, allow_graceful=not abruptly)

    def kill(self, added: Any, worker: psutil.Process) -> None:
        """Stops ``worker`` with all that it has begun: it cannot see that its node is gone."""
        theirs = [*worker.children(recursive=True), worker]
        self.remove(added, abruptly=True)
        for process in theirs:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def held_slice(nodes: Sequence[Any]) -> tuple[Any, psutil.Process] | None:
    """A node with a slice, and the process that runs it, which is stopped: what it has it keeps.
    None where no node has any at this moment."""
    for one in nodes:
        (raylet,) = one.all_processes["raylet"]
        for worker in psutil.Process(raylet.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if not runs_slice(worker):
                    continue
                worker.suspend()
                if runs_slice(worker):
                    return one, worker
                worker.resume()  # it answered in between
    return None


def runs_slice(worker: psutil.Process) -> bool:
    """Whether the worker runs a slice, by the title that Ray gives to a process while a task runs
    in it."""
    return "".join(worker.cmdline()[:1]).startswith(f"ray::{node.run_slice.__name__}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with a head that runs nothing of ours; the loss of a node is noticed within two
    seconds."""
    pytest.importorskip("ray", reason="Ray is not installed; pip install 'portkern[ray]'")
    from ray.cluster_utils import Cluster as RayCluster

    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_AUTH_MODE", "disabled")
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("RAY_health_check_initial_delay_ms", "0")
    patch.setenv("RAY_health_check_period_ms", "500")
    patch.setenv("RAY_health_check_timeout_ms", "1000")
    patch.setenv("RAY_health_check_failure_threshold", "3")
    made = RayCluster(initialize_head=True, head_node_args={**SMALL, "num_cpus": 0})
    yield Cluster(made, tmp_path_factory.mktemp("cache"))
    made.shutdown()
    patch.undo()


@pytest.fixture
def two(cluster: Cluster) -> Iterator[list[Any]]:
    """Nodes that are this machine."""
    before = list(cluster.nodes)
    added = [cluster.add(node.resources()) for _ in range(2)]
    yield added
    for one in [one for one in cluster.nodes if one not in before]:
        cluster.remove(one)


def matrix(cluster: Cluster, folder: Path, *options: str) -> list[str]:
    ray = ["execution=ray", f"address={cluster.ray.address}"]
    argv = [*options, *QUICK, *(ray if "execution=local" not in options else [])]
    return [sys.executable, "-m", "portkern.cli", "matrix", *argv, f"reports={folder}", "run=night"]


def run(argv: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=folder, env=own)


def records(folder: Path) -> list[Record]:
    return RecordFile(folder / "night/records.jsonl").read()[0]


def verdicts(found: Sequence[Record]) -> dict[tuple[str, ...], Verdict]:
    """The verdicts by cell, each of which occurs once."""
    by_cell: dict[tuple[str, ...], Verdict] = {
        (r.op, r.workload.name, r.backend, r.language, r.variant, r.target): r.verdict
        for r in found
    }
    assert len(by_cell) == len(found), "a cell is there twice"
    return by_cell


def test_it_gives_the_verdicts_that_this_machine_gives_and_says_what_no_node_is(
    cluster: Cluster, two: list[Any], tmp_path: Path
) -> None:
    """A wrong kernel gets its verdict too; run again from the records, only what had no node is
    run."""
    for name, value in [("relu.cpp", "x[i] < 0 ? 0 : x[i]"), ("relu.bad.cpp", "x[i]")]:
        (tmp_path / name).write_text(
            'extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {\n'
            f"    for (int64_t i = 0; i < n; ++i) y[i] = {value};\n    return 0;\n}}\n"
        )
    (tmp_path / "relu.hip").write_text("no node would build it\n")
    asked = ["kernels=.", "venue=hardware", "node_wait_s=1", f"targets=[{HOST},{OTHER}]"]
    local = matrix(cluster, tmp_path / "l", *asked, "backends=cpu", "execution=local")
    assert run(local, tmp_path).returncode == 1
    distributed = matrix(cluster, tmp_path / "r", *asked, "backends=[cpu,hip]")
    first = run(distributed, tmp_path)
    assert first.returncode == 1, first.stderr
    before = records(tmp_path / "r")
    unrouted = [r for r in before if r.verdict is Verdict.UNAVAILABLE]
    assert {(r.backend, r.target) for r in unrouted} == {("hip", OTHER)}
    assert f"no node of the cluster is a {OTHER}; nodes: " in unrouted[0].detail
    by_cpu = [r for r in before if r.backend == "cpu"]
    assert verdicts(by_cpu) == verdicts(records(tmp_path / "l"))
    assert {r.environment.harness_version for r in by_cpu} == {version("portkern")}
    again = run(distributed, tmp_path)
    assert again.returncode == 1, again.stderr
    new = records(tmp_path / "r")[len(before) :]
    assert {r.key for r in new} == {r.key for r in unrouted}


def test_a_node_that_is_killed_costs_no_cell(
    cluster: Cluster, two: list[Any], tmp_path: Path
) -> None:
    ops = "ops=[relu,add,transpose,softmax]"
    argv = matrix(cluster, tmp_path, ops, "backends=cpu", f"targets={HOST}", "dtypes=float32")
    path = tmp_path / "night/records.jsonl"
    pipe = subprocess.PIPE
    driver = subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path)
    try:
        deadline = time.monotonic() + 240
        held = None
        while held is None and driver.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
            if path.exists() and '"passed"' in path.read_text():
                held = held_slice(two)  # what no machine can do is recorded before
        assert held is not None, "nothing is left to be lost"
        cluster.kill(*held)
        out, err = driver.communicate(timeout=240)
    finally:
        driver.kill()
    assert driver.returncode == 0, err
    assert f"({held[0].node_id[:8]})" in err, "the loss is said"
    assert "Died" in err or "Crashed" in err, "and why"
    found = verdicts(records(tmp_path))
    assert set(found.values()) <= {Verdict.PASSED, Verdict.UNSUPPORTED}
    assert json.loads(out)["exit_code"] == 0
    cells = run([*argv, "execution=local", "address=", f"plan={tmp_path / 'plan.json'}"], ROOT)
    assert cells.returncode == 0, cells.stderr
    assert len(found) == json.loads(cells.stdout)["cells"]


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder with this portkern, but for one rule of its evaluator."""
    skipped = shutil.ignore_patterns("__pycache__")
    copy = tmp_path / "other"
    shutil.copytree(ROOT / "portkern", copy / "portkern", ignore=skipped)
    for name in ("backends", "targets", "conf"):
        shutil.copytree(ROOT / name, copy / "portkern" / name, ignore=skipped)
    with (copy / "portkern/evaluator/compare.py").open("a") as file:
        file.write("# a later thought\n")
    return copy


def test_a_node_with_another_portkern_is_refused_by_name(
    cluster: Cluster, foreign: Path, tmp_path: Path
) -> None:
    old = cluster.add(node.resources(), PYTHONPATH=str(foreign))
    try:
        asked = ["ops=relu", "backends=cpu", f"targets={HOST}", "node_wait_s=3"]
        done = run(matrix(cluster, tmp_path, *asked), tmp_path)
    finally:
        cluster.remove(old)
    assert done.returncode == 3, done.stderr
    assert f"({old.node_id[:8]}) is refused: it has portkern " in done.stderr
    assert "install the same portkern there" in done.stderr
    (why,) = {r.detail for r in records(tmp_path)}
    assert "is refused: it has portkern " in why


@pytest.mark.parametrize(
    ("address", "code", "message"),
    [
        ("127.0.0.1:1", 3, "No Ray cluster at 127.0.0.1:1: "),
        ("head", 2, "Got address=head, expected HOST:PORT of a Ray cluster's head"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_line(
    address: str, code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed; pip install 'portkern[ray]'")
    asked = ["ops=relu", "execution=ray", f"address={address}", f"reports={tmp_path}"]
    assert main.run(["matrix", *asked]) == code
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"portkern: error: {message}")


def test_a_node_offers_what_this_machine_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["node", "address=10.0.0.1:6379", "json=true"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["resources"] == node.resources()
    assert said["resources"][node.OWNER] == said["resources"][HOST] == 1.0
    assert said["command"][:3] == ["ray", "start", "--address=10.0.0.1:6379"]
    assert main.run(["node", f"targets={HOST}", "start=false", "--", "--port=7000"]) == 0
    line = capsys.readouterr().out
    assert "ray start --head " in line
    assert line.rstrip().endswith("--block --port=7000")
    assert main.run(["node", "targets=gfx1100", "start=false"]) == 2
    assert "No target of this machine 'gfx1100'" in capsys.readouterr().err

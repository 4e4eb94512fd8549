"""Nodes of a cluster that work against who asked: each answer costs its slice, in one line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from portkern.cells.selection import Selection, host_targets
from portkern.cli import main
from portkern.evaluator.trial import TrialOptions
from portkern.execution import dispatch, node
from portkern.execution.dispatch import Fleet
from portkern.execution.distributed import DistributedMatrix
from portkern.execution.ray_fleet import RayFleet
from portkern.execution.slices import MOST_ANSWER
from portkern.execution.slurm_fleet import SlurmCluster, SlurmFleet
from portkern.records.record import RecordFile, Verdict
from tests.report_records import make

HOST = host_targets()[0]
RECORD = make(run="night").to_json()
#: Bodies of the function that a node runs in the place of a slice, with the words that say why
#: what it does is not an answer.
ANSWERS: Mapping[str, tuple[str, str]] = {
    "a number": ("return 5", "got int, expected a list of lines"),
    "nothing": ("return None", "got NoneType, expected a list of lines"),
    "a text": ("return '{}'", "got str, expected a list of lines"),
    "a mapping": ("return {'a': 1}", "got dict, expected a list of lines"),
    "endless": ("import itertools; return itertools.repeat", "got type, expected a list of lines"),
    "numbers": ("return [1, 2]", "expected a list of lines"),
    "bytes": ("return [b'{}']", "expected a list of lines"),
    "a list that says something else each time": (
        "L = type('L', (list,), {'__iter__': lambda self: iter([5])}); return L(['{}'])",
        "got L, expected a list of lines",
    ),
    "no record": ("return ['{}']", "schema None, this portkern reads"),
    "too few": ("return []", "got records of 0 cells"),
    "depth": ("return ['[' * 100000]", "not JSON: "),
    "an endless number": ("return ['{\"schema\":' + '9' * 100000 + '}']", "not JSON: "),
    "half a character": ('return [\'{"schema": "\\ud800"}\']', "its answer is not an answer: "),
    "another cell": (f"return [{RECORD!r}]", "got records of 1 cells"),
    "another cell, often": (f"return [{RECORD!r}] * 1000", "got records of 1 cells"),
    "a cell named as a path": (
        f"return [{RECORD.replace('relu', '../../relu')!r}]",
        "its answer is not an answer: ",
    ),
    "too much": (f"return ['x' * {MOST_ANSWER + 1}]", "expected at most"),
    "an error": ("raise ValueError('no')", "ValueError: no"),
    "escapes": ("raise ValueError('\\x1b]0;title\\x07\\x1b[2Jclean')", "ValueError: clean"),
    "an error without end": ("raise ValueError('x\\n' * 10**6)", "x"),
    "the end of its process": ("import os; os._exit(3)", ""),
    "a signal": ("import os; os.kill(os.getpid(), 9)", ""),
    "an error that cannot be read": (
        "class E(Exception):\n        def __reduce__(self): return int, ('x',)\n    raise E(1)",
        "",
    ),
}
#: What a node says that it is.
DESCRIPTIONS: Mapping[str, str] = {
    "nothing": "return None",
    "an empty mapping": "return {}",
    "a list": "return []",
    "a number": "return {'portkern': 5}",
    "an empty object": "return {'portkern': '{}'}",
    "depth": "return {'portkern': '[' * 100000}",
    "an error": "raise OSError('x\\n\\x1b[2J' * 1000)",
    "an error that cannot be read": ANSWERS["an error that cannot be read"][0],
    "another portkern": "return {'portkern': '{\"version\": \"\\\\u001b[2J' + 'x' * 9000 "
    '+ \'", "evaluator": "a\\\\nb", "backends": "c"}\'}',
}
#: The same with what a job leaves in the place of its answer.
FILES: Mapping[str, str] = {
    "is empty": "path.write_bytes(b'')",
    "is not a pickle": "path.write_bytes(b'\\x00' * 4096)",
    "is cut off": "path.write_bytes(pickle.dumps(('success', ['x' * 99]))[:40])",
    "is a number": "path.write_bytes(pickle.dumps(5))",
    "has another outcome": "path.write_bytes(pickle.dumps(('else', 7)))",
    "needs what is not there": "path.write_bytes(b'cno_such_module\\nname\\n.')",
    "is a folder": "path.mkdir()",
    "is a pipe": "os.mkfifo(path)",
    "is a device": "path.symlink_to('/dev/zero')",
    "is a link that leads nowhere": "path.symlink_to('/nonexistent/a')",
}


def attack(body: str) -> Callable[..., Any]:
    """A function that travels by its code, as what is imported there would be portkern's own."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(f"def attack(*given):\n    {body}\n", names)
    function: Callable[..., Any] = names["attack"]
    return function


@pytest.fixture(autouse=True)
def asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice is not sent again: what is refused once is refused three times."""
    monkeypatch.setattr(dispatch, "MOST_TRIES", 1)


def evaluated(fleet: Fleet, folder: Path) -> list[str]:
    """The notes of a matrix of one slice, no cell of which has an answer."""
    notes: list[str] = []
    cells = Selection(["relu"], [HOST], ["cpu"], ["ci"], ["float32"]).cells()
    file = RecordFile(folder / "run" / "records.jsonl")
    file.path.parent.mkdir()
    matrix = DistributedMatrix(
        cells, "night", file, TrialOptions(), fleet, note=notes.append, node_wait_s=0.5
    )
    records = matrix.execute()
    assert {record.verdict for record in records} == {Verdict.UNAVAILABLE}
    assert all(record.detail.isprintable() and len(record.detail) < 1500 for record in records)
    assert all(note.isprintable() and len(note) < 1500 for note in notes)
    assert [path.name for path in folder.rglob("*") if path.is_file() and "jobs" not in path.parts]
    assert [*(folder / "run").iterdir()] == [file.path]
    assert not any((folder.parent / name).exists() for name in ("relu", "relu.jsonl"))
    return notes


# ---- Ray


@pytest.fixture(scope="module")
def one_node() -> Iterator[RayFleet]:
    """A cluster of this machine alone, as ``execution=ray`` without an address starts it."""
    pytest.importorskip("ray", reason="Ray is not installed; pip install 'portkern[ray]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        with RayFleet() as fleet:
            until = time.monotonic() + 120
            while not fleet.nodes() and time.monotonic() < until:
                time.sleep(0.2)
            yield fleet


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ANSWERS)
def test_an_answer_of_a_node_that_is_none_costs_its_slice(
    how: str, one_node: RayFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, why = ANSWERS[how]
    monkeypatch.setattr(node, "run_slice", attack(body))
    notes = evaluated(one_node, tmp_path)
    assert sum(why in note for note in notes) == 2, notes


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", DESCRIPTIONS)
def test_a_node_that_does_not_say_what_it_is_is_refused_in_a_line(
    how: str, one_node: RayFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "describe", attack(DESCRIPTIONS[how]))
    notes: list[str] = []
    for name in ("_accepted", "_asked", "_gpus", "refused"):
        monkeypatch.setattr(one_node, name, dict[str, Any]())
    monkeypatch.setattr(one_node, "_note", notes.append)
    evaluated(one_node, tmp_path)
    (said,) = notes
    assert "is refused: it " in said and "install the same portkern there" in said
    assert said.isprintable() and len(said) < 1000, said


# ---- Slurm


def jobs(folder: Path) -> SlurmFleet:
    pytest.importorskip("submitit", reason="submitit is not installed; pip install portkern[slurm]")
    partition = {"name": "here", "targets": (HOST,)}
    said = {"cluster": "local", "folder": folder / "jobs", "partitions": [partition]}
    return SlurmFleet(SlurmCluster.model_validate(said))


@pytest.mark.full
@pytest.mark.parametrize("how", ANSWERS)
def test_an_answer_of_a_job_that_is_none_costs_its_slice(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, why = ANSWERS[how]
    monkeypatch.setattr(node, "run_job", attack(body))
    notes = evaluated(jobs(tmp_path), tmp_path)
    assert sum(why in note for note in notes) == 2, notes


@pytest.mark.full
@pytest.mark.parametrize("how", FILES)
def test_a_file_in_the_place_of_a_jobs_answer_costs_its_slice(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (
        "import os, pickle, submitit\n"
        "    path = submitit.JobEnvironment().paths.result_pickle\n"
        f"    {FILES[how]}\n"
        "    os._exit(0)"
    )
    monkeypatch.setattr(node, "run_job", attack(body))
    notes = evaluated(jobs(tmp_path), tmp_path)
    assert len(notes) == 2, notes


@pytest.mark.parametrize(
    ("partitions", "why"),
    [
        ([{"name": ".."}], "partitions.0.name: "),
        ([{"name": "."}], "partitions.0.name: "),
        ([{"name": "a/b"}], "partitions.0.name: "),
        ([{"name": "/etc/cron.d"}], "partitions.0.name: "),
        ([{"name": "-rf"}], "partitions.0.name: "),
        ([{"name": "a\nb"}], "partitions.0.name: "),
        ([{"name": "a\x1b[2J"}], "partitions.0.name: "),
        ([{"name": "x" * 10_000}], "10000 characters"),
        ([{"name": "CON"}], "partitions.0.name: "),
        ([{"name": "a"}, {"name": "A"}], "which are the same file"),
        ([{"name": "a", "jobs": 10**400}], "characters"),
        ([{"name": "a", "jobs": 10**12}], "partitions.0.jobs: "),
        ([{"name": "a", "submit": {"slurm_setup": ["id > /tmp/x"]}}], "partitions.0.submit"),
        ([{"name": "a", "submit": {"x\nid": 1}}], "partitions.0.submit"),
        ([{"name": "a", "submit": {"slurm_comment": "\u2028id"}}], "partitions.0.submit"),
    ],
)
def test_a_clusters_file_names_no_place_but_its_own(
    partitions: Sequence[Mapping[str, object]],
    why: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import yaml

    path = tmp_path / "cluster.yaml"
    said = [{"targets": [HOST], **partition} for partition in partitions]
    path.write_text(
        yaml.safe_dump({"cluster": "local", "folder": str(tmp_path / "jobs"), "partitions": said})
    )
    asked = ["matrix", "ops=relu", "execution=slurm", f"address={path}"]
    assert main.run([*asked, f"reports={tmp_path / 'reports'}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert why in line and line.isprintable() and len(line) < 1000
    assert [*tmp_path.iterdir()] == [path]

"""Runs of others that are merged, and records of others that are imported: whatever they hold, the
command ends with a table or in a line, and writes nothing outside of the run's folder."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from portkern.cli import main
from portkern.execution.plan import ExecutionPlan
from portkern.execution.returned import PLANS
from tests.report_records import make
from tests.test_strangers_files import SECRET, Scene, put, scene
from tests.test_strangers_files import good as good

__all__ = ["scene"]
FACTS: dict[str, Any] = {"schema": 1, "tags": {}, "remarks": []}
DIGEST = "0123456789abcdef"


def record(**changes: Any) -> str:
    return json.dumps({**json.loads(make(run="theirs").to_json()), **changes}) + "\n"


def facts(folder: Path, **changes: Any) -> Path:
    return put(folder / "run.json", json.dumps({**FACTS, **changes}))


def linked(place: Path, to: Path) -> Path:
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(to)
    return place


def piped(place: Path) -> Path:
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    return place


def stored(folder: Path, text: str) -> None:
    put(folder / f"sources/{DIGEST}.gz", gzip.compress(text.encode()))
    put(folder / "records.jsonl", record(source_hash=DIGEST))


#: What is in the folder of the run that somebody else has sent.
MERGED: Mapping[str, Callable[[Path, Scene], object]] = {
    "a digest that is a path": lambda f, s: put(
        f / "records.jsonl", record(source_hash=f"../../../user/{'x' * 4}")
    ),
    "an absolute digest": lambda f, s: put(
        f / "records.jsonl", record(source_hash=str(s.user / "secret.txt"))
    ),
    "a source that is a link": lambda f, s: (
        put(f / "records.jsonl", record(source_hash=DIGEST)),
        linked(f / f"sources/{DIGEST}.gz", s.user / "secret.txt"),
    ),
    "sources that are a link": lambda f, s: linked(f / "sources", s.user),
    "a source of another digest": lambda f, s: stored(f, '{"schema": 1}'),
    "a source that grows": lambda f, s: stored(f, " " * (40 << 20)),
    "a source that is cut off": lambda f, s: put(f / f"sources/{DIGEST}.gz", b"\x1f\x8b\x08"),
    "records that are a link": lambda f, s: linked(f / "records.jsonl", s.user / "secret.txt"),
    "records that are a pipe": lambda f, s: piped(f / "records.jsonl"),
    "records that are a device": lambda f, s: linked(f / "records.jsonl", Path("/dev/zero")),
    "later times that are a pipe": lambda f, s: piped(f / "again.jsonl"),
    "calibration that is a device": lambda f, s: linked(f / "calibration.jsonl", Path("/dev/zero")),
    "notes that are a link": lambda f, s: linked(f / "run.json", s.user / "secret.txt"),
    "notes with escapes": lambda f, s: facts(f, remarks=["\x1b]0;title\x07\x1b[2J", "a\nb"]),
    "many notes": lambda f, s: facts(f, remarks=["x" * 99] * 10_000),
    "a number without end": lambda f, s: facts(f, number=10**300),
    "tags that are a tracker's": lambda f, s: facts(
        f, tags={"mlflow.runName": "../../user", "mlflow.source.name": str(s.user), "a\nb": "\x1b"}
    ),
    "options that are commands": lambda f, s: facts(
        f, options={"hydra.run.dir": str(s.user), "kernels": "$(id)", "--x": "a", "reports": ".."}
    ),
    "an operator that is a path": lambda f, s: put(
        f / "records.jsonl", record(op="../../user/.bashrc")
    ),
    "a variant that is a path": lambda f, s: put(
        f / "records.jsonl", record(variant="../../../user/.bashrc")
    ),
    "an operator that is a page": lambda f, s: put(
        f / "records.jsonl", record(op="<script>alert(1)</script>", variant='"><img src=x>')
    ),
    "one record a thousand times": lambda f, s: put(f / "records.jsonl", record() * 1000),
    "a record of another schema": lambda f, s: put(f / "records.jsonl", record(schema=99)),
    "half a record": lambda f, s: put(f / "records.jsonl", record()[:300]),
    "no text": lambda f, s: put(f / "records.jsonl", b"\xff\xfe" + bytes(4096)),
}


@pytest.mark.parametrize("how", MERGED)
def test_a_run_that_is_merged_writes_nothing_but_the_merged_run(
    how: str, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ours", "theirs"):
        put(scene.box / name / "records.jsonl", record(run=name))
        facts(scene.box / name)
    MERGED[how](scene.box / "theirs", scene)
    before = set(scene.box.rglob("*"))
    code = main.run(["report", "both", "runs=[./ours,./theirs]", "track=false"])
    said = capsys.readouterr()
    assert code in (0, 1, 2, 3), said
    assert "Traceback" not in said.err
    assert all(line.isprintable() and len(line) < 3000 for line in said.err.splitlines()), said.err
    assert SECRET not in said.out + said.err
    new = set(scene.box.rglob("*")) - before
    reports = scene.box / "reports"
    assert all(path == reports or reports in path.parents for path in new), new
    for page in reports.rglob("*.html"):
        assert "<script>alert(1)" not in page.read_text()


#: What comes back as the records of a plan, which asked for one cell.
BROUGHT: Mapping[str, Callable[[ExecutionPlan, Scene], str | bytes]] = {
    "of another plan": lambda plan, s: record(run="night#" + "0" * 16),
    "of two plans": lambda plan, s: record(run=plan.label) + record(run="night#" + "0" * 16),
    "of another cell": lambda plan, s: record(run=plan.label),
    "of an operator that is a path": lambda plan, s: record(run=plan.label, op="../../user/x"),
    "of another portkern": lambda plan, s: record(run=plan.label, op="scaled"),
    "with a number without end": lambda plan, s: record(run=plan.label)[:-3] + "9" * 5000 + "}\n",
    "that are deep": lambda plan, s: "[" * 100_000,
    "that are half a character": lambda plan, s: b'{"schema": "\xed\xa0\x80"}\n',
    "that are NaN": lambda plan, s: record(run=plan.label).replace('"schema": ', '"schema": NaN'),
    "of no plan": lambda plan, s: record(run="night"),
    "of a plan with escapes": lambda plan, s: record(run="\x1b[2J#" + plan.id),
    "empty": lambda plan, s: "",
    "zeros": lambda plan, s: bytes(1 << 20),
}


@pytest.mark.parametrize("how", BROUGHT)
def test_records_that_are_brought_back_are_the_plans_or_refused_in_a_line(
    how: str, good: ExecutionPlan, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    put(scene.box / "reports/night" / PLANS / f"{good.id}.json", good.to_json())
    put(scene.box / "back.jsonl", BROUGHT[how](good, scene))
    before = set(scene.box.rglob("*"))
    code = main.run(["import", "records", "back.jsonl", "track=false"])
    said = capsys.readouterr()
    errors = [line for line in said.err.splitlines() if "error:" in line]
    assert code in (2, 3) and len(errors) == 1, said
    assert errors[0].isprintable() and len(errors[0]) < 1000
    assert {path for path in scene.box.rglob("*") if path.is_file()} <= before

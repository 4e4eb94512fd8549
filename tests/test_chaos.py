"""A matrix whose processes are killed at random ends with the records of one that was let alone.

``PORTKERN_CHAOS_S`` is for how many seconds they are killed, ``PORTKERN_CHAOS_SEED`` repeats a
failure's choices (not its moments).
"""

from __future__ import annotations

import os
import random
import secrets
import subprocess
import sys
import time
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import psutil

from portkern.matrix.selection import host_targets
from portkern.records.record import Record, RecordFile, Verdict

CHAOS_S = float(os.environ.get("PORTKERN_CHAOS_S", "10"))
SEED = int(os.environ.get("PORTKERN_CHAOS_SEED", "0")) or secrets.randbits(32)
#: Seconds between two kills: long enough to get somewhere, short enough to hit every stage.
PAUSE_S = (0.1, 1.5)
#: Without a parent there is nobody else to kill; one that has nobody yet is mostly spared.
WEIGHTS = {"parent": 1, "server": 2, "worker": 5}
ALONE = 0.2
QUESTION = (
    "ops=[relu,add]",
    f"targets=[{host_targets()[0]},sm_90]",
    "backends=[cpu,triton]",
    "rounds=1",
    "track=false",
    "json=true",
)
#: A machine this busy may make honest kernels look suspicious; like crashes they are tried again.
RESUMES = 6


class Run:
    """One matrix command, which is given again after it was killed."""

    def __init__(self, folder: Path, name: str) -> None:
        self.token, self.file = secrets.token_hex(8), RecordFile(folder / name / "records.jsonl")
        self.scratch = folder / f"tmp-{name}"
        self.scratch.mkdir()
        self.servers: set[int] = set()
        self._argv = [*PORTKERN, "matrix", *QUESTION, f"run={name}", f"reports={folder}"]
        self._environment = os.environ | {
            "PORTKERN_CACHE_DIR": str(folder / f"cache-{name}"),
            "TMPDIR": str(self.scratch),
            "PORTKERN_CHAOS_TOKEN": self.token,
        }

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._argv, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def finish(self) -> None:
        with self.start() as process:
            _, said = process.communicate(timeout=300)
        assert process.returncode in (0, 1), said.decode()

    def records(self) -> dict[str, Record]:
        """The newest of each cell."""
        return {record.key: record for record in self.file.read()[0]}

    def victims(self, parent: int) -> dict[str, list[psutil.Process]]:
        """Whoever can be killed now, by what they are."""
        found: dict[str, list[psutil.Process]] = {"parent": [psutil.Process(parent)]}
        for child in psutil.Process(parent).children():
            if "portkern.worker.forkserver" in child.cmdline():
                self.servers.add(child.pid)
                found.setdefault("server", []).append(child)
                found.setdefault("worker", []).extend(child.children(recursive=True))
        return {kind: processes for kind, processes in found.items() if processes}

    def clear_up(self) -> None:
        """What the next start of any portkern does."""
        code = "from portkern.sandbox.session import Session, close_servers\n"
        code += "Session((), {}).close()\nclose_servers()"
        subprocess.run([sys.executable, "-c", code], env=self._environment, check=True)

    def left_behind(self) -> list[str]:
        """Processes, folders and cgroups that outlive the run."""
        left = [str(path) for path in self.scratch.glob("portkern-*")]
        left += map(
            str,
            (self.scratch.parent / f"cache-{self.file.path.parent.name}").glob(
                "builds/.building-*"
            ),
        )
        left += [
            group
            for group in _cgroups()
            if any(fnmatch(group, f"*/portkern-*-{pid}-*") for pid in self.servers)
        ]
        return left + [f"{p.pid} {p.info['cmdline']}" for p in _bearing(self.token)]


PORTKERN = (sys.executable, "-m", "portkern.cli.main")


def _cgroups() -> list[str]:
    """Those of other tests come and go meanwhile, which os.walk does not mind."""
    return [place for place, _, _ in os.walk("/sys/fs/cgroup")]


def _bearing(token: str) -> list[psutil.Process]:
    """Processes that have inherited it in their environment."""
    found = [p for p in psutil.process_iter(["cmdline", "environ"]) if p.info["environ"]]
    return [p for p in found if p.info["environ"].get("PORTKERN_CHAOS_TOKEN") == token]


def _said(records: dict[str, Record]) -> list[Any]:
    """What must not depend on who was killed when. Inputs and times are drawn anew in each run."""
    return sorted(
        (
            r.op,
            r.workload.name,
            r.backend,
            r.language,
            r.target,
            r.verdict,
            r.evidence,
            r.source_hash,
            r.missing,
            r.timing is None,
            sorted(r.speedup),
            r.errors is None,
        )
        for r in records.values()
    )


def _torment(run: Run, chance: random.Random) -> Counter[str]:
    """Kill until the time is over; what was recorded before a kill is there after it."""
    killed: Counter[str] = Counter()
    deadline = time.monotonic() + CHAOS_S
    process = run.start()
    while time.monotonic() < deadline:
        time.sleep(chance.uniform(*PAUSE_S))
        if process.poll() is not None:
            process.communicate()
            process = run.start()
            continue
        before = {record.id for record in run.records().values()}
        try:
            victims = run.victims(process.pid)
            kinds = sorted(victims)
            if kinds == ["parent"] and chance.random() > ALONE:
                continue
            [kind] = chance.choices(kinds, [WEIGHTS[one] for one in kinds])
            chance.choice(victims[kind]).kill()
        except psutil.NoSuchProcess:
            continue
        killed[kind] += 1
        if kind == "parent":
            process.communicate()
            kept = {record.id for record in run.file.read()[0]}
            assert before <= kept
            process = run.start()
    process.communicate(timeout=300)
    return killed


def test_a_run_whose_processes_are_killed_ends_like_one_that_was_let_alone(tmp_path: Path) -> None:
    calm, rough = Run(tmp_path, "calm"), Run(tmp_path, "rough")
    calm.finish()
    killed = _torment(rough, random.Random(SEED))
    sys.stdout.write(f"PORTKERN_CHAOS_SEED={SEED} {dict(killed)}\n")
    for run in (calm, rough):
        for _ in range(RESUMES):
            if any(_retried(record) for record in run.records().values()):
                run.finish()
    assert _said(rough.records()) == _said(calm.records())
    assert Verdict.PASSED in {r.verdict for r in calm.records().values()}
    rough.clear_up()
    assert rough.left_behind() == []
    assert killed.total() > 0


def _retried(record: Record) -> bool:
    """A server that is killed twice while it starts makes cells unavailable, until the next run."""
    if record.verdict is Verdict.UNAVAILABLE:
        return "fork server" in record.detail
    return record.verdict in (Verdict.CRASHED, Verdict.TIMED_OUT, Verdict.SUSPICIOUS)

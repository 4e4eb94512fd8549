"""A matrix whose processes are killed at random ends with the records of one that was let alone.

``PORTKERN_CHAOS_KILLS`` is how many the full tier kills, ``PORTKERN_CHAOS_SEED`` repeats a
failure's choices (not its moments). Nothing here depends on how fast the machine is: what is waited
for is a process to kill, a run that has ended, and a folder that is gone.
"""

from __future__ import annotations

import os
import random
import secrets
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import psutil
import pytest

from portkern.cells.selection import host_targets
from portkern.records.record import Record, RecordFile, Verdict

KILLS = int(os.environ.get("PORTKERN_CHAOS_KILLS", "5"))
SEED = int(os.environ.get("PORTKERN_CHAOS_SEED", "0")) or secrets.randbits(32)
#: A victim lives for up to so many seconds after it was seen, so that every stage is hit.
LONGEST_S = 1.0
POLL_S = 0.02
#: How often a kind is chosen. A parent that has nobody yet is mostly spared.
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


class Run:
    """One matrix command, which is given again after it was killed."""

    def __init__(self, folder: Path, name: str) -> None:
        self.cache = str(folder / f"cache-{name}")
        self.file = RecordFile(folder / name / "records.jsonl")
        self.scratch = folder / f"tmp-{name}"
        self.scratch.mkdir()
        self.servers: set[int] = set()
        self._argv = [*PORTKERN, "matrix", *QUESTION, f"run={name}", f"reports={folder}"]
        self._environment = os.environ | {
            "PORTKERN_CACHE_DIR": self.cache,
            "TMPDIR": str(self.scratch),
        }

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._argv, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def finish(self) -> None:
        with self.start() as process:
            _, said = process.communicate()
        assert process.returncode in (0, 1), said.decode()

    def settle(self) -> None:
        """Runs it again until no cell is to be retried; a busy machine makes honest kernels
        suspicious."""
        while any(map(_retried, self.records().values())):
            self.finish()

    def records(self) -> dict[str, Record]:
        """The newest of each cell."""
        return {record.key: record for record in self.file.read()[0]}

    def victims(self, parent: int) -> dict[str, list[psutil.Process]]:
        """The processes that can be killed now, by kind."""
        found: dict[str, list[psutil.Process]] = {"parent": [psutil.Process(parent)]}
        for child in psutil.Process(parent).children():
            if "portkern.worker.forkserver" in child.cmdline():
                self.servers.add(child.pid)
                found.setdefault("server", []).append(child)
                found.setdefault("worker", []).extend(child.children(recursive=True))
        return {kind: processes for kind, processes in found.items() if processes}

    def clear_up(self) -> None:
        """Starts a session, which clears up as the next start of any portkern does."""
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
        return left + [f"{p.pid} {p.info['cmdline']}" for p in _of_cache(self.cache)]


PORTKERN = (sys.executable, "-m", "portkern.cli")


def _cgroups() -> list[str]:
    """The control groups; os.walk does not mind that those of other tests come and go meanwhile."""
    return [place for place, _, _ in os.walk("/sys/fs/cgroup")]


def _of_cache(cache: str) -> list[psutil.Process]:
    """Processes that have this cache folder in their environment, as each run has its own."""
    found = [p for p in psutil.process_iter(["cmdline", "environ"]) if p.info["environ"]]
    return [p for p in found if p.info["environ"].get("PORTKERN_CACHE_DIR") == cache]


def _said(records: dict[str, Record]) -> list[Any]:
    """The parts of records that must not depend on what was killed when. Inputs and times are drawn
    anew in each run."""
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


class _Ended(Exception):
    """The command came to its end before the one that was wanted appeared."""


def _await(run: Run, process: subprocess.Popen[bytes], kind: str, *, alone: bool) -> None:
    """Returns when somebody of the kind can be killed. A parent should have children, unless
    ``alone``. Raises _Ended."""
    while process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            found = run.victims(process.pid)
            if kind in found and (kind != "parent" or alone or "server" in found):
                return
        time.sleep(POLL_S)
    raise _Ended


def _kill_one(
    run: Run, process: subprocess.Popen[bytes], kind: str, chance: random.Random
) -> set[str]:
    """The records that there were before the kill. Raises _Ended."""
    alone, longest_s = chance.random() < ALONE, LONGEST_S
    while True:
        _await(run, process, kind, alone=alone)
        time.sleep(chance.uniform(0.0, longest_s))
        longest_s /= 2  # some live shorter than others
        before = {record.id for record in run.records().values()}
        with suppress(psutil.NoSuchProcess, KeyError):
            chance.choice(run.victims(process.pid)[kind]).kill()
            return before


def _kinds(chance: random.Random, kills: int) -> list[str]:
    """The kinds of processes to kill, each at least once."""
    more = chance.choices([*WEIGHTS], [*WEIGHTS.values()], k=kills - len(WEIGHTS))
    kinds = [*WEIGHTS, *more]
    chance.shuffle(kinds)
    return kinds


def _torment(run: Run, wanted: list[str], chance: random.Random) -> Counter[str]:
    """Kill those who are wanted, last first, while the run has cells left; what was recorded
    before a kill is there after it."""
    killed: Counter[str] = Counter()
    process = run.start()
    while wanted:
        try:
            before = _kill_one(run, process, wanted[-1], chance)
        except _Ended:
            process.communicate()
            if not any(map(_retried, run.records().values())):
                return killed
            process = run.start()
            continue
        killed[kind := wanted.pop()] += 1
        if kind == "parent":
            process.communicate()
            kept = {record.id for record in run.file.read()[0]}
            assert before <= kept
            process = run.start()
    process.communicate()
    return killed


def _left_in_the_end(run: Run) -> list[str]:
    """The processes and files left behind once the kernel has released what a killed process
    held."""
    deadline = time.monotonic() + 60.0
    while (left := run.left_behind()) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return left


@pytest.mark.timeout(1800)  # what it waits for comes late on a busy machine
@pytest.mark.drawn  # quick ones kill a matrix: test_a_killed_run_goes_on_where_it_stopped
def test_a_run_whose_processes_are_killed_ends_like_one_that_was_let_alone(tmp_path: Path) -> None:
    calm, chance = Run(tmp_path, "calm"), random.Random(SEED)
    calm.finish()
    calm.settle()
    assert Verdict.PASSED in {r.verdict for r in calm.records().values()}
    wanted, number = _kinds(chance, KILLS), 0
    while wanted:  # one run may be over before all are killed
        number += 1
        rough = Run(tmp_path, f"rough-{number}")
        killed = _torment(rough, wanted, chance)
        sys.stdout.write(f"PORTKERN_CHAOS_SEED={SEED} {rough.file.path.parent} {dict(killed)}\n")
        rough.finish()
        rough.settle()
        assert _said(rough.records()) == _said(calm.records())
        rough.clear_up()
        assert _left_in_the_end(rough) == []
        assert killed.total() > 0


def _retried(record: Record) -> bool:
    """A server that is killed twice while it starts makes cells unavailable, until the next run."""
    if record.verdict is Verdict.UNAVAILABLE:
        return "fork server" in record.detail
    return record.verdict in (Verdict.CRASHED, Verdict.TIMED_OUT, Verdict.SUSPICIOUS)

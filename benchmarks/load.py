"""Does a busy machine change a verdict? Adds to results/load.jsonl, prints a table of all in it.

    .venv/bin/python -m benchmarks.load [conditions=loops-2,loops-4,loops-8,runs-3,cheats-4]
        [minutes=20] [cores=0]

loops-N: a matrix of honest kernels beside N busy loops; runs-N: N such matrices at once; cheats-N:
the corpus' cheats beside N loops; honest-N: its honest kernels. All are gone through again until
the minutes are over; cells that are done by then count. With cores=2 a large machine is divided
into parts of two cores, each with its own condition.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import get_args

from benchmarks import _script
from portkern.records.record import Record, RecordFile, Verdict
from portkern.toolchain import host
from tests.corpus import suite

USUAL = "loops-2,loops-4,loops-8,runs-3,cheats-4"
MATRIX = (
    "matrix ops=basic targets=[host,opencl_generic] backends=[cpu,opencl] workloads=ci"
    " track=false fresh=true"
).split()

WORDS = {
    "loops": "`matrix ops=basic`, beside {} busy loops",
    "runs": "{} such runs at once",
    "honest": "honest kernels of the corpus, beside {} busy loops",
    "cheats": "cheats of the corpus, beside {} busy loops",
}
RESULTS = _script.RESULTS / "load.jsonl"


@dataclass
class Tally:
    """Counts the cells of one condition by how they ended. ``unavailable`` counts reasons;
    ``accused`` are honest kernels that did not pass and cheats that were not caught, one line
    each."""

    condition: str
    machine: str = ""
    cells: int = 0
    noisy: int = 0
    load: float = 0.0  # the machine's, at most
    unavailable: dict[str, int] = field(default_factory=Counter)
    accused: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.cells += other.cells
        self.noisy += other.noisy
        self.load = max(self.load, other.load)
        self.unavailable = Counter(self.unavailable) + Counter(other.unavailable)
        self.accused += other.accused


def main() -> None:
    words = _script.words(("conditions", "minutes", "cores"), __doc__)
    conditions = words.get("conditions", USUAL).split(",")
    until = time.time() + 60 * float(words.get("minutes", 20))
    parts = divided(sorted(os.sched_getaffinity(0)), int(words.get("cores", 0)))
    with ProcessPoolExecutor(len(parts), multiprocessing.get_context("spawn")) as pool:
        asked = []
        for at, cores in enumerate(parts):
            first = at % len(conditions)
            turns = conditions[first:] + conditions[:first]
            asked.append(pool.submit(go_through, cores, turns, until))
        for done in asked:
            done.result()
    print(table(results()))


def divided(cores: Sequence[int], each: int) -> list[Sequence[int]]:
    """The cores in parts of so many each; all in one part where ``each`` is 0."""
    if not each:
        return [cores]
    return [cores[at : at + each] for at in range(0, len(cores) - each + 1, each)]


def results() -> list[Tally]:
    """The tallies by condition, all machines together."""
    tallies: dict[str, Tally] = {}
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        tally = Tally(**json.loads(line))
        tallies.setdefault(tally.condition, Tally(tally.condition)).add(tally)
    return sorted(tallies.values(), key=lambda tally: tally.condition)


def table(tallies: Sequence[Tally]) -> str:
    """The tallies as a table in Markdown."""
    lines = ["| | cells | accused, or missed | unavailable | noisy |", "|---|---|---|---|---|"]
    for tally in tallies:
        kind, _, count = tally.condition.partition("-")
        unavailable = sum(tally.unavailable.values())
        counts = f"{tally.cells} | {len(tally.accused)} | {unavailable} | {tally.noisy}"
        lines.append(f"| {WORDS[kind].format(count)} | {counts} |")
    return "\n".join(lines)


# ---- one part of the machine


def go_through(cores: Sequence[int], conditions: Sequence[str], until: float) -> None:
    """Goes through the conditions on these cores alone, until that time; if it is ended sooner,
    what is done is kept."""
    os.sched_setaffinity(0, cores)
    machine = f"{len(cores)} cores of {os.cpu_count()}, {host.cpu_name()}"
    for number, condition in enumerate(itertools.cycle(conditions)):
        parent = multiprocessing.parent_process()
        if time.time() >= until or not (parent and parent.is_alive()):
            return
        kind, _, count = condition.partition("-")
        with _script.busy(int(count) if kind != "runs" else 0):
            if kind in get_args(suite.Heap):
                tally = _corpus(condition, kind, until, random.Random(f"{cores}{number}"))
            else:
                tally = _matrices(condition, int(count) if kind == "runs" else 1, until)
        tally.load = os.getloadavg()[0]
        tally.machine = machine
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(tally)) + "\n")


def _matrices(condition: str, runs: int, until: float) -> Tally:
    tally = Tally(condition)
    with tempfile.TemporaryDirectory() as folder:
        names = [f"run{number}" for number in range(runs)]
        argv = [sys.executable, "-m", "portkern.cli", *MATRIX, f"reports={folder}"]
        running = [
            subprocess.Popen(
                [*argv, f"run={name}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            for name in names
        ]
        for process in running:
            try:
                process.wait(max(1.0, until - time.time()))
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()
        for name in names:
            for record in RecordFile(Path(folder) / name / "records.jsonl").read()[0]:
                _count(tally, record)
    return tally


def _count(tally: Tally, record: Record) -> None:
    if record.verdict is Verdict.UNSUPPORTED:
        return
    tally.cells += 1
    if record.verdict is Verdict.UNAVAILABLE:
        tally.add(Tally(tally.condition, unavailable={record.detail[:200]: 1}))
    elif record.verdict is not Verdict.PASSED:
        cell = f"{record.op} {record.workload.name} {record.backend}/{record.language}"
        tally.accused.append(f"{cell}: {record.verdict}: {record.detail[:500]}")
    elif record.timing is not None and record.timing.noisy:
        tally.noisy += 1


def _corpus(condition: str, heap: str, until: float, chosen: random.Random) -> Tally:
    """Judges the corpus in an order by chance, as there may not be time for all of it."""
    tally = Tally(condition)
    cheats = heap == "cheats"
    cases = list(suite.cases("cheats" if cheats else "honest"))
    chosen.shuffle(cases)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for case in cases:
                if time.time() >= until:
                    break
                ending = suite.evaluate(case, Path(folder))
                tally.cells += 1
                if ending.verdict is Verdict.UNAVAILABLE:
                    tally.add(Tally(condition, unavailable={ending.detail[:200]: 1}))
                elif not ending.meets(case) and (ending.verdict is Verdict.PASSED) == cheats:
                    tally.accused.append(f"{case.name}: {ending}")
    finally:
        suite.close()
    return tally


if __name__ == "__main__":
    main()

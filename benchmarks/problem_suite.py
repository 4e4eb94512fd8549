"""Problems as tasks to learn from: each is made by a door, and shown to tell right from wrong.
Adds a row for each to results/problem-suite.jsonl.

    .venv/bin/python -m benchmarks.problem_suite folder=../KernelBench/KernelBench door=environment
        [count=250] [seed=51] [place=cpu@x86_64] [at_once=2] [out=FOLDER]

``folder`` has a folder of problems for each level. ``count`` of them are drawn with ``seed``.
``door`` is ``environment``, a step of KernelEnv for each kernel, or ``harbor``, a task's grader for
each; ``out`` keeps the tasks. Problems that have a row are left out: what was broken off goes on.
``at_once`` processes have a share of the processors each, and take short problems first.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from queue import Empty, SimpleQueue

import psutil

from benchmarks import _script
from portkern.env import KernelEnv, Unavailable
from portkern.errors import PortkernError
from portkern.learn.harbor import MOST_COPIES, HarborOptions, HarborTask, Scores
from portkern.records.record import Verdict
from portkern.toolchain import host

RESULTS = _script.RESULTS / "problem-suite.jsonl"
LEVELS = ("level1", "level2", "level3")
#: The rewards that are asked for of one problem: its kernel, nothing, and copies.
TURNS = MOST_COPIES + 2
OWN = psutil.Process()


@dataclass(frozen=True)
class Row:
    """``ended`` is ``proven``, or the reason why not. ``steps`` are kernels that were judged,
    ``processor_s`` what all processes took for them; their start is the first problem's."""

    door: str
    problem: str
    place: str
    seed: int
    ended: str
    steps: int
    seconds: float
    processor_s: float
    load: float
    machine: str
    time: str


def main() -> None:
    words = _script.words(
        ("folder", "door", "count", "seed", "place", "at_once", "out"), __doc__, ("folder", "door")
    )
    door, place = words["door"], words.get("place", "cpu@x86_64")
    if door not in DOORS:
        raise SystemExit(f"Got door={door}, expected one of {', '.join(DOORS)}")
    seed, count = int(words.get("seed", 51)), int(words.get("count", 250))
    problems = drawn(Path(words["folder"]), count, seed)
    known = {(row["door"], row["place"], row["problem"]): row for row in earlier()}
    left = [path for path in problems if (door, place, named(path)) not in known]
    print(f"{len(problems)} problems, of which {len(left)} have no row yet", flush=True)
    out = Path(words.get("out") or tempfile.mkdtemp(prefix="portkern-suite-"))
    waiting: SimpleQueue[Path] = SimpleQueue()
    for path in sorted(left, key=expense):
        waiting.put(path)
    asked = partial(row_of, door=door, place=place, seed=seed, out=out)
    shares = shares_of(int(words.get("at_once", 2)))
    with ThreadPoolExecutor(len(shares)) as lanes:
        for done in [lanes.submit(work_off, waiting, share, asked) for share in shares]:
            done.result()
    names = {named(path) for path in problems}
    rows = [row for row in earlier() if (row["door"], row["place"]) == (door, place)]
    rows = [row for row in rows if row["problem"] in names]
    print(json.dumps(Counter(row["ended"] == "proven" for row in rows)))


def drawn(folder: Path, count: int, seed: int) -> list[Path]:
    """So many problems of all levels, by chance of the seed."""
    problems = sorted(path for level in LEVELS for path in (folder / level).glob("*.py"))
    if not problems:
        raise SystemExit(f"No problems in {folder}; expected {', '.join(LEVELS)} with .py files")
    return random.Random(seed).sample(problems, min(count, len(problems)))


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def earlier() -> list[Mapping[str, str]]:
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def expense(path: Path) -> tuple[bool, int]:
    """A sort key: whole models last, short problems first."""
    return path.parent.name == LEVELS[-1], path.stat().st_size


def shares_of(number: int) -> list[list[int]]:
    """The processors of each of so many processes; all have one at least."""
    processors = sorted(os.sched_getaffinity(0))
    return [processors[at::number] or [processors[at % len(processors)]] for at in range(number)]


def work_off(waiting: SimpleQueue[Path], share: list[int], asked: Callable[[Path], Row]) -> None:
    """Writes rows until nothing waits, each as soon as it is known. A process of its own makes
    them, which may be killed by what it takes."""

    def begun() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, get_context("spawn"), os.sched_setaffinity, (0, share))

    process = begun()
    while True:
        try:
            path = waiting.get_nowait()
        except Empty:
            break
        try:
            row = process.submit(asked, path).result()
        except BrokenProcessPool:
            print(f"{named(path)}: its process was killed; no row", flush=True)
            process = begun()
            continue
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row)) + "\n")
        print(f"{row.problem}: {row.ended} ({row.processor_s:g} of {row.seconds:g} s)", flush=True)
    process.shutdown()


def row_of(path: Path, door: str, place: str, seed: int, out: Path) -> Row:
    """Works on a copy of the problem: its sheet is written beside it."""
    start, used, steps = time.monotonic(), _script.processor_s(OWN), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="portkern-problem-") as box:
        own = Path(shutil.copy(path, box))
        try:
            DOORS[door](own, place, seed, out / path.parent.name, steps)
            ended = "proven"
        except (PortkernError, Unavailable) as error:
            ended = said(str(error), box)
        except Exception as error:  # noqa: BLE001 - a defect of ours is one problem's row
            ended = said(f"{type(error).__name__}: {error}", box)
    return Row(
        door,
        named(path),
        place,
        seed,
        ended,
        steps["judged"],
        round(time.monotonic() - start, 1),
        round(_script.processor_s(OWN) - used, 1),
        round(os.getloadavg()[0], 1),
        f"{os.cpu_count()} cores, {host.cpu_name()}",
        datetime.now(UTC).isoformat(timespec="seconds"),
    )


def said(error: str, box: str) -> str:
    """An error without folders of this machine."""
    return re.sub(r' \(File "/.*?\)', "", error.replace(f"{box}/", "")).strip()[:300]


def task_of(path: Path, place: str) -> HarborTask:
    backend, _, where = place.partition("@")
    return HarborTask.of(str(path), backend, where, HarborOptions(timed=False))


def harbor(path: Path, place: str, seed: int, out: Path, steps: Counter[str]) -> None:
    """Writes the problem's task, whose grader proves it."""
    task_of(path, place).write(out)


def environment(path: Path, place: str, seed: int, out: Path, steps: Counter[str]) -> None:
    """An episode in which a policy answers with each kernel in turn."""
    task = task_of(path, place)
    env = KernelEnv(str(path), [place], turns=TURNS, reports=out, run=path.stem)
    env.reset(seed=seed)
    task.prove(partial(stepped, env, steps))


def stepped(env: KernelEnv, steps: Counter[str], source: str) -> Scores:
    """The scores of one step, as a grader gives them."""
    _, reward, _, _, info = env.step(f"```\n{source}\n```")
    steps["judged"] += 1
    turns = info["turns"].values()
    return {
        "reward": reward,
        "built": float(all(turn.verdict is not Verdict.BUILD_FAILED for turn in turns)),
        "correct": float(info["right"]),
    }


Door = Callable[[Path, str, int, Path, Counter[str]], None]
DOORS: Mapping[str, Door] = {"environment": environment, "harbor": harbor}


if __name__ == "__main__":
    main()

"""Counts what `portkern matrix … baseline=window:10` reports about real nights: of identical ones,
and of ones on which a third of the kernels are slower by a known share. Writes results/nights.json.

.venv/bin/python -m benchmarks.nights [where=cpu|gpu] [busy=0] [nights=26] [repeats=3] [seed=1]
    [ops=NAME,NAME[+NAME]] [levels=5,10] [folder=DIR[+DIR]] [out=NAME.json]

The kernels are a folder as users have it: those that ship, for C++ and OpenCL at ci sizes, or in
CUDA at typical ones (results/nights-<target>.json). Runs are whole commands, one after another,
beside ``busy`` processes that compute; a quiet study needs a machine with nothing else on it. The
first six nights are history only, since nothing is said of times under five. A slowed kernel times
itself and waits for the share that is asked, so that the slowdown is the same at all sizes: in C++
by the host's clock, of the call with its caller; in CUDA by the GPU's, in kernels of its own before
and behind, which are there on all nights. OpenCL's are timed by the device's events, where nothing
could wait, and stay as they are. A slowed night is removed from the history once it is counted.
With ``folder`` an interrupted study goes on, and one that is through is compared again, by what the
rule is by then. Of several folders and their ops, each joined by +, the studies are counted
together, the next with the next seed: so several GPUs of one machine can share one.
"""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks import _script
from portkern.cells.selection import default_target
from portkern.records.record import Record, RecordFile
from portkern.regression import nights, rule, runs
from portkern.regression.cell_change import CellChange
from portkern.regression.comparison import RunComparison
from portkern.regression.nights import Night
from portkern.regression.rule import ChangeKind
from portkern.spec import catalogue, registry

RESULTS = "nights.json"
OPS = (
    *("add", "argmax", "bias_gelu", "cross_entropy", "cumsum", "gelu", "layernorm", "matmul"),
    *("relu", "rmsnorm", "silu_mul", "softmax", "sum", "topk", "transpose"),
)
#: The operators in CUDA, which are fewer: a night at typical sizes is a minute as it is.
GPU_OPS = ("add", "cumsum", "layernorm", "matmul", "relu", "softmax", "sum", "transpose")
#: Nights of which nothing is counted.
FIRST = rule.LEAST + 1
#: The smallest change that may be seen, in deviations from run to run, by the quantile of one run
#: of ten.
IN_DEVIATIONS = rule.limit([-1.0, 1.0] * 5, math.sqrt(10 / 9), rule.SUSPECT) / math.sqrt(10 / 9)
ALARMS = (ChangeKind.SLOWER, ChangeKind.FASTER, ChangeKind.NEW_FAILURE, ChangeKind.LOST)
_ENTRY = re.compile(r'extern "C" int (\w+)\(([^)]*)\)')


@dataclass(frozen=True)
class Place:
    """Where kernels run: of each backend the suffix of its kernels, and which are slowed."""

    suffixes: Mapping[str, str]
    slowed: str
    ops: tuple[str, ...]
    workloads: str
    #: The slowdowns in percent; at 0 kernels are written anew and no slower.
    levels: tuple[int, ...]

    def targets(self) -> str:
        """The target of each backend that is this machine."""
        return ",".join(default_target(registry.load(name)).name for name in self.suffixes)

    def write_kernels(self, folder: Path, percent: Mapping[str, int]) -> None:
        """Writes the kernels of its ops as a user's folder, some slowed by ``percent``."""
        for backend, suffix in self.suffixes.items():
            (folder / backend).mkdir(parents=True)
            for op in self.ops:
                source = shipped(op, backend, suffix)
                if backend == "cuda":
                    source = slower_on_gpu(source, percent.get(op, 0), anew=op in percent)
                elif backend == self.slowed and op in percent:
                    source = slower(source, percent[op])
                (folder / backend / f"{op}.{suffix}").write_text(source)


PLACES = {
    "cpu": Place({"cpu": "cpp", "opencl": "py"}, "cpu", OPS, "ci", (0, 5, 10, 20, 50)),
    "gpu": Place({"cuda": "cu"}, "cuda", GPU_OPS, "typical", (3, 10, 0, 5, 20)),
}


@dataclass(frozen=True)
class Nights:
    """The changes that were reported: on identical nights that count, and on slowed ones by
    level."""

    cells: int
    identical: list[CellChange]
    slowed: dict[int, list[CellChange]]

    def __add__(self, other: Nights) -> Nights:
        slowed = {level: self.slowed[level] + other.slowed[level] for level in self.slowed}
        return Nights(self.cells + other.cells, self.identical + other.identical, slowed)

    def row(self, busy: int, nights: int) -> dict[str, Any]:
        return {
            "busy": busy,
            "nights": nights,
            "cells": self.cells,
            "identical": {
                "counted": _counted(self.identical),
                "judged": len(_judged(self.identical)),
                "alarms": [_said(cell) for cell in self.identical if cell.change in ALARMS],
                "visible": _quantiles([cell.visible for cell in _judged(self.identical)]),
            },
            "slowed": {level: _found(cells) for level, cells in self.slowed.items()},
        }


@dataclass(frozen=True)
class Study:
    place: Place
    folder: Path
    busy: int
    nights: int
    repeats: int
    seed: int

    def run(self) -> Nights:
        """Raises SystemExit where a night comes to nothing."""
        with _script.busy(self.busy):
            quiet = [self._night(f"night-{n:02}", {}) for n in range(self.nights)]
            slowed = {level: list(self._slowed(level)) for level in self.place.levels}
        counted = [cell for night in quiet[FIRST:] for cell in night]
        return Nights(len(quiet[-1]), counted, slowed)

    @cached_property
    def last(self) -> Record:
        """The last record of the last night that was not slowed."""
        night = self.folder / "reports" / f"night-{self.nights - 1:02}"
        return RecordFile(night / runs.RECORDS).read()[0][-1]

    @property
    def machine(self) -> dict[str, str]:
        """Where the nights were made."""
        environment = self.last.environment
        named = {"host": environment.machine, "device": environment.device}
        return {key: value for key, value in named.items() if value}

    def _slowed(self, level: int) -> Iterator[CellChange]:
        """The cells of the slowed kernels, of all repeats."""
        for repeat in range(self.repeats):
            drawn = random.Random(f"{self.seed} {level} {repeat}").sample(
                self.place.ops, len(self.place.ops) // 3
            )
            name = f"slowed-{level}-{repeat}"
            for cell in self._night(name, dict.fromkeys(drawn, level)):
                if cell.series.op in drawn and cell.series.backend == self.place.slowed:
                    yield cell

    def _night(self, name: str, percent: Mapping[str, int]) -> Sequence[CellChange]:
        """Runs a night in which the kernels of some ops are slower by so much; returns each cell's
        change."""
        reports = self.folder / "reports"
        away = self.folder / "slowed"
        kept = [place / name for place in (reports, away) if (place / name / "done").exists()]
        if not kept:
            kernels = self.folder / "kernels"
            shutil.rmtree(kernels, ignore_errors=True)
            self.place.write_kernels(kernels, percent)
            baseline = "baseline=[window:10,none]"
            words = [
                f"kernels={kernels}",
                f"targets=[{self.place.targets()}]",
                f"workloads={self.place.workloads}",
                f"run={name}",
                f"reports={reports}",
            ]
            command = [sys.executable, "-m", "portkern.cli", "matrix", *words, baseline]
            done = subprocess.run(
                [*command, "track=false"], capture_output=True, text=True, check=False
            )
            if done.returncode not in (0, 1):
                raise SystemExit(f"{name}: exit code {done.returncode}\n{done.stderr}")
            (reports / name / "done").touch()
            kept = [reports / name]
        if percent and kept[0].parent == reports:
            away.mkdir(exist_ok=True)
            shutil.move(kept[0], away / name)
            kept = [away / name]
        after = Night.read(kept[0])
        history, _ = nights.before(after, reports)
        cells = RunComparison.of(history[-1], after, history).cells if history else []
        print(f"{name}: {_counted(cells) or 'no history'}", flush=True)
        return cells


def shipped(op: str, backend: str, suffix: str) -> str:
    loaded = registry.load(backend)
    kernels = catalogue.candidates(op, loaded)
    return next(one.source for one in kernels if one.language == loaded.languages[f".{suffix}"])


def slower(source: str, percent: int) -> str:
    """The same C++ kernel, whose calls take so much longer; by 0 %, another text alone. What is
    measured of a call of 2 µs is mostly its caller: the least time between two calls counts too."""
    if not percent:
        return f"{source}// written anew\n"
    entry, parameters = _entry(source)
    names = ", ".join(_names(parameters))
    itself = source.replace(f'extern "C" int {entry}(', f"static int {entry}_itself(")
    return (
        f"#include <algorithm>\n#include <chrono>\n{itself}\n"
        f'extern "C" int {entry}({parameters}) {{\n'
        "  using clock = std::chrono::steady_clock;\n"
        "  static clock::time_point left;\n"
        "  static clock::duration caller = clock::duration::max();\n"
        "  const auto begin = clock::now();\n"
        "  caller = std::min(caller, begin - left);\n"
        f"  const int status = {entry}_itself({names});\n"
        "  const auto end = clock::now();\n"
        "  const bool first = left == clock::time_point();\n"
        "  const auto took = end - begin + (first ? clock::duration() : caller);\n"
        f"  const auto until = end + took * {percent} / 100;\n"
        "  while ((left = clock::now()) < until) {}\n"
        "  return status;\n}\n"
    )


def slower_on_gpu(source: str, percent: int, *, anew: bool) -> str:
    """The same CUDA kernel between two of one thread; the last waits for the share of the time
    since the first."""
    entry, parameters = _entry(source)
    names = _names(parameters)
    stream = names[-1]
    itself = source.replace(f'extern "C" int {entry}(', f"static int {entry}_itself(")
    return (
        f"{itself}\n"
        "static __device__ unsigned long long nights_begun;\n"
        "static __device__ unsigned long long nights_now() {\n"
        "  unsigned long long now;\n"
        '  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));\n'
        "  return now;\n}\n"
        "static __global__ void nights_begin() { nights_begun = nights_now(); }\n"
        "static __global__ void nights_wait() {\n"
        "  const unsigned long long end = nights_now();\n"
        f"  const unsigned long long until = end + (end - nights_begun) * {percent} / 100;\n"
        "  while (nights_now() < until) {}\n}\n"
        f'extern "C" int {entry}({parameters}) {{\n'
        f"  nights_begin<<<1, 1, 0, {stream}>>>();\n"
        f"  const int status = {entry}_itself({', '.join(names)});\n"
        f"  nights_wait<<<1, 1, 0, {stream}>>>();\n"
        "  return status;\n}\n" + ("// written anew\n" if anew else "")
    )


def _entry(source: str) -> tuple[str, str]:
    """The name and the parameters of a source's entry."""
    match = _ENTRY.search(source)
    if match is None:
        raise SystemExit(f"no entry in\n{source}")
    return match[1], match[2]


def _names(parameters: str) -> list[str]:
    return re.findall(r"(\w+)\s*(?:,|$)", parameters)


def _judged(cells: Sequence[CellChange]) -> list[CellChange]:
    """The cells about whose time the comparison says anything."""
    silent = (ChangeKind.INSUFFICIENT, ChangeKind.NOT_COMPARABLE)
    return [cell for cell in cells if cell.visible is not None and cell.change not in silent]


def _found(cells: Sequence[CellChange]) -> dict[str, Any]:
    """Counts how many of the slowed cells were called slower: all, and those with a small
    deviation."""
    steady = [cell for cell in _judged(cells) if _deviation(cell) <= 0.03]
    return {
        "counted": _counted(cells),
        "judged": len(_judged(cells)),
        "slower": _slower(_judged(cells)),
        "steady": len(steady),
        "steady slower": _slower(steady),
        "missed": [_said(cell) for cell in _judged(cells) if cell.change is not ChangeKind.SLOWER],
    }


def _deviation(cell: CellChange) -> float:
    return (cell.visible or 0.0) / IN_DEVIATIONS


def _slower(cells: Sequence[CellChange]) -> int:
    return sum(cell.change is ChangeKind.SLOWER for cell in cells)


def _counted(cells: Sequence[CellChange]) -> dict[str, int]:
    return dict(Counter(str(cell.change) for cell in cells))


def _said(cell: CellChange) -> dict[str, Any]:
    series = cell.series
    return {
        "cell": f"{series.op} {series.workload} {series.backend}",
        "change": str(cell.change),
        "moved": round(cell.moved or 0.0, 3),
        "visible": round(cell.visible or 0.0, 3),
    }


def _quantiles(values: Sequence[float | None]) -> dict[str, float]:
    known = sorted(value for value in values if value is not None)
    return {f"{q}%": round(known[len(known) * q // 100], 3) for q in (10, 50, 90)} if known else {}


def main() -> None:
    known = ("where", "busy", "nights", "repeats", "seed", "ops", "levels", "folder", "out")
    words = _script.words(known, __doc__)
    where = words.get("where", "cpu")
    if where not in PLACES:
        raise SystemExit(f"got where={where}, expected one of {', '.join(PLACES)}")
    place = PLACES[where]
    if "levels" in words:
        place = replace(place, levels=tuple(map(int, words["levels"].split(","))))
    numbers = {"busy": 0, "nights": 26, "repeats": 3, "seed": 1}
    numbers = {key: int(words.get(key, n)) for key, n in numbers.items()}
    studies = []
    folders = (words.get("folder") or tempfile.mkdtemp()).split("+")
    of_each = words.get("ops", ",".join(place.ops)).split("+")
    for number, (folder, names) in enumerate(zip(folders, of_each, strict=True)):
        Path(folder).mkdir(parents=True, exist_ok=True)
        own = replace(place, ops=tuple(names.split(",")))
        seeded = {**numbers, "seed": numbers["seed"] + number}
        studies.append(Study(own, Path(folder), **seeded))
    first, *others = [study.run() for study in studies]
    row = sum(others, first).row(numbers["busy"], numbers["nights"])
    study = studies[0]
    name = RESULTS if where == "cpu" else f"nights-{study.last.target}.json"
    name = words.get("out", name)
    earlier = _script.earlier(name, study.machine, [row["busy"]], "busy")
    rows = sorted([*earlier, row], key=lambda one: one["busy"])
    _script.write(name, {"machine": study.machine, "seed": study.seed, "rows": rows})
    print(json.dumps({**row, "slowed": {k: v["counted"] for k, v in row["slowed"].items()}}))


if __name__ == "__main__":
    main()

"""Runs the catalogue's HIP and Triton kernels as executed objects and as emulated sources, and
shows both verdicts of each cell.

    .venv/bin/python -m benchmarks.object_records run=FOLDER [ops=all] [dtypes=all] [seconds=3600]
        [venues=object,emulator] [backends=hip,triton] [targets=all] [left=true] [before=TIME]
    .venv/bin/python -m benchmarks.object_records records=FILE[,FILE…]

``run`` begins a ``portkern matrix`` for each operator, type, backend, venue and, of objects,
target, one on each processor that this process may use; what FOLDER has is not run again, and after
``seconds`` what still runs is ended: its cells so far are kept in FOLDER/records.jsonl.gz as the
others. With ``left=true`` only those are begun of which a committed record is missing, is of a
kernel as it was before, or is older than TIME (2026-11-30T08:15 is when matrix instructions came to
round as published). ``records`` adds the newest record of each executed cell to
reports/records/objects.jsonl.gz, in place of older ones, and what emulation said to
results/object-emulated.json; ``make readme`` makes the table.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from threading import Event

from benchmarks import _script
from portkern import ops
from portkern.isa.finding import REMARKS
from portkern.records import packed
from portkern.records.record import Record, RecordFile, Verdict
from portkern.spec import catalogue, registry, target
from tools.records import FOLDER, op_of_line

TARGETS = ("gfx942", "gfx90a", "gfx950", "gfx1100", "gfx1201")
#: An emulator knows of a target only how many lanes a wave has: one for each width.
EMULATED = ("gfx942", "gfx1100")
DTYPES = ("float16", "bfloat16", "float32")
BACKENDS = ("hip", "triton")
SETS = ("ci", "edge")
CHECKS = {"object": "[waits,lds]", "emulator": "none"}
#: Between two times at which the records so far are packed.
PACKED_S = 15.0
LONG = 1 << 24
RECORDS = FOLDER / "objects.jsonl.gz"
EMULATED_FILE = "object-emulated.json"

#: Operator, backend, target, type, and the set and name of the size.
Cell = tuple[str, str, str, str, str, str]


@dataclass(frozen=True)
class Item:
    """The cells that one process runs."""

    venue: str
    op: str
    dtype: str
    backend: str
    targets: tuple[str, ...]
    sets: tuple[str, ...] = SETS

    def argv(self, reports: Path) -> list[str]:
        return [
            *(sys.executable, "-c", "from portkern.cli.main import main; main()", "matrix"),
            *(f"ops={self.op}", f"dtypes=[{self.dtype}]", f"backends={self.backend}"),
            *(f"targets=[{','.join(self.targets)}]", f"workloads=[{','.join(self.sets)}]"),
            f"venue={self.venue}",
            *(f"sanitize={CHECKS[self.venue]}", "track=false", "serve=never"),
            *(f"reports={reports}", f"run={self.name}"),
        ]

    @property
    def name(self) -> str:
        return "-".join((self.venue, self.op, self.dtype, self.backend, *self.targets))


def main() -> None:
    known = ("run", "ops", "dtypes", "seconds", "venues", "backends", "targets", "left", "before")
    words = _script.words((*known, "records"), __doc__)
    if "run" in words:
        asked = items(words)
        if words.get("left") == "true":
            asked = lacking(asked, words.get("before", ""))
        run(Path(words["run"]), asked, float(words.get("seconds", 3600)))
    elif "records" in words:
        keep([Path(name) for name in words["records"].split(",")])
        print(table())
    else:
        raise SystemExit(__doc__)


def items(words: dict[str, str]) -> list[Item]:
    asked = words.get("ops", "all")
    names = list(ops.SETS[asked]) if asked in ops.SETS else asked.split(",")
    names.sort(key=_is_long)
    dtypes = DTYPES if words.get("dtypes", "all") == "all" else words["dtypes"].split(",")
    venues = words.get("venues", "object,emulator").split(",")
    backends = words.get("backends", ",".join(BACKENDS)).split(",")
    targets = words.get("targets", "all")
    chosen = TARGETS if targets == "all" else targets.split(",")
    return [
        Item(venue, op, dtype, backend, several)
        for venue, op, dtype, backend in itertools.product(venues, names, dtypes, backends)
        for several in ([(one,) for one in chosen] if venue == "object" else [widths(backend)])
    ]


def widths(backend: str) -> tuple[str, ...]:
    """The targets to emulate for: Triton's interpreter knows none."""
    return EMULATED if backend == "hip" else EMULATED[:1]


def lacking(asked: Sequence[Item], before: str) -> list[Item]:
    """The items of objects with cells whose committed record is missing or does not stand, with the
    sets that have such cells; what is missing comes first."""
    known = {cell_of(record): record for record in committed()}
    left: list[tuple[bool, Item]] = []
    for item in asked:
        [of] = item.targets
        [kernel] = catalogue.candidates(item.op, registry.load(item.backend))
        records = {
            which: [
                known.get((item.op, item.backend, of, item.dtype, which, size.name))
                for size in ops.load(item.op).workloads[which]
            ]
            for which in SETS
        }
        sets = tuple(
            which
            for which in SETS
            if any(
                one is None or one.source_hash != kernel.digest or one.time < before
                for one in records[which]
            )
        )
        if sets:
            some = all(one is not None for which in sets for one in records[which])
            left.append((some, replace(item, sets=sets)))
    return [item for _, item in sorted(left, key=lambda one: one[0])]


def _is_long(op: str) -> bool:
    """Whether some size takes minutes in an executor; these come last."""
    loaded = ops.load(op)
    tensors = (*loaded.signature.inputs, *loaded.signature.outputs)
    sizes = [[t.sizes(edge.dims) for t in tensors] for edge in loaded.workloads["edge"]]
    return any(math.prod(size) > LONG for of_edge in sizes for size in of_edge)


def run(folder: Path, asked: list[Item], seconds: float) -> None:
    """One process on each processor, until all is done or the time is over."""
    folder.mkdir(parents=True, exist_ok=True)
    end, over = time.monotonic() + seconds, Event()
    free: SimpleQueue[int] = SimpleQueue()
    cores = sorted(os.sched_getaffinity(0))
    for core in cores:
        free.put(core)
    with ThreadPoolExecutor(len(cores) + 1) as pool:
        packing = pool.submit(_keep_packed, folder, over)
        for done in [pool.submit(_run_one, item, folder, free, end) for item in asked]:
            done.result()
        over.set()
        packing.result()


def _run_one(item: Item, folder: Path, free: SimpleQueue[int], end: float) -> None:
    done = folder / "reports" / item.name / "summary.json"
    left = end - time.monotonic()
    if done.exists() or left < 1:
        return
    core, began = free.get(), time.monotonic()
    log = folder / "logs" / item.name
    log.parent.mkdir(exist_ok=True)
    with log.open("w", encoding="utf-8") as out:
        argv = ["taskset", "-c", str(core), *item.argv(folder / "reports")]
        try:
            code = str(subprocess.run(argv, stdout=out, stderr=out, timeout=left).returncode)
        except subprocess.TimeoutExpired:
            code = "cut off"
    free.put(core)
    print(f"{item.name}: {code} ({time.monotonic() - began:.0f} s)", flush=True)


def _keep_packed(folder: Path, over: Event) -> None:
    while not over.wait(PACKED_S):
        _pack(folder)
    _pack(folder)


def _pack(folder: Path) -> None:
    to = folder / "records.jsonl.gz"
    with gzip.open(to.with_suffix(".new"), "wt", compresslevel=3, encoding="utf-8") as file:
        file.writelines(_lines(folder))
    to.with_suffix(".new").replace(to)


def _lines(folder: Path) -> Iterator[str]:
    """Yields the whole lines of all runs; a run that is being written may end within a line."""
    for path in sorted(folder.glob("reports/*/records.jsonl")):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        yield from (line for line in lines if line.endswith("\n"))


def keep(files: Sequence[Path]) -> None:
    """The executed cells go among the committed ones, the verdicts of emulation to the results."""
    executed, emulated = {cell_of(one): one for one in committed()}, emulation()
    for record in sorted(chain.from_iterable(map(_read, files)), key=lambda one: one.time):
        if record.venue.startswith("object"):
            executed[cell_of(record)] = record
        else:
            cell = "|".join(source_of(cell_of(record)))
            emulated[cell] = f"{record.source_hash} {_said(record)}"
    packed.write(RECORDS, [one.to_json() for one in executed.values()], op_of_line)
    _script.write(EMULATED_FILE, dict(sorted(emulated.items())))


def committed() -> list[Record]:
    return _read(RECORDS)


def _read(file: Path) -> list[Record]:
    return RecordFile(file).read()[0]


def emulation() -> dict[str, str]:
    """The digest of the source that was emulated and the verdict on it, by cell."""
    file = _script.RESULTS / EMULATED_FILE
    known: dict[str, str] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return known


def cell_of(record: Record) -> Cell:
    asked = record.workload
    return record.op, record.backend, record.target, asked.dtype, asked.set, asked.name


def source_of(cell: Cell) -> Cell:
    """The cell whose emulation answers for this one: Triton's interpreter knows no target, and
    HIP's executor of sources knows the wave's width."""
    op, backend, name, *asked = cell
    narrow = backend == "hip" and target.load(name).warp == 32
    return op, backend, EMULATED[narrow], asked[0], asked[1], asked[2]


def _cause(record: Record) -> str:
    """The record's remark on what the chip does by design; '' for none."""
    codes = {f"object-{kind.name.lower().replace('_', '-')}": str(kind) for kind in REMARKS}
    seen = [codes[finding.code] for finding in record.findings if finding.code in codes]
    return f", and its code {seen[0]}" if seen else ""


def _said(record: Record) -> str:
    """``passed``, or the verdict and why."""
    if record.verdict is Verdict.PASSED:
        return str(record.verdict)
    return f"{record.verdict}: {' '.join(record.detail.split())[:200]}"


def table() -> str:
    """Cells by backend and target, with both verdicts, and a line for each reason."""
    known = emulation()
    heads = ["object", "cells", "executed and passed", "emulated too", "emulation alone passes"]
    heads.append("object alone passes")
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    sums: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    reasons: Counter[str] = Counter()
    failed: dict[str, list[str]] = defaultdict(list)
    for record in committed():
        cell, right = cell_of(record), record.verdict is Verdict.PASSED
        digest, _, said = known.get("|".join(source_of(cell)), "").partition(" ")
        of, compared = sums[record.backend, record.target], digest == record.source_hash
        of.update(cells=1, passed=right, emulated=compared)
        of.update(
            source=compared and not right and said == "passed",
            object=compared and right and said != "passed",
        )
        if not right:
            where = f"`{record.op}`, {record.backend}, {record.target}, {record.workload.dtype}"
            failed[f"{where}: {record.verdict}{_cause(record)}"].append(record.detail)
        elif compared and said != "passed":
            reasons[f"`{record.op}`, {record.backend}, the source alone: {said}"] += 1
    for (backend, name), of in sorted(sums.items()):
        share = f"{of['passed']:,} ({of['passed'] / of['cells']:.1%})"
        figures = f"{of['cells']:,}", share, f"{of['emulated']:,}", of["source"], of["object"]
        lines.append(f"| {backend}, {name} | " + " | ".join(map(str, figures)) + " |")
    listed = [
        f"- {len(details)} × {reason} (one of them: {' '.join(details[0].split())[:200]})"
        for reason, details in sorted(failed.items())
    ]
    listed += [f"- {count} × {reason}" for reason, count in sorted(reasons.items())]
    return "\n".join([*lines, "", *(listed or ["No cell failed."])])


if __name__ == "__main__":
    main()

"""How long records of many runs take to read, compare, report and plan from: prints a table and
writes results/scale.json.

.venv/bin/python -m benchmarks.scale [cells=5000] [nights=11] [report=100000] [all=1000000]

Runs are synthetic: real Record objects drawn from a seed, half of them measured with 50 samples
beside eager, in the mix of verdicts that a matrix has. Each command is a process of its own; its
peak of memory is its resident set's.
"""

from __future__ import annotations

import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks import _script
from portkern.records.record import (
    BuildResources,
    Environment,
    Errors,
    Evidence,
    Launch,
    Record,
    RecordFile,
    Roofline,
    Speedup,
    Timing,
    Verdict,
    WorkloadRef,
)
from portkern.toolchain import host

DEFAULTS = {"cells": 5_000, "nights": 11, "report": 100_000, "all": 1_000_000}
FIRST = datetime(2026, 1, 1, 3, tzinfo=UTC)
#: Backend, language and target of columns, and where their cells run; "": nowhere.
COLUMNS = (
    ("cpu", "c++", "x86_64_avx512", "hardware: CPU"),
    ("cpu", "numba", "x86_64_avx512", "hardware: CPU"),
    ("cuda", "cuda", "h200", "hardware: NVIDIA H200"),
    ("triton", "triton", "h200", "hardware: NVIDIA H200"),
    ("opencl", "opencl", "opencl_generic", "hardware: pthread CPU"),
    ("hip", "hip", "gfx942", "emulator: SIMT executor"),
    ("hip", "hip", "gfx1100", "emulator: SIMT executor"),
    ("triton", "triton", "gfx942", "emulator: Triton interpreter"),
    ("pallas", "pallas", "gfx942", ""),
)
DTYPES = ("float32", "float16", "bfloat16")
SAMPLES = 50


def cells(count: int, seed: int = 0) -> list[Record]:
    """The records of a first night of so many cells, in the order in which a matrix asks."""
    drawn = random.Random(seed)
    return [_record(number, drawn) for number in range(count)]


def night(
    first: Sequence[Record], number: int, *, seed: int = 0, slower: float = 1.0
) -> Iterator[Record]:
    """The same cells in a later run; times differ by 2 % from run to run, and by ``slower``."""
    drawn = random.Random(seed * 10_000 + number)
    begun = FIRST + timedelta(days=number)
    for at, record in enumerate(first):
        moved = slower * math.exp(drawn.gauss(0, 0.02))
        said: dict[str, Any] = {
            "run": f"night-{number:04}",
            "id": f"{number:08x}{at:08x}",
            "time": (begun + timedelta(seconds=at // 4)).isoformat(timespec="seconds"),
        }
        if record.timing is not None:
            said["timing"] = _timing(record.timing.median_us * moved, record.timing.method, drawn)
        yield record.model_copy(update=said)


def write_nights(
    reports: Path, nights: int, cells_each: int, *, seed: int = 0, slower: float = 1.0
) -> None:
    """``reports/night-0000`` and so on; all cells of the newest are ``slower``."""
    first = cells(cells_each, seed)
    for number in range(nights):
        moved = slower if number == nights - 1 else 1.0
        folder = reports / f"night-{number:04}"
        RecordFile(folder / "records.jsonl").append(night(first, number, seed=seed, slower=moved))


def _record(number: int, drawn: random.Random) -> Record:
    backend, language, target, venue = COLUMNS[number % len(COLUMNS)]
    at = number // len(COLUMNS)
    dtype, at = DTYPES[at % len(DTYPES)], at // len(DTYPES)
    size, op = 2 ** (10 + at % 8), f"op{at // 8:04}"
    emulated = venue.startswith("emulator")
    said: dict[str, Any] = {
        "verdict": Verdict.UNSUPPORTED,
        "evidence": Evidence.NONE,
        "detail": f"{backend} ships no kernel for {op}",
        "missing": f"{backend} ships no kernel for {op}",
    }
    if venue:
        said = _passed(emulated, size, drawn)
    if venue and drawn.random() < 0.002:
        said = {
            "verdict": Verdict.WRONG,
            "evidence": Evidence.BUILT,
            "detail": f"{size} of {size} elements are off\n" + "a log of the build\n" * 20,
        }
    return Record(
        run="night-0000",
        id=f"{number:016x}",
        time=FIRST.isoformat(timespec="seconds"),
        key=f"{drawn.getrandbits(96):024x}",
        op=op,
        workload=WorkloadRef(set="ci", name=str(size), dims={"n": size}, dtype=dtype),
        backend=backend,
        language=language,
        target=target,
        venue=venue,
        source_hash=f"{drawn.getrandbits(64):016x}",
        author="catalogue",
        environment=_environment(target),
        seconds={"build": 1.5, "load": 0.1, "first": 0.01, "run": 0.5},
        **said,
    )


def _passed(emulated: bool, size: int, drawn: random.Random) -> dict[str, Any]:
    said: dict[str, Any] = {
        "verdict": Verdict.PASSED,
        "evidence": Evidence.EMULATED if emulated else Evidence.MEASURED,
        "errors": Errors(max_abs=1e-6, max_rel=1e-6, vs_fp64=1e-7, reference_vs_fp64=1e-7),
        "resources": [BuildResources(kernel="kernel", registers=24, shared_bytes=1024)],
        "launches": [Launch(name="kernel", us=10.0)],
    }
    if emulated:
        return said | {"missing": "no such device is here"}
    us = drawn.lognormvariate(3, 1)
    ratio = drawn.lognormvariate(0.2, 0.4)
    return said | {
        "timing": _timing(us, "events, L2 flushed", drawn),
        "baselines": {"eager": _timing(us * ratio, "events, L2 flushed", drawn)},
        "speedup": {"eager": Speedup(value=ratio, ci95=(ratio * 0.98, ratio * 1.02))},
        "roofline": Roofline(bytes=8 * size, flops=size, fraction=0.3, basis="measured memory"),
    }


def _timing(us: float, method: str, drawn: random.Random) -> Timing:
    samples = sorted(round(us * drawn.lognormvariate(0, 0.03), 3) for _ in range(SAMPLES))
    return Timing(
        median_us=samples[SAMPLES // 2],
        ci95_us=(samples[18], samples[32]),
        p20_us=samples[SAMPLES // 5],
        p80_us=samples[4 * SAMPLES // 5],
        n=SAMPLES,
        rounds=5,
        noise=0.01,
        samples=samples,
        method=method,
    )


def _environment(target: str) -> Environment:
    return Environment(
        machine="Linux x86_64, 16 CPUs",
        device="NVIDIA H200" if target == "h200" else "CPU",
        driver="580.159.04" if target == "h200" else "",
        toolchain={"torch": "2.13.0", "c++": "g++ 13.2.0"},
        harness_version="0.2.0",
        containment="namespaces, seccomp",
    )


#: A matrix whose records are all there: enough operators, targets and sizes for so many cells.
QUESTION = ["targets=all", "backends=all", "workloads=[ci,typical]", "run=plan"]


def write_plan(reports: Path, least: int) -> tuple[list[str], int]:
    """Records that answer a matrix of so many cells or a few more, what asks for it, and how many
    there are."""
    from portkern import ops
    from portkern.cells.selection import RunStage, Selection, target_sets
    from portkern.spec import registry

    sanitize = RunStage.parse("best", ["races", "bounds"])
    chosen: list[str] = []
    asked: list[Any] = []
    for op in ops.SETS["core"]:
        chosen.append(op)
        asked += Selection(
            [op], target_sets()["all"], registry.names(), ["ci", "typical"], DTYPES, sanitize
        ).cells()
        if len(asked) >= least:
            break
    drawn = random.Random(0)
    known = []
    for number, cell in enumerate(asked):
        venue = "" if cell.ruled_out else str(cell.venues.best)
        said = _passed(True, 1024, drawn) if venue else _ruled_out(cell.ruled_out)
        known.append(_of(cell, number, venue or "", said))
    RecordFile(reports / "plan" / "records.jsonl").append(known)
    names = f"ops=[{','.join(chosen)}]"
    dtypes = f"dtypes=[{','.join(DTYPES)}]"
    return ["matrix", names, *QUESTION, dtypes, "tuned=false", "track=false"], len(known)


def _ruled_out(why: tuple[Verdict, str]) -> dict[str, Any]:
    verdict, detail = why
    evidence = Evidence.BUILT if verdict.bad and verdict is not Verdict.REJECTED else Evidence.NONE
    return {"verdict": verdict, "evidence": evidence, "detail": detail, "missing": detail}


def _of(cell: Any, number: int, venue: str, said: dict[str, Any]) -> Record:
    return Record(
        run="plan",
        id=f"{number:016x}",
        time=FIRST.isoformat(timespec="seconds"),
        key=cell.key,
        op=cell.op.name,
        workload=WorkloadRef(
            set=cell.workload_set,
            name=cell.workload.name,
            dims=dict(cell.workload.dims),
            dtype=cell.dtype,
            scalars=dict(cell.workload.scalars),
        ),
        backend=cell.backend.name,
        language=cell.language,
        target=cell.target.name,
        venue=venue,
        source_hash=cell.candidate.digest if cell.candidate else "",
        author="catalogue",
        variant=cell.candidate.variant if cell.candidate else "",
        environment=_environment(cell.target.name),
        **said,
    )


def main() -> None:
    given = _script.words(DEFAULTS, __doc__)
    counts = {name: int(given.get(name, least)) for name, least in DEFAULTS.items()}
    machine = {"machine": f"{os.cpu_count()} CPUs, {host.cpu_name()}"}
    rows: list[dict[str, Any]] = []
    for row in measured(**counts):
        rows.append({**row, "load": round(os.getloadavg()[0], 1)})
        _script.write("scale.json", {**machine, "rows": rows})
    print("| | records | s | s of CPU | MiB |\n|---|---|---|---|---|")
    for row in rows:
        figures = f"{row['records']:,} | {row['seconds']} | {row['cpu_s']} | {row['peak_mib']}"
        print(f"| `{row['command']}` | {figures} |")


def measured(cells: int, nights: int, report: int, all: int) -> Iterator[dict[str, Any]]:
    """A row for each command."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_nights(place / "few", nights, cells)
        pair = [f"night-{nights - 2:04}", f"night-{nights - 1:04}"]
        yield timed(["diff", *pair], place / "few", cells * nights)
        argv, count = write_plan(place / "plan", cells)
        yield timed(argv, place / "plan", count, "matrix …, nothing changed")
        write_nights(place / "one", 1, report)
        yield timed(["report", "night-0000"], place / "one", report)
        year = max(2, all // cells)
        write_nights(place / "many", year, cells)
        pair = [f"night-{year - 2:04}", f"night-{year - 1:04}"]
        yield timed(["diff", *pair], place / "many", cells * year)
        asked = ["op=op0003", "backend=cpu"]
        yield timed(["history", *asked, f"runs={year}"], place / "many", cells * year)
        yield timed(["history", f"runs={year}"], place / "many", cells * year)
        export = ["export", "history", str(place / "history.parquet"), f"runs={year}"]
        yield timed(export, place / "many", cells * year, "export history FILE.parquet")


#: A command and, as its last word, the most memory that it had: what wait4 says is at least what
#: this process had when it began the other.
COMMAND = """
import gc, re, sys
from pathlib import Path
from portkern.cli import main
gc.set_threshold(main.GARBAGE_AFTER)
code = main.run(sys.argv[1:])
said = re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())
print(said[1], file=sys.stderr)
sys.exit(code)
"""


def timed(argv: Sequence[str], reports: Path, records: int, name: str = "") -> dict[str, Any]:
    """Times a command in a process of its own."""
    command = [sys.executable, "-c", COMMAND, *argv, f"reports={reports}"]
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{command} exited {done.returncode}:\n{done.stderr[-2000:]}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "command": name or " ".join(argv),
        "records": records,
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_s": round(used, 1),
        "peak_mib": int(done.stderr.split()[-1]) // 1024,
    }


if __name__ == "__main__":
    main()

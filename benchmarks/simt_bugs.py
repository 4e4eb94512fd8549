"""The SIMT executor against the seeded-bug suite: writes results/simt-bugs.json, prints misses.

    python benchmarks/simt_bugs.py             the whole suite, from the start
    python benchmarks/simt_bugs.py --resume    only what an interrupted run left out

A mutant is caught when it shows in one of the ways that its case expects; a twin is clean when
nothing is reported and it exits with 0. The file is rewritten after every program, and is complete
when ``complete`` says so.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from portkern.toolchain import host  # noqa: E402
from tests.simt.suite import Case, Seen, cases  # noqa: E402
from tests.simt.verdicts import evaluate  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "simt-bugs.json"


@dataclass(frozen=True)
class Finding:
    """A mutant or a twin at one width. ``caught``: the mutant showed in a way that its case
    expects; ``clean``: nothing was reported and it exited with 0. ``status`` is None when the
    program did not end by itself."""

    case: str
    group: str
    bug: bool
    width: int
    caught: bool
    clean: bool
    refused: bool
    codes: tuple[str, ...]
    status: int | None

    @property
    def as_it_should_be(self) -> bool:
        return self.caught if self.bug else self.clean

    def seen(self) -> Seen:
        return Seen(self.refused, frozenset(self.codes), self.status)


def read(path: Path) -> list[Finding]:
    rows = json.loads(path.read_text(encoding="utf-8"))["findings"]
    return [replace(Finding(**row), codes=tuple(row["codes"])) for row in rows]


def find(case: Case, width: int, folder: Path, *, bug: bool) -> Finding:
    verdict = evaluate(case, width, folder, bug=bug)
    seen = verdict.seen
    return Finding(
        case.name,
        str(case.group),
        bug,
        width,
        bug and case.caught(seen),
        verdict.clean,
        seen.refused,
        tuple(sorted(seen.codes)),
        seen.status,
    )


def totals(found: Iterable[Finding]) -> dict[str, dict[str, int]]:
    """Totals by width: how many mutants there are and were caught, how many twins there are and
    were clean."""
    counted: dict[str, dict[str, int]] = {}
    for one in found:
        width = counted.setdefault(
            str(one.width), {"mutants": 0, "caught": 0, "twins": 0, "clean": 0}
        )
        width["mutants" if one.bug else "twins"] += 1
        width["caught" if one.bug else "clean"] += one.as_it_should_be
    return counted


def write(found: Iterable[Finding], *, complete: bool, seconds: float) -> None:
    rows = sorted(found, key=lambda one: (one.case, not one.bug, one.width))
    document: dict[str, Any] = {
        "machine": f"{os.cpu_count()} CPUs, {host.cpu_name()}",
        "complete": complete,
        "seconds": round(seconds),
        "totals": totals(rows),
        "findings": [asdict(row) for row in rows],
    }
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    fresh = RESULTS.with_suffix(".part")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(RESULTS)


def main() -> int:
    found = read(RESULTS) if "--resume" in sys.argv[1:] else []
    known = {(one.case, one.bug, one.width) for one in found}
    started = time.monotonic()
    lock = threading.Lock()

    def run(case: Case, bug: bool, folder: Path) -> None:
        # One job has all widths of a program: they share what was compiled.
        for width in case.widths if bug else case.twin_widths:
            if (case.name, bug, width) in known:
                continue
            one = find(case, width, folder, bug=bug)
            with lock:
                found.append(one)
                write(found, complete=False, seconds=time.monotonic() - started)
                if not one.as_it_should_be:
                    version = "mutant missed" if bug else "twin accused"
                    print(f"{case.name} at {width}: {version}: {one.seen()}", flush=True)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(run, c, bug, Path(folder)) for c in cases() for bug in (True, False)]
    for job in jobs:
        job.result()  # what a job raised
    write(found, complete=True, seconds=time.monotonic() - started)
    print(json.dumps(totals(found), sort_keys=True))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

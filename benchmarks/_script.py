"""The parts that the scripts of this folder which write results of records share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from portkern.records.record import Record
from portkern.toolchain import host
from portkern.toolchain.run_tool import package_version

RESULTS = Path(__file__).parent / "results"


def rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines, none where it does not exist yet."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes that do nothing but use a processor."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def processor_s(process: psutil.Process) -> float:
    """Seconds that it used, and those that it started, with their own that have ended."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        with suppress(psutil.Error):
            took = one.cpu_times()
            total += took.user + took.system + took.children_user + took.children_system
    return total


def words(
    known: Collection[str], usage: str | None, needed: Collection[str] = ()
) -> dict[str, str]:
    """The command line's ``name=value``; exits with ``usage`` where it is another."""
    found = dict(word.partition("=")[::2] for word in sys.argv[1:])
    if set(found) - set(known) or set(needed) - set(found):
        raise SystemExit(usage)
    return found


def write(name: str, document: Any) -> None:
    text = json.dumps(document, indent=1) + "\n"
    RESULTS.joinpath(name).write_text(text, encoding="utf-8")


def show_on_page(page: Path, script: str, table: str) -> None:
    """Writes the table between the two comments that the page has for this script."""
    begin, end = f"<!-- table: {script} -->\n", "<!-- /table -->"
    before, mark, rest = page.read_text(encoding="utf-8").partition(begin)
    if not mark:
        raise SystemExit(f"{page} has no line {begin.strip()}; add it where the table belongs")
    page.write_text(before + begin + table + end + rest.partition(end)[2], encoding="utf-8")


def earlier(name: str, machine: Mapping[str, Any], but: Collection[str], key: str) -> list[Any]:
    """The rows that an earlier run left in the results of that name: those whose ``key`` is none of
    ``but``, if they are of a machine like this one, with the same versions of all."""
    path = RESULTS / name
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"machine": {}}
    changing = ("time", "method")
    if any(known["machine"].get(k) != v for k, v in machine.items() if k not in changing):
        return []
    return [row for row in known["rows"] if row[key] not in but]


def provenance(records: Sequence[Record]) -> dict[str, Any]:
    """Where and with what these were made."""
    return {
        "host": host.machine(),
        "torch": package_version("torch"),
        "toolchains": {k: v for record in records for k, v in record.environment.toolchain.items()},
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "method": sorted({record.timing.method for record in records if record.timing}),
    }

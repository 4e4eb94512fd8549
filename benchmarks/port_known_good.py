"""Counts what `portkern port` reports about HIP ports that are known to be good: HeCBench's
programs in HIP.

    python -m benchmarks.port_known_good hecbench=FOLDER [to=gfx942,gfx1100] [page=true]

FOLDER is the ``src`` of a checkout of HeCBench. Every folder called ``<name>-hip`` is read,
translated (a port translates nothing where all is HIP) and linted for the targets; nothing is
built. A hazard counts once, however many targets have it. The result names the place of each, to be
read: docs/port.md says of each kind what it is true of. With page=true the counts go there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path

from benchmarks import _script
from benchmarks.port_pitfalls import PAGE
from portkern.port import library
from portkern.port.hazard import PITFALLS, Hazard
from portkern.port.request import PortRequest
from portkern.port.translated import TranslatedFile, translated
from portkern.simt.diagnostics import Severity
from portkern.spec import target as targets
from portkern.toolchain import host

TABLE = "benchmarks/port_known_good.py"


@dataclass(frozen=True)
class Told:
    """One hazard and the targets that have it."""

    code: str
    severity: str
    path: str
    line: int
    message: str
    targets: tuple[str, ...]


@dataclass(frozen=True)
class Read:
    """One program. ``changed`` are the files that its translation changes, with how often."""

    program: str
    files: int
    kernels: int
    changed: dict[str, int]
    told: tuple[Told, ...]


def read(folder: Path, names: Sequence[str]) -> Read:
    request = PortRequest(
        folder, "hip", tuple(map(targets.load, names)), folder / "no-tree", build=False
    )
    files = translated(library.read(folder), request)
    return Read(
        folder.name,
        len(files),
        sum(len(file.kernels) for file in files),
        {file.name: len(file.translation.changes) for file in files if file.ported.changed},
        tuple(told for file in files for told in _told(file, folder.name)),
    )


def _told(file: TranslatedFile, program: str) -> Iterator[Told]:
    by_place: dict[tuple[str, int, int], list[str]] = {}
    hazards: dict[tuple[str, int, int], Hazard] = {}
    for name, seen in file.seen.items():
        for hazard in seen:
            place = hazard.code, hazard.line, hazard.column
            by_place.setdefault(place, []).append(name)
            worst = hazards.get(place, hazard)
            hazards[place] = max(worst, hazard, key=lambda h: _RANK.index(h.severity))
    for place, hazard in hazards.items():
        path = f"{program}/{file.name}"
        names = tuple(dict.fromkeys(by_place[place]))
        yield Told(hazard.code, str(hazard.severity), path, hazard.line, hazard.message, names)


_RANK = (Severity.NOTE, Severity.WARNING, Severity.ERROR)


def summary(programs: Sequence[Read]) -> str:
    told = [one for program in programs for one in program.told]
    levels = Counter(one.severity for one in told)
    changed = sum(len(program.changed) for program in programs)
    lines = [
        f"{len(programs)} programs, {sum(p.files for p in programs)} files, "
        f"{sum(p.kernels for p in programs)} kernels: {levels['error']} errors, "
        f"{levels['warning']} warnings, {levels['note']} notes; the translation changes "
        f"{changed} files.",
        "",
        "| code | pitfall | errors | warnings | notes | programs |",
        "|---|---|---|---|---|---|",
    ]
    for code in sorted({one.code for one in told}):
        own = [one for one in told if one.code == code]
        counts = Counter(one.severity for one in own)
        among = {one.path.partition("/")[0] for one in own}
        cells = [code, PITFALLS[code].title]
        cells += [str(counts[level]) for level in ("error", "warning", "note")]
        lines.append("| " + " | ".join([*cells, str(len(among))]) + " |")
    return "\n".join(lines) + "\n"


def document(programs: Iterable[Read]) -> list[dict[str, object]]:
    """The programs for which there is anything to report, as JSON."""
    return [
        {
            "program": program.program,
            "changed": program.changed,
            "told": [asdict(one) for one in program.told],
        }
        for program in programs
        if program.changed or program.told
    ]


def main() -> None:
    given = _script.words(("hecbench", "to", "page"), __doc__, needed=("hecbench",))
    names = given.get("to", "gfx942,gfx1100").split(",")
    folders = sorted(path for path in Path(given["hecbench"]).glob("*-hip") if path.is_dir())
    if not folders:
        raise SystemExit(f"{given['hecbench']} has no folder *-hip; give HeCBench's src")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        programs = list(pool.map(read, folders, repeat(names)))
    said = {
        "host": host.machine(),
        "targets": names,
        "programs": len(programs),
        "files": sum(program.files for program in programs),
        "kernels": sum(program.kernels for program in programs),
        "said": document(programs),
    }
    _script.write("port-known-good.json", said)
    table = summary(programs)
    print(table)
    if given.get("page") == "true":
        _script.show_on_page(PAGE, TABLE, table)


if __name__ == "__main__":
    main()

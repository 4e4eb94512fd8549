"""Ports public CUDA libraries and counts: kernels found, built, proven, and why not for the rest.

.venv/bin/python -m benchmarks.port_table llmc=PATH hecbench=PATH …
    [to=gfx942,gfx1100 | to=opencl,cpu] [programs=NAME,NAME] [sample=N] [seed=17] [without=FOLDER]
    [include=FOLDER,FOLDER] [work=FOLDER] [limit_s=420] [timeout_s=90] [write=true] [page=true]

Each PATH is a local checkout's folder, under the name it has in the table. A name that is in
programs= is ported by folder below it, such as HeCBench's src/<name>-cuda. With sample=N, N of its
programs (folders called <name>-cuda), or where it has none of its files with kernels (of CUDA, else
of Triton), are drawn by the seed, each ported by itself, none from below a folder called without=,
such as one for another vendor's processors; include= are folders of headers, of which those nearer
to a file come first. A library has limit_s seconds. A sample is as large as these allow, in the
order of drawing: the row says how many were begun. Of other libraries, what is not come to counts
as not examined. The same command goes on where the time ended, for what is known in the work folder
(reports/port-table) is not done again. With write=true, its row in results/port-table.json and
port-table.md is written, with page=true also docs/port.md's table.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks._script import RESULTS, show_on_page
from portkern.errors import PortkernError
from portkern.port import emit_run, library, run
from portkern.port.kernel_port import PROVEN, KernelPort, PortFile
from portkern.port.request import PortRequest
from portkern.port.result import KernelRow
from portkern.sandbox import session
from portkern.simt.execute import options as executor
from portkern.spec import target
from portkern.toolchain import host

OUTCOMES = (PROVEN, "wrong", "needs a human", "needs hardware", "not proven")
MOST_REASONS = 12
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "port.md"
OWN = (
    *("to", "programs", "sample", "seed", "include", "work", "without"),
    *("limit_s", "timeout_s", "write", "page"),
)
#: Reasons are alike when they differ in names, numbers and places alone.
_PARTICULARS = re.compile(
    r"'[^']*'|\"[^\"]*\"|\b[\w./-]+\.(?:cuh?|h|hpp|hip)(?::\d+)*|\b\d[\w.]*\b"
)
#: What a library is ported with besides, where its build says it elsewhere.
_MOST_REASON = 90


@dataclass
class Row:
    """One library. ``of`` says what of it was ported, if not all; ``good`` kernels are built for
    every target and proven."""

    library: str
    targets: tuple[str, ...]
    of: str = ""
    kernels: int = 0
    examined: int = 0
    hazards: int = 0
    good: int = 0
    built: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    proven_of_built: int = 0
    built_everywhere: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def emitted(self) -> bool:
        return set(self.targets) <= set(emit_run.WAYS)

    def add(self, row: KernelRow) -> None:
        self.examined += 1
        self.good += row.good
        self.hazards += len(row.hazards)
        self.outcomes[row.outcome] += 1
        self.built.update(port.target for port in row.ports if port.built)
        self.built_everywhere += row.built
        self.proven_of_built += row.built and row.outcome == PROVEN
        if not row.good:
            self.reasons[f"{row.outcome}: {reason(row.why)}"] += 1


def reason(text: str) -> str:
    first = _PARTICULARS.sub("…", " ".join(text.split()))
    return first if len(first) <= _MOST_REASON else f"{first[:_MOST_REASON]}…"


def main() -> None:
    given = dict(word.partition("=")[::2] for word in sys.argv[1:])
    libraries = {name: Path(path) for name, path in given.items() if name not in OWN}
    if not libraries or "" in given.values():
        raise SystemExit(__doc__)
    names = tuple(given.get("to", "gfx942,gfx90a,gfx1100,gfx1201").split(","))
    programs = [name for name in given.get("programs", "").split(",") if name]
    work = Path(given.get("work", "reports/port-table"))
    include = tuple(Path(name) for name in given.get("include", "").split(",") if name)
    size, seed = int(given.get("sample", "0")), int(given.get("seed", "17"))
    rows = []
    for name, path in libraries.items():
        began = time.monotonic()
        ends = began + float(given.get("limit_s", "420"))
        sample = drawn(path, size, seed, given.get("without", "")) if size else None
        row = Row(name, names)
        for begun, place in enumerate(sample.units if sample else places(path, programs), start=1):
            port(place, path, row, work, ends, include, float(given.get("timeout_s", "90")))
            row.of = sample.said(begun) if sample else ""
            if sample and time.monotonic() > ends:
                break
        row.seconds = time.monotonic() - began
        rows.append(row)
        print(json.dumps(document(row), indent=1))
    session.close_servers()
    print(markdown([document(row) for row in rows]))
    if given.get("write") == "true":
        write([document(row) for row in rows], page=given.get("page") == "true")


def places(path: Path, programs: Sequence[str]) -> Iterator[Path]:
    """The folder itself, or the programs that it has of those that are named."""
    named = [path / name for name in programs if (path / name).is_dir()]
    yield from named or [path]


@dataclass(frozen=True)
class Sample:
    """A sample drawn from ``among``, in the order of drawing."""

    units: tuple[Path, ...]
    among: str

    def said(self, begun: int) -> str:
        return f"{begun} of {self.among}"


def drawn(path: Path, size: int, seed: int, without: str) -> Sample:
    """Some of its programs, or of its files with kernels."""
    units = sorted(folder for folder in path.glob("*-cuda") if folder.is_dir())
    what = "programs"
    if not units:
        what = "files"
        units = _files(path, "*.cu", "__global__") or _files(path, "*.py", "@triton.jit")
    units = [unit for unit in units if without not in unit.relative_to(path).parts]
    chosen = random.Random(seed).sample(units, min(size, len(units)))
    left_out = f" without {without}/" if without else ""
    return Sample(tuple(chosen), f"{len(units)} {what}{left_out}, seed {seed}")


def _files(path: Path, names: str, sign: str) -> list[Path]:
    found = path.rglob(names)
    return sorted(file for file in found if sign in file.read_text("utf-8", "replace"))


class TimeOver(Exception):
    """The time is over; whatever was not begun by now is left out."""


def port(
    place: Path,
    root: Path,
    row: Row,
    work: Path,
    ends: float,
    include: tuple[Path, ...],
    timeout_s: float,
    jobs: int = 0,
) -> None:
    """Ports one program; whatever becomes of it, the others go on."""
    folder = records_of(place, root, row, work)
    row.kernels += kernels(place, row)

    def show(progress: run.Progress) -> None:
        for line in progress.lines:
            print(f"{place.name}: {line}", file=sys.stderr, flush=True)
        if time.monotonic() > ends and progress.done < progress.total:
            raise TimeOver

    if time.monotonic() > ends:
        return
    request = PortRequest(
        path=place,
        to="hip",
        targets=() if row.emitted else tuple(map(target.load, row.targets)),
        emitted=row.targets if row.emitted else (),
        out=folder / "tree",
        sanitize=executor.checkers(["all"]),
        jobs=jobs or len(os.sched_getaffinity(0)),
        include=tuple(sorted(include, key=lambda folder: -_shared(folder, place))),
        timeout_s=timeout_s,
        run_s=10.0,
        avoid=(work,),
    )
    try:
        rows = run.run(request, folder, show).rows
    except PortkernError as error:
        row.failed.append(f"{place.name}: {error}".replace(f"{place.resolve().parent}/", ""))
        return
    except TimeOver:
        rows = recorded(folder)
    for kernel in rows:
        row.add(kernel)


def kernels(place: Path, row: Row) -> int:
    """How many a program has; those of Triton are only built for GPUs."""
    read = library.read(place)
    found = sum(len(file.kernels) for file in (*read.sources, *read.headers))
    return found + (0 if row.emitted else sum(not kernel.helper for kernel in read.triton))


def records_of(place: Path, root: Path, row: Row, work: Path) -> Path:
    """The folder that a program's port is in."""
    name = place.name if place == root else str(place.relative_to(root)).replace("/", "-")
    ways = "-" + "-".join(row.targets) if row.emitted else ""
    return work / f"{row.library.replace('/', '-')}-{name}{ways}"


def _shared(folder: Path, place: Path) -> int:
    """How near they are: the length of the path that they share."""
    return len(Path(os.path.commonpath([folder.resolve(), place.resolve()])).parts)


def recorded(folder: Path) -> list[KernelRow]:
    """The rows that were examined before the time was over."""
    kernels: dict[tuple[str, int, str], dict[str, KernelPort]] = {}
    for port in PortFile(folder).read()[0]:
        kernels.setdefault((port.path, port.line, port.kernel), {})[port.target] = port
    return [KernelRow(tuple(by_target.values())) for by_target in kernels.values()]


def document(row: Row) -> dict[str, object]:
    return {
        "library": row.library,
        "of": row.of,
        "targets": list(row.targets),
        "kernels": row.kernels,
        "examined": row.examined,
        "hazards": row.hazards,
        "built": {name: row.built[name] for name in row.targets},
        "built_everywhere": row.built_everywhere,
        "outcomes": dict(row.outcomes.most_common()),
        "proven_and_built": row.proven_of_built,
        "reasons": dict(row.reasons.most_common()),
        "failed": row.failed,
        "seconds": round(row.seconds, 1),
    }


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table for the rows of each list of targets, then the reasons of those not proven."""
    asked = list(dict.fromkeys(tuple(row["targets"]) for row in rows))
    lines = []
    for targets in asked:
        lines += [*_table([row for row in rows if tuple(row["targets"]) == targets], targets), ""]
    for row in rows:
        reasons = list(row["reasons"].items())
        if reasons or row["failed"]:
            to = f" to {', '.join(row['targets'])}" if len(asked) > 1 else ""
            lines += [f"Why not, in {_name(row)}{to}:", ""]
            lines += [f"- {count} × {why}" for why, count in reasons[:MOST_REASONS]]
            rest = sum(count for _, count in reasons[MOST_REASONS:])
            lines += [f"- {rest} for other reasons"] if rest else []
            lines += [*(f"- {line}" for line in row["failed"]), ""]
    return "\n".join(lines)


def _table(rows: Sequence[Mapping[str, Any]], targets: Sequence[str]) -> list[str]:
    head = ["library", "kernels", "examined", *(f"built {name}" for name in targets)]
    head += ["proven and built", "proven", "wrong", "needs a human", "needs hardware", "not proven"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        built = [row["built"].get(target, 0) for target in targets]
        outcomes = [row["outcomes"].get(outcome, 0) for outcome in OUTCOMES]
        cells = [
            _name(row),
            row["kernels"],
            row["examined"],
            *built,
            row["proven_and_built"],
            *outcomes,
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['library']} ({row['of']})" if row.get("of") else str(row["library"])


def write(rows: Sequence[Mapping[str, Any]], *, page: bool) -> None:
    """Writes these rows in place of those that the libraries had, each sample's for itself."""
    file = RESULTS / "port-table.json"
    known = json.loads(file.read_text("utf-8"))["rows"] if file.is_file() else []
    # A library has a row for GPUs and one for each set of other ways.
    by_name = {(row["library"], _seed(row), *_ways(row)): row for row in [*known, *rows]}
    said = {"host": host.machine(), "rows": list(by_name.values())}
    file.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    table = markdown(said["rows"])
    RESULTS.joinpath("port-table.md").write_text(table, encoding="utf-8")
    if page:
        show_on_page(PAGE, "benchmarks/port_table.py", table)


def _seed(row: Mapping[str, Any]) -> str:
    return str(row.get("of", "")).rpartition("seed ")[2]


def _ways(row: Mapping[str, Any]) -> list[str]:
    return [name for name in row["targets"] if name in emit_run.WAYS]


if __name__ == "__main__":
    main()

"""``portkern import``: operators of other benchmarks, as files that ``op=`` takes, and kernels of
theirs, as a project; records of plans, into a run; and runs of several machines, into one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from omegaconf import MISSING

from portkern.cli import json_output
from portkern.cli.config import Names, names, quoted, resolve
from portkern.cli.verbs import plan_file, report
from portkern.errors import ConfigError, no_such
from portkern.evaluator.problem_import import ProblemImport
from portkern.formats import (
    agentkernelarena,
    backendbench,
    flashinfer_solutions,
    gpu_mode,
    kernel_project,
    kernelbench,
    kernelbench_hard,
    kernelbench_runs,
    multikernelbench,
    robust_kbench,
    sol_execbench,
    table,
    trace_set,
    tritonbench,
)
from portkern.formats.kernel_project import KernelProject
from portkern.formats.problem import Item, chosen, distinct
from portkern.formats.table import ImportRow
from portkern.printable import printable
from portkern.records import atomic_write
from portkern.records.jsonl import LineFile
from portkern.regression.runs import RECORDS as FILE
from portkern.spec.safe_name import real_path


@dataclass
class ImportOptions:
    format: str = MISSING
    path: str = MISSING
    out: str = ""
    ops: str = "operators/kernelbench"
    levels: Names = field(default_factory=list)
    problems: Names = field(default_factory=list)
    workers: int = 0
    timeout_s: float = 1800.0
    fresh: bool = False
    run: str = ""
    plan: str = ""
    reports: str = "reports"
    track: bool = True
    json: bool = False


def _kernelbench(options: ImportOptions) -> list[Item]:
    levels = names(options.levels)
    for level in levels:
        if not level.isdecimal():
            raise ConfigError(f"Got level {level!r}, expected numbers such as levels=[1,2,3]")
    return kernelbench.read(Path(options.path), [int(level) for level in levels])


def _read_by(reader: Callable[[Path], list[Item]]) -> Callable[[ImportOptions], list[Item]]:
    def read(options: ImportOptions) -> list[Item]:
        path = Path(options.path)
        if not path.exists():
            raise ConfigError(f"Cannot read {path}: it does not exist")
        return reader(path)

    return read


FORMATS: dict[str, Callable[[ImportOptions], list[Item]]] = {
    "kernelbench": _kernelbench,
    "flashinfer": _read_by(trace_set.read),
    "gpu_mode": _read_by(gpu_mode.read),
    "robust_kbench": _read_by(robust_kbench.read),
    "multikernelbench": _read_by(multikernelbench.read),
    "kernelbench_hard": _read_by(kernelbench_hard.read),
    "sol_execbench": _read_by(sol_execbench.read),
    "agentkernelarena": _read_by(agentkernelarena.read),
    "backendbench": _read_by(backendbench.read),
    "tritonbench": _read_by(tritonbench.read),
}


def _kernelbench_runs(options: ImportOptions) -> KernelProject:
    return kernelbench_runs.project(kernelbench_runs.read(Path(options.path)), Path(options.ops))


def _solutions(options: ImportOptions) -> KernelProject:
    usual = options.ops == ImportOptions.ops
    ops = "operators/sol_execbench" if usual else options.ops
    return flashinfer_solutions.project(Path(options.path), Path(ops))


#: What becomes kernels of a project, not operators.
KERNELS: dict[str, Callable[[ImportOptions], KernelProject]] = {
    "kernelbench_runs": _kernelbench_runs,
    "flashinfer_solutions": _solutions,
}


#: What a plan's machine has brought back, which becomes part of a run.
RECORDS = "records"


def main(overrides: Sequence[str]) -> int:
    if several := _runs(overrides):
        merged = f"runs=[{','.join(map(quoted, several))}]"
        return report.main([merged, *(text for text in overrides if "=" in text)])
    options = resolve("import", ImportOptions, _named(overrides))
    if options.format == RECORDS:
        return plan_file.take(
            Path(options.path),
            plan=options.plan,
            run=options.run,
            reports=options.reports,
            track=options.track,
            as_json=options.json,
        )
    if options.format in KERNELS:
        return _kernels(options)
    if options.format not in FORMATS:
        raise no_such("format", options.format, [*FORMATS, *KERNELS, RECORDS])
    items = chosen(distinct(FORMATS[options.format](options)), names(options.problems))
    items = [replace(item, place=item.place.removeprefix(f"{options.path}/")) for item in items]
    folder = Path(options.out or f"operators/{options.format}")
    rows = _rows(items, folder, options)
    _write(rows, folder, options)
    code = _exit_code(rows)
    counts = table.summary(rows)
    if options.json:
        said = {"folder": str(folder), "summary": counts, "exit_code": code}
        json_output.show({**table.document(rows), **said})
        return code
    whole = list(counts.values())[-1]
    print(
        f"{printable(str(folder))}: {whole['loaded']} of {whole['problems']} loaded, "
        f"{whole['answered']} answer; table.md has a row for each"
    )
    return code


def _kernels(options: ImportOptions) -> int:
    """0: all of them; 1: some are none that portkern takes; 3: none is."""
    project = KERNELS[options.format](options)
    folder = Path(options.out or f"kernels/{options.format}/{real_path(Path(options.path)).name}")
    if project.kernels:
        project.write(folder, f"{options.format} {printable(options.path)}")
    code = (1 if project.skipped else 0) if project.kernels else 3
    if options.json:
        skipped = [{"item": one.item, "reason": one.reason} for one in project.skipped]
        written = [one.file for one in project.kernels]
        said = {"folder": str(folder), "written": written, "skipped": skipped, "exit_code": code}
        json_output.show(said)
        return code
    for one in project.skipped:
        print(f"{printable(one.item)}: skipped: {printable(one.reason)}")
    print(
        f"{printable(str(folder))}: {len(project.kernels)} kernels, {len(project.skipped)} skipped"
    )
    if project.kernels:
        print(f"judge them: portkern matrix project={printable(str(folder / kernel_project.FILE))}")
    return code


def _exit_code(rows: Sequence[ImportRow]) -> int:
    if not any(row.loaded for row in rows):
        return 3
    return 0 if all(row.good for row in rows) else 1


def _rows(items: Sequence[Item], folder: Path, options: ImportOptions) -> list[ImportRow]:
    """The rows of all items, in their order; what an interrupted import found is read from the
    folder."""
    workers = options.workers or len(os.sched_getaffinity(0))
    work = ProblemImport(folder, options.timeout_s, options.fresh)
    file = LineFile(folder / "rows.jsonl", ImportRow.from_json)
    known = {row.title: row for row in _readable(file)}
    rows = {
        item.title: known[item.title]
        for item in items
        if item.title in known and work.reusable(item, known[item.title])
    }
    missing = [item for item in items if item.title not in rows]
    with _pool(min(workers, max(len(missing), 1))) as pool:
        pending: list[Future[ImportRow]] = [pool.submit(work.row, item) for item in missing]
        for done in as_completed(pending):
            row = done.result()
            file.append([row])
            rows[row.title] = row
            if not options.json:
                print(f"[{len(rows)}/{len(items)}] {printable(_line(row))}", flush=True)
    return [rows[item.title] for item in items]


def _readable(file: LineFile[ImportRow]) -> list[ImportRow]:
    rows, torn = file.read()
    if torn:
        sys.stderr.write(f"portkern: note: {printable(str(torn))}\n")
    return rows


def _line(row: ImportRow) -> str:
    if not row.loaded:
        return f"{row.title}: not loaded: {row.reason}"
    if not row.answered:
        return f"{row.title}: {row.traced}, no answer: {row.reason}"
    at = " ".join(f"{axis}={n}" for axis, n in row.answered[0].dims.items()) or "its own size"
    return f"{row.title}: {row.traced}, answers at {at} ({row.seconds:.1f} s)"


def _write(rows: Sequence[ImportRow], folder: Path, options: ImportOptions) -> None:
    said = {"format": options.format, "path": options.path, "torch": version("torch")}
    atomic_write.write(folder / "table.json", table.as_json(rows, **said))
    title = f"{options.format}: {len(rows)} problems"
    atomic_write.write(folder / "table.md", table.markdown(rows, title))


@contextmanager
def _pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads; when it is left by an error, what has not begun never does."""
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def _runs(overrides: Sequence[str]) -> list[str]:
    """The folders of runs, if that is what the words are."""
    words = [text for text in overrides if "=" not in text]
    if set(words) & {*FORMATS, *KERNELS, RECORDS}:
        return []
    known = [(Path(word) / FILE).is_file() for word in words]
    # One that ended before its first record is told as such, not as a format that there is not.
    return words if any(known) and all(Path(word).is_dir() for word in words) else []


def _named(overrides: Sequence[str]) -> list[str]:
    """``portkern import FORMAT PATH``; Hydra wants quotes around a colon."""
    places = iter(("format", "path"))
    return [
        text
        if "=" in text
        else f"{(name := next(places, 'option'))}=" + (f"'{text}'" if name == "path" else text)
        for text in overrides
    ]

"""Functions that the verbs which run cells share: the run's folder, progress and the exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from portkern.cells.run import MatrixProgress
from portkern.cells.selection import SelectedCell
from portkern.cli import json_output
from portkern.cli.heartbeat import FIRST_S, Heartbeat
from portkern.cli.verbs import executions
from portkern.cli.verbs.executions import Runner
from portkern.errors import ConfigError, RecordError, StorageError
from portkern.evaluator import statistics
from portkern.evaluator.build import StageLimits
from portkern.evaluator.trial import TrialOptions
from portkern.printable import printable
from portkern.records import jsonl, source_store
from portkern.records.record import Record, RecordFile
from portkern.records.source_store import SourceStore
from portkern.regression import rule
from portkern.regression.nights import CALIBRATION
from portkern.regression.runs import RECORDS
from portkern.sandbox import session
from portkern.spec.safe_name import SafeName, short

if TYPE_CHECKING:
    from rich.console import Console

    from portkern.regression.comparison import RunComparison
    from portkern.report.table import MatrixTable

#: Bytes of a step's summary that GitHub keeps: a MiB, with those of other commands.
MOST_SUMMARY = 512_000
#: Seconds of calls of a calibration kernel in a race, whatever a run's cells are given.
CALIBRATION_S = 0.1
#: Variables by which rich takes something else for a terminal.
_TERMINAL = {"FORCE_COLOR", "TTY_COMPATIBLE"}
#: Columns of a table that goes to a file or a pipe, unless COLUMNS is set.
_LEAST_WIDTH = 120


def run_folder(reports: str, run: str) -> Path:
    """``reports/<run>``; a run's name is a folder's name. Raises ConfigError."""
    check_name(run)
    folder = Path(reports) / SafeName(run)
    for place in (*reversed(folder.parents), folder):
        if place.exists() and not place.is_dir():
            raise ConfigError(
                f"Got reports={reports} run={run}, and {place} is a file; expected a folder"
            )
    return folder


def check_name(run: str) -> None:
    """Raises ConfigError."""
    try:
        SafeName(run)
    except ConfigError as error:
        raise ConfigError(
            f"Got run={short(run)}, expected a folder name such as 'nightly' ({error})"
        ) from error


def options(
    *,
    baselines: Sequence[str],
    rounds: int,
    budget_s: float,
    timeout_s: float,
    timed: bool = True,
) -> TrialOptions:
    unknown = set(baselines) - {"eager", "compile"}
    if unknown:
        raise ConfigError(f"Got baseline {min(unknown)!r}, expected 'eager' or 'compile'")
    limits = StageLimits(build_s=max(timeout_s, 180.0), load_s=timeout_s, run_s=timeout_s)
    # Who has no time to spare for more rounds has none to wait for a busy machine either.
    plan = statistics.TimingPlan(rounds=rounds, budget_s=budget_s, patient=budget_s > 0)
    return TrialOptions(limits, plan, tuple(baselines), timed=timed)


def run_cells(
    cells: Sequence[SelectedCell],
    folder: Path,
    chosen: TrialOptions,
    *,
    fresh: bool,
    quiet: bool,
    runner: Runner = executions.here,
    calibrations: Sequence[SelectedCell] = (),
) -> list[Record]:
    """Run what the records in ``folder`` do not answer yet; ``calibrations`` are timed before and
    after it."""
    with writing(folder), _progress(len(cells), quiet) as show:
        if fresh:
            (folder / CALIBRATION).unlink(missing_ok=True)
        _calibrate(calibrations, folder, chosen)
        records = execute(cells, folder, chosen, fresh=fresh, show=show, runner=runner)
        _calibrate(calibrations, folder, chosen)
        return records


def _calibrate(cells: Sequence[SelectedCell], folder: Path, chosen: TrialOptions) -> None:
    """Times calibration kernels by themselves, into a file of their own. A busy machine is not
    waited for, as it is what they show."""
    if cells:
        plan = statistics.TimingPlan(budget_s=CALIBRATION_S, patient=False)
        alone = replace(chosen, baselines=(), plan=plan, timed=True)
        file = RecordFile(folder / CALIBRATION)
        executions.here(cells, folder.name, file, alone, True, lambda _: None)


def execute(
    cells: Sequence[SelectedCell],
    folder: Path,
    chosen: TrialOptions,
    *,
    fresh: bool,
    show: Callable[[MatrixProgress], None] = lambda _: None,
    runner: Runner = executions.here,
) -> list[Record]:
    """The same, by who is :func:`writing` to the folder already."""
    _keep_sources(cells, folder)
    return runner(cells, folder.name, RecordFile(folder / RECORDS), chosen, fresh, show)


def time_again(
    cells: Sequence[SelectedCell],
    folder: Path,
    name: str,
    chosen: TrialOptions,
    *,
    quiet: bool,
    runner: Runner = executions.here,
) -> None:
    """Run cells :data:`rule.AGAIN` times more, into a file of their own in the run's folder, behind
    what is there."""
    with writing(folder):
        for _ in range(rule.AGAIN):
            with _progress(len(cells), quiet) as show:
                runner(cells, folder.name, RecordFile(folder / name), chosen, True, show)


def _keep_sources(cells: Sequence[SelectedCell], folder: Path) -> None:
    """Stores the cells' sources before anything runs, so that each record has its source beside
    it."""
    store = SourceStore(folder / source_store.FOLDER)
    store.keep(cell.candidate for cell in cells if cell.candidate is not None)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """One run at a time per folder; workers are gone when it is over. Raises ConfigError, also for
    a folder of the run's that is a link: a run of others is written to nowhere else."""
    from filelock import FileLock, Timeout

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in folder.iterdir():
            if one.is_symlink() and one.is_dir():
                raise ConfigError(
                    f"Got {one}, a link to {one.readlink()}; expected a folder in which this run "
                    "can be written: put the folder there, or choose run=NAME"
                )
    except OSError as error:
        raise StorageError.of(error, folder) from error
    try:
        with FileLock(folder / ".lock").acquire(timeout=0), session.servers_of_own():
            yield
    except Timeout:
        raise ConfigError(
            f"Another portkern is writing to {folder}; wait, or choose run=NAME"
        ) from None


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Callable[[MatrixProgress], None]]:
    with bar(quiet) if quiet or _terminal() else _lines() as update:

        def show(progress: MatrixProgress) -> None:
            latest = progress.record
            what = "of an earlier run"
            if latest:
                what = f"{latest.op} · {latest.backend} · {latest.target}: {latest.verdict}"
            update(progress.done, total, what)

        yield show


def console() -> Console:
    """The console on which tables are printed."""
    from rich.console import Console

    made = Console()
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = max(made.width, _LEAST_WIDTH)
    return made


def _terminal() -> Console | None:
    """Where a bar can be shown."""
    if not (sys.stderr.isatty() or os.environ.keys() & _TERMINAL):
        return None
    from rich.console import Console

    made = Console(stderr=True)
    return made if made.is_terminal else None


@contextmanager
def bar(quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on a terminal, nothing elsewhere; it is told what is done, of how many, and the last
    thing that was."""
    if quiet or (console := _terminal()) is None:
        yield lambda *_: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Bar(*columns, console=console, transient=True) as shown:
        task = shown.add_task("", total=None)

        def update(done: int, total: int, what: str) -> None:
            shown.update(task, completed=done, total=total, description=what)

        yield update


@contextmanager
def _lines() -> Iterator[Callable[[int, int, str], None]]:
    """The bar's words on stderr, a line every ten seconds."""
    with Heartbeat("looking at what is asked and what this machine has", later_s=FIRST_S) as beat:

        def update(done: int, total: int, what: str) -> None:
            beat.at(f"{done} of {total} done, the last {printable(what)}")

        yield update


def latest(folder: Path, *, samples: bool = True) -> list[Record]:
    """The newest record of each cell that was run into the folder. Raises ConfigError without."""
    records, torn = RecordFile(folder / RECORDS, samples=samples).read()
    if not records:
        raise ConfigError(f"No records in {folder / RECORDS}; 'portkern matrix' writes them")
    if torn:
        print(f"portkern: note: {torn}", file=sys.stderr)
    return list({record.key: record for record in records}.values())


def readable(path: Path) -> list[Record]:
    """The records in a file; none where it cannot be read."""
    try:
        return RecordFile(path).read()[0]
    except RecordError:
        return []


def report(
    records: Sequence[Record],
    folder: Path,
    sink: Callable[[], Sequence[str]] = tuple,
    *,
    sources: Path | None = None,
) -> MatrixTable:
    """Write its views, and hand it to ``sink``; what is to be noted of either is said. Paths of
    kernels are from the folder ``sources``."""
    from portkern import report as views

    base = os.path.relpath(sources) if sources else ""
    with jsonl.no_search_for_garbage():
        written = views.write(records, folder, title=folder.name, sources=base)
    skipped = [f"{name} was not written: {why}" for name, why in written.skipped.items()]
    for note in [*skipped, *sink()]:
        print(f"portkern: note: {note}", file=sys.stderr)
    _tell_github(written.table, folder)
    return written.table


def tracked(
    records: Sequence[Record], folder: Path, suite: str, comparison: RunComparison | None = None
) -> list[str]:
    """Logged to MLflow, with notes about it; losing it loses no result."""
    from portkern.tracking import matrix_runs
    from portkern.tracking.store import SkippedLog

    answer = matrix_runs.track(
        records, experiment=suite, run_name=folder.name, folder=folder, comparison=comparison
    )
    again = "the records are kept; give the same command again to log them"
    return [f"{answer}; {again}" if isinstance(answer, SkippedLog) else str(answer)]


def _tell_github(table: MatrixTable, folder: Path) -> None:
    """Tells GitHub, in its workflows: kernels' lines are annotated, and the step's summary has the
    matrix."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    from portkern.report import ci_annotations

    for command in ci_annotations.github(ci_annotations.of(table)):
        print(command, file=sys.stderr)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if not summary:
        return
    text = (folder / "matrix.md").read_bytes()[:MOST_SUMMARY]
    try:
        with Path(summary).open("ab") as file:
            file.write(text.decode(errors="ignore").encode() + b"\n")
    except OSError as error:
        print(f"portkern: note: {summary} was not written: {error}", file=sys.stderr)


def show(
    table: MatrixTable,
    folder: Path,
    *,
    exit_code: int,
    as_json: bool,
    more: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """The table on a terminal; ``more`` goes into the JSON document."""
    from portkern.report import summary, terminal

    if as_json:
        document = summary.document(table, title=folder.name)
        json_output.show(document | {"folder": str(folder), "exit_code": exit_code, **more})
        return
    terminal.show(table, console())
    print(f"\nreport: {folder / 'matrix.html'}")

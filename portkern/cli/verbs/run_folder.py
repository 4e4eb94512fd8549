"""What the verbs that run cells share: the run's folder, progress and the exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from portkern.errors import ConfigError
from portkern.evaluator import statistics
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import StageLimits
from portkern.evaluator.trial import TrialOptions
from portkern.matrix.run import Matrix, Progress
from portkern.matrix.selection import Cell
from portkern.records import atomic_write
from portkern.records.record import Record, RecordFile, Verdict
from portkern.sandbox import session
from portkern.toolchain.run_tool import cache_root

RECORDS = "records.jsonl"
#: Columns of a table that goes to a file or a pipe.
LEAST_WIDTH = 120


def run_folder(reports: str, run: str) -> Path:
    """``reports/<run>``; a run's name is a folder's name."""
    if not run or run in (".", "..") or "/" in run:
        raise ConfigError(f"Got run={run!r}, expected a folder name such as 'nightly'")
    return Path(reports) / run


def options(
    *, baselines: Sequence[str], rounds: int, budget_s: float, timeout_s: float
) -> TrialOptions:
    unknown = set(baselines) - {"eager", "compile"}
    if unknown:
        raise ConfigError(f"Got baseline {min(unknown)!r}, expected 'eager' or 'compile'")
    if rounds < 1 or timeout_s <= 0:
        raise ConfigError(f"Got rounds={rounds} timeout_s={timeout_s:g}, expected both above 0")
    limits = StageLimits(build_s=max(timeout_s, 180.0), load_s=timeout_s, run_s=timeout_s)
    return TrialOptions(
        limits, statistics.TimingPlan(rounds=rounds, budget_s=budget_s), tuple(baselines)
    )


def run_cells(
    cells: Sequence[Cell], folder: Path, chosen: TrialOptions, *, fresh: bool, quiet: bool
) -> list[Record]:
    """Run what the records in ``folder`` do not answer yet."""
    with writing(folder), _progress(len(cells), quiet) as show:
        return execute(cells, folder, chosen, fresh=fresh, show=show)


def execute(
    cells: Sequence[Cell],
    folder: Path,
    chosen: TrialOptions,
    *,
    fresh: bool,
    show: Callable[[Progress], None] = lambda _: None,
) -> list[Record]:
    """The same, by who is :func:`writing` to the folder already."""
    builds = ArtifactCache(cache_root() / "builds")
    matrix = Matrix(cells, folder.name, RecordFile(folder / RECORDS), builds, chosen, fresh, show)
    records = matrix.execute()
    if matrix.torn:
        print(f"portkern: note: {matrix.torn}", file=sys.stderr)
    return records


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """One run at a time per folder; workers are gone when it is over. Raises ConfigError."""
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock").acquire(timeout=0):
            yield
    except Timeout:
        raise ConfigError(
            f"Another portkern is writing to {folder}; wait, or choose run=NAME"
        ) from None
    finally:
        session.close_servers()


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """A bar on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)

        def show(progress: Progress) -> None:
            latest = progress.record
            what = f"{latest.op} · {latest.backend} · {latest.target}" if latest else "reused"
            bar.update(task, completed=progress.done, description=what)

        yield show


def conclude(
    records: Sequence[Record],
    folder: Path,
    *,
    as_json: bool,
    sink: Callable[[], Sequence[str]] = tuple,
) -> int:
    """Write the report, hand it to ``sink`` for its notes, show it, and say how the run ended."""
    from rich.console import Console

    from portkern import report
    from portkern.report import summary, terminal

    written = report.write(records, folder, title=folder.name)
    skipped = [f"{name} was not written: {why}" for name, why in written.skipped.items()]
    for note in [*skipped, *sink()]:
        print(f"portkern: note: {note}", file=sys.stderr)
    table, code = report.Table.of(records), exit_code(records)
    if as_json:
        document = summary.document(table, title=folder.name)
        print_json(document | {"folder": str(folder), "exit_code": code})
    else:
        console = Console()
        console.width = max(console.width, LEAST_WIDTH if not console.is_terminal else 0)
        terminal.show(table, console)
        print(f"\nreport: {folder / 'matrix.html'}")
    return code


def exit_code(records: Sequence[Record]) -> int:
    """0 = done and good, 1 = a kernel has a bad verdict, 3 = nothing could run."""
    if any(record.verdict.bad for record in records):
        return 1
    ran = any(r.verdict is Verdict.PASSED or r.evidence for r in records)
    return 0 if ran else 3


def print_json(document: object) -> None:
    sys.stdout.write(_as_json(document))


def write_json(path: Path, document: object) -> None:
    """Raises StorageError."""
    atomic_write.write(path, _as_json(document))


def _as_json(document: object) -> str:
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n"

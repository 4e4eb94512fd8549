"""``portkern report``: write a run's report again from its records, a sweep's from its samples;
with ``runs=``, of several machines' runs as one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from omegaconf import MISSING

from portkern.cli import exit_code, json_output
from portkern.cli.config import Names, names, resolve
from portkern.cli.verbs import merged_runs, notify, regressions, run_folder
from portkern.errors import ConfigError
from portkern.experiment.compare.sample import FILE as SAMPLES
from portkern.printable import printable
from portkern.records import kernel_age, source_store
from portkern.records.source_store import SourceStore
from portkern.regression import document, runs
from portkern.regression.comparison import RunComparison
from portkern.regression.nights import Night
from portkern.spec.backend import Missing
from portkern.tracking import webhook


@dataclass
class ReportOptions:
    run: str = MISSING
    runs: Names = ""
    baseline: Names = ""
    suite: str = "nightly"
    track: bool = False
    notify: str = ""
    by: str = ""
    reports: str = "reports"
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    named = [f"run={o}" if "=" not in o else o for o in overrides]  # portkern report RUN
    options = resolve("report", ReportOptions, named)
    folder = run_folder.run_folder(options.reports, options.run)
    several = [name for name in names(options.runs) if name]
    url = webhook.address(options.notify) if several or options.notify else ""
    if options.by:
        return _by(options.by, folder)
    if (folder / SAMPLES).is_file():
        return _sweep(folder, as_json=options.json)
    remarks: list[str] = []
    if several:
        remarks = merged_runs.into(folder, several, Path(options.reports))
        (folder / document.FILE).unlink(missing_ok=True)  # of other records
    comparison = None
    if baselines := regressions.asked(options.baseline):
        remarks = remarks if several else _of_its_cells(folder)
        compared = _compared(baselines, folder, Path(options.reports))
        remarks += regressions.remarks(compared)
        comparison = compared if isinstance(compared, RunComparison) else None
    if several or baselines:
        runs.remark(folder, remarks)
    failing = any(line.startswith(runs.FAILING) for line in runs.RunFacts.read(folder).remarks)
    latest = run_folder.latest(folder, samples=options.track)
    sink = partial(run_folder.tracked, latest, folder, options.suite, comparison)
    table = run_folder.report(latest, folder, sink if options.track else tuple)
    notify.told(url, table, folder)
    code = exit_code.of_records(latest, table.quarantine)
    if (failing or (comparison and comparison.regressed)) and code in (0, 3):
        code = 1
    store = SourceStore(folder / source_store.FOLDER)
    if said := kernel_age.note(kernel_age.counted(latest, store)):
        print(f"portkern: note: {said}", file=sys.stderr)
    more = {"regressions": document.content(comparison)} if comparison else {}
    run_folder.show(table, folder, exit_code=code, as_json=options.json, more=more)
    if comparison and not options.json:
        for line in regressions.lines(comparison):
            print(printable(line))
    return code


def _of_its_cells(folder: Path) -> list[str]:
    """The remarks of matrix on the run's cells, which another comparison does not change."""
    told = runs.RunFacts.read(folder).remarks
    return [line for line in told if line.startswith(runs.OF_CELLS)]


def _compared(baselines: Sequence[str], folder: Path, reports: Path) -> RunComparison | Missing:
    """The comparison with the first of them that is there."""
    for baseline in baselines:
        regressions.check(baseline)
    comparison = regressions.against_first(baselines, Night.read(folder), reports)
    if isinstance(comparison, RunComparison):
        document.write(comparison, folder)
    else:
        (folder / document.FILE).unlink(missing_ok=True)  # of another comparison
    return comparison


def _by(what: str, folder: Path) -> int:
    """Prints one table of a ``portkern compare`` and nothing else."""
    from portkern.experiment.compare.page import category

    if what != "category":
        raise ConfigError(f"Got by={what!r}, expected category")
    print(printable(category.table(folder)))
    return 0


def _sweep(folder: Path, *, as_json: bool) -> int:
    """Writes the report of a ``portkern compare``, with its exit codes."""
    from portkern.experiment.compare import page

    comparison = page.again(folder)
    evaluated = comparison.samples - comparison.unevaluated
    code = 3 if not evaluated else 1 if comparison.unevaluated else 0
    if as_json:
        json_output.show({**comparison.document(), "folder": str(folder), "exit_code": code})
    else:
        print(printable(page.summary(comparison)))
        print(f"report: {folder / 'compare.html'}")
    return code

"""``portkern matrix``: every cell of ops × targets × backends × dtypes × workloads."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from portkern import guard, ops
from portkern.cells import calibration, shapes
from portkern.cells.budget import Budget
from portkern.cells.carrying import CarriedCells
from portkern.cells.selection import (
    LOOKED_FOR,
    GivenFiles,
    Kernels,
    RunStage,
    SelectedCell,
    Selection,
    target_sets,
)
from portkern.cells.shard import Shard
from portkern.cli import exit_code
from portkern.cli.config import Names, names, resolve
from portkern.cli.verbs import (
    executions,
    notify,
    own_kernels,
    plan_file,
    regressions,
    run_folder,
    served,
)
from portkern.cli.verbs.executions import Runner
from portkern.errors import ConfigError
from portkern.evaluator.trial import TrialOptions
from portkern.printable import printable
from portkern.project import expected
from portkern.project.project import Project
from portkern.records.record import Record
from portkern.regression import document, rule, runs
from portkern.regression.comparison import RunComparison
from portkern.regression.nights import AGAIN, Night
from portkern.regression.series import Series
from portkern.report import coverage
from portkern.report.table import MatrixTable
from portkern.spec import registry, target
from portkern.spec.backend import Missing
from portkern.tracking import webhook
from portkern.tuning import database

#: Options that no record of a run keeps.
_SECRET = ("notify", "address")


@dataclass
class MatrixOptions:
    """Names take one name, a list, or a set: core, all; targets also host, demo, architectures,
    products."""

    project: str = ""
    kernels: str = ""
    ops: Names = "core"
    targets: Names = "all"
    backends: Names = "all"
    workloads: Names = "ci"
    dtypes: Names = "float32"
    shapes: str = ""
    run: str = ""
    tags: Names = ""
    reports: str = "reports"
    venue: str = "best"
    sanitize: Names = field(default_factory=lambda: [*LOOKED_FOR])
    torch_ops: str = "forbid"
    source: Names = ""
    tuned: bool = True
    fresh: bool = False
    baseline: Names = ""
    baselines: Names = field(default_factory=lambda: ["eager"])
    rounds: int = 5
    budget_s: float = 0.25
    timeout_s: float = 120.0
    track: bool = True
    notify: str = ""
    carry: int = 0
    budget_minutes: float = 0.0
    shard: str = ""
    serve: str = "auto"
    execution: str = "local"
    address: str = ""
    node_wait_s: float = 30.0
    straggler_s: float = 300.0
    plan: str = ""
    json: bool = False


@dataclass(frozen=True)
class MatrixRequest:
    """A command line's request; ``given`` are the options that it names, ``notify`` is the address
    of those who are told."""

    options: MatrixOptions
    given: Collection[str]
    project: Project | None
    question: Selection
    folder: Path
    chosen: TrialOptions
    notify: str = ""


@dataclass(frozen=True)
class MatrixAnswer:
    """``gaps`` are what a project expects and did not get; ``comparison`` is with the earlier run
    that was asked for."""

    options: MatrixOptions
    records: Sequence[Record]
    table: MatrixTable
    folder: Path
    project: Project | None
    gaps: Sequence[str]
    comparison: RunComparison | None = None

    @property
    def exit_code(self) -> int:
        code = exit_code.of_records(self.records, self.table.quarantine)
        worse = self.comparison is not None and self.comparison.regressed
        return (
            1
            if (self.gaps or worse) and code in (0, 3)
            else own_kernels.exit_code(self.project, code)
        )


def main(overrides: Sequence[str]) -> int:
    request = _requested(overrides)
    options = request.options
    if options.plan:
        cells, path = request.question.cells(), Path(options.plan)
        return plan_file.write(
            path, cells, request.chosen, request.folder, suite=_suite(options), as_json=options.json
        )
    answer = _run(request)
    more: dict[str, object] = {}
    if answer.project:
        more = {"gaps": answer.gaps, "problems": own_kernels.problems(answer.project)}
    if answer.comparison:
        more["regressions"] = document.content(answer.comparison)
    run_folder.show(
        answer.table,
        answer.folder,
        exit_code=answer.exit_code,
        as_json=answer.options.json,
        more=more,
    )
    if answer.comparison and not answer.options.json:
        for line in regressions.lines(answer.comparison):
            print(printable(line))
    return answer.exit_code


def matrix(overrides: Sequence[str]) -> MatrixAnswer:
    """Run it, write its report and track it. Raises ConfigError."""
    request = _requested(overrides)
    if request.options.plan:
        raise ConfigError("Got plan=, which runs nothing; 'portkern matrix … plan=FILE' writes it")
    return _run(request)


def _requested(overrides: Sequence[str]) -> MatrixRequest:
    """Raises ConfigError."""
    options = resolve("matrix", MatrixOptions, overrides)
    baselines = regressions.asked(options.baseline)
    if baselines and options.plan:
        raise ConfigError(
            "Got baseline= with plan=, which runs nothing; compare when the records are here: "
            "portkern diff RUN_A RUN_B"
        )
    for baseline in baselines:
        regressions.check(baseline)
    executions.check(options.execution, options.address)
    if options.serve == "always" and (
        options.carry or options.budget_minutes or options.execution != "local"
    ):
        raise ConfigError(
            "Got serve=always with carry=, budget_minutes= or execution=, expected one of them"
        )
    for name in ("carry", "budget_minutes"):
        if (asked := getattr(options, name)) and options.execution != "local":
            said = f"Got {name}={asked:g} with execution={options.execution}"
            raise ConfigError(f"{said}, expected execution=local")
    if options.budget_minutes and options.fresh:
        raise ConfigError(
            "Got budget_minutes= with fresh=true, which runs all; expected one of them"
        )
    given = own_kernels.named(overrides)
    options = _with_shapes(options, given)
    project = own_kernels.project_of(options.project, options.kernels, names(options.ops))
    if project:
        options = own_kernels.filled(options, project, given)
    question = _question(options, project)
    if options.shard:
        question = Shard.parse(options.shard).part(question)
        given.add("ops")  # what other jobs have is not missed here
    parts = [Path(name).name for name in question.ops]
    about = (*parts, *question.targets, *question.workloads)
    run = options.run or own_kernels.run_name(project, about)
    chosen = run_folder.options(
        baselines=names(options.baselines),
        rounds=options.rounds,
        budget_s=options.budget_s,
        timeout_s=options.timeout_s,
    )
    folder = run_folder.run_folder(options.reports, run)
    url = webhook.address(options.notify)
    return MatrixRequest(options, given, project, question, folder, chosen, url)


def _run(request: MatrixRequest) -> MatrixAnswer:
    options = request.options
    with executions.runner(
        options.execution,
        options.address,
        node_wait_s=options.node_wait_s,
        straggler_s=options.straggler_s,
    ) as runner:
        return _run_by(_by_server(options) or runner, request)


def _by_server(options: MatrixOptions) -> Runner | None:
    """The runner that asks the server; None where the cells run elsewhere. The server is not asked
    where earlier runs' records may stand, which it does not know."""
    unasked = options.serve == "auto" and bool(options.carry > 1 or options.budget_minutes)
    return None if options.execution != "local" or unasked else served.runner(options.serve)


def _run_by(runner: Runner, request: MatrixRequest) -> MatrixAnswer:
    options, project, question = request.options, request.project, request.question
    folder, given = request.folder, request.given
    cells = question.cells()
    run_tags = runs.tags(options.tags)
    sources = project.folder if project else Path.cwd()
    named = {name: str(getattr(options, name, "")) for name in sorted(given) if name not in _SECRET}
    runs.note(folder, run_tags, sources, named)
    records = run_folder.run_cells(
        cells,
        folder,
        request.chosen,
        fresh=options.fresh,
        quiet=options.json,
        runner=_by_earlier(runner, options, folder),
        calibrations=_calibrations(options, cells),
    )
    by_name = given if project else {"backends", "targets", "ops"}
    warnings = [runs.WARNING + line for line in _not_covered(question, records, by_name)]
    gaps = _gaps(project, question, records, given)
    remarks = [*warnings, *(runs.GAP + line for line in gaps)]
    for line in remarks:
        print(f"portkern: {printable(line)}", file=sys.stderr)
    if project:  # which was told when it was read
        remarks += [runs.PROBLEM + line for line in own_kernels.problems(project)]
    compared = _compared(request, cells, records, runner)
    if compared is not None:
        remarks += regressions.remarks(compared)
    comparison = compared if isinstance(compared, RunComparison) else None
    runs.remark(folder, remarks)
    table = run_folder.report(
        records,
        folder,
        sink=lambda: _track(records, folder, options, comparison),
        sources=project.kernels.root if project and project.kernels else None,
    )
    notify.told(request.notify, table, folder)
    return MatrixAnswer(options, records, table, folder, project, gaps, comparison)


def _calibrations(options: MatrixOptions, cells: Sequence[SelectedCell]) -> list[SelectedCell]:
    """The calibration kernels of a night, which is a run that is compared, of this machine."""
    here = options.execution == "local" and regressions.asked(options.baseline)
    return calibration.cells(cells) if here else []


#: Runs back in which a cell is looked for that a budget leaves out.
_LOOKED_BACK = 5


def _by_earlier(runner: Runner, options: MatrixOptions, folder: Path) -> Runner:
    """The runner by which cells that nothing changed stand as they are in the last ``carry``
    runs, and by which those that there is no time for stand as they were last."""
    if runner is not executions.here or not (options.carry > 1 or options.budget_minutes):
        return runner
    budget, carried = None, None
    earlier = [run for run in runs.newest_first(folder.parent) if run.name != folder.name]
    if options.budget_minutes:
        newest = (run_folder.readable(run.records) for run in earlier[:_LOOKED_BACK])
        budget = Budget.of(options.budget_minutes, newest, [run.name for run in earlier])
    if options.carry > 1:
        number = max((run.number for run in earlier), default=0) + 1
        kept = (run_folder.readable(run.records) for run in earlier[: options.carry])
        carried = CarriedCells.of(kept, options.carry, number)
    return partial(executions.here, carried=carried, budget=budget)


def _compared(
    request: MatrixRequest, cells: Sequence[SelectedCell], records: Sequence[Record], runner: Runner
) -> RunComparison | Missing | None:
    """The comparison with an earlier run, None if it was not asked for; suspects are timed again
    first."""
    options, folder = request.options, request.folder
    (folder / document.FILE).unlink(missing_ok=True)  # of another comparison
    baselines = regressions.asked(options.baseline)
    if not baselines:
        return None
    if options.fresh:
        (folder / AGAIN).unlink(missing_ok=True)  # of the records that were run anew
    now = Night.read(folder)
    comparison = regressions.against_first(baselines, now, Path(options.reports), request.given)
    if isinstance(comparison, Missing):
        return comparison
    for _ in range(rule.TRIES):
        suspects = {*comparison.unconfirmed}
        again = [c for c, r in zip(cells, records, strict=True) if Series.of(r) in suspects]
        if not again:
            break
        run_folder.time_again(
            again, folder, AGAIN, request.chosen, quiet=options.json, runner=runner
        )
        comparison = replace(comparison, after=Night.read(folder))
    document.write(comparison, folder)
    return comparison


def _with_shapes(options: MatrixOptions, given: Collection[str]) -> MatrixOptions:
    """Operators and dtypes are those of the shapes, where the command line names none. Raises
    ConfigError."""
    if not options.shapes:
        return options
    if "workloads" in given:
        raise ConfigError("Got shapes= and workloads=, expected one of them")
    found = shapes.read(Path(options.shapes))
    own = replace(options, workloads=[shapes.SET])
    own = own if "ops" in given else replace(own, ops=shapes.op_names(found))
    return own if "dtypes" in given else replace(own, dtypes=shapes.dtypes(found))


def _question(options: MatrixOptions, project: Project | None) -> Selection:
    return Selection(
        own_kernels.op_names(project, names(options.ops)),
        names(options.targets),
        names(options.backends),
        names(options.workloads),
        names(options.dtypes),
        RunStage.parse(options.venue, names(options.sanitize)),
        guard.torch_ops(options.torch_ops),
        [database.own(), database.shipped()] if options.tuned else [],
        _kernels(options, project),
        elsewhere=bool(options.plan) or options.execution != "local",
        shapes=shapes.read(Path(options.shapes)) if options.shapes else (),
    )


def _kernels(options: MatrixOptions, project: Project | None) -> Kernels | None:
    """The kernels to use in place of those that ship; None for the shipped ones."""
    files = [Path(name) for name in names(options.source) if name]
    return GivenFiles(files) if files else project.kernels if project else None


def _gaps(
    project: Project | None,
    question: Selection,
    records: Sequence[Record],
    given: Collection[str],
) -> list[str]:
    """Coverage that the project expects and did not get. What the command line leaves out on
    purpose is not a gap."""
    if project is None or not project.expected:
        return []
    sets = expected.Sets(ops.SETS, target_sets(), {"all": registry.names()})
    cells = list(expected.cells(project.expected, sets))
    run: dict[str, set[str]] = {
        "ops": {record.op for record in records},
        "targets": {record.target for record in records},
        "backends": {record.backend for record in records},
    }
    left = [
        cell
        for cell in cells
        if ("ops" not in given or cell.op in run["ops"])
        and ("targets" not in given or cell.target in run["targets"])
        and ("backends" not in given or cell.backend in run["backends"])
    ]
    if len(left) < len(cells):
        print(
            f"portkern: note: {len(cells) - len(left)} expected cells are not among what the "
            "command line asks for",
            file=sys.stderr,
        )
    narrowed = {*given} & {"workloads", "dtypes"}
    return expected.gaps(left, records, narrowed)


def _not_covered(
    question: Selection, records: Sequence[Record], by_name: Collection[str]
) -> list[str]:
    """Lines about backends and targets that were asked for by name and of which no cell could be
    built or run. ``by_name`` are the options that name them; what a project expects is its own
    matter."""
    backends = set(question.backends) - {"all"} if "backends" in by_name else set()
    targets = set(question.targets) & set(target.names()) if "targets" in by_name else set()
    gaps = coverage.asked(MatrixTable.of(records), backends=backends, targets=targets)
    lines = [str(gap) for gap in gaps]
    without = set(question.ops) & set(ops.names()) - {record.op for record in records}
    sets = " ".join(question.workloads)
    return lines + [f"{op} has no workloads of {sets}: it has no cells" for op in sorted(without)]


def _track(
    records: Sequence[Record],
    folder: Path,
    options: MatrixOptions,
    comparison: RunComparison | None,
) -> list[str]:
    if not options.track:
        return []
    return run_folder.tracked(records, folder, _suite(options), comparison)


def _suite(options: MatrixOptions) -> str:
    return "-".join(names(options.ops))

"""``portkern experiment``: one question put to several arms, as runs of ``portkern generate``."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from omegaconf import MISSING

from portkern import experiment
from portkern.agent import pace
from portkern.agent.budget import Spent
from portkern.agent.llm.role import DEFAULT
from portkern.agent.run import GenerationRun, RunPlan, named
from portkern.agent.task import Task
from portkern.cells.selection import default_target
from portkern.cli import json_output
from portkern.cli.config import Names, names, resolve
from portkern.cli.heartbeat import Heartbeat
from portkern.cli.verbs import compare, compare_words, generate, run_folder
from portkern.cli.verbs.generate import GenerateOptions, plan_of
from portkern.errors import (
    BackendUnavailable,
    ConfigError,
    MachineUnfit,
    ModelDown,
    PortkernError,
    StorageError,
    no_such,
)
from portkern.experiment import report
from portkern.experiment.job import ASKED, ExperimentJob, FinishedJob, StudyQuestion, key_of
from portkern.experiment.section import SectionAnswer, SectionTable, listed
from portkern.experiment.study import Study
from portkern.printable import printable
from portkern.spec import registry, target
from portkern.spec.backend import Backend

if TYPE_CHECKING:
    from rich.table import Table as RichTable

SETTINGS = "settings"
#: The question that is a verb of its own.
MODELS = "name=models"
_PLACES = ("backend", "target")
#: What a model writes is to be its own, unless the command says otherwise.
OWN_WORK = ("library=forbid",)
#: What portkern generate calls otherwise, or has no use for here.
_INSTEAD = {
    "op": "ops=",
    "seed": "seeds=",
    "budget.attempts": "n=, turns= or attempts=",
    "run": "run=",
    "reports": "reports=",
    "fresh": "fresh=",
    "json": "json=",
    "replay": "portkern generate, whose recordings the jobs' folders are",
}


@dataclass
class ExperimentOptions:
    name: str = MISSING
    ops: Names | None = None
    op: str = ""
    n: int = 10
    turns: int = 10
    attempts: int = 45
    arms: Names | None = None
    backends: Names | None = None
    targets: Names | None = None
    strategies: Names | None = None
    seeds: Any = None
    settings: Names | None = None
    run: str = ""
    reports: str = "reports"
    fresh: bool = False
    json: bool = False


@dataclass(frozen=True)
class AskedExperiment:
    """``plans`` are those of the jobs, in their order."""

    study: Study
    question: StudyQuestion
    options: ExperimentOptions
    jobs: Sequence[ExperimentJob]
    plans: Sequence[RunPlan]

    @property
    def run(self) -> str:
        """The folder's name."""
        if self.options.run:
            return self.options.run
        task, model = self.plans[0].task, self.question.model.rpartition("/")[2]
        ops = dict.fromkeys(job.operator for job in self.jobs)
        where = dict.fromkeys(backend for backend, _ in self.question.places)
        where = where or dict.fromkeys((task.target.name, task.language))
        parts = ["experiment", self.options.name, *ops, *where, model]
        return "-".join(filter(None, parts)).replace("+", "p").replace(":", "-")


def main(overrides: Sequence[str]) -> int:
    if MODELS in overrides:
        return compare.main([one for one in overrides if one != MODELS])
    with Heartbeat("reading what is asked, and what this machine has"):
        asked = read(overrides)
    folder = run_folder.run_folder(asked.options.reports, asked.run)
    if asked.options.fresh:
        generate.put_aside(folder)
    with run_folder.writing(folder):
        results = _execute(asked, folder, _expected_s(asked, folder))
        skipped = report.write(results, folder)
    for name, why in skipped.items():
        print(f"portkern: note: {name} was not written: {why}", file=sys.stderr)
    if asked.options.json:
        json_output.show(results.document)
    else:
        _show(results, folder)
    return results.exit_code


# ---- what is asked


def read(overrides: Sequence[str]) -> AskedExperiment:
    """Raises ConfigError."""
    own, given, settings = _sorted(overrides)
    options = resolve("experiment", ExperimentOptions, own)
    study = experiment.load(options.name)
    arms = _arms(study, options)
    _check(study, given, settings, arms)
    ops = _ops(options)
    model = named(generate.read([f"op={ops[0]}", *given]).models or {}).get(DEFAULT, {})
    if model:
        given = [*OWN_WORK, *given]
    question = StudyQuestion(
        ops,
        arms,
        _seeds(study, options),
        int(getattr(options, study.counts)),
        str(model.get("model", "")),
        tuple(given),
        {arm: tuple(several) for arm, several in settings.items()},
        places_of(study, options),
    )
    if study.asks_model and not question.model:
        raise ConfigError(
            f"name={options.name} asks a language model to write, and none is named; set "
            f"models.{DEFAULT}.model=<litellm id>"
        )
    jobs = question.jobs(study.choices(question))
    return AskedExperiment(
        study, question, options, jobs, [plan_of(generate.read(j.overrides)) for j in jobs]
    )


def _sorted(overrides: Sequence[str]) -> tuple[list[str], list[str], dict[str, list[str]]]:
    """This verb's own, those of all runs of portkern generate, and those of the runs of an arm."""
    ours = {field.name for field in dataclasses.fields(ExperimentOptions)}
    theirs = {field.name for field in dataclasses.fields(GenerateOptions)} - set(_INSTEAD)
    own: list[str] = []
    given: list[str] = []
    settings: dict[str, list[str]] = {}
    for override in overrides:
        first, *rest = key_of(override).split(".")
        if first == SETTINGS:
            if len(rest) < 2 or "=" not in override:
                raise ConfigError(
                    f"Got {override!r}, expected settings.<arm>.<key>=<value>, such as "
                    "settings.evolutionary.strategy.population=8"
                )
            settings.setdefault(rest[0], []).append(override.split(".", 2)[2])
        elif first in ours or "=" not in override:
            own.append(override)
        elif first in theirs or first in _INSTEAD:
            given.append(override)
        else:
            raise no_such("option", first, ours | theirs)
    return own, given, settings


def _check(
    study: Study, given: Sequence[str], settings: Mapping[str, Sequence[str]], arms: Sequence[str]
) -> None:
    for arm in settings:
        if arm not in arms:
            raise no_such("arm", arm, arms)
    for override in itertools.chain(given, *settings.values()):
        instead = _INSTEAD.get(key_of(override))
        if instead:
            raise ConfigError(f"Got {override!r}, which an experiment decides; use {instead}")
        if study.in_places and key_of(override) in _PLACES:
            raise ConfigError(
                f"Got {override!r} for an experiment in several places; use {key_of(override)}s="
            )
    for override in given:
        if key_of(override).partition(".")[0] in study.varied:
            raise ConfigError(
                f"Got {override!r} for all arms, which differ in that; "
                f"for one of {', '.join(arms)} set settings.{arms[0]}.{override}"
            )


def _ops(options: ExperimentOptions) -> tuple[str, ...]:
    if bool(options.ops) == bool(options.op):
        raise ConfigError("Got no operator, or both op= and ops=; name one or several with ops=")
    return tuple(names(options.ops or options.op))


def _arms(study: Study, options: ExperimentOptions) -> tuple[str, ...]:
    """``strategies`` are the arms of a search."""
    chosen, other = options.arms, options.strategies
    if study.counts == "attempts":
        chosen, other = options.strategies, options.arms
    if other is not None:
        key = "arms" if study.counts == "attempts" else "strategies"
        raise ConfigError(f"Got {key}={other!r}, which name={options.name} does not have")
    if not chosen:
        return study.compared
    for name in names(chosen):
        if name not in study.arms and not study.of_models:
            raise no_such("strategy" if study.counts == "attempts" else "arm", name, study.arms)
    return tuple(names(chosen))


def _seeds(study: Study, options: ExperimentOptions) -> tuple[int, ...]:
    if options.seeds is None:
        return study.seeds
    several = options.seeds if isinstance(options.seeds, list) else [options.seeds]
    if not several or not all(type(seed) is int for seed in several):
        raise ConfigError(f"Got seeds={options.seeds!r}, expected whole numbers such as [0,1,2]")
    return tuple(several)


def places_of(study: Study, options: ExperimentOptions) -> tuple[tuple[str, str], ...]:
    """A backend and a target each. Where no target is named, each backend's own here; backends that
    are not named either are all that have one. Raises ConfigError, BackendUnavailable."""
    if not study.in_places:
        if options.backends or options.targets:
            raise ConfigError(
                f"name={options.name} is about one place; choose it with backend= and target="
            )
        return ()
    asked = [registry.load(name) for name in names(options.backends or [])]
    backends = asked or [registry.load(name) for name in registry.names()]
    if options.targets:
        wanted = [target.load(name) for name in names(options.targets)]
        pairs = [(b, where) for b in backends for where in wanted if b.supports(where)]
        left = [b.name for b in asked if b not in [backend for backend, _ in pairs]]
        if left or not pairs:
            raise ConfigError(
                f"No target of {', '.join(names(options.targets))} is one that "
                f"{', '.join(left) or 'any backend'} compiles for; name others with targets="
            )
        return tuple((backend.name, where.name) for backend, where in pairs)
    if asked:
        return tuple((backend.name, default_target(backend).name) for backend in asked)
    return tuple(_here(backends))


def _here(backends: Sequence[Backend]) -> Iterator[tuple[str, str]]:
    """The backends that run something on this machine, each with its default target."""
    for backend in backends:
        try:
            yield backend.name, default_target(backend).name
        except BackendUnavailable as error:
            print(f"portkern: note: without {backend.name}: {error}", file=sys.stderr)


# ---- what is done


def _expected_s(asked: AskedExperiment, folder: Path) -> float | None:
    """The seconds that all remaining jobs are expected to take, without what models take to
    answer. Where nothing is known, a kernel is measured for the first job of each place, and
    others are taken to need as long. Raises ConfigError, before anything runs, for a job that
    does not fit."""
    jobs = zip(asked.jobs, asked.plans, strict=True)
    runs = {job: GenerationRun(plan, folder / job.name) for job, plan in jobs}
    left = [run for job, run in runs.items() if not job.finished(folder)]
    if asked.options.json:  # nobody is told
        return None
    known: list[float] = []
    places: set[str] = set()
    with Heartbeat("reading what is there") as heartbeat:
        for run in left:
            place = _where(run.plan.task)
            heartbeat.at(f"measuring how long a kernel takes on {place}")
            try:
                seconds = pace.expected_s(run, measure=place not in places and not run.nowhere)
            except MachineUnfit:  # which its job will say
                seconds = None
            places.add(place)
            known += [seconds] if seconds is not None else []
    return len(left) * fmean(known) if known else None


def _execute(
    asked: AskedExperiment, folder: Path, expected_s: float | None
) -> report.ExperimentReport:
    """Job by job; the report is written after each, for who looks while others are running."""
    done = {job: FinishedJob.read(job, folder) for job in asked.jobs if job.finished(folder)}
    failed: dict[str, str] = {}
    code, began, had = 0, time.monotonic(), len(done)
    for number, job in enumerate(asked.jobs, 1):
        if job in done:
            continue
        if not asked.options.json:
            new = len(done) + len(failed) - had
            left = len(asked.jobs) - had - new
            elapsed_s = time.monotonic() - began
            left_s = elapsed_s * left / new if new else expected_s
            asks = not new and asked.plans[0].axes["proposer"]["kind"] != "catalogue"
            writing = ", and what models take to answer" if asks else ""
            said = _so_far([*done.values()], left_s, writing)
            print(f"\n# {number} of {len(asked.jobs)}: {job.name}; {said}", flush=True)
        try:
            finished = _generate(job, folder, quiet=asked.options.json)
        except StorageError:
            raise  # the others would meet it too
        except PortkernError as error:
            print(f"portkern: error: {job.name}: {printable(str(error))}", file=sys.stderr)
            failed[job.name], code = str(error), max(code, error.exit_code)
            continue
        if finished.why_nothing:
            failed[job.name] = finished.why_nothing
            continue
        json_output.write(folder / job.name / ASKED, list(job.overrides))
        done[job] = finished
        report.write(_report(asked, done, failed, code), folder, last=False)
    return _report(asked, done, failed, code)


def _so_far(done: Sequence[FinishedJob], left_s: float | None, writing: str) -> str:
    costs = [finished.summary["cost"] for finished in done]
    tokens = sum((cost["tokens_in"] or 0) + (cost["tokens_out"] or 0) for cost in costs)
    priced = [cost["usd"] for cost in costs if cost["usd"] is not None]
    usd = sum(priced) if len(priced) == len(costs) else None
    left = "how long is not known yet" if left_s is None else f"about {pace.words(left_s)} left"
    return f"{compare_words.cost(Spent(tokens=tokens, usd=usd))}; {left}{writing}"


def _generate(job: ExperimentJob, folder: Path, *, quiet: bool) -> FinishedJob:
    options = generate.read(job.overrides)
    options.reports, options.run, options.json = str(folder), job.name, quiet
    summary = generate.generate(options)
    if summary["down"]:  # it is not done: it goes on when the experiment does
        raise ModelDown(summary["stopped"])
    return FinishedJob.read(job, folder)


def _report(
    asked: AskedExperiment,
    finished: Mapping[ExperimentJob, FinishedJob],
    failed: Mapping[str, str],
    code: int,
) -> report.ExperimentReport:
    done = [finished[job] for job in asked.jobs if job in finished]
    findings = asked.study.findings(asked.question, done) if done else _nothing(failed.values())
    return report.ExperimentReport(
        asked.options.name,
        asked.study.title,
        findings,
        _facts(asked, done),
        asked.jobs,
        done,
        dict(failed),
        code if done or code else 3,
    )


def _nothing(reasons: Iterable[str]) -> SectionAnswer:
    why = "; ".join(dict.fromkeys(reasons))
    return SectionAnswer(f"No job is done{f': {why}' if why else ''}.", {}, ())


def _facts(asked: AskedExperiment, done: Sequence[FinishedJob]) -> dict[str, str]:
    plan, question = asked.plans[0], asked.question
    task = plan.task
    tasks = [one.task for one in asked.plans]
    devices = dict.fromkeys(finished.device for finished in done if finished.device)
    sets = listed(list(task.workloads))
    return {
        "operators": listed(list(dict.fromkeys(job.operator for job in asked.jobs))),
        "target": "; ".join(dict.fromkeys(map(_where, tasks))) + f", {task.dtype}",
        "device": listed(list(devices)) or "none",
        "author": question.model or "the catalogue: its kernels and their settings, no model",
        "arms": listed(list(question.arms)),
        "each job": f"{question.count} attempts, evaluated on {sets}; scores are speedups over "
        f"{plan.evaluation.baselines[0]} on {task.scored}",
        "seeds": listed(list(map(str, question.seeds))),
        "alike in all": " ".join(question.given) or "the defaults of portkern generate",
    }


def _where(task: Task) -> str:
    return f"{task.target.title} ({task.target.name}), in {task.language} by {task.backend.name}"


def _show(results: report.ExperimentReport, folder: Path) -> None:
    console = run_folder.console()
    console.print()
    for section in results.findings.sections:
        if section.table:
            console.print(_rich(section.table, section.title))
    console.print()
    for text in (results.findings.lead, *results.findings.notes):
        console.print(printable(text), highlight=False, markup=False)
    for name, why in results.failed.items():
        console.print(f"not done: {name}: {printable(why)}", highlight=False, markup=False)
    print(f"report: {folder / 'experiment.html'}")


def _rich(table: SectionTable, title: str) -> RichTable:
    from rich.markup import escape
    from rich.table import Table

    shown = Table(
        title=escape(title), title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for k, name in enumerate(table.head):
        shown.add_column(escape(name), justify="left" if k < table.names else "right")
    for row in table.rows:
        shown.add_row(*(escape(printable(cell)) for cell in row))
    return shown

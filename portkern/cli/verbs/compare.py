"""``portkern compare``: models asked for the same kernels, and what follows from their samples."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from portkern.agent.log import FILE as ATTEMPTS
from portkern.agent.log import Log
from portkern.cli import json_output
from portkern.cli.config import GIVEN, Group, Names, names, resolve
from portkern.cli.heartbeat import Heartbeat
from portkern.cli.verbs import (
    compare_models,
    compare_plan,
    compare_tasks,
    compare_words,
    generate,
    run_folder,
    served,
)
from portkern.cli.verbs.compare_tasks import TaskQuestion
from portkern.cli.verbs.generate import GenerateOptions
from portkern.errors import ConfigError, no_such
from portkern.experiment.compare import page, public
from portkern.experiment.compare.comparison import ModelComparison, compare
from portkern.experiment.compare.design import Design
from portkern.experiment.compare.ledger import FILE as LEDGER
from portkern.experiment.compare.ledger import Ledger, budget_of
from portkern.experiment.compare.page import words as page_words
from portkern.experiment.compare.sample import FILE as SAMPLES
from portkern.experiment.compare.sample import Sample
from portkern.experiment.compare.suite import expand
from portkern.experiment.compare.sweep import Sweep
from portkern.experiment.compare.task import ComparedModel, CompareTask
from portkern.experiment.job import key_of
from portkern.printable import printable
from portkern.records import atomic_write
from portkern.spec.safe_name import file_of

#: What portkern generate calls otherwise, or has no use for here.
_INSTEAD = {
    "op": "ops=",
    "target": "targets=",
    "backend": "backends=",
    "dtype": "dtypes=",
    "seed": "n=, whose samples have seeds of their own",
    "inflight": "concurrency=",
    "replay": "the sweep's folder, whose replies are not asked for again",
    "approve": "portkern generate",
}
#: Samples are drawn anew, and are the models' own work.
_UNLESS_GIVEN = ("cache=false", "library=forbid")
_LONGEST_NAME = 80


@dataclass
class CompareOptions:
    models: Any = None
    ops: Names = "basic"
    targets: Names | None = None
    backends: Names = "all"
    dtypes: Names = "float32"
    n: int = 10
    preset: str = "kernelbench_oneshot"
    attempts: int = 10
    donor: str = ""
    each: Group | None = None
    prices: Group | None = None
    settings: Any = None
    budget: Group = GIVEN
    workloads: Names | None = None
    heldout: bool = True
    final: Names = "heldout"
    concurrency: int = 4
    builders: int = 2
    results: Names | None = None
    baseline: str = ""
    prompts: bool = True
    wanted: float = 0.1
    rate: float = 0.4
    spread: float = 0.25
    alike: float = 0.6
    reply: int | None = None
    run: str = ""
    reports: str = "reports"
    fresh: bool = False
    retime: bool = False
    track: bool = True
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    with Heartbeat("reading what is asked, and what this machine has") as heartbeat:
        return _main(overrides, heartbeat)


def _main(overrides: Sequence[str], heartbeat: Heartbeat) -> int:
    planned = compare_plan.PLAN in overrides
    own, given, settings = _sorted([one for one in overrides if one != compare_plan.PLAN])
    options = _options(own)
    if options.results and not planned:
        return _results(options)
    models, base = _models(options, given, settings)
    tasks = compare_tasks.tasks(_question(options, base))
    if planned:
        heartbeat.at("weighing prompts")
        return _plan(options, models, tasks.all)
    folder = run_folder.run_folder(options.reports, options.run or _name(options, models))
    if options.fresh:
        generate.put_aside(folder)
    with run_folder.writing(folder):
        ledger = Ledger(budget_of(options.budget), folder / LEDGER)
        for model in models:
            compare_models.check_payable(model, ledger, options.prices or {})
        with compare_words.progress(options.json, heartbeat) as report:
            sweep = Sweep(
                models,
                tasks.all,
                options.n,
                folder,
                ledger,
                builders=options.builders,
                retime=options.retime,
                ask=served.asking(base.serve),
                report=report,
                watch=heartbeat.at,
            )
            if not options.json:
                lines = compare_words.heading(sweep, tasks.left_out, options.preset)
                print(printable("\n".join(lines)), flush=True)
                if sweep.done < sweep.total:
                    print(compare_words.how_long(sweep), flush=True)
            asyncio.run(sweep.run())
            heartbeat.at("writing the page")
        return _finish(sweep.close(), folder, options, sweep, tasks.left_out)


def _plan(
    options: CompareOptions, models: Sequence[ComparedModel], tasks: Sequence[CompareTask]
) -> int:
    """Says what a sweep of this kind can show, and what it costs: no model is asked."""
    if options.rate + options.wanted > 1:
        raise ConfigError(
            f"Got rate={options.rate:g} and wanted={options.wanted:g}, expected at most 1 "
            "together: the stronger model passes at rate + wanted"
        )
    design = Design(options.wanted, options.rate, options.spread, options.alike)
    plan = compare_plan.plan(
        models, tasks, options.n, design, reply=options.reply, prices=options.prices or {}
    )
    if options.json:
        json_output.show({**plan.document(), "exit_code": 0})
    else:
        print(printable("\n".join(plan.lines())))
    return 0


def _results(options: CompareOptions) -> int:
    """Compares results of others: no model is asked."""
    if options.models:
        raise ConfigError("Got models= and results=; name models to ask, or results that are there")
    found = public.load(
        names(options.results), Path(options.baseline) if options.baseline else None
    )
    rows = found.samples
    folder = run_folder.run_folder(options.reports, options.run or "compare-results")
    if options.fresh:
        generate.put_aside(folder)
    with run_folder.writing(folder):
        text = "".join(f"{row.to_json()}\n" for row in rows)
        atomic_write.write(folder / SAMPLES, text)
        return _finish(rows, folder, options, left_out=found.problems)


# ---- what is asked


def _options(own: Sequence[str]) -> CompareOptions:
    """Raises ConfigError. Hydra would take ``preset=`` for the group, which changes others."""
    presets = [one for one in own if key_of(one) == "preset"]
    rest = [one for one in own if one not in presets]
    options = resolve("compare", CompareOptions, rest, free=("each", "budget"))
    if presets:
        options.preset = presets[-1].partition("=")[2]
    return options


def _sorted(overrides: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """This verb's own, those of all runs of portkern generate, and those of single models."""
    ours = {field.name for field in dataclasses.fields(CompareOptions)}
    theirs = {field.name for field in dataclasses.fields(GenerateOptions)} - set(_INSTEAD)
    own: list[str] = []
    given: list[str] = []
    settings: list[str] = []
    for override in overrides:
        first, *rest = key_of(override).split(".")
        if first == compare_models.SETTINGS and rest:
            settings.append(override)
        elif first in _INSTEAD:
            raise ConfigError(f"Got {override!r}; portkern compare has {_INSTEAD[first]} for it")
        elif first == "models" and rest:
            raise ConfigError(
                f"Got {override!r}; what holds for all models is each.{rest[-1]}=, of one of them "
                f"settings.NAME.{rest[-1]}="
            )
        elif first == "models" and (twice := compare_models.named_twice(override)):
            raise ConfigError(f"models= has {twice!r} twice; give each a name of its own")
        elif first in ours or "=" not in override:
            own.append(override)
        elif first in theirs:
            given.append(override)
        else:
            raise no_such("option", first, ours | theirs)
    return own, given, settings


def _models(
    options: CompareOptions, given: Sequence[str], settings: Sequence[str]
) -> tuple[list[ComparedModel], GenerateOptions]:
    """The models to compare, and the options of a run as the first of them has them."""
    asked = compare_models.read(options.models)
    roles, axes = compare_models.settings(settings, list(asked))
    first = expand(names(options.ops))[0].source
    kept = [*_UNLESS_GIVEN, *given]
    models = []
    bases: dict[tuple[str, ...], GenerateOptions] = {}  # most have none of their own
    for name, own in asked.items():
        changed = tuple(axes[name])
        if changed not in bases:
            bases[changed] = compare_models.options_of(options.preset, first, kept, changed)
        base = bases[changed]
        own = {**(options.each or {}), **own, **roles[name]}
        if not own.get("model"):
            raise ConfigError(f"models.{name} names no model; set settings.{name}.model=")
        models.append(
            compare_models.compared(
                name, own, base, donor=options.donor, n=options.n, at_once=options.concurrency
            )
        )
    return models, replace(next(iter(bases.values())), prices=options.prices or {})


def _question(options: CompareOptions, base: GenerateOptions) -> TaskQuestion:
    return TaskQuestion(
        expand(names(options.ops)),
        names(options.targets) if options.targets else None,
        names(options.backends),
        names(options.dtypes),
        names(options.workloads) if options.workloads else None,
        names(options.final) if options.heldout else (),
        options.attempts,
        options.donor,
        base,
    )


def _name(options: CompareOptions, models: Sequence[ComparedModel]) -> str:
    """The run's name, made of the models' own names, if they are not too many."""
    short = [model.folder.rpartition("/")[2] for model in models]
    name = "-".join(["compare", options.preset, *short])
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(" ".join(model.name for model in models).encode()).hexdigest()[:8]
    return f"compare-{options.preset}-{len(models)}-models-{digest}"


# ---- how it ended


def _finish(
    rows: Sequence[Sample],
    folder: Path,
    options: CompareOptions,
    sweep: Sweep | None = None,
    left_out: Sequence[str] = (),
) -> int:
    """Write the page, log it and say what it shows."""
    comparison = compare(rows, sources=_sources(rows, folder))
    notes = [*(sweep.notes if sweep else ()), *left_out]
    facts = _facts(options, sweep, notes)
    page.write(folder, comparison, rows, facts=facts, prompts=options.prompts)
    if options.track:
        _track(comparison, rows, folder)
    evaluated = sum(row.evaluated for row in rows)
    bad_rows = bool(left_out) and sweep is None
    code = 3 if not evaluated else 0 if evaluated == len(rows) and not bad_rows else 1
    if options.json:
        said: dict[str, object] = {"folder": str(folder), "notes": notes, "exit_code": code}
        if sweep:
            spent = sweep.ledger.spent
            said["cost"] = {"usd": spent.usd, "tokens": spent.tokens}
        json_output.show({**comparison.document(), **said})
        return code
    if sweep and evaluated < len(rows):
        notes.append("the same command goes on with what is missing")
    print(printable(f"\n{page_words.summary(comparison, notes)}"))
    print(f"report: {folder / 'compare.html'}")
    return code


def _facts(options: CompareOptions, sweep: Sweep | None, notes: Sequence[str]) -> dict[str, str]:
    if sweep is None:
        facts = {"samples": "of others: " + ", ".join(names(options.results))}
        return facts | ({"not taken": "; ".join(notes)} if notes else {})
    facts = {
        "written by": f"{options.preset}, {sweep.n} samples of each model and task",
        "tasks": compare_words.tasks(sweep),
        "spent": compare_words.cost(sweep.ledger.spent),
    }
    if any(task.plan.task.library == "allow" for task in sweep.tasks):
        facts["library=allow"] = "authors were offered portkern's own headers"
    return facts | ({"not evaluated": "; ".join(notes)} if notes else {})


def _sources(rows: Sequence[Sample], folder: Path) -> dict[str, str]:
    """The sources of correct samples, by digest."""
    sources: dict[str, str] = {}
    for row in rows:
        if not (row.path and row.correct) or row.digest in sources:
            continue
        path = file_of(folder, row.path.partition("#")[0], "path of a sample") / ATTEMPTS
        if path.exists():
            sources |= {one.digest: one.source for one in Log.read(path) if one.digest}
    return sources


def _track(comparison: ModelComparison, rows: Sequence[Sample], folder: Path) -> None:
    from portkern.tracking import sweep_runs
    from portkern.tracking.store import SkippedLog

    said = sweep_runs.track(comparison, rows, folder)
    if isinstance(said, SkippedLog):
        print(f"portkern: note: {said}", file=sys.stderr)

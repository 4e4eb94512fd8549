"""``portkern compare``: models asked for the same kernels, and what follows from their samples."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from portkern.agent.llm.role import DEFAULT
from portkern.agent.log import FILE as ATTEMPTS
from portkern.agent.log import Log
from portkern.cli import json_output
from portkern.cli.config import GIVEN, Group, Names, names, resolve
from portkern.cli.verbs import compare_models, compare_tasks, generate, run_folder
from portkern.cli.verbs.compare_tasks import TaskQuestion, Tasks
from portkern.cli.verbs.generate import GenerateOptions
from portkern.errors import ConfigError, no_such
from portkern.experiment.compare import page
from portkern.experiment.compare.comparison import Comparison, compare
from portkern.experiment.compare.ledger import FILE as LEDGER
from portkern.experiment.compare.ledger import Ledger, budget_of
from portkern.experiment.compare.sample import Sample
from portkern.experiment.compare.suite import expand
from portkern.experiment.compare.sweep import Sweep, SweepProgress
from portkern.experiment.compare.task import ComparedModel
from portkern.experiment.job import key_of
from portkern.printable import printable

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
#: Seconds that a reply and an evaluation are taken to need before there are any, by whether kernels
#: run on hardware; what is left is told by those that there are as soon as possible.
_REPLY_S, _EVALUATION_S = 20.0, {True: 8.0, False: 5.0}
#: Where nothing is drawn anew, a line is written so often.
_TELL_S = 10.0
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
    run: str = ""
    reports: str = "reports"
    fresh: bool = False
    track: bool = True
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    own, given, settings = _sorted(overrides)
    options = _options(own)
    models, base = _models(options, given, settings)
    tasks = compare_tasks.tasks(_question(options, base))
    folder = run_folder.run_folder(options.reports, options.run or _name(options, models))
    if options.fresh:
        generate.put_aside(folder)
    with run_folder.writing(folder):
        ledger = Ledger(budget_of(options.budget), folder / LEDGER)
        for model in models:
            compare_models.check_payable(model, ledger, options.prices or {})
        with _progress(options.json) as report:
            sweep = Sweep(
                models,
                tasks.all,
                options.n,
                folder,
                ledger,
                builders=options.builders,
                report=report,
            )
            if not options.json:
                print(printable("\n".join(_heading(sweep, tasks, options))), flush=True)
            asyncio.run(sweep.run())
        rows = sweep.close()
        comparison = compare(rows, sources=_sources(rows, folder))
        page.write(folder, comparison, rows)
    return _conclude(sweep, tasks, rows, comparison, options)


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
    """With the options of a run, as the first of them has it."""
    asked = compare_models.read(options.models)
    roles, axes = compare_models.settings(settings, list(asked))
    first = expand(names(options.ops))[0].source
    kept = given if any(key_of(one) == "cache" for one in given) else ["cache=false", *given]
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
    """Of the models' own names, if they are not too many."""
    short = [model.folder.rpartition("/")[2] for model in models]
    name = "-".join(["compare", options.preset, *short])
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(" ".join(model.name for model in models).encode()).hexdigest()[:8]
    return f"compare-{options.preset}-{len(models)}-models-{digest}"


def _sources(rows: Sequence[Sample], folder: Path) -> dict[str, str]:
    """Of correct samples, by digest."""
    sources: dict[str, str] = {}
    for row in rows:
        path = folder / row.path / ATTEMPTS
        if row.correct and row.digest not in sources and path.exists():
            sources |= {one.digest: one.source for one in Log.read(path) if one.digest}
    return sources


# ---- what is told


def _heading(sweep: Sweep, tasks: Tasks, options: CompareOptions) -> list[str]:
    places = ", ".join(dict.fromkeys(task.place for task in sweep.tasks))
    again = f"; {sweep.had} are there already" if sweep.had else ""
    ops = len({task.op for task in sweep.tasks})
    lines = [
        f"{_counted(len(sweep.models), 'model')} × {_counted(len(sweep.tasks), 'task')} × "
        f"{_counted(sweep.n, 'sample')} = {sweep.total}, by {options.preset}{again}",
        f"tasks: {_counted(ops, 'operator')}; {places}",
    ]
    for model in sweep.models:
        said = ", ".join(f"{k}={v}" for k, v in model.roles[DEFAULT].items() if v not in (None, ""))
        lines.append(f"model {model.name}: {said}")
    lines += [f"left out: {line}" for line in tasks.left_out]
    lines.append(_budget(sweep.ledger))
    left = sweep.total - sweep.had
    if left:
        lines.append(f"about {_duration(_estimated_s(sweep))} for {_counted(left, 'sample')}")
    return lines


def _budget(ledger: Ledger) -> str:
    limits = [f"{k} {v:.10g}" for k, v in vars(ledger.budget).items() if v is not None]
    spent = ledger.spent
    lost = (
        f"; {_counted(ledger.lost, 'request')} that a killed command had out may have been charged "
        "and count as the most that they can have been"
        if ledger.lost
        else ""
    )
    so_far = f"; spent: {_spent(spent.tokens, spent.usd)}{lost}" if spent.tokens else ""
    return f"budget: {', '.join(limits) or 'no limit'}{so_far}"


def _estimated_s(sweep: Sweep) -> float:
    """The slower of writing, model by model, and evaluating, one after the other."""
    share = (sweep.total - sweep.had) / sweep.total
    writing = max(
        _REPLY_S * sweep.n * len(sweep.tasks) / model.concurrency for model in sweep.models
    )
    timed = [len(task.plan.task.workloads) > 1 for task in sweep.tasks]
    evaluating = sweep.n * len(sweep.models) * sum(_EVALUATION_S[one] for one in timed)
    return share * max(writing, evaluating)


@contextmanager
def _progress(quiet: bool) -> Iterator[Any]:
    """On a terminal a bar, elsewhere a line now and then."""
    last = [0.0]

    def line(progress: SweepProgress) -> None:
        now = time.monotonic()
        if quiet or (now - last[0] < _TELL_S and progress.done < progress.total):
            return
        last[0] = now
        print(printable(f"[{progress.done}/{progress.total}] {_said(progress)}"), flush=True)

    with run_folder.bar(quiet) as update:

        def report(progress: SweepProgress) -> None:
            update(progress.done, progress.total, _said(progress))
            if not sys.stderr.isatty():
                line(progress)

        yield report


def _said(progress: SweepProgress) -> str:
    left = "" if progress.left_s is None else f"; about {_duration(progress.left_s)} left"
    latest = progress.latest
    what = f"; {latest.model}: {latest.op}, {latest.backend}: {latest.status}" if latest else ""
    return f"{_spent(progress.spent.tokens, progress.spent.usd)}{left}{what}"


def _conclude(
    sweep: Sweep,
    tasks: Tasks,
    rows: Sequence[Sample],
    comparison: Comparison,
    options: CompareOptions,
) -> int:
    evaluated = sum(row.evaluated for row in rows)
    code = 3 if not evaluated else 0 if evaluated == len(rows) else 1
    notes = [*sweep.notes, *tasks.left_out]
    spent = sweep.ledger.spent
    if options.json:
        said = {
            "folder": str(sweep.folder),
            "asked": len(rows),
            "evaluated": evaluated,
            "notes": notes,
            "cost": {"usd": spent.usd, "tokens": spent.tokens},
            "exit_code": code,
        }
        json_output.show({**comparison.document(), **said})
        return code
    print(
        printable(
            f"\n{evaluated} of {_counted(len(rows), 'sample')} evaluated; "
            f"{_spent(spent.tokens, spent.usd)}"
        )
    )
    for note in notes:
        print(printable(f"note: {note}"))
    if evaluated < len(rows):
        print("the same command goes on with what is missing")
    print(f"report: {sweep.folder / 'compare.html'}")
    return code


def _spent(tokens: int, usd: float | None) -> str:
    return f"{tokens} tokens, {'unknown' if usd is None else f'{usd:.4f}'} USD"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

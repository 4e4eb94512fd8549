"""``portkern generate``: write a kernel for one target, with models or from the catalogue."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from portkern import guard
from portkern.agent import approval, page
from portkern.agent.attempt import Attempt, Status
from portkern.agent.budget import GenerationBudget
from portkern.agent.constraints import Constraints
from portkern.agent.outcome import FILE as SUMMARY
from portkern.agent.outcome import RunOutcome
from portkern.agent.run import GenerationRun, RunPlan
from portkern.agent.task import Task
from portkern.cli.config import GIVEN, Group, Names, group, names, resolve, sweep
from portkern.cli.verbs import run_folder
from portkern.errors import ConfigError, PortkernError, no_such
from portkern.matrix.selection import Stage, default_target, host_targets, load_op
from portkern.spec import registry, target
from portkern.spec.backend import Backend
from portkern.spec.op import FLOATS, WORKLOAD_SETS, Op, Workload
from portkern.spec.target import Target

AXES = ("strategy", "proposer", "memory", "feedback", "critic")
#: Below these anything may be set; who takes it checks it.
FREE = (*AXES, "models", "prices", "preset", "budget")
#: Of a target's vendor the backend whose language is its own.
_OWN = {"nvidia": "cuda", "amd": "hip", "cpu": "cpu", "opencl": "opencl"}
#: Of memory that a workload of the search touches on a CPU, where data are made and compared at its
#: own speed.
CPU_MB = 64.0
_MULTIRUN = ("-m", "--multirun")


@dataclass
class GenerateOptions:
    strategy: Group = GIVEN
    proposer: Group = GIVEN
    memory: Group = GIVEN
    feedback: Group = GIVEN
    critic: Group = GIVEN
    preset: Group | None = None
    op: str = MISSING
    target: str = ""
    backend: str = ""
    language: str = ""
    dtype: str = "float32"
    workloads: Names | None = None
    final: Names | None = None
    search_mb: float | None = None
    models: Group | None = None
    prices: Group | None = None
    cache: bool = True
    replay: str = ""
    budget: Group | None = None
    seed: int = 0
    inflight: int = 4
    builders: int = 2
    constraints: str = ""
    approve: str = "none"
    venue: str = "best"
    sanitize: Names = "none"
    torch_ops: str = "forbid"
    baselines: Names | None = None
    rounds: int = 5
    budget_s: float = 0.25
    timeout_s: float = 120.0
    run: str = ""
    reports: str = "reports"
    fresh: bool = False
    track: bool = True
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    """With ``-m`` (or ``--multirun``) every combination of ``key=a,b`` is a run of its own."""
    plain = [override for override in overrides if override not in _MULTIRUN]
    if len(plain) == len(overrides):
        options = read(plain)
        document = generate(options)
        if options.json:
            run_folder.print_json(document)
        return int(document["exit_code"])
    return _several(sweep(plain))


def read(overrides: Sequence[str]) -> GenerateOptions:
    """The options of one run. A group that is chosen beside a preset is its own again: what the
    preset sets for another choice does not reach it. Raises ConfigError."""
    options = resolve("generate", GenerateOptions, overrides, free=FREE)
    if options.preset:
        for axis in AXES:
            choices = [override for override in overrides if override.startswith(f"{axis}=")]
            own = [override for override in overrides if override.startswith(f"{axis}.")]
            if choices:
                setattr(options, axis, group(axis, choices[-1].partition("=")[2], own))
    return options


def _several(jobs: Sequence[Sequence[str]]) -> int:
    documents = []
    for job in jobs:
        options = read(job)
        if not options.json:
            print(f"\n# {' '.join(job)}")
        try:
            documents.append({"job": list(job)} | generate(options))
        except PortkernError as error:  # the others are still to be had
            print(f"portkern: error: {error}", file=sys.stderr)
            documents.append({"job": list(job), "error": str(error), "exit_code": error.exit_code})
    if documents and options.json:
        run_folder.print_json({"jobs": documents})
    return max((document["exit_code"] for document in documents), default=2)


def generate(options: GenerateOptions) -> dict[str, Any]:
    """One run, to its end; what ``summary.json`` holds."""
    plan = plan_of(options)
    folder = run_folder.run_folder(options.reports, options.run or _name(options, plan.task))
    if options.fresh:
        put_aside(folder)
    with run_folder.writing(folder):
        run = GenerationRun(plan, folder)
        if not options.json:
            print(_heading(plan, run))
        stopped = run.execute(
            report=(lambda _: None) if options.json else _tell,
            approve=approval.Approver(options.approve, folder).choose,
        )
        outcome = run.conclude()
        document = _document(options, plan, run, outcome, stopped)
        page.write(run.log, folder, document)
        run_folder.write_json(folder / SUMMARY, document)
    if options.track:
        _track(run, folder, document)
    if not options.json:
        print(_ending(document, folder))
    return document


# ---- what is asked


def plan_of(options: GenerateOptions) -> RunPlan:
    op = load_op(options.op)
    where, backend = _place(options)
    if options.approve not in approval.MODES:
        raise no_such("approve mode", options.approve, approval.MODES)
    if options.approve == "ideas" and options.proposer["kind"] != "ideas_then_code":
        raise ConfigError(
            f"approve=ideas asks about ideas, which proposer={options.proposer['kind']} has none "
            "of; take proposer=ideas_then_code"
        )
    if options.dtype not in FLOATS:
        raise no_such("dtype", options.dtype, FLOATS)
    constraints = (
        Constraints.read(Path(options.constraints)) if options.constraints else Constraints()
    )
    op = replace(op, precision=constraints.precision_of(op.precision))
    task = Task(
        op,
        where,
        backend,
        options.language or next(iter(backend.languages.values())),
        options.dtype,
        _workloads(op, names(options.workloads)),
        constraints,
        guard.torch_ops(options.torch_ops),
    )
    raced = task.workloads[task.scored]
    small = {task.scored: _small(task, options.search_mb)}
    task = replace(task, workloads={**task.workloads, **small})
    final = _workloads(op, names(options.final)) if options.final else {}
    return RunPlan(
        task,
        {axis: dict(getattr(options, axis) or {}) for axis in AXES},
        run_folder.options(
            baselines=names(options.baselines),
            rounds=options.rounds,
            budget_s=options.budget_s,
            timeout_s=options.timeout_s,
        ),
        models=dict(options.models or {}),
        prices=dict(options.prices or {}),
        budget=_budget(options.budget),
        final=final,
        raced=raced,
        stage=Stage.parse(options.venue, names(options.sanitize)),
        seed=options.seed,
        inflight=_positive(options, "inflight"),
        builders=_positive(options, "builders"),
        cache=options.cache,
        replay=Path(options.replay) if options.replay else None,
    )


def _place(options: GenerateOptions) -> tuple[Target, Backend]:
    """Either is found by the other where it is not named."""
    if options.target:
        where = target.load(options.target)
    elif options.backend:
        where = default_target(registry.load(options.backend))
    else:
        where = target.load(host_targets()[-1])
    backend = registry.load(options.backend or _OWN[where.vendor])
    if not backend.supports(where):
        fitting = [n for n in registry.names() if registry.load(n).supports(where)]
        raise ConfigError(
            f"backend={backend.name} does not compile for {where.name}; those that do: "
            f"{', '.join(fitting)}"
        )
    return where, backend


def _workloads(op: Op, sets: Sequence[str]) -> dict[str, tuple[Workload, ...]]:
    for name in sets:
        if name not in WORKLOAD_SETS:
            raise no_such("workload set", name, WORKLOAD_SETS)
    found = {name: tuple(op.workloads.get(name, ())) for name in sets}
    found = {name: several for name, several in found.items() if several}
    if not found:
        raise ConfigError(
            f"{op.name} has no workloads of {', '.join(sets)}; it has {', '.join(op.workloads)}"
        )
    return found


def _small(task: Task, most_mb: float | None) -> tuple[Workload, ...]:
    """Those of the scored workloads that the search is done on: no larger than ``most_mb``, or the
    smallest. What is faster there is faster where the whole is timed, as a rule; the end tells."""
    scored = task.workloads[task.scored]
    limit = (math.inf if task.target.is_gpu else CPU_MB) if most_mb is None else most_mb
    by_size = sorted(scored, key=lambda one: task.op.nbytes(one.dims, task.dtype))
    small = {one.name for one in by_size if task.op.nbytes(one.dims, task.dtype) <= limit * 2**20}
    return tuple(one for one in scored if one.name in small) or tuple(by_size[:1])


def _budget(options: Group | None) -> GenerationBudget:
    given: dict[str, Any] = dict(options or {})
    unknown = set(given) - set(asdict(GenerationBudget()))
    if unknown:
        raise no_such("option of budget", min(unknown), asdict(GenerationBudget()))
    for name, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ConfigError(f"Got budget.{name}={value!r}, expected a number or null")
    return GenerationBudget(**given)


def _positive(options: GenerateOptions, name: str) -> int:
    value = int(getattr(options, name))
    if value < 1:
        raise ConfigError(f"Got {name}={value}, expected 1 or more")
    return value


def _name(options: GenerateOptions, task: Task) -> str:
    preset = (options.preset or {}).get("name", "")
    chosen = [preset] if preset else [options.strategy["kind"], options.proposer["kind"]]
    how = list(map(str, chosen))
    dtype = [] if task.dtype == "float32" else [task.dtype]
    parts = ["generate", task.op.name, task.target.name, task.language, *dtype, *how]
    return "-".join([*parts, *([str(options.seed)] if options.seed else [])]).replace("+", "p")


def put_aside(folder: Path) -> None:
    """Under the first free name beside it."""
    if not folder.exists():
        return
    number = 1
    while (aside := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    with run_folder.writing(folder):  # or it would be moved under who is at work in it
        folder.rename(aside)
    print(f"portkern: note: the earlier run is in {aside} now", file=sys.stderr)


# ---- what is told


def _heading(plan: RunPlan, run: GenerationRun) -> str:
    task = plan.task
    what = f"{task.op.name} for {task.target.title}, in {task.language} ({task.backend.name})"
    kind, proposing = plan.axes["strategy"]["kind"], plan.axes["proposer"]["kind"]
    again = run.log.left_count
    resumed = f"; {again} attempts are there already" if again else ""
    return f"{what}: {kind}, {proposing}{resumed}\n{_author(run)}"


def _author(run: GenerationRun) -> str:
    if not run.proposer.roles:
        return "No model is asked: the author is the catalogue, its kernels and their settings."
    played = {name: run.models.role(name).model for name in run.proposer.roles}
    return "Models: " + ", ".join(f"{name} {model}" for name, model in played.items())


def _tell(attempts: Sequence[Attempt]) -> None:
    for attempt in attempts:
        result = str(attempt.status).replace("_", " ")
        if attempt.correct:
            result = f"{attempt.score:.2f}x" if attempt.speedups else "correct, not timed"
        of = f" of {' '.join(attempt.parents)}" if attempt.parents else ""
        why = "" if attempt.correct else attempt.detail.partition("\n")[0][:100]
        said = attempt.idea.partition("\n")[0][:60] or attempt.operator
        print(f"  {attempt.id:>6}{of:10} {result:20} {said} {why}".rstrip(), flush=True)


def _document(
    options: GenerateOptions, plan: RunPlan, run: GenerationRun, outcome: RunOutcome, stopped: str
) -> dict[str, Any]:
    log, task, spent = run.log, plan.task, run.meter.spent
    best = outcome.best
    cost = run.models.store.total
    document: dict[str, Any] = {
        "op": task.op.name,
        "target": task.target.name,
        "backend": task.backend.name,
        "language": task.language,
        "dtype": task.dtype,
        "seed": plan.seed,
        "preset": dict(options.preset or {}),
        "axes": {k: dict(v) for k, v in plan.axes.items()},
        "author": _author(run),
        "stopped": stopped,
        "down": run.down,
        "attempts": len(log),
        "statuses": {str(s): n for s in Status if (n := sum(1 for a in log if a.status is s))},
        "curve": log.curve(),
        "best": best.id if best else None,
        "score": best.score if best else 0.0,
        "speedups": dict(outcome.speedups),
        "final": _counted(outcome),
        "passed_over": outcome.out,
        "gain": {name: one.model_dump() for name, one in outcome.gain.items()},
        "why_no_gain": outcome.why_no_gain,
        "cost": cost.model_dump() | {"calls": len(run.models.store)},
        "seconds": {"wall": round(spent.wall_s, 2), "device": round(spent.device_s, 2)},
    }
    return document | {"exit_code": _exit_code(run, outcome), "told": _told(document, outcome)}


def _counted(outcome: RunOutcome) -> dict[str, int]:
    counts: dict[str, int] = {}
    for record in outcome.final:
        counts[str(record.verdict)] = counts.get(str(record.verdict), 0) + 1
    return counts


def _exit_code(run: GenerationRun, outcome: RunOutcome) -> int:
    """3 when nothing could be had: no model answers, or there is nowhere to run; and when more is
    to be had once a model answers again."""
    if run.down:
        return 3
    if outcome.best:
        return 0
    idle = (Status.UNAVAILABLE, Status.UNSUPPORTED)
    tried = any(one.status not in idle for one in run.log)
    return 1 if tried and not run.models.dead else 3


def _told(document: Mapping[str, Any], outcome: RunOutcome) -> dict[str, str]:
    """Of the end, by what it is about."""
    best, told = outcome.best, {}
    if best is None:
        told["best"] = "none: no attempt is correct" if not outcome.out else "none stood the end"
    elif outcome.speedups:
        sizes = ", ".join(f"{name} {value:.2f}x" for name, value in outcome.speedups.items())
        told["best"] = f"{best.id}; against the framework {sizes}"
    else:
        told["best"] = f"{best.id}, correct; there is nothing here to time it on"
    for name, why in outcome.out.items():
        told[f"out {name}"] = why
    if outcome.gain:
        told["against the catalogue's kernel"] = ", ".join(
            f"{name} {one.value:.2f}x [{one.ci95[0]:.2f}, {one.ci95[1]:.2f}]"
            for name, one in outcome.gain.items()
        )
    elif best:
        told["against the catalogue's kernel"] = outcome.why_no_gain
    if outcome.final:
        counts = ", ".join(f"{n} {verdict}" for verdict, n in document["final"].items())
        told["sizes that were not shown"] = counts
    cost = document["cost"]
    if cost["calls"]:
        usd = "unknown" if cost["usd"] is None else f"{cost['usd']:.4f} USD"
        tokens = (
            "unknown"
            if cost["tokens_in"] is None
            else f"{cost['tokens_in']} in, {cost['tokens_out']} out"
        )
        told["models"] = f"{cost['calls']} calls; tokens: {tokens}; price: {usd}"
    seconds = document["seconds"]
    told["time"] = f"{seconds['wall']:.0f} s, of which the device {seconds['device']:.0f} s"
    if document["stopped"]:
        told["ended by"] = document["stopped"]
    return told


def _ending(document: Mapping[str, Any], folder: Path) -> str:
    lines = [f"{name}: {text}" for name, text in document["told"].items()]
    return "\n".join(["", *lines, f"log: {folder / 'attempts.html'}"])


def _track(run: GenerationRun, folder: Path, document: Mapping[str, Any]) -> None:
    from portkern.tracking import agent_runs

    said = agent_runs.track(run.log, run.models.store, document, folder)
    if isinstance(said, agent_runs.Skipped):
        print(f"portkern: note: {said}", file=sys.stderr)

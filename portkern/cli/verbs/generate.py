"""``portkern generate``: write a kernel for one target, with models or from the catalogue."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from omegaconf import MISSING

from portkern import guard
from portkern.agent import approval, pace, page
from portkern.agent.attempt import Attempt
from portkern.agent.budget import GenerationBudget
from portkern.agent.constraints import Constraints
from portkern.agent.outcome import FILE as SUMMARY
from portkern.agent.outcome import RunSummary
from portkern.agent.run import GenerationRun, RunPlan, recorded
from portkern.agent.task import Ends, Task
from portkern.cells.selection import (
    RunStage,
    default_target,
    host_targets,
    load_op,
    venues,
)
from portkern.cli import json_output
from portkern.cli.config import GIVEN, Group, Names, group, names, resolve, sweep
from portkern.cli.heartbeat import Heartbeat
from portkern.cli.verbs import generate_told, own_kernels, run_folder, served
from portkern.errors import BackendUnavailable, ConfigError, PortkernError, no_such
from portkern.evaluator import from_torch
from portkern.experiment.compare.contestant import RoutedModels
from portkern.printable import printable
from portkern.project.project import Project
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Backend, Missing, Venue
from portkern.spec.candidate import Candidate
from portkern.spec.op import FLOATS, WORKLOAD_SETS, Op, Workload
from portkern.spec.target import Target

AXES = ("strategy", "proposer", "memory", "feedback", "critic")
#: The kernel to start from that is written from an operator's graph.
PLAIN = "plain"
PLAIN_AUTHOR = "file:the plain kernel"
#: The one that ships with portkern for the operator; where none does, the plain one.
SHIPPED = "catalogue"
#: Below these anything may be set; who takes it checks it.
FREE = (*AXES, "models", "prices", "preset", "budget")
#: The backend whose language is a target's vendor's own.
_OWN = {"nvidia": "cuda", "amd": "hip", "cpu": "cpu", "opencl": "opencl", "google": "pallas"}
#: The most memory that a workload of the search touches on a CPU, where data are made and compared
#: at its own speed.
CPU_MB = 64.0
#: Proposers whose ideas people can be asked about.
APPROVED = ("catalogue", "ideas_then_code")
#: What looks on while objects are executed, where nothing was named.
_IN_OBJECTS = ("bounds", "waits", "lds")
_MULTIRUN = ("-m", "--multirun")


@dataclass
class GenerateOptions:
    strategy: Group = GIVEN
    proposer: Group = GIVEN
    memory: Group = GIVEN
    feedback: Group = GIVEN
    critic: Group = GIVEN
    preset: Group | None = None
    project: str = ""
    kernels: str = ""
    source: str = ""
    op: str = MISSING
    target: str = ""
    backend: str = ""
    language: str = ""
    dtype: str = "float32"
    workloads: Names | None = None
    final: Names | None = None
    search_mb: float | None = None
    hints: bool = True
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
    sanitize: Names | None = None
    torch_ops: str = "forbid"
    library: str = "allow"
    baselines: Names | None = None
    rounds: int = 5
    budget_s: float = 0.25
    timeout_s: float = 120.0
    serve: str = "auto"
    run: str = ""
    reports: str = "reports"
    fresh: bool = False
    track: bool = True
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    """Runs ``portkern generate``; with ``-m`` (or ``--multirun``) every combination of ``key=a,b``
    is a run of its own."""
    plain = [override for override in overrides if override not in _MULTIRUN]
    if len(plain) == len(overrides):
        options = read(plain)
        document = generate(options)
        if options.json:
            json_output.show(document)
        return document["exit_code"]
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
    documents: list[dict[str, object]] = []
    codes: list[int] = []
    for job, run in zip(jobs, _runs(jobs), strict=True):
        options = read(job)
        options.run = run
        if not options.json:
            print(f"\n# {' '.join(job)}")
        try:
            document = generate(options)
            documents.append({"job": list(job), **document})
            codes.append(document["exit_code"])
        except PortkernError as error:  # the others are still to be had
            print(f"portkern: error: {printable(str(error))}", file=sys.stderr)
            documents.append({"job": list(job), "error": str(error), "exit_code": error.exit_code})
            codes.append(error.exit_code)
    if documents and options.json:
        json_output.show({"jobs": documents})
    return max(codes, default=2)


def _runs(jobs: Sequence[Sequence[str]]) -> list[str]:
    """The jobs' folders. Those that would have the same one are told apart by what they differ
    in."""
    named = [(_run_of(job), job) for job in jobs]
    alike = {name: [job for other, job in named if other == name] for name, _ in named}
    return [name and "-".join([name, *_varied(job, alike[name])]) for name, job in named]


def _run_of(job: Sequence[str]) -> str:
    """Empty of one that cannot be put together, which is told when it is its turn."""
    options = read(job)
    try:
        return options.run or _name(options, plan_of(options).task)
    except PortkernError:
        return ""


def _varied(job: Sequence[str], among: Sequence[Sequence[str]]) -> list[str]:
    """Values of the overrides that are not alike in all, as parts of a folder's name."""
    values = [
        override.partition("=")[2]
        for k, override in enumerate(job)
        if any(other[k] != override for other in among)
    ]
    return [re.sub(r"[^\w.+-]+", "-", value).strip("-") for value in values]


def generate(options: GenerateOptions) -> RunSummary:
    """One run, to its end; what ``summary.json`` holds."""
    with Heartbeat("reading what is asked, and what this machine has") as heartbeat:
        return _generate(options, heartbeat)


def _generate(options: GenerateOptions, heartbeat: Heartbeat) -> RunSummary:
    plan = plan_of(options)
    folder = run_folder.run_folder(options.reports, options.run or _name(options, plan.task))
    if options.fresh:
        put_aside(folder)
    with run_folder.writing(folder):
        run = GenerationRun(
            plan,
            folder,
            ask=served.asking(options.serve),
            complete=RoutedModels(plan, folder).complete,
        )
        run.watch = heartbeat.at
        if run.nowhere:  # before a model is paid for what nobody can judge
            raise BackendUnavailable(
                f"No {plan.task.language} kernel for {plan.task.target.name} can be judged here: "
                f"{run.nowhere}"
            )
        if not options.json:
            print(printable(generate_told.heading(plan, run)), flush=True)
            if not plan.replay:
                print(printable(generate_told.duration(run)), flush=True)

        def told(attempts: Sequence[Attempt]) -> None:
            if not options.json:
                generate_told.tell(attempts)
                heartbeat.said()

        stopped = run.execute(
            report=told,
            approve=approval.Approver(options.approve, folder).choose,
        )
        pace.learn(run)
        outcome = run.conclude()
        document = generate_told.document(plan, run, outcome, stopped, preset=options.preset or {})
        page.write(run.log, folder, document)
        json_output.write(folder / SUMMARY, document)
    if options.track:
        _track(run, folder, document)
    if not options.json:
        print(printable(generate_told.ending(document, folder)))
    return document


# ---- what is asked


def _check_names(options: GenerateOptions) -> None:
    """Raises ConfigError for a mode of approval or a dtype that there is not."""
    if options.approve not in approval.MODES:
        raise no_such("approve mode", options.approve, approval.MODES)
    if options.approve == "ideas" and options.proposer["kind"] not in APPROVED:
        raise ConfigError(
            f"approve=ideas asks about ideas, which proposer={options.proposer['kind']} has none "
            f"of; take proposer={' or proposer='.join(APPROVED)}"
        )
    if options.dtype not in FLOATS:
        raise no_such("dtype", options.dtype, FLOATS)


def plan_of(options: GenerateOptions) -> RunPlan:
    project = own_kernels.project_of(options.project, options.kernels, [options.op], entire=False)
    name = own_kernels.op_names(project, [options.op])[0]
    op = load_op(name)
    where, backend = _place(options)
    if not options.hints:
        where = where.model_copy(update={"hints": []})
    _check_names(options)
    constraints = (
        Constraints.read(Path(options.constraints)) if options.constraints else Constraints()
    )
    op = replace(op, precision=constraints.precision_of(op.precision))
    start = _start(replace(options, op=name), op, backend, project)
    language = options.language or (start.language if start else "")
    if start is not None and start.language != language:
        raise ConfigError(f"Got language={language} and a kernel in {start.language}; drop one")
    stage, final_stage = _stages(options, backend, where)
    final = _workloads(op, names(options.final)) if options.final else {}
    ends, checkers = _ends(stage, backend, where, options.replay)
    task = Task(
        op,
        where,
        backend,
        language or backend.language_on(where),
        options.dtype,
        _workloads(op, _sets(options.workloads, op, ends)),
        constraints,
        guard.torch_ops(options.torch_ops),
        guard.library(options.library),
        start,
        ends,
        checkers,
        unseen=bool(final),
        others=_others(options, start),
    )
    raced = task.workloads[task.scored]
    small = {task.scored: _small(task, options.search_mb)}
    task = replace(task, workloads={**task.workloads, **small})
    return RunPlan(
        task,
        {axis: dict(getattr(options, axis) or {}) for axis in AXES},
        run_folder.options(
            baselines=names(options.baselines),
            rounds=options.rounds,
            budget_s=options.budget_s,
            timeout_s=options.timeout_s,
        ),
        models=_mapping("models", options.models, "coder: openai/gpt-5"),
        prices=_mapping("prices", options.prices, "openai/x: {input: 1, output: 2}"),
        budget=GenerationBudget.of(_mapping("budget", options.budget, "attempts: 30")),
        final=final,
        raced=raced,
        stage=stage,
        final_stage=final_stage,
        seed=options.seed,
        inflight=options.inflight,
        builders=options.builders,
        cache=options.cache,
        replay=Path(options.replay) if options.replay else None,
    )


def _sets(given: Names | None, op: Op, ends: Ends) -> list[str]:
    """Small sizes alone where nothing can be timed: an emulator takes minutes for others, and
    learns no more of them."""
    if given is not None:
        return names(given)
    return ["ci", "typical"] if ends == "hardware" or not op.workloads.get("ci") else ["ci"]


def _mapping(name: str, value: object, such_as: str) -> dict[str, object]:
    """Raises ConfigError for an option whose keys are free, and that has none."""
    if not isinstance(value, Mapping | None):
        raise ConfigError(f"Got {name}={value!r}, expected a mapping: '{name}={{{such_as}}}'")
    return dict(value or {})


def _stages(options: GenerateOptions, backend: Backend, where: Target) -> tuple[RunStage, RunStage]:
    """Where the search looks, and where its best kernels are judged. Without a model and without
    the hardware, kernels differ by their settings alone, and executing objects counts what these
    cost; the emulator of sources, which looks for races, has the last word."""
    if options.sanitize is not None:
        named = RunStage.parse(options.venue, names(options.sanitize))
        return named, named
    final = RunStage.parse(options.venue, None)
    counted = RunStage.parse(options.venue, _IN_OBJECTS)
    if options.proposer["kind"] != "catalogue":
        return final, final
    best = counted.of(venues(backend, where), backend).best
    executes = isinstance(best, Venue) and best.kind == "object"
    return (counted if executes else final), final


def _ends(
    stage: RunStage, backend: Backend, where: Target, replay: str
) -> tuple[Ends, tuple[str, ...]]:
    """Where kernels are judged, and what looks on; a replay's were judged where its run's were."""
    known = recorded(Path(replay)).get("ends") if replay else None
    if known:
        return known["where"], tuple(known["checkers"])
    venue = stage.of(venues(backend, where), backend).best
    if isinstance(venue, Missing):
        return "build", ()
    return venue.kind, venue.sanitize


def _shipped(options: GenerateOptions, op: Op, backend: Backend) -> Candidate | None:
    where = target.load(options.target) if options.target else default_target(backend)
    language = options.language or backend.language_on(where)
    kernels = catalogue.candidates(op.name, backend, where)
    return next((kernel for kernel in kernels if kernel.language == language), None)


def _plain_where_nothing_ships(
    options: GenerateOptions, op: Op, backend: Backend
) -> Candidate | None:
    """The kernel that an author without a model begins with, or a run that is to start from a
    kernel, for an operator that the catalogue has no kernel for. None where there is no such
    kernel either: then the first slot has nothing to start from."""
    of_file = from_torch.is_file(options.op) and backend.name in from_torch.PLAIN
    wanted = options.proposer["kind"] == "catalogue" or options.source == SHIPPED
    if not (wanted and of_file):
        return None
    language = from_torch.PLAIN[backend.name]
    if options.language not in ("", language):
        return None
    try:
        return _plain(options, op, backend)
    except ConfigError as error:
        # Kernels in Python ask their tensors: a shipped one may do where none can be written.
        if backend.languages.get(".py") != language or options.source == SHIPPED:
            raise
        sys.stderr.write(f"portkern: note: {printable(str(error))}; shipped kernels are tried\n")
        return None


def _plain(options: GenerateOptions, op: Op, backend: Backend) -> Candidate:
    """Raises ConfigError."""
    if not from_torch.is_file(options.op):
        raise ConfigError(f"source={PLAIN} is for operators of PyTorch files, got op={options.op}")
    return Candidate(
        op.name,
        backend.name,
        from_torch.PLAIN[backend.name],
        from_torch.plain_kernel(options.op, backend.name),
        entry=op.name,
        author=PLAIN_AUTHOR,
        style=backend.style,
    )


def _others(options: GenerateOptions, start: Candidate | None) -> tuple[Candidate, ...]:
    """Kernels of the same graph as the plain one, for the author that asks no model."""
    if start is None or start.author != PLAIN_AUTHOR or options.proposer["kind"] != "catalogue":
        return ()
    _, *others = from_torch.written_kernels(options.op, start.backend)
    return tuple(
        replace(start, source=source, author=f"file:the kernel with {how}", variant=how)
        for source, how in zip(others, ("fused loops", "tuned loops"), strict=False)
    )


def _start(
    options: GenerateOptions, op: Op, backend: Backend, project: Project | None
) -> Candidate | None:
    """The kernel that is named, as its project lists it if it does; else, of kernels that are
    named, the one for the op. Raises ConfigError."""
    if options.source == PLAIN:
        return _plain(options, op, backend)
    if options.source and options.source != SHIPPED:
        return own_kernels.of_file(Path(options.source), op.name, backend, project)
    own = project.kernels if project else None
    if own is None or not options.kernels:
        shipped = _shipped(options, op, backend) if options.source else None
        return shipped or _plain_where_nothing_ships(options, op, backend)
    fitting = [
        candidate
        for candidate in own.candidates(op.name, backend)
        if options.language in ("", candidate.language)
    ]
    if not fitting:
        raise ConfigError(f"{own.name} has no {backend.name} kernel for {op.name}")
    if len(fitting) > 1:
        several = ", ".join(candidate.author.removeprefix("file:") for candidate in fitting)
        raise ConfigError(f"{own.name} has {several}; choose one with source=FILE")
    return fitting[0]


def _place(options: GenerateOptions) -> tuple[Target, Backend]:
    """The target and the backend; each is chosen by the other where it is not named."""
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
    workloads = {name: tuple(op.workloads.get(name, ())) for name in sets}
    workloads = {name: several for name, several in workloads.items() if several}
    if not workloads:
        raise ConfigError(
            f"{op.name} has no workloads of {', '.join(sets)}; it has {', '.join(op.workloads)}"
        )
    return workloads


def _small(task: Task, most_mb: float | None) -> tuple[Workload, ...]:
    """The scored workloads that the search is done on: no larger than ``most_mb``, or the
    smallest. A kernel that is faster there is, as a rule, faster where the whole is timed; the
    end tells."""
    scored = task.workloads[task.scored]
    limit = (math.inf if task.target.is_gpu else CPU_MB) if most_mb is None else most_mb

    def nbytes(workload: Workload) -> int:
        return task.op.nbytes(workload.dims, task.dtype)

    small = tuple(workload for workload in scored if nbytes(workload) <= limit * 2**20)
    return small or (min(scored, key=nbytes),)


def _name(options: GenerateOptions, task: Task) -> str:
    preset = (options.preset or {}).get("name", "")
    chosen = [preset] if preset else [options.strategy["kind"], options.proposer["kind"]]
    how = list(map(str, chosen))
    dtype = [] if task.dtype == "float32" else [task.dtype]
    parts = ["generate", task.op.name, task.target.name, task.language, *dtype, *how]
    return "-".join([*parts, *([str(options.seed)] if options.seed else [])]).replace("+", "p")


def put_aside(folder: Path) -> None:
    """Moves the folder to the first free name beside it."""
    if not folder.exists():
        return
    number = 1
    while (aside := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    with run_folder.writing(folder):  # or it would be moved under who is at work in it
        folder.rename(aside)
    print(f"portkern: note: the earlier run is in {aside} now", file=sys.stderr)


def _track(run: GenerationRun, folder: Path, document: RunSummary) -> None:
    from portkern.tracking import agent_runs

    said = agent_runs.track(run.log, run.models.store, document, folder)
    if isinstance(said, agent_runs.SkippedLog):
        print(f"portkern: note: {said}", file=sys.stderr)

"""The tasks of ``portkern compare``: what can be asked for where, and why not others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from portkern.agent.proposer import donor as donors
from portkern.agent.proposer import menu
from portkern.agent.run import RunPlan
from portkern.agent.task import Task
from portkern.cells.selection import RunStage, default_target, load_op
from portkern.cli.config import names
from portkern.cli.verbs.compare_models import ONE_SHOT
from portkern.cli.verbs.generate import GenerateOptions, plan_of
from portkern.errors import BackendUnavailable, ConfigError, PortkernError
from portkern.experiment.compare.suite import SuiteOp
from portkern.experiment.compare.task import CompareTask
from portkern.spec import registry, target
from portkern.spec.backend import Backend, Missing, Venue
from portkern.spec.op import Op
from portkern.spec.target import Target

#: Shown to authors: where nothing can be timed, sizes that an emulator has time for.
TIMED, UNTIMED = ("ci", "typical"), ("ci",)


@dataclass(frozen=True)
class TaskQuestion:
    """``options`` are those of a sample. ``targets``, ``workloads`` None: as conf/compare.yaml
    says."""

    ops: Sequence[SuiteOp]
    targets: Sequence[str] | None
    backends: Sequence[str]
    dtypes: Sequence[str]
    workloads: Sequence[str] | None
    final: Sequence[str]
    attempts: int
    donor: str
    options: GenerateOptions


@dataclass
class Tasks:
    """``left_out`` says what is not asked for, and why: a line each."""

    all: list[CompareTask] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def leave_out(self, what: str, why: object) -> None:
        line = f"{what}: {why}"
        if line not in self.left_out:
            self.left_out.append(line)


def tasks(question: TaskQuestion) -> Tasks:
    """Operator by operator. Raises ConfigError for names that do not exist, BackendUnavailable
    where nothing can be evaluated."""
    found = Tasks()
    places = _places(question, found)
    ops = _ops(question, found)
    counts = Counter(op.name for _, op in ops)
    for asked, op in ops:
        name = op.name if counts[op.name] == 1 else asked.stem
        for dtype in dict.fromkeys(question.dtypes):
            for backend, where in places:
                why = _why_not(op, dtype, backend, where, question)
                if why:
                    found.leave_out(f"{name} in {dtype} by {backend.name}", why)
                    continue
                plan = _plan(asked, op, dtype, backend, where, question)
                task = CompareTask(name, plan, asked.suite, _donor(plan.task, question.donor))
                found.all.append(task)
    names = Counter(task.folder for task in found.all)
    twice = next((task for task in found.all if names[task.folder] > 1), None)
    if twice:
        raise ConfigError(f"Two operators are called {twice.op!r}; give one of them another name")
    if not found.all:
        why = "; ".join(found.left_out[:3])
        raise BackendUnavailable(f"Nothing that is asked for can be evaluated here: {why}")
    return found


def _ops(question: TaskQuestion, found: Tasks) -> list[tuple[SuiteOp, Op]]:
    """The operators of a folder that can be read."""
    loaded = []
    for asked in question.ops:
        try:
            loaded.append((asked, load_op(asked.source)))
        except PortkernError as error:
            if asked.named:
                raise
            found.leave_out(asked.source, error)
    return loaded


def _places(question: TaskQuestion, found: Tasks) -> list[tuple[Backend, Target]]:
    """Where kernels can be evaluated here."""
    every = "all" in question.backends
    chosen = registry.names() if every else dict.fromkeys(question.backends)
    backends = list(map(registry.load, chosen))
    places: list[tuple[Backend, Target]] = []
    for backend in backends:
        try:
            targets = _targets(backend, question)
        except BackendUnavailable as error:
            found.leave_out(backend.name, error)
            continue
        if not targets and not every:
            wanted = ", ".join(question.targets or ())
            found.leave_out(backend.name, f"it compiles for none of {wanted}")
        for where in targets:
            missing = _nowhere(backend, where, question)
            if missing:
                found.leave_out(f"{backend.name} on {where.name}", missing)
            else:
                places.append((backend, where))
    return places


def _targets(backend: Backend, question: TaskQuestion) -> list[Target]:
    if question.targets is None:
        return [default_target(backend)]
    targets = map(target.load, dict.fromkeys(question.targets))
    return [where for where in targets if backend.supports(where)]


def _stage(question: TaskQuestion) -> RunStage:
    given = question.options.sanitize
    return RunStage.parse(question.options.venue, None if given is None else names(given))


def _nowhere(backend: Backend, where: Target, question: TaskQuestion) -> str:
    """Why nothing of the backend runs there, empty where something does."""
    ready = backend.probe(where)
    if isinstance(ready, Missing):
        return str(ready)
    venues = _stage(question).of(backend.venues(where), backend)
    return "" if isinstance(venues.best, Venue) else venues.reasons


def _why_not(op: Op, dtype: str, backend: Backend, where: Target, question: TaskQuestion) -> str:
    if dtype not in op.dtypes:
        return f"{op.name} has no {dtype} form"
    if not question.donor or donors.is_run(question.donor):
        return ""
    if question.donor == backend.name:
        return "it is the donor itself"
    try:
        menu.donors(_bare(op, dtype, backend, where), question.donor)
    except ConfigError as error:
        return str(error)
    return ""


def _bare(op: Op, dtype: str, backend: Backend, where: Target) -> Task:
    return Task(op, where, backend, backend.language_on(where), dtype)


def _donor(task: Task, donor: str) -> str:
    """The backend whose kernel is shown."""
    if not donor:
        return ""
    if donors.is_run(donor):
        return donors.of_run(donor, task).backend
    return menu.donors(task, donor)[0].backend


def _plan(
    asked: SuiteOp, op: Op, dtype: str, backend: Backend, where: Target, question: TaskQuestion
) -> RunPlan:
    """The plan of a sample; an operator has no sizes of sets that it does not name."""
    timed = isinstance(_stage(question).of(backend.venues(where), backend).hardware, Venue)
    shown = question.workloads or (TIMED if timed else UNTIMED)
    one_shot = question.options.strategy["kind"] in ONE_SHOT
    return plan_of(
        replace(
            question.options,
            op=asked.source,
            target=where.name,
            backend=backend.name,
            dtype=dtype,
            workloads=[name for name in shown if op.workloads.get(name)] or [*shown],
            final=[name for name in question.final if op.workloads.get(name)],
            budget={"attempts": 1 if one_shot else question.attempts},
        )
    )

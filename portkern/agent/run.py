"""A generation run in its folder: put together, gone through, and how it ended.

attempts.jsonl  what was proposed, and its end    attempts.html, .md  the same, to read
calls.jsonl     what models were asked            summary.json        the end, for scripts
records.jsonl   what the evaluator saw            best.<suffix>       the best kernel
run.json        what decides the run              spent.json          seconds so far
race.jsonl      the last race
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from portkern.agent import critic, feedback, memory, outcome, proposer, strategy
from portkern.agent.attempt import Attempt
from portkern.agent.axes import Critic, Proposer, Strategy
from portkern.agent.bench import RACE, Ask, Bench, BenchWorkload
from portkern.agent.budget import GenerationBudget, Meter, Spent
from portkern.agent.llm import role
from portkern.agent.llm.calls import FILE as CALLS
from portkern.agent.llm.calls import CallCache, Calls
from portkern.agent.llm.completion import Complete, complete
from portkern.agent.llm.models import Models
from portkern.agent.llm.prices import Prices
from portkern.agent.log import FILE as ATTEMPTS
from portkern.agent.log import Log
from portkern.agent.loop import Approve, Axes, Loop, Turns, approve_all
from portkern.agent.memory import graph
from portkern.agent.outcome import RunOutcome
from portkern.agent.strategy.search import Search
from portkern.agent.task import Task
from portkern.cells.selection import RunStage
from portkern.errors import ConfigError
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.trial import TrialOptions
from portkern.records import atomic_write
from portkern.records.record import Record, RecordFile
from portkern.spec.foreign_text import json_object
from portkern.spec.op import Workload
from portkern.toolchain.run_tool import cache_root

RECORDS, DECIDED, SPENT = "records.jsonl", "run.json", "spent.json"


#: Options of a role that do not change what it is asked.
_WAITING = ("timeout_s", "retries", "backoff_s", "concurrency", "tokens", "usd")


@dataclass(frozen=True)
class RunPlan:
    """``axes`` are the groups ``strategy``, ``proposer``, ``memory``, ``feedback`` and ``evaluate``
    as configured, ``models`` and ``prices`` likewise. ``final`` are the sets of the end, ``raced``
    the workloads of its race, those that scores are of unless given.
    ``replay`` is a run's folder, or None."""

    task: Task
    axes: Mapping[str, Mapping[str, object]]
    evaluation: TrialOptions
    models: Mapping[str, Any] = field(default_factory=dict)
    prices: Mapping[str, object] = field(default_factory=dict)
    budget: GenerationBudget = field(default_factory=GenerationBudget)
    final: Mapping[str, tuple[Workload, ...]] = field(default_factory=dict)
    raced: tuple[Workload, ...] = ()
    stage: RunStage = field(default_factory=RunStage)
    final_stage: RunStage | None = None
    seed: int = 0
    inflight: int = 4
    builders: int = 2
    cache: bool = True
    replay: Path | None = None

    @property
    def decisive(self) -> dict[str, Any]:
        """The settings without which a run cannot be resumed: all but its budgets, the source of
        its replies and how long they are waited for."""
        task = self.task
        plain: dict[str, object] = json.loads(
            json.dumps(
                {
                    "op": task.op.digest,
                    "target": task.target.name,
                    "backend": task.backend.name,
                    "language": task.language,
                    "dtype": task.dtype,
                    "precision": task.op.precision,
                    "workloads": {k: [asdict(w) for w in v] for k, v in task.workloads.items()},
                    "constraints": task.constraints.model_dump(mode="json"),
                    "axes": self.axes,
                    "models": _asked(self.models),
                    "seed": self.seed,
                    "inflight": self.inflight,
                    "torch_ops": task.torch_ops,
                    "venue": self.stage.venue,
                    "ends": {"where": task.ends, "checkers": task.checkers},
                    "baselines": list(self.evaluation.baselines),
                },
                default=dict,
            )
        )
        if task.start is not None:
            plain["start"] = task.start.digest
        if task.library == "forbid":
            plain["library"] = task.library
        if not task.target.hints:
            plain["hints"] = False
        return plain


class GenerationRun:
    """Tokens and USD are charged to ``within`` as well; kernels run where ``ask`` says, see Bench,
    and requests are sent by ``complete``. Raises ConfigError where the plan does not fit together,
    or not the folder's own run."""

    def __init__(
        self,
        plan: RunPlan,
        folder: Path,
        *,
        within: Meter | None = None,
        ask: Ask | None = None,
        complete: Complete = complete,
    ) -> None:
        self.plan, self.folder, self._ask, self._complete = plan, folder, ask, complete
        self.proposer, self.strategy, self.critic = _matched(plan, folder)
        self._agree()
        self.log = Log(folder / ATTEMPTS)
        self.meter = Meter(plan.budget, spent=self._spent(), within=within)
        self.models = self._models()
        self.down = False  # it ended before its time: see Loop
        self.bench = self._bench(plan.task)
        self.bench.watch = self._begun
        #: Told what is begun, for whoever waits.
        self.watch: Callable[[str], None] = lambda _: None

    def _begun(self, what: str) -> None:
        self.watch(what)

    @property
    def nowhere(self) -> str:
        """Why no kernel of this run can be judged on this machine; empty where one can, or where
        the results are those of another run."""
        return "" if self.plan.replay else self.bench.nowhere

    def execute(
        self,
        *,
        report: Callable[[Sequence[Attempt]], None] = lambda _: None,
        approve: Approve = approve_all,
    ) -> str:
        """Which budget ended it, or which model that is down; empty when the strategy did."""
        return asyncio.run(self.explore(report=report, approve=approve))

    async def explore(
        self,
        *,
        report: Callable[[Sequence[Attempt]], None] = lambda _: None,
        approve: Approve = approve_all,
        turns: Turns | None = None,
    ) -> str:
        """Runs as :meth:`execute` does, beside other runs."""
        axes = self.plan.axes

        def noted(attempts: Sequence[Attempt]) -> None:
            self._note()
            report(attempts)

        loop = Loop(
            self.plan.task,
            Axes(
                self.strategy,
                self.proposer,
                memory.load(axes["memory"], task=self.plan.task, folder=self.folder),
                feedback.load(axes["feedback"]),
                self.critic,
                feedback.of_critics(axes["feedback"]),
            ),
            self.models,
            self.bench,
            self.log,
            self.meter,
            seed=self.plan.seed,
            inflight=self.plan.inflight,
            builders=self.plan.builders,
            baseline=self.plan.evaluation.baselines[0],
            approve=approve,
            report=noted,
            watch=self._begun,
            turns=turns,
        )
        try:
            await loop.run()
        finally:
            self._note()
        self.down = loop.down
        return loop.stopped

    def conclude(self) -> RunOutcome:
        """The best kernel is in ``best.<suffix>`` afterwards."""
        task = self.plan.task
        last = self._final_bench()
        last.watch = self._begun
        race = [
            BenchWorkload(task.scored, workload)
            for workload in self.plan.raced or task.workloads[task.scored]
        ]
        before = self.bench.device_s
        concluded = outcome.conclude(
            self.log, task, self.bench, last, race, self.plan.evaluation.baselines[0]
        )
        self.meter.spend_device(self.bench.device_s - before + last.device_s)
        self._note()
        if concluded.best:
            atomic_write.write(self.folder / f"best{task.suffix}", concluded.best.source)
        return concluded

    def final(self, attempt: Attempt) -> list[Record]:
        """Evaluates an attempt on the last sets, up to the first workload that it does not pass.
        Times are those of a single round: it is results that are looked at. Raises MachineUnfit."""
        task, bench = self.plan.task, self._final_bench()
        once = replace(bench.options.plan, rounds=1, budget_s=0.0, patient=False)
        bench.options = replace(bench.options, plan=once)
        records = bench.evaluate(task.candidate(attempt.source, author=attempt.author))
        self.meter.spend_device(bench.device_s)
        return records

    def _models(self) -> Models:
        plan = self.plan
        return Models(
            role.roles(named(plan.models)),
            store=Calls(self.folder / CALLS),
            meter=self.meter,
            seed=plan.seed,
            prices=Prices.of(plan.prices),
            replay=Calls.recorded(plan.replay) if plan.replay else None,
            cache=CallCache(cache_root() / "calls") if plan.cache else None,
            complete=self._complete,
        )

    def bench_in(self, folder: Path) -> Bench:
        """One like the run's own, that leaves no records in it. Kernels that ship are measured
        there, which may take portkern's headers."""
        bench = self._bench(replace(self.plan.task, library="allow"), folder=folder)
        bench.watch = self._begun
        return bench

    def _final_bench(self) -> Bench:
        return self._bench(
            replace(self.plan.task, workloads=self.plan.final),
            quick=False,
            stage=self.plan.final_stage,
        )

    def _bench(
        self,
        task: Task,
        *,
        quick: bool = True,
        folder: Path | None = None,
        stage: RunStage | None = None,
    ) -> Bench:
        plan = self.plan
        recorded: Sequence[Record] = ()
        raced: Sequence[Record] = ()
        if plan.replay:
            recorded, _ = RecordFile(plan.replay / RECORDS).read()
            raced, _ = RecordFile(plan.replay / RACE).read()
        return Bench(
            task,
            folder or self.folder,
            ArtifactCache(cache_root() / "builds"),
            plan.evaluation,
            stage=stage or plan.stage,
            recorded=recorded,
            raced=raced,
            quick=quick,
            ask=self._ask,
        )

    def _agree(self) -> None:
        """Checks that this run agrees with the settings that decided the folder's run, and
        writes them where there are none yet."""
        path, ours = self.folder / DECIDED, {**self.plan.decisive, **self.proposer.decisive}
        if not path.exists():
            atomic_write.write(path, json.dumps(ours, indent=1, sort_keys=True) + "\n")
            return
        theirs = json_object(path)
        if "judge" in theirs.get("axes", {}):
            raise ConfigError(
                f"{self.folder} holds a run of portkern 0.1, where the axis 'critic' was 'judge': "
                "it can be read, not gone on with; use run=NAME for a run of its own, or "
                "fresh=true to put that one aside"
            )
        changed = sorted(key for key in ours if theirs.get(key) != ours[key])
        if changed:
            raise ConfigError(
                f"{self.folder} holds a run with other {', '.join(changed)}; use run=NAME for a "
                "run of its own, or fresh=true to put that one aside"
            )

    def _spent(self) -> Spent:
        path = self.folder / SPENT
        if not path.exists():
            return Spent()
        content = json_object(path)
        try:
            return Spent(wall_s=float(content["wall_s"]), device_s=float(content["device_s"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{path}: expected the numbers wall_s and device_s") from error

    def _note(self) -> None:
        spent = self.meter.spent
        atomic_write.write(
            self.folder / SPENT,
            json.dumps({"wall_s": round(spent.wall_s, 3), "device_s": round(spent.device_s, 3)}),
        )


def _matched(plan: RunPlan, folder: Path) -> tuple[Proposer, Strategy, Critic]:
    """Raises ConfigError for axes that do not go together, with what would."""
    proposing, strategic = proposer.load(plan.axes["proposer"]), dict(plan.axes["strategy"])
    if plan.axes["proposer"].get("actions") == "graph":
        graph = _graph(plan, folder)
        proposing.given = graph.methods()  # type: ignore[attr-defined]  # catalogue has no actions
        if strategic.get("edges") == {}:
            strategic["edges"] = graph.edges()
    arms = proposing.arms(plan.task)
    planned = strategy.load(strategic, arms=arms, seed=plan.seed, given=plan.task.start is not None)
    chosen_critic = critic.load(plan.axes["critic"])
    _have_models(plan, {"proposer": proposing.roles, "critic": chosen_critic.roles})
    if planned.masks and plan.axes["feedback"].get("counters", "none") == "none":
        raise ConfigError(
            "strategy.mask=true goes by hardware counters; set feedback.counters= to ncu, rocprof "
            "or perf, or strategy.mask=false"
        )
    if planned.needs_graph and not arms:
        raise ConfigError(
            "strategy=mcts_graph walks a graph; set proposer.actions=graph with memory=graph, or "
            "proposer.actions=menu/<name>"
        )
    _can_do(plan, proposing, planned)
    return proposing, planned, chosen_critic


def _have_models(plan: RunPlan, asking: Mapping[str, Sequence[str]]) -> None:
    """Checks that the roles which each axis asks are played by a model. Raises ConfigError for
    one that nobody plays."""
    roles = named(plan.models)
    for axis, asked in asking.items():
        if role.DEFAULT not in roles and not set(asked) <= set(roles):
            raise ConfigError(
                f"{axis}={plan.axes[axis]['kind']} asks a model, and none is named; set "
                f"models.{role.DEFAULT}.model=<litellm id>, or take "
                f"{axis}={'catalogue' if axis == 'proposer' else 'none'}"
            )


def _can_do(plan: RunPlan, proposing: Proposer, planned: Search) -> None:
    """Raises ConfigError for what the strategy asks of the proposer in vain."""
    kind = plan.axes["proposer"]["kind"]
    asks = f"strategy={plan.axes['strategy']['kind']} asks for"
    if planned.plans and not proposing.plans:
        raise ConfigError(
            f"{asks} ideas before code, which proposer={kind} does not make; "
            "take proposer=ideas_then_code, or proposer=catalogue"
        )
    missing = set(planned.operators) - set(proposing.operators)
    if missing:
        raise ConfigError(
            f"{asks} {', '.join(sorted(missing))}, which proposer={kind} cannot do; take "
            "proposer=evolve, or proposer=catalogue"
        )
    if kind == "contrastive" and (planned.most or 2) < 2:
        raise ConfigError(
            "proposer=contrastive compares two measured kernels, and strategy=single makes one; "
            "take strategy=best_of_n or strategy=refine"
        )


def _graph(plan: RunPlan, folder: Path) -> graph.MethodGraph:
    """The one that the memory has, and the run begins with. Raises ConfigError."""
    options = memory.read(plan.axes["memory"])
    if "graph" not in options.knowledge:
        raise ConfigError(
            "proposer.actions=graph takes the actions of the memory's graph; set memory=graph, or "
            "proposer.actions=menu/<name>"
        )
    folder.mkdir(parents=True, exist_ok=True)
    return graph.begun(options, folder)


def recorded(folder: Path) -> dict[str, Any]:
    """Reads the settings that decided the run in ``folder``. Raises ConfigError."""
    try:
        decided: dict[str, object] = json_object(folder / DECIDED)
    except ConfigError as error:
        raise ConfigError(
            f"replay={folder}: got no run there ({error}); expected the folder of one"
        ) from error
    return decided


def _asked(models: Mapping[str, object]) -> dict[str, object]:
    return {
        name: {k: v for k, v in options.items() if k not in _WAITING}
        if isinstance(options, Mapping)
        else options
        for name, options in models.items()
    }


def named(models: Mapping[str, Any]) -> dict[str, Any]:
    """Roles with a model. One that only says how it is to be asked has the coder's. Raises
    ConfigError."""
    for name, options in models.items():
        if not isinstance(options, str | Mapping | None):
            raise ConfigError(
                f"Got {options!r} for models.{name}, expected a model's litellm id, or its options "
                "{model: ID, api_base: …}"
            )
    coder = models.get(role.DEFAULT) or {}
    base = {"model": coder} if isinstance(coder, str) else dict(coder)
    if not base.get("model"):
        base = {}
    roles = {}
    for name, options in models.items():
        own = {"model": options} if isinstance(options, str) else dict(options or {})
        if not own.get("model"):
            own = {**base, **{k: v for k, v in own.items() if v not in (None, "")}}
        if own.get("model"):
            roles[name] = own
    return roles

"""Says what limits a kernel, or what is wrong with it, by thresholds: no model is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from portkern.agent import briefing
from portkern.agent.attempt import Attempt, Diagnosis, Status
from portkern.agent.axes import AgentContext
from portkern.agent.critic.reading import Bound
from portkern.agent.critic.silent import CriticOptions as Base
from portkern.agent.critic.silent import Silent
from portkern.agent.feedback.metrics import shown
from portkern.agent.feedback.rendering import SATURATED, SHORT_CALL_US
from portkern.agent.task import Task
from portkern.evaluator import statistics
from portkern.spec.foreign_text import yaml_value
from portkern.spec.op import Workload
from portkern.toolchain.compiler_log import messages

#: An operator with this many operations per byte or more multiplies matrices.
MATMUL_FLOPS_PER_BYTE = 8.0
_ANY = "any"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Between(_Part):
    least: float = float("-inf")
    below: float = float("inf")


class CriticRule(_Part):
    """See the head of ``rules.yaml``."""

    name: str
    status: tuple[Status, ...] = (Status.PASSED,)
    detail: str = ""
    when: dict[str, Between] = {}
    bound: tuple[Bound, ...] = ()
    matmul: bool = False
    problem: str
    why: str = ""
    fix: str | dict[str, str] = ""

    def fits(self, attempt: Attempt, metrics: Mapping[str, float], bound: str, task: Task) -> bool:
        if attempt.status not in self.status or not re.search(self.detail, attempt.detail):
            return False
        if self.bound and bound not in self.bound:
            return False
        if self.matmul and not _multiplies(task):
            return False
        return all(
            name in metrics and each.least <= metrics[name] < each.below
            for name, each in self.when.items()
        )

    def remedy(self, vendor: str) -> str:
        if isinstance(self.fix, str):
            return self.fix
        return self.fix.get(vendor) or self.fix.get(_ANY, "")


class RulesOptions(Base):
    """A kernel that reaches ``stop_at`` percent of the roofline is done."""

    kind: str = "rules"
    stop_at: float = Field(95.0, gt=0)


class RuleCritic(Silent):
    options_type: ClassVar[type[RulesOptions]] = RulesOptions

    def __init__(self, options: RulesOptions) -> None:
        super().__init__(options)
        self.options = options

    async def diagnose(self, seen: Attempt, context: AgentContext) -> Diagnosis | None:
        task, metrics = context.task, _with_traffic(seen, context.task)
        limit = bound(metrics, task) if seen.status is Status.PASSED else ""
        reached = metrics.get("roofline_pct", 0.0)
        if seen.status is Status.PASSED and reached >= self.options.stop_at:
            problem = (
                f"It reaches {shown('roofline_pct', reached)} of what the hardware's peaks allow."
            )
            return Diagnosis(critic=self.options.kind, problem=problem, bound=limit, stop=True)
        rule = next((rule for rule in rules() if rule.fits(seen, metrics, limit, task)), None)
        if rule is None:
            return None
        words = _words(seen, metrics, task)
        return Diagnosis(
            critic=self.options.kind,
            problem=rule.problem.format_map(words),
            why=rule.why.format_map(words),
            bound=limit,
            fix=rule.remedy(task.target.vendor).format_map(words).strip(),
        )


@cache
def rules() -> Sequence[CriticRule]:
    text = resources.files("portkern.agent.critic").joinpath("rules.yaml").read_text("utf-8")
    return [CriticRule.model_validate(rule) for rule in yaml_value(text)]


def bound(metrics: Mapping[str, float], task: Task) -> Bound:
    """The resource that limits a correct kernel: by counters where there are any, else by how
    close it comes to its roofline; empty where neither is known."""
    reached = metrics.get("roofline_pct")
    short = metrics.get("median_us", SHORT_CALL_US) < SHORT_CALL_US
    if short and (reached is None or reached < SATURATED):
        return "overhead"
    counted = {"memory_pct", "compute_pct"} <= metrics.keys()
    memory, compute = metrics.get("memory_pct", 0.0), metrics.get("compute_pct", 0.0)
    compute = max(compute, metrics.get("tensor_pct", 0.0))
    if counted or max(memory, compute) >= SATURATED:
        if max(memory, compute) < SATURATED:
            return "latency"
        return "memory" if memory >= compute else "compute"
    if reached is None:
        return ""
    return _roof(task) if reached >= SATURATED else "latency"


def _roof(task: Task) -> Bound:
    """Which of the peaks bounds the op, as records have it."""
    work = _largest(task)
    if work is None:
        return ""
    basis = statistics.roofline(
        task.target,
        nbytes=task.op.nbytes(work.dims, task.dtype),
        flops=task.op.flops(work.dims),
        dtype=task.dtype,
        median_us=1.0,
    ).basis
    if not basis:
        return ""
    return "compute" if basis.endswith("TFLOP/s") else "memory"


def _multiplies(task: Task) -> bool:
    work = _largest(task)
    if work is None:
        return False
    per_byte = task.op.flops(work.dims) / max(task.op.nbytes(work.dims, task.dtype), 1)
    return per_byte >= MATMUL_FLOPS_PER_BYTE


def _largest(task: Task) -> Workload | None:
    every = [workload for several in task.workloads.values() for workload in several]
    return max(every, key=lambda workload: task.op.nbytes(workload.dims, task.dtype), default=None)


def _with_traffic(attempt: Attempt, task: Task) -> dict[str, float]:
    """Counters are of the largest workload."""
    metrics, work = dict(attempt.metrics), _largest(task)
    if work is None or not {"bytes_read", "bytes_written"} <= metrics.keys():
        return metrics
    least = task.op.nbytes(work.dims, task.dtype)
    return metrics | {"traffic": (metrics["bytes_read"] + metrics["bytes_written"]) / max(least, 1)}


def _words(attempt: Attempt, metrics: Mapping[str, float], task: Task) -> dict[str, str]:
    hints = task.target.hints_for(task.language, without=briefing.without(task))
    facts = {name: shown(name, value) for name, value in metrics.items()}
    return facts | {"detail": _first(attempt), "hint": hints[0] if hints else ""}


def _first(attempt: Attempt) -> str:
    """The compiler's first error, else the first line of what went wrong."""
    if attempt.status is Status.BUILD_FAILED:
        errors = [message.text for message in messages(attempt.detail) if message.kind == "error"]
        return (errors or [attempt.detail.partition("\n")[0]])[0]
    return attempt.detail.partition("\n")[0]

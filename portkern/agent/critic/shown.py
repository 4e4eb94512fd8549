"""What a critic is shown of an attempt: its own code and what was measured of that, nothing of
another attempt's but where a prompt says so."""

from __future__ import annotations

from portkern.agent.attempt import Attempt
from portkern.agent.axes import Context
from portkern.agent.feedback.rendering import listing

#: Limits of a target that say nothing to whoever writes for it.
_NOT_TOLD = ("vendor",)


def facts(attempt: Attempt, context: Context) -> dict[str, object]:
    """For the templates ``critic_*``."""
    task = context.task
    limits = task.target.limits.model_dump(exclude_none=True)
    before = [other for other in context.log if other.id != attempt.id]
    return {
        "task": task,
        "attempt": attempt,
        "reference": task.op.reference_source.strip(),
        "precision": task.op.precision.replace("_", " "),
        "limits": {k.replace("_", " "): v for k, v in limits.items() if k not in _NOT_TOLD},
        "constraints": task.constraints.lines,
        "metrics": listing(attempt.metrics),
        # What could not be timed has a score that says nothing of its speed.
        "best": max((other.score for other in before if other.speedups), default=0.0),
    }


def parent(attempt: Attempt, context: Context) -> Attempt | None:
    """The first one, if the log has it."""
    known = context.log.some(attempt.parents[:1])
    return known[0] if known else None

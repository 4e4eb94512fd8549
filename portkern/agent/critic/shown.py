"""Facts of an attempt that a critic is shown: its own code and what was measured of that, and
another attempt's only where a prompt says so."""

from __future__ import annotations

from portkern.agent import briefing
from portkern.agent.attempt import Attempt
from portkern.agent.axes import AgentContext
from portkern.agent.feedback.rendering import listing


def facts(attempt: Attempt, context: AgentContext) -> dict[str, object]:
    """The facts that the templates ``critic_*`` need."""
    task = context.task
    before = [other for other in context.log if other.id != attempt.id]
    return briefing.facts(task) | {
        "task": task,
        "attempt": attempt,
        "reference": task.op.reference_source.strip(),
        "constraints": task.constraints.lines,
        "metrics": listing(attempt.metrics),
        # What could not be timed has a score that says nothing of its speed.
        "best": max((other.score for other in before if other.speedups), default=0.0),
    }


def parent(attempt: Attempt, context: AgentContext) -> Attempt | None:
    """The first one, if the log has it."""
    known = context.log.some(attempt.parents[:1])
    return known[0] if known else None

"""The prompt for a kernel that has no parent, as ``portkern generate`` writes it."""

from __future__ import annotations

from portkern.agent import briefing, prompts
from portkern.agent.axes import PromptMessage
from portkern.agent.proposer import reading
from portkern.agent.task import Task


def first_prompt(task: Task) -> list[PromptMessage]:
    """The messages of the first prompt, with all that an author is told."""
    facts = briefing.facts(task) | {
        "task": task,
        "tag": reading.TAGS[task.language][0],
        "declaration": task.backend.declaration(task.op.signature, task.language),
        "reference": task.op.reference_source.strip(),
        "constraints": task.constraints.lines,
        "blocks": [],
        "phase": "",
        "arm": None,
        "parents": [],
        "parent": None,
        "told": [],
    }
    return prompts.render("direct", **facts)

"""The past and outside text that enters a prompt: the run's own history, and outside knowledge.

``history`` and ``knowledge`` name one or several of :func:`names`; the other options are theirs,
see ``conf/memory/none.yaml``. Views are cut to ``max_chars`` a block and ``max_total`` together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from portkern.agent import systems
from portkern.agent.attempt import Attempt, PromptBlock
from portkern.agent.axes import AgentMemory
from portkern.agent.log import Log
from portkern.agent.memory.documents import CORPORA, LOG
from portkern.agent.memory.graph import Reasoning
from portkern.agent.memory.history import HISTORIES, History
from portkern.agent.memory.kb import Kb
from portkern.agent.memory.options import MemoryOptions
from portkern.agent.memory.retrieval import bm25, embed
from portkern.agent.memory.skills import Skills
from portkern.agent.memory.text import Passage, fit
from portkern.agent.slot import Slot
from portkern.agent.task import Task
from portkern.errors import ConfigError, no_such
from portkern.spec.foreign_text import place_of

NONE = "none"


class MemoryPart(Protocol):
    """A memory before anything is cut."""

    def passages(self, slot: Slot, role: str, log: Log, task: Task) -> Sequence[Passage]: ...

    def learn(self, attempt: Attempt) -> None:
        """Told of every attempt in the log's order, and of all again when a run is resumed."""
        ...


KNOWLEDGE: Mapping[str, Callable[[MemoryOptions, Task, Path], MemoryPart]] = {
    "bm25": lambda options, task, folder: bm25(options, task),
    "embed": lambda options, task, folder: embed(options, task),
    "kb": lambda options, task, folder: Kb(options, task),
    "skills": Skills,
    "graph": Reasoning,
}
#: What an option may name one or several of; ``none`` is left out, and so is what single systems
#: have for themselves.
_CHOICES = {"history": HISTORIES, "knowledge": KNOWLEDGE, "corpora": {**CORPORA, LOG: LOG}}


def names() -> dict[str, list[str]]:
    """The values that each option may have."""
    return {option: [NONE, *known] for option, known in _CHOICES.items()}


def load(options: Mapping[str, object], *, task: Task, folder: Path) -> AgentMemory:
    """``folder`` is the run's; its name is the run's in what is learned. Raises ConfigError, and
    RecordError for a damaged file of what was learned before."""
    chosen = read(options)
    made = [KNOWLEDGE.get(name) or systems.find("knowledge", name) for name in chosen.knowledge]
    knowledge = [make(chosen, task, folder) for make in made]
    return Recall((*knowledge, History(chosen)), chosen)


def read(options: Mapping[str, object]) -> MemoryOptions:
    """Raises ConfigError in one line."""
    given = dict(options)
    for option in given:
        if option not in MemoryOptions.model_fields:
            raise no_such("option", f"memory.{option}", _fields())
    for option, known in _CHOICES.items():
        if option in given:
            known = {**known, **systems.PARTS.get(option, {})}
            given[option] = tuple(_chosen(option, given[option], known))
    try:
        return MemoryOptions.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        field = place_of(first["loc"])
        expected = first["msg"].removeprefix("Input should be ")
        raise ConfigError(f"Got memory.{field}={first['input']!r}, expected {expected}") from error


def _fields() -> list[str]:
    return [f"memory.{name}" for name in MemoryOptions.model_fields]


def _chosen(option: str, value: object, known: Mapping[str, object]) -> list[str]:
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, Sequence):
        raise ConfigError(f"Got memory.{option}={value!r}, expected a name or a list of names")
    for name in several:
        if name != NONE and name not in known:
            raise no_such(f"memory.{option}", str(name), [NONE, *known])
    return [name for name in several if name != NONE]


@dataclass(frozen=True)
class Recall:
    """Knowledge first: what is near the task stands near the prompt's end."""

    parts: tuple[MemoryPart, ...]
    options: MemoryOptions

    def view(self, slot: Slot, role: str, log: Log, task: Task) -> list[PromptBlock]:
        passages = [
            passage for part in self.parts for passage in part.passages(slot, role, log, task)
        ]
        return fit(passages, each=self.options.max_chars, total=self.options.max_total)

    def learn(self, attempt: Attempt) -> None:
        for part in self.parts:
            part.learn(attempt)

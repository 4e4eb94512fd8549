"""Notes on what actions brought before, with measured outcomes; they may outlive the run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from portkern.agent.attempt import Attempt, PromptBlock, Status
from portkern.agent.log import Log
from portkern.agent.memory.family import family
from portkern.agent.memory.kept import KeptLine, KeptLines
from portkern.agent.memory.options import MemoryOptions
from portkern.agent.memory.text import Passage, action
from portkern.agent.slot import Slot
from portkern.agent.task import Task

FILE = "skills.jsonl"
#: Ends that say nothing of the action: no kernel came of it, or it was not evaluated.
_NO_TRY = (
    Status.NO_CODE,
    Status.DUPLICATE,
    Status.SCREENED,
    Status.UNSUPPORTED,
    Status.UNAVAILABLE,
)


class Try(KeptLine):
    """One attempt's action and what came of it. ``gain``: its score over the parent's, where both
    kernels are correct and timed."""

    island: int
    action: str
    op: str
    family: str
    target: str
    backend: str
    correct: bool
    gain: float | None


@dataclass(frozen=True)
class Skill:
    """All tries of one action on one target."""

    action: str
    target: str
    gains: tuple[float, ...]
    correct: int
    tries: int

    @property
    def gain(self) -> float | None:
        """The median."""
        return statistics.median(self.gains) if self.gains else None

    @property
    def worth(self) -> float:
        """The value by which skills are sorted: those that were never correct are last, and an
        unknown gain counts as no gain."""
        return (self.gain or 1.0) if self.correct else 0.0

    def __str__(self) -> str:
        timed = f"median gain {self.gain:.2f} over {len(self.gains)}, " if self.gain else ""
        return f"{self.action} ({self.target}): {timed}correct {self.correct} of {self.tries}"


def skills(tries: Iterable[Try]) -> list[Skill]:
    """The best first."""
    by_action: dict[tuple[str, str], list[Try]] = {}
    for tried in tries:
        by_action.setdefault((tried.action.lower(), tried.target), []).append(tried)
    summed = [
        Skill(
            several[0].action,
            target,
            tuple(tried.gain for tried in several if tried.gain is not None),
            sum(tried.correct for tried in several),
            len(several),
        )
        for (_, target), several in by_action.items()
    ]
    return sorted(summed, key=lambda skill: (-skill.worth, skill.action, skill.target))


class Skills:
    """The skills that a run knows and learns."""

    def __init__(self, options: MemoryOptions, task: Task, folder: Path) -> None:
        """Raises RecordError and StorageError."""
        self.options, self.run, self.family = options, folder.name, family(task.op)
        self._kept = KeptLines(FILE, Try, folder, keep=options.keep)
        self._learned: dict[str, Attempt] = {}

    def learn(self, attempt: Attempt) -> None:
        """Raises StorageError when it is to be kept and cannot be."""
        tried = self._try(attempt)
        self._learned[attempt.id] = attempt
        if tried is not None:
            self._kept.add(tried)

    def _try(self, attempt: Attempt) -> Try | None:
        what = action(attempt)
        if not what or attempt.status in _NO_TRY:
            return None
        return Try(
            run=self.run,
            attempt=attempt.id,
            digest=attempt.digest,
            island=attempt.island,
            action=what,
            op=attempt.op,
            family=self.family,
            target=attempt.target,
            backend=attempt.backend,
            correct=attempt.correct,
            gain=gain(attempt, self._learned),
        )

    def passages(self, slot: Slot, role: str, log: Log, task: Task) -> list[Passage]:
        """Passages on the skills of this target where any are known, else on those of other
        targets, which are named."""
        known = [
            tried
            for tried in self._kept.lines
            if (tried.family, tried.backend) == (self.family, task.backend.name)
            and (tried.run != self.run or self._is_seen(tried, slot, log))
        ]
        here = [tried for tried in known if tried.target == task.target.name]
        ranked = skills(here or known)
        unknown = [skill for skill in ranked if skill.correct and skill.gain is None]
        helped = [skill for skill in ranked if skill.worth > 1.0]
        others = [skill for skill in ranked if skill not in helped and skill not in unknown]
        most = self.options.skills
        return [
            *_told("What helped before", helped[:most]),
            *_told("What was correct before, with no gain known", unknown[:most]),
            *_told("What did not help before", others[-most:]),
        ]

    @staticmethod
    def _is_seen(tried: Try, slot: Slot, log: Log) -> bool:
        """Whether the slot may know of a try. The slot's log decides: what was committed since
        does not show."""
        if tried.attempt not in log:
            return False
        return tried.island == slot.island or tried.attempt in (*slot.parents, *slot.shown)


def gain(attempt: Attempt, known: dict[str, Attempt]) -> float | None:
    """The speedup over the first parent; None where one of the two is not correct or was not
    timed."""
    parent = known.get((*attempt.parents, "")[0])
    if parent is None or not (parent.correct and attempt.correct):
        return None
    if not (parent.speedups and attempt.speedups):
        return None
    return attempt.score / parent.score


def _told(title: str, shown: Sequence[Skill]) -> list[Passage]:
    if not shown:
        return []
    text = "\n".join(f"- {skill}" for skill in shown)
    return [Passage(PromptBlock(kind="skills", title=title, text=text))]

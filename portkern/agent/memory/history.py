"""Histories, which tell a prompt of the run's own attempts: functions of :class:`VisibleLog`.

They speak of a slot's parents, of what it is shown and of its own island; islands that saw each
other's kernels would soon hold the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import groupby
from random import Random
from typing import NamedTuple

from portkern.agent import systems
from portkern.agent.attempt import Attempt, Diagnosis, PromptBlock
from portkern.agent.log import Log
from portkern.agent.memory.options import MemoryOptions
from portkern.agent.memory.text import Passage, action, code, cut, result
from portkern.agent.slot import Slot
from portkern.agent.task import Task

PARENT = "The kernel to build on"


class Detail(IntEnum):
    """How much of an attempt is told, each more than the one before."""

    BRIEF = 1  # a line: what was done and what became of it
    CODE = 2  # and the diagnosis and the source
    FEEDBACK = 3  # and what the sources said
    THOUGHTS = 4  # and the author's reasoning


@dataclass(frozen=True)
class Mention:
    """``code_chars`` above 0 is the most of the source that is told. ``own_heading``: also where
    it is the parent."""

    attempt: Attempt
    heading: str
    detail: Detail = Detail.CODE
    code_chars: int = 0
    own_heading: bool = False


@dataclass(frozen=True)
class VisibleLog:
    """The part of the log that one slot may know of."""

    slot: Slot
    role: str
    log: Log
    options: MemoryOptions

    @cached_property
    def visible(self) -> list[Attempt]:
        """The attempts of the slot's island, and those that the slot names."""
        named = {*self.slot.parents, *self.slot.shown, *self.slot.thoughts}
        return [
            attempt
            for attempt in self.log
            if attempt.island == self.slot.island or attempt.id in named
        ]

    @cached_property
    def ids(self) -> set[str]:
        return {attempt.id for attempt in self.visible}

    @property
    def parents(self) -> list[Attempt]:
        return self.log.some(self.slot.parents)

    @cached_property
    def line(self) -> list[Attempt]:
        """The parents and whatever they descend from, the oldest first."""
        ids = {
            ancestor.id
            for name in self.slot.parents
            for ancestor in self.log.ancestors(name)
            if ancestor.id in self.ids
        }
        return [attempt for attempt in self.visible if attempt.id in ids]

    @property
    def action(self) -> str:
        """The action that the slot asks for, after the finding of its parent that calls for it."""
        diagnosed = [parent.diagnosis for parent in self.parents[:1] if parent.diagnosis]
        found = [one.about(self.slot.arm) for one in diagnosed]
        wanted = self.slot.arm or "".join(one.fix for one in found)
        return "\n".join(filter(None, [*(one.problem for one in found), wanted]))

    def best(self, k: int) -> list[Attempt]:
        return self.log.best(k, lambda attempt: attempt.id in self.ids)

    def children(self, names: Iterable[str]) -> list[Attempt]:
        """The children of these attempts by first parents; those without any are the children of
        ``""``."""
        wanted = set(names)
        return [attempt for attempt in self.visible if _mother(attempt) in wanted]

    @property
    def siblings(self) -> list[Attempt]:
        """The siblings of the first parent."""
        if not self.parents:
            return []
        node = self.parents[0]
        return [child for child in self.children([_mother(node)]) if child.id != node.id]

    def ordered(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """The attempts in the order that the option ``order`` asks for; ``attempts`` come with
        the oldest first."""
        if self.options.order == "oldest_first":
            return list(attempts)
        return sorted(attempts, key=lambda attempt: attempt.score)


def _mother(attempt: Attempt) -> str:
    return (*attempt.parents, "")[0]


Told = Iterator[Mention | PromptBlock]


def last(past: VisibleLog) -> Told:
    for parent in past.parents:
        yield Mention(parent, PARENT, Detail.FEEDBACK)


def references(past: VisibleLog) -> Told:
    """GEAK's: the kernel to mend, or right ones together to learn from."""
    if not past.parents or not all(parent.correct for parent in past.parents):
        yield from last(past)
        return
    for parent in past.ordered(past.parents):
        yield Mention(parent, "A reference", Detail.FEEDBACK, own_heading=True)


def best(past: VisibleLog) -> Told:
    leading = {attempt.id for attempt in past.best(past.options.best)}
    heading = "The best so far" if past.options.best == 1 else "Of the best so far"
    whole = past.options.measured
    detail = Detail.THOUGHTS if whole else Detail.CODE
    for attempt in past.ordered([attempt for attempt in past.visible if attempt.id in leading]):
        yield Mention(attempt, heading, detail, own_heading=whole)


def recent(past: VisibleLog) -> Told:
    """KernelAgent's: of whatever line, in brief."""
    others = [attempt for attempt in past.visible if attempt.id not in past.slot.parents]
    for attempt in others[-past.options.recent :]:
        yield Mention(attempt, "What was tried lately", Detail.BRIEF)


def ancestors(past: VisibleLog) -> Told:
    for attempt in past.ordered(past.line[-past.options.ancestors :]):
        yield Mention(attempt, "Earlier in this line")


def rounds(past: VisibleLog) -> Told:
    """KernelFalcon's: the parent whole, of the rounds before it the beginnings."""
    for attempt in past.line[-past.options.rounds :]:
        whole = attempt.id in past.slot.parents
        chars = 0 if whole else past.options.code_chars
        yield Mention(attempt, "An earlier round", Detail.FEEDBACK, chars)


def everything(past: VisibleLog) -> Told:
    """Kevin's: what authors said beside the code is the summary of thoughts that nobody keeps."""
    for attempt in past.line:
        yield Mention(attempt, "An earlier round", Detail.THOUGHTS)


def summaries(past: VisibleLog) -> Told:
    """Earlier rounds in brief: what was done and what came of it, without what authors said."""
    for attempt in past.line:
        if attempt.id not in past.slot.parents:
            yield Mention(attempt, "Earlier rounds", Detail.BRIEF)
    yield from last(past)


def tree(past: VisibleLog) -> Told:
    """STARK's: who mends sees how others failed beside it, the others what came of the node; who
    writes code sees its cousins as well."""
    yield from last(past)
    if past.role == "debugger":
        yield from _failures(past)
        return
    most, node = past.options.relatives, (*past.slot.parents, "")[0]
    for attempt in past.children([node])[-most:]:
        yield Mention(attempt, "What was tried on it", Detail.BRIEF)
    if past.role != "planner":
        beside = [sibling.id for sibling in past.siblings]
        for attempt in past.children(beside)[-most:]:
            yield Mention(attempt, "What was tried on its siblings", Detail.BRIEF)
    for attempt in past.best(past.options.leaders):
        yield Mention(attempt, "The leaderboard")


def _failures(past: VisibleLog) -> Told:
    failed = [sibling for sibling in past.siblings if not sibling.correct]
    for attempt in failed[-past.options.relatives :]:
        yield Mention(attempt, "What failed beside it", Detail.BRIEF)
        fixes = [child for child in past.children([attempt.id]) if child.correct]
        for fix in fixes[:1]:
            yield Mention(fix, f"What mended {attempt.id}")


def insights(past: VisibleLog) -> Told:
    """A few of the thoughts of authors and critics. The slot's number is the seed."""
    known = [attempt for attempt in past.visible if _thoughts(attempt)]
    chosen = Random(past.slot.number).sample(known, min(past.options.insights, len(known)))
    for attempt in chosen:
        thoughts = _thoughts(attempt)
        if past.options.results:
            thoughts += f"\nWhat came of it: {_outcome(attempt)}."
        yield PromptBlock(kind="insights", title="A thought from this run", text=thoughts)


def _thoughts(attempt: Attempt) -> str:
    lessons = attempt.diagnosis.lessons if attempt.diagnosis else ()
    return "\n".join([*filter(None, [attempt.rationale]), *(f"- {lesson}" for lesson in lessons)])


def _outcome(attempt: Attempt) -> str:
    if not attempt.correct:
        return attempt.status.replace("_", " ")
    return f"{attempt.score:.2f} times as fast as the baseline" if attempt.speedups else "correct"


def thoughts(past: VisibleLog) -> Told:
    """EvoEngineer's: what the strategy drew of its population, without what came of it."""
    for attempt in past.log.some(past.slot.thoughts):
        text = attempt.rationale or "It is the kernel that the run began with."
        yield PromptBlock(kind="thoughts", title="A thought from this run", text=text)


def inspirations(past: VisibleLog) -> Told:
    for attempt in past.log.some(past.slot.shown):
        yield Mention(attempt, "For inspiration")


def reflexions(past: VisibleLog) -> Told:
    """The newest lessons, each once."""
    lessons = [
        lesson
        for attempt in past.visible
        if attempt.diagnosis
        for lesson in attempt.diagnosis.lessons
    ]
    newest = list(dict.fromkeys(reversed(lessons)))[: past.options.reflexions]
    if newest:
        text = "\n".join(f"- {lesson}" for lesson in reversed(newest))
        yield PromptBlock(kind="reflexions", title="Lessons so far", text=text)


HISTORIES: Mapping[str, Callable[[VisibleLog], Told]] = {
    "last": last,
    "references": references,
    "best": best,
    "recent": recent,
    "ancestors": ancestors,
    "last_n": rounds,
    "tree_ctx": tree,
    "all": everything,
    "all_no_cot": summaries,
    "insights": insights,
    "thoughts": thoughts,
    "inspirations": inspirations,
    "reflexions": reflexions,
}


class History:
    """The histories that were asked for, one after the other. An attempt is told once, in as much
    detail as any of them asks for."""

    def __init__(self, options: MemoryOptions) -> None:
        self.options = options

    def passages(self, slot: Slot, role: str, log: Log, task: Task) -> list[Passage]:
        past = VisibleLog(slot, role, log, self.options)
        kept: dict[str, _Told] = {}
        for name in self.options.history:
            history = HISTORIES.get(name) or systems.find("history", name)
            for number, item in enumerate(history(past)):
                key = item.attempt.id if isinstance(item, Mention) else f"{name}, {number}"
                if key not in kept or _detail(kept[key].item) < _detail(item):
                    kept[key] = _Told(name, item)
        return [
            passage
            for _, group in groupby(kept.values(), key=_place)
            for passage in _passages(list(group), slot, task, results=self.options.results)
        ]

    def learn(self, attempt: Attempt) -> None:
        """The log has it."""


class _Told(NamedTuple):
    kind: str
    item: Mention | PromptBlock


def _detail(item: Mention | PromptBlock) -> int:
    return item.detail if isinstance(item, Mention) else 0


def _place(entry: _Told) -> tuple[str, str]:
    """Equal for mentions in brief that make one block."""
    if isinstance(entry.item, Mention) and entry.item.detail is Detail.BRIEF:
        return entry.kind, entry.item.heading
    return "", ""


def _passages(
    group: Sequence[_Told], slot: Slot, task: Task, *, results: bool
) -> Iterator[Passage]:
    kind, heading = _place(group[0])
    if heading:
        mentions = [item for _, item in group if isinstance(item, Mention)]
        lines = [_line(mention.attempt, task, results=results) for mention in mentions]
        yield Passage(PromptBlock(kind=kind, title=heading, text="\n".join(lines)))
        return
    for entry in group:
        if isinstance(entry.item, Mention):
            yield _whole(entry.kind, entry.item, slot, task, results=results)
        else:
            yield Passage(entry.item)


def _line(attempt: Attempt, task: Task, *, results: bool) -> str:
    parts = [action(attempt) or "no idea was given"]
    parts += [result(attempt, task)] if results else []
    parts += [attempt.diagnosis.problem] if attempt.diagnosis else []
    return f"- {attempt.id}: {'; '.join(parts)}"


def _diagnosed(diagnosis: Diagnosis) -> str:
    lines = [f"Diagnosis: {diagnosis.problem}"]
    lines += [f"Why: {diagnosis.why}"] if diagnosis.why else []
    lines += [f"What to do: {diagnosis.fix}"] if diagnosis.fix else []
    return "\n".join([*lines, *diagnosis.lesser])


def _whole(kind: str, mention: Mention, slot: Slot, task: Task, *, results: bool) -> Passage:
    """The code comes last: it is what can be cut."""
    attempt, parent = mention.attempt, mention.attempt.id in slot.parents
    parts = [f"Result: {result(attempt, task)}"] if results else []
    if attempt.idea or attempt.arm:
        parts.append(f"What was done: {attempt.idea or attempt.arm}")
    if mention.detail >= Detail.THOUGHTS and attempt.rationale:
        parts.append(f"The reasoning then: {attempt.rationale}")
    if attempt.diagnosis:
        # Of several findings an author who is to act on one is told that one.
        parts.append(_diagnosed(attempt.diagnosis.about(slot.arm if parent else "")))
    if mention.detail >= Detail.FEEDBACK:
        told = [block for block in attempt.feedback if not block.of_critics]
        parts += [f"{block.title}:\n{block.text}" for block in told]
    if attempt.source:
        source = code(attempt.source, attempt.language or task.language)
        parts.append(cut(source, mention.code_chars) if mention.code_chars else source)
    heading = PARENT if parent and not mention.own_heading else mention.heading
    title = f"{heading} ({attempt.id})"
    return Passage(PromptBlock(kind=kind, title=title, text="\n\n".join(parts)), spared=parent)

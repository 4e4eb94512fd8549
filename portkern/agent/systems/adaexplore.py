"""AdaExplore: a tree of large steps, which write anew, and small ones, which refine; and rules that
failures taught, of this task and of others."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, Field

from portkern.agent.attempt import Attempt, Diagnosis, PromptBlock, Status
from portkern.agent.axes import AgentContext, KernelDraft, Reply
from portkern.agent.critic import reading, shown
from portkern.agent.critic.reading import Form, Text, brief
from portkern.agent.critic.silent import AskingCriticOptions, Silent
from portkern.agent.log import Log
from portkern.agent.memory.kept import KeptLine, KeptLines
from portkern.agent.memory.options import MemoryOptions
from portkern.agent.memory.text import Passage
from portkern.agent.proposer import reading as code
from portkern.agent.proposer.planned import Planned
from portkern.agent.proposer.reading import ReplyCode
from portkern.agent.proposer.writing import KernelWriter
from portkern.agent.replies import Unread
from portkern.agent.slot import Arm, Slot
from portkern.agent.strategy.search import Count, Search, Share, ranked, written
from portkern.agent.task import Task

LARGE, SMALL = "large", "small"
#: The empty node, which all that is written from nothing stands below.
ROOT = ""
#: What a kernel is worth that was compiled and is wrong, and the least and most of a right one.
WRONG, RIGHT, FASTEST = 0.05, 0.4, 1.6
#: Speedups between which the worth of right kernels grows.
SLOW, FAST = 0.1, 10.0
_NEVER_RAN = frozenset(
    {
        Status.NO_CODE,
        Status.SCREENED,
        Status.UNSUPPORTED,
        Status.UNAVAILABLE,
        Status.REJECTED,
        Status.BUILD_FAILED,
    }
)


def worth(attempt: Attempt) -> float:
    if attempt.correct:
        share = (min(max(attempt.score, SLOW), FAST) - SLOW) / (FAST - SLOW)
        return RIGHT + (FASTEST - RIGHT) * share
    return 0.0 if attempt.status in _NEVER_RAN else WRONG


class SearchNode(BaseModel):
    """An attempt in the tree, and what came of it and of all below it."""

    above: str = ROOT
    size: str = LARGE
    visits: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.visits if self.visits else 0.0


class Steps(Search):
    """Goes down by the upper confidence bound until another child is worth more than the best there
    is. There a step is large at the root, after ``small_steps`` small ones, and with a chance of
    ``p_large``; a large step sees the best of each large one on the way, at most ``pool``."""

    class Options(Search.Options):
        trials: Count | None = 50
        c: Annotated[float, Field(ge=0)] = 0.3
        p_large: Share = 0.2
        small_steps: Count = 2
        pool: Count = 5

    class State(Search.State):
        """``at`` is where the slot that is out was asked for."""

        nodes: dict[str, SearchNode] = Field(default_factory=lambda: {ROOT: SearchNode()})
        at: str = ROOT

    options: Options
    state: State

    def next(self, known: Log) -> Slot | None:
        if self.state.out or self.asked_of_authors == self.options.trials:
            return None
        at = self.state.at = self._selected()
        small = [name for name in self._below(at) if self.state.nodes[name].size == SMALL]
        drawn = self.chance(self.state.asked)
        full = len(small) >= self.options.small_steps
        if at == ROOT or full or drawn.random() < self.options.p_large:
            pool = self._pool(at, known)
            several = drawn.sample(pool, min(len(pool), self.options.pool))
            return Slot(operator=LARGE, shown=tuple(name for name in pool if name in several))
        return Slot(parents=(at,), operator=SMALL)

    def learn(self, slot: Slot, attempts: Sequence[Attempt], known: Log) -> None:
        """Counts what came of a step for all above it, also where nothing can be built on it."""
        nodes = self.state.nodes
        for attempt in attempts:
            if written([attempt]):
                nodes[attempt.id] = SearchNode(above=self.state.at, size=slot.operator or LARGE)
                nodes[attempt.id].visits, nodes[attempt.id].total = 1, worth(attempt)
            for name in self._way(self.state.at):
                nodes[name].visits += 1
                nodes[name].total += worth(attempt)

    def _selected(self) -> str:
        at, nodes = ROOT, self.state.nodes
        while below := self._below(at):
            best = max(below, key=lambda name: self._bound(nodes[name], nodes[at].visits))
            another = max(nodes[name].mean for name in below) + self._chance(
                nodes[at].visits, len(below) ** 2
            )
            if another > self._bound(nodes[best], nodes[at].visits):
                break
            at = best
        return at

    def _bound(self, node: SearchNode, visits: int) -> float:
        return node.mean + self._chance(visits, node.visits)

    def _chance(self, visits: int, tried: int) -> float:
        return self.options.c * math.sqrt(math.log(max(visits, 1)) / tried)

    def _below(self, name: str) -> list[str]:
        return [each for each, node in self.state.nodes.items() if each and node.above == name]

    def _way(self, name: str) -> list[str]:
        """The nodes from ``name`` up to the root."""
        way = [name]
        while way[-1] != ROOT:
            way.append(self.state.nodes[way[-1]].above)
        return way

    def _pool(self, at: str, known: Log) -> list[str]:
        """The fastest right kernel of each large step on the way, and of what refined it."""
        large = [name for name in self._way(at)[:-1] if self.state.nodes[name].size == LARGE]
        best = [ranked(known.some(self._refined(name)))[:1] for name in large[::-1]]
        return [attempt.id for found in best for attempt in found]

    def _refined(self, name: str) -> list[str]:
        """The node and all small steps below it."""
        found = [name]
        for each in found:
            found += [one for one in self._below(each) if self.state.nodes[one].size == SMALL]
        return found


class Stepper(Planned):
    """A large step is a whole file; before a small one a reviewer says what to refine, unless
    nothing on its line is right, and the change is made by edits."""

    operators = (LARGE, SMALL)
    others = ("planner",)
    planning = "plan"

    async def draft(self, writer: KernelWriter) -> KernelDraft:
        parent = writer.parent
        if parent is None:
            return replace(await writer.write("direct"), operator=LARGE)
        line = writer.context.log.ancestors(parent.id)
        plan = await self.plan(writer) if any(one.correct for one in line) else None
        if isinstance(plan, Unread):
            return KernelDraft(None, detail=plan.why, operator=SMALL)

        def edited(reply: Reply) -> ReplyCode | Unread:
            return code.edited(parent.source, reply.text, cut=reply.cut)

        draft = await writer.write(
            "diff",
            read=edited,
            form="edits",
            shown=[parent],
            inspirations=[],
            arm=Arm("", plan.text) if plan else None,
        )
        return replace(draft, operator=SMALL, idea=plan.text if plan else "")


class FailureRule(Form):
    rule: Text = ""


class RuleOptions(AskingCriticOptions):
    """``words`` of a rule that are kept."""

    kind: str = "adaexplore"
    words: int = Field(40, ge=1)


class Ruling(Silent):
    """One rule of what cannot be done, where the messages of a failing kernel say one."""

    options_type: ClassVar[type[RuleOptions]] = RuleOptions
    #: What a comparison said is not a rule of the language.
    fails: ClassVar[frozenset[Status]] = frozenset(
        {Status.REJECTED, Status.BUILD_FAILED, Status.CRASHED}
    )

    def __init__(self, options: RuleOptions) -> None:
        super().__init__(options)
        self.options = options

    async def diagnose(self, seen: Attempt, context: AgentContext) -> Diagnosis | None:
        if seen.status not in self.fails:
            return None
        facts = shown.facts(seen, context) | {"words": self.options.words}
        answer = await reading.ask(
            context.llm, self.options.role, "critic_rule", FailureRule, **facts
        )
        rule = brief(answer.rule, self.options.words)
        if not rule:
            return None
        return Diagnosis(critic=self.options.kind, problem=rule, lessons=(rule,))


FILE = "rules.jsonl"
#: A rule is told once so many failures said it.
SEEN = 3
#: Rules with this share of their words in common are one.
ALIKE = 0.7


class RuleLine(KeptLine):
    backend: str
    language: str
    rule: str


class FailureRules:
    """The rules that failures taught in a language, those first that were said most often."""

    def __init__(self, options: MemoryOptions, task: Task, folder: Path) -> None:
        """Raises RecordError and StorageError."""
        self.run = folder.name
        self._kept = KeptLines(FILE, RuleLine, folder, keep=options.keep)

    def learn(self, attempt: Attempt) -> None:
        """Raises StorageError when it is to be kept and cannot be."""
        said = attempt.diagnosis
        if said is None or said.critic != RuleOptions.model_fields["kind"].default:
            return
        for rule in said.lessons:
            line = RuleLine(
                run=self.run,
                attempt=attempt.id,
                digest=attempt.digest,
                backend=attempt.backend,
                language=attempt.language,
                rule=rule,
            )
            self._kept.add(line)

    def passages(self, slot: Slot, role: str, log: Log, task: Task) -> list[Passage]:
        here = [
            line.rule
            for line in self._kept.lines
            if (line.backend, line.language) == (task.backend.name, task.language)
            and (line.run != self.run or line.attempt in log)
        ]
        often = [rule for rule, count in counted(here) if count >= SEEN]
        if not often:
            return []
        text = "\n".join(f"- {rule}" for rule in often)
        block = PromptBlock(kind="adaexplore", title="What failures have shown", text=text)
        return [Passage(block)]


def counted(rules: Sequence[str]) -> list[tuple[str, int]]:
    """Each rule in the words in which it was said first, and how often it was said."""
    counts: dict[str, int] = {}
    for rule in rules:
        same = next((known for known in counts if alike(known, rule)), rule)
        counts[same] = counts.get(same, 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])


def alike(one: str, other: str) -> bool:
    mine, theirs = _words(one), _words(other)
    return len(mine & theirs) >= ALIKE * len(mine | theirs)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))

"""KernelFoundry: a map of what kernels do, which keeps the fastest of each place, and guidance for
their authors that evolves beside them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from random import Random
from statistics import fmean
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from portkern.agent.attempt import Attempt, Diagnosis, PromptBlock
from portkern.agent.axes import AgentContext
from portkern.agent.critic import reading, shown
from portkern.agent.critic.reading import Form, Text, Texts, brief
from portkern.agent.critic.silent import AskingCriticOptions, Silent
from portkern.agent.log import Log
from portkern.agent.memory.history import Told, VisibleLog
from portkern.agent.memory.text import action, result
from portkern.agent.slot import Slot
from portkern.agent.strategy.evolutionary import Evolutionary
from portkern.agent.strategy.population import Cell, PopulationPolicy, power_law
from portkern.agent.strategy.search import Count, Share
from portkern.spec.foreign_text import yaml_value

KIND = "kernelfoundry"


class FoundryLevel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    found: tuple[str, ...] = ()


@cache
def levels() -> dict[str, tuple[FoundryLevel, ...]]:
    """The levels of each respect, the lowest first."""
    text = files(__package__).joinpath("kernelfoundry.yaml").read_text("utf-8")
    return {
        name: tuple(FoundryLevel.model_validate(level) for level in several)
        for name, several in yaml_value(text).items()
    }


@lru_cache(maxsize=1024)
def cell(source: str) -> Cell:
    """The place of a kernel on the map: the highest level in each respect whose patterns are all
    found."""
    return tuple(
        max(
            at
            for at, level in enumerate(several)
            if all(re.search(pattern, source) for pattern in level.found)
        )
        for several in levels().values()
    )


def told(aim: Cell) -> str:
    """Says what an author is to do to reach a place."""
    several = zip(levels().values(), aim, strict=True)
    return " ".join(filter(None, (level[at].text for level, at in several)))


def steps(here: Cell, by: Iterable[int]) -> list[Cell]:
    """The places one level away in one respect."""
    most = [len(several) for several in levels().values()]
    return [
        (*here[:at], here[at] + step, *here[at + 1 :])
        for step in by
        for at in range(len(here))
        if 0 <= here[at] + step < most[at]
    ]


@dataclass(frozen=True)
class Map(PopulationPolicy):
    def _elites(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        first: dict[Cell, Attempt] = {}
        for attempt in attempts:
            first.setdefault(cell(attempt.source), attempt)
        return list(first.values())


class Foundry(Evolutionary):
    """A parent is one of the ``top`` by rank (``exploit``), one of the slower half of the map
    (``explore``), or any; its child aims one level higher in one respect, or, with the chance
    ``diversify``, at the nearest place where nothing is."""

    class Options(Evolutionary.Options):
        exploit: Share = 0.7
        explore: Share = 0.2
        top: Count = 5
        diversify: Share = 0.2

    options: Options

    def start(self) -> Evolutionary.State:
        state = super().start()
        self._policy = Map("map_elites", self.options.population)
        return state

    def _parents(self, members: Sequence[str], count: int, drawn: Random) -> tuple[str, ...]:
        if not count or not members:
            return ()
        chance = drawn.random()
        if chance < self.options.exploit:
            best = list(members[: self.options.top])
            return tuple(drawn.choices(best, power_law(len(best), self.options.power)))
        slower = members[len(members) // 2 :]
        explores = chance < self.options.exploit + self.options.explore
        return (drawn.choice(slower if explores else members),)

    def _slot(self, number: int, known: Log, *, new: bool) -> Slot:
        slot = super()._slot(number, known, new=new)
        if not slot.parents:
            return slot
        members = self.state.islands[slot.island].members
        taken = {cell(attempt.source) for attempt in known.some(members)}
        here = cell(known[slot.parents[0]].source)
        return replace(slot, arm=told(self._aim(here, taken, Random(f"{self.seed} {number} aim"))))

    def _aim(self, here: Cell, taken: set[Cell], drawn: Random) -> Cell:
        several = [range(len(respect)) for respect in levels().values()]
        empty = [place for place in itertools.product(*several) if place not in taken]
        if empty and drawn.random() < self.options.diversify:
            near = min(_distance(here, place) for place in empty)
            return drawn.choice([place for place in empty if _distance(here, place) == near])
        return drawn.choice(steps(here, [1]) or steps(here, [-1]))


def _distance(here: Cell, there: Cell) -> int:
    return sum(abs(a - b) for a, b in zip(here, there, strict=True))


class Guidance(Form):
    problem: Text = ""
    guidance: Texts = ()


class PrompterOptions(AskingCriticOptions):
    """It writes guidance anew after ``every`` slots, ``lines`` of it at most, of ``words`` each.
    Where these are whole generations, all who come after are told of it."""

    kind: str = KIND
    every: int = Field(8, ge=1)
    lines: int = Field(5, ge=1)
    words: int = Field(40, ge=1)


class Prompter(Silent):
    """Rewrites what authors are told besides the task, by what became of those who were told."""

    options_type: ClassVar[type[PrompterOptions]] = PrompterOptions

    def __init__(self, options: PrompterOptions) -> None:
        super().__init__(options)
        self.options = options

    async def diagnose(self, seen: Attempt, context: AgentContext) -> Diagnosis | None:
        o = self.options
        if seen.number or (seen.slot + 1) % o.every:
            return None
        lines = [
            f"- {action(one) or 'a first kernel'}; {result(one, context.task)}"
            for one in list(context.log)[-2 * o.every :]
        ]
        answer = await reading.ask(
            context.llm,
            o.role,
            "critic_guidance",
            Guidance,
            **shown.facts(seen, context),
            record="\n".join([*lines, "", "The guidance so far:", *in_force(context.log)]),
            wanted=o.lines,
            words=o.words,
        )
        guidance = tuple(brief(line, o.words) for line in answer.guidance[: o.lines])
        problem = brief(answer.problem, o.words) or "The guidance was looked at."
        return Diagnosis(critic=KIND, problem=problem, lessons=guidance)


def in_force(log: Iterable[Attempt]) -> Sequence[str]:
    """The guidance that authors are told: the newest until something came of it, and then only if
    its kernels gained as much over their parents as those of the best guidance before it."""
    known = {attempt.id: attempt for attempt in log}
    best: tuple[float, Sequence[str]] = (0.0, ())
    newest: Sequence[str] = ()
    gains: list[float] = []
    for attempt in known.values():
        parent = known.get((*attempt.parents, "")[0])
        if parent is not None and parent.correct:
            gains.append(attempt.score / parent.score)
        said = attempt.diagnosis
        if said is not None and said.critic == KIND and said.lessons:
            best = _better(best, newest, gains)
            newest, gains = said.lessons, []
    return newest if not gains else _better(best, newest, gains)[1]


def _better(
    best: tuple[float, Sequence[str]], lines: Sequence[str], gains: Sequence[float]
) -> tuple[float, Sequence[str]]:
    mean = fmean(gains) if gains else 0.0
    return (mean, lines) if mean >= best[0] else best


def guidance(past: VisibleLog) -> Told:
    """The history of a run as guidance."""
    lines = in_force(past.log)
    if lines:
        text = "\n".join(f"- {line}" for line in lines)
        yield PromptBlock(kind=KIND, title="What this run has taught", text=text)

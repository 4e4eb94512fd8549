"""The author that asks no model: kernels that ship with portkern, and what their knobs offer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from random import Random
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from portkern.agent.attempt import Status
from portkern.agent.axes import AgentContext, KernelDraft, Word
from portkern.agent.proposer.nearest import nearest
from portkern.agent.slot import Arm, Slot
from portkern.agent.task import Task
from portkern.errors import ConfigError
from portkern.spec import catalogue
from portkern.spec.candidate import Candidate
from portkern.tuning import search

SHIPPED = "as it ships"
#: So many draws for settings that were not seen before the rest is searched in order.
DRAWS = 64
#: Spaces up to this size are searched to their end; of larger ones enough is drawn.
SEARCHED = 4096
#: So many settings that the target has no place for are passed over for a slot.
PASSED_OVER = 16
#: The beginning of a note about a setting that was passed over.
NOT_OFFERED = "not offered: "
#: A setting in the words of an idea: the knob, its value now if it is said, and the new one.
_SETTING = re.compile(r"(\w+)\s*[:=]\s*(?:-?\d+\s*(?:→|->)\s*)?(-?\d+)")

Settings = Mapping[str, int]


class CatalogueOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str = "catalogue"


class Catalogue:
    """An idea is a knob to turn, its implementations are values; a mutation turns one knob, a
    crossover takes each knob from one of two parents. Nothing is proposed twice. The first kernel
    of a run is the one that ships."""

    roles: ClassVar[tuple[str, ...]] = ()
    operators: ClassVar[tuple[str, ...]] = ("init", "mutate", "diff", "crossover")
    plans: ClassVar[bool] = True
    options_type: ClassVar[type[CatalogueOptions]] = CatalogueOptions
    decisive: ClassVar[Mapping[str, object]] = {}

    def __init__(self, options: CatalogueOptions) -> None:
        self.options = options
        self._choosing = asyncio.Lock()

    def arms(self, task: Task) -> Sequence[Arm]:
        """A knob each; none where the slots' drafts say why there are none."""
        try:
            spaces = [_space(kernel, task) for kernel in families(task)]
        except ConfigError:
            return []
        knobs = [name for space in spaces for name, some in space.choices.items() if len(some) > 1]
        return [Arm(name, f"turn {name}", knob=name) for name in dict.fromkeys(knobs)]

    async def propose(self, slot: Slot, context: AgentContext) -> list[KernelDraft]:
        """Slots choose one after the other in the order in which they begin: what one takes, and
        what people say of it, is settled before the next looks."""
        task = context.task
        kernels = families(task)
        if not kernels:
            why = f"{task.backend.name} ships no {task.language} kernel for {task.op.name}"
            near = "nor one of another operator that is called like it"
            return [
                KernelDraft(None, detail=f"{why}, {near}; name a model with models.coder.model=")
            ]
        try:
            family = [Family(kernel, _space(kernel, task)) for kernel in kernels]
        except ConfigError as error:
            return [KernelDraft(None, detail=str(error))]
        async with self._choosing:
            offered = _Offered(_choices(slot, context, family), slot, context)
            drafts = await offered.drafts()
        searched = all(one.space.size <= SEARCHED for one in family)
        which = "the kernel" if len(family) == 1 else f"the {len(family)} kernels"
        why = f"every setting of {which} was tried" if searched else "no new setting was found"
        return drafts or [KernelDraft(None, detail=why, arm=slot.arm, notes=tuple(offered.passed))]


@dataclass(frozen=True)
class Family:
    """A kernel with all of its settings."""

    kernel: Candidate
    space: search.Space

    def settings(self, source: str) -> Settings:
        """The settings of a kernel that the run has made; a knob that it lost, or set to a value
        that the target does not take, is as it ships."""
        now = {name: knob.value for name, knob in replace(self.kernel, source=source).knobs.items()}
        return {
            name: now[name] if now.get(name) in values else values[0]
            for name, values in self.space.choices.items()
        }

    def holds(self, source: str) -> bool:
        return replace(self.kernel, source=source).family == self.kernel.family


@dataclass(frozen=True)
class KnobChoice:
    """``knob`` is the one that was turned, where it is one; ``start`` are the settings that some
    were turned from."""

    family: Family
    settings: Settings
    idea: str
    operator: str
    knob: str = ""
    start: Settings | None = None

    @property
    def asked(self) -> str:
        """The idea as people are asked about it: it says which settings these are."""
        named = ", ".join(f"{name}: {value}" for name, value in self.settings.items())
        return f"{self.idea}: {named}" if self.start is None and named else self.idea

    def made(self, settings: Settings | None = None) -> Candidate:
        """Its kernel, with other settings where they are given."""
        return self.family.kernel.turn(self.settings if settings is None else settings)

    def edited(self, idea: str) -> Candidate:
        """The kernel of an idea that people put in its place. Raises ConfigError."""
        start = self.settings if self.start is None else self.start
        return self.made({**start, **_said(idea, self.family.space.choices)})


def _choices(slot: Slot, context: AgentContext, families: Sequence[Family]) -> Iterator[KnobChoice]:
    """The most wanted first. Kernels that do the same in other ways come before a knob is turned,
    unless the slot says what is to be done."""
    random = context.random
    parents = [
        (_family_of(parent.source, families), parent.source)
        for parent in context.log.some(slot.parents)
        if parent.source
    ]
    if not parents or not (slot.arm or slot.ideas or slot.operator == "crossover"):
        yield from _as_they_are(families)
    first = parents[0][0] if parents else families[0]
    own = [family.settings(source) for family, source in parents if family is first]
    space = first.space
    if len(own) > 1 and slot.operator in ("", "crossover"):
        yield from _crossed(first, own, random)
    if slot.ideas:
        yield from _by_idea(first, (*own, space.default)[0], slot, random)
    if own:
        yield from _neighbours(first, own[0], slot.arm, random)
    yield from _as_they_are(families)
    yield from _anywhere(families, random)


def _as_they_are(families: Sequence[Family]) -> Iterator[KnobChoice]:
    for family in families:
        yield KnobChoice(family, family.space.default, family.kernel.variant or SHIPPED, "init")


def _family_of(source: str, families: Sequence[Family]) -> Family:
    return next((family for family in families if family.holds(source)), families[0])


@dataclass
class _Offered:
    """The first choices, as many as a slot has room for, which were not taken before and for which
    the target has a place; ``passed`` says which have none."""

    choices: Iterator[KnobChoice]
    slot: Slot
    context: AgentContext
    passed: list[str] = field(default_factory=list)

    async def drafts(self) -> list[KernelDraft]:
        chosen: list[tuple[KnobChoice, Candidate]] = []
        while len(chosen) < self.slot.size and len(self.passed) < PASSED_OVER:
            tried = list(islice(self._new(), self.slot.size - len(chosen)))
            if not tried:
                break
            chosen += await self._with_place(tried)
        asked = [choice.asked for choice, _ in chosen if choice.idea != SHIPPED]
        words = iter(await self.context.approve(asked) if asked else ())
        drafts = [
            self._draft(choice, made, next(words) if choice.idea != SHIPPED else Word(choice.asked))
            for choice, made in chosen
        ]
        if drafts and self.passed:
            drafts[0] = replace(drafts[0], notes=(*drafts[0].notes, *self.passed))
        return drafts

    def _new(self) -> Iterator[tuple[KnobChoice, Candidate]]:
        for choice in self.choices:
            made = choice.made()
            if made.digest not in self.context.taken:
                self.context.taken.add(made.digest)
                yield choice, made

    async def _with_place(
        self, tried: Sequence[tuple[KnobChoice, Candidate]]
    ) -> list[tuple[KnobChoice, Candidate]]:
        """A kernel as it is stands for itself: that the target has no place for it is a result."""
        whys = await asyncio.gather(
            *[
                self.context.fits(made) if choice.operator != "init" else _nothing()
                for choice, made in tried
            ]
        )
        self.passed += [
            f"{NOT_OFFERED}{choice.asked}: {why.partition(chr(10))[0]}"
            for (choice, _), why in zip(tried, whys, strict=True)
            if why
        ]
        return [one for one, why in zip(tried, whys, strict=True) if not why]

    def _draft(self, choice: KnobChoice, made: Candidate, word: Word) -> KernelDraft:
        draft = KernelDraft(
            made, idea=choice.idea, arm=choice.knob or self.slot.arm, operator=choice.operator
        )
        if not word.idea:
            return replace(draft, candidate=None, status=Status.SCREENED, detail=word.struck)
        return draft if word.idea == choice.asked else self._edited(choice, draft, word.idea)

    def _edited(self, choice: KnobChoice, draft: KernelDraft, idea: str) -> KernelDraft:
        draft = replace(draft, idea=idea, arm=self.slot.arm)
        try:
            made = choice.edited(idea)
        except ConfigError as error:
            return replace(draft, candidate=None, detail=str(error))
        if made.digest in self.context.taken and made != draft.candidate:
            return replace(draft, candidate=None, detail="the run has this kernel already")
        self.context.taken.add(made.digest)
        return replace(draft, candidate=made)


async def _nothing() -> str:
    return ""


def _said(idea: str, legal: Mapping[str, Sequence[int]]) -> Settings:
    """The settings that a text names, such as ``ITEMS: 32 → 16, BLOCK=128``. Raises ConfigError
    for a text without one, and for values that cannot be."""
    found = {name: int(value) for name, value in _SETTING.findall(idea)}
    for name, value in found.items() or [("", 0)]:
        if value not in legal.get(name, ()):
            expected = "; ".join(f"{knob}: {' '.join(map(str, of))}" for knob, of in legal.items())
            raise ConfigError(f"Got the idea {idea[:80]!r}, expected NAME: VALUE of {expected}")
    return found


def shipped(task: Task) -> Candidate | None:
    """The kernel of the catalogue in the task's language, or the one that the run starts from."""
    if task.start is not None:
        return task.start
    kernels = catalogue.candidates(task.op.name, task.backend, task.target)
    return next((kernel for kernel in kernels if kernel.language == task.language), None)


def families(task: Task) -> list[Candidate]:
    """The kernel that ships or that the run starts from, and others that do the same; for an
    operator that has none, shipped ones that may be called like it."""
    first = shipped(task)
    return [first, *task.others] if first else nearest(task)


def _space(kernel: Candidate, task: Task) -> search.Space:
    """The settings that a kernel can have: one where it has no knobs. Raises ConfigError where a
    knob has no value that the target takes."""
    if not kernel.knobs:
        return search.Space({})
    return search.Space.of(kernel, task.backend, task.target, task.op.precision)


def _step(family: Family, start: Settings, turned: Settings) -> KnobChoice | None:
    """The step that turns some settings; None where none is turned."""
    changed = [name for name in start if turned[name] != start[name]]
    idea = ", ".join(f"{name}: {start[name]} → {turned[name]}" for name in changed)
    knob = changed[0] if len(changed) == 1 else ""
    return KnobChoice(family, turned, idea, "turn", knob, start) if changed else None


def _by_idea(family: Family, start: Settings, slot: Slot, random: Random) -> Iterator[KnobChoice]:
    """Choices that turn as many knobs as the slot asks for, each to as many values."""
    space = family.space
    knobs = [name for name, values in space.choices.items() if len(values) > 1]
    random.shuffle(knobs)
    for name in knobs[: slot.ideas]:
        others = [value for value in space.choices[name] if value != start[name]]
        random.shuffle(others)
        steps = (_step(family, start, {**start, name: value}) for value in others[: slot.n])
        yield from filter(None, steps)


def _neighbours(family: Family, start: Settings, arm: str, random: Random) -> Iterator[KnobChoice]:
    """One knob turned (the arm's, if it is one), then any two."""
    space = family.space
    knobs = [arm] if arm in space.choices else list(space.choices)
    turned = [{**start, name: value} for name in knobs for value in space.choices[name]]
    random.shuffle(turned)
    for _ in range(DRAWS):
        names = random.sample(list(space.choices), min(2, len(space.choices)))
        turned.append({**start, **{name: random.choice(space.choices[name]) for name in names}})
    yield from filter(None, (_step(family, start, choice) for choice in turned))


def _crossed(family: Family, parents: Sequence[Settings], random: Random) -> Iterator[KnobChoice]:
    for _ in range(DRAWS):
        settings = {name: random.choice(parents[:2])[name] for name in family.space.choices}
        yield KnobChoice(family, settings, "knobs of two kernels", "crossover")


def _anywhere(families: Sequence[Family], random: Random) -> Iterator[KnobChoice]:
    for _ in range(DRAWS):
        family = random.choice(families) if len(families) > 1 else families[0]
        choices = family.space.choices
        drawn = {name: random.choice(values) for name, values in choices.items()}
        yield KnobChoice(family, drawn, "settings at random", "draw")
    for family in families:
        if family.space.size <= SEARCHED:
            for settings in family.space.everything():
                yield KnobChoice(family, settings, "settings that were left", "draw")

"""The author that asks no model: kernels that ship with portkern, and what their knobs offer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from portkern.agent.axes import Context, Draft
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

    def arms(self, task: Task) -> Sequence[Arm]:
        """A knob each; none where the slots' drafts say why there are none."""
        try:
            spaces = [_space(kernel, task) for kernel in families(task)]
        except ConfigError:
            return []
        knobs = [name for space in spaces for name, some in space.choices.items() if len(some) > 1]
        return [Arm(name, f"turn {name}", knob=name) for name in dict.fromkeys(knobs)]

    async def propose(self, slot: Slot, context: Context) -> list[Draft]:
        """Chooses before it waits for anything, so that slots choose in the order they begin."""
        task = context.task
        kernels = families(task)
        if not kernels:
            why = f"{task.backend.name} ships no {task.language} kernel for {task.op.name}"
            near = "nor one of another operator that is called like it"
            return [Draft(None, detail=f"{why}, {near}; name a model with models.coder.model=")]
        try:
            family = [Family(kernel, _space(kernel, task)) for kernel in kernels]
        except ConfigError as error:
            return [Draft(None, detail=str(error))]
        drafts = _take(_choices(slot, context, family), slot, context.taken)
        searched = all(one.space.size <= SEARCHED for one in family)
        which = "the kernel" if len(family) == 1 else f"the {len(family)} kernels"
        why = f"every setting of {which} was tried" if searched else "no new setting was found"
        return drafts or [Draft(None, detail=why, arm=slot.arm)]


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
class Choice:
    """``knob`` is the one that was turned, where it is one."""

    kernel: Candidate
    settings: Settings
    idea: str
    operator: str
    knob: str = ""


def _choices(slot: Slot, context: Context, families: Sequence[Family]) -> Iterator[Choice]:
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


def _as_they_are(families: Sequence[Family]) -> Iterator[Choice]:
    for family in families:
        yield Choice(family.kernel, family.space.default, family.kernel.variant or SHIPPED, "init")


def _family_of(source: str, families: Sequence[Family]) -> Family:
    return next((family for family in families if family.holds(source)), families[0])


def _take(offered: Iterator[Choice], slot: Slot, taken: set[str]) -> list[Draft]:
    """The first ``slot.size`` that were not taken before."""
    drafts: list[Draft] = []
    for choice in offered:
        made = choice.kernel.turn(choice.settings)
        if made.digest in taken:
            continue
        taken.add(made.digest)
        arm = choice.knob or slot.arm
        drafts.append(Draft(made, idea=choice.idea, arm=arm, operator=choice.operator))
        if len(drafts) == slot.size:
            break
    return drafts


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


def _step(family: Family, start: Settings, turned: Settings) -> Choice | None:
    """The step that turns some settings; None where none is turned."""
    changed = [name for name in start if turned[name] != start[name]]
    idea = ", ".join(f"{name}: {start[name]} → {turned[name]}" for name in changed)
    knob = changed[0] if len(changed) == 1 else ""
    return Choice(family.kernel, turned, idea, "turn", knob) if changed else None


def _by_idea(family: Family, start: Settings, slot: Slot, random: Random) -> Iterator[Choice]:
    """Choices that turn as many knobs as the slot asks for, each to as many values."""
    space = family.space
    knobs = [name for name, values in space.choices.items() if len(values) > 1]
    random.shuffle(knobs)
    for name in knobs[: slot.ideas]:
        others = [value for value in space.choices[name] if value != start[name]]
        random.shuffle(others)
        steps = (_step(family, start, {**start, name: value}) for value in others[: slot.n])
        yield from filter(None, steps)


def _neighbours(family: Family, start: Settings, arm: str, random: Random) -> Iterator[Choice]:
    """One knob turned (the arm's, if it is one), then any two."""
    space = family.space
    knobs = [arm] if arm in space.choices else list(space.choices)
    turned = [{**start, name: value} for name in knobs for value in space.choices[name]]
    random.shuffle(turned)
    for _ in range(DRAWS):
        names = random.sample(list(space.choices), min(2, len(space.choices)))
        turned.append({**start, **{name: random.choice(space.choices[name]) for name in names}})
    yield from filter(None, (_step(family, start, choice) for choice in turned))


def _crossed(family: Family, parents: Sequence[Settings], random: Random) -> Iterator[Choice]:
    for _ in range(DRAWS):
        settings = {name: random.choice(parents[:2])[name] for name in family.space.choices}
        yield Choice(family.kernel, settings, "knobs of two kernels", "crossover")


def _anywhere(families: Sequence[Family], random: Random) -> Iterator[Choice]:
    for _ in range(DRAWS):
        family = random.choice(families) if len(families) > 1 else families[0]
        choices = family.space.choices
        drawn = {name: random.choice(values) for name, values in choices.items()}
        yield Choice(family.kernel, drawn, "settings at random", "draw")
    for family in families:
        if family.space.size <= SEARCHED:
            for settings in family.space.everything():
                yield Choice(family.kernel, settings, "settings that were left", "draw")

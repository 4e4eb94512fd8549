"""The author that asks no model: kernels that ship with portkern, and what their knobs offer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from portkern.agent.axes import Context, Draft
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
        kernel = shipped(task)
        if kernel is None or not kernel.knobs:
            return []
        try:
            space = _space(kernel, task)
        except ConfigError:
            return []
        return [
            Arm(name, f"turn {name}", knob=name)
            for name, values in space.choices.items()
            if len(values) > 1
        ]

    async def propose(self, slot: Slot, context: Context) -> list[Draft]:
        """Chooses before it waits for anything, so that slots choose in the order they begin."""
        task = context.task
        kernel = shipped(task)
        if kernel is None:
            why = f"{task.backend.name} ships no {task.language} kernel for {task.op.name}"
            return [Draft(None, detail=f"{why}; name a model with models.coder.model=")]
        try:
            space = _space(kernel, task)
        except ConfigError as error:
            return [Draft(None, detail=str(error))]
        drafts = _take(_choices(slot, context, kernel, space), slot, kernel, context.taken)
        searched = space.size <= SEARCHED
        why = "every setting of the kernel was tried" if searched else "no new setting was found"
        return drafts or [Draft(None, detail=why, arm=slot.arm)]


@dataclass(frozen=True)
class Choice:
    """``knob`` is the one that was turned, where it is one."""

    settings: Settings
    idea: str
    operator: str
    knob: str = ""


def _choices(
    slot: Slot, context: Context, kernel: Candidate, space: search.Space
) -> Iterator[Choice]:
    """The most wanted first."""
    random = context.random
    parents = [
        _settings(replace(kernel, source=parent.source), space)
        for parent in context.log.some(slot.parents)
        if parent.source
    ]
    if not parents:
        yield Choice(space.default, SHIPPED, "init")
    if len(parents) > 1 and slot.operator in ("", "crossover"):
        yield from _crossed(parents, space, random)
    if slot.ideas:
        yield from _by_idea((*parents, space.default)[0], space, slot, random)
    if parents:
        yield from _neighbours(parents[0], space, slot.arm, random)
    yield from _anywhere(space, random)


def _take(offered: Iterator[Choice], slot: Slot, kernel: Candidate, taken: set[str]) -> list[Draft]:
    """The first ``slot.size`` that were not taken before."""
    drafts: list[Draft] = []
    for choice in offered:
        made = kernel.turn(choice.settings)
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
    kernels = catalogue.candidates(task.op.name, task.backend)
    return next((kernel for kernel in kernels if kernel.language == task.language), None)


def _space(kernel: Candidate, task: Task) -> search.Space:
    """Of a kernel that has nothing to turn one setting. Raises ConfigError where a knob has no
    value that the target takes."""
    if not kernel.knobs:
        return search.Space({})
    return search.Space.of(kernel, task.backend, task.target, task.op.precision)


def _settings(kernel: Candidate, space: search.Space) -> Settings:
    """Of a kernel that the run has made; a knob that it lost, or set to what the target does not
    take, is as it ships."""
    now = {name: knob.value for name, knob in kernel.knobs.items()}
    return {
        name: now[name] if now.get(name) in values else values[0]
        for name, values in space.choices.items()
    }


def _step(start: Settings, turned: Settings) -> Choice | None:
    """None where nothing is turned."""
    changed = [name for name in start if turned[name] != start[name]]
    idea = ", ".join(f"{name}: {start[name]} → {turned[name]}" for name in changed)
    knob = changed[0] if len(changed) == 1 else ""
    return Choice(turned, idea, "turn", knob) if changed else None


def _by_idea(start: Settings, space: search.Space, slot: Slot, random: Random) -> Iterator[Choice]:
    """So many knobs, and of each so many values."""
    knobs = [name for name, values in space.choices.items() if len(values) > 1]
    random.shuffle(knobs)
    for name in knobs[: slot.ideas]:
        others = [value for value in space.choices[name] if value != start[name]]
        random.shuffle(others)
        steps = (_step(start, {**start, name: value}) for value in others[: slot.n])
        yield from filter(None, steps)


def _neighbours(start: Settings, space: search.Space, arm: str, random: Random) -> Iterator[Choice]:
    """One knob turned (the arm's, if it is one), then any two."""
    knobs = [arm] if arm in space.choices else list(space.choices)
    turned = [{**start, name: value} for name in knobs for value in space.choices[name]]
    random.shuffle(turned)
    for _ in range(DRAWS):
        names = random.sample(list(space.choices), min(2, len(space.choices)))
        turned.append({**start, **{name: random.choice(space.choices[name]) for name in names}})
    yield from filter(None, (_step(start, choice) for choice in turned))


def _crossed(parents: Sequence[Settings], space: search.Space, random: Random) -> Iterator[Choice]:
    for _ in range(DRAWS):
        settings = {name: random.choice(parents[:2])[name] for name in space.choices}
        yield Choice(settings, "knobs of two kernels", "crossover")


def _anywhere(space: search.Space, random: Random) -> Iterator[Choice]:
    for _ in range(DRAWS):
        drawn = {name: random.choice(values) for name, values in space.choices.items()}
        yield Choice(drawn, "settings at random", "draw")
    if space.size <= SEARCHED:
        for settings in space.everything():
            yield Choice(settings, "settings that were left", "draw")

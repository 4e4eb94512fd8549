"""The author that asks no model: kernels that ship with portkern, and what their knobs offer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from portkern import catalogue, tuning
from portkern.agent.axes import Context, Draft
from portkern.agent.slot import Arm, Slot
from portkern.agent.task import Task
from portkern.candidate import Candidate
from portkern.errors import ConfigError

SHIPPED = "as it ships"
#: So many draws for settings that were not seen before the rest is searched in order.
DRAWS = 64
#: Spaces up to this size are searched to their end; of larger ones enough is drawn.
SEARCHED = 4096

Settings = Mapping[str, int]


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str = "catalogue"


class Catalogue:
    """An idea is a knob to turn, its implementations are values; a mutation turns one knob, a
    crossover takes each knob from one of two parents. Nothing is proposed twice. The first kernel
    of a run is the one that ships."""

    roles: ClassVar[tuple[str, ...]] = ()
    operators: ClassVar[tuple[str, ...]] = ("init", "mutate", "diff", "crossover")
    plans: ClassVar[bool] = True
    options_type: ClassVar[type[Options]] = Options

    def __init__(self, options: Options) -> None:
        self.options = options

    def arms(self, task: Task) -> Sequence[Arm]:
        """A knob each."""
        kernel = shipped(task)
        space = _space(kernel, task) if kernel else None
        return [
            Arm(name, f"turn {name}", knob=name)
            for name, values in (space.choices if space else {}).items() if len(values) > 1
        ]  # fmt: skip

    async def propose(self, slot: Slot, context: Context) -> list[Draft]:
        """Chooses before it waits for anything, so that slots choose in the order they begin."""
        task = context.task
        kernel = shipped(task)
        if kernel is None:
            why = f"{task.backend.name} ships no {task.language} kernel for {task.op.name}"
            return [Draft(None, detail=f"{why}; name a model with models.coder.model=")]
        space = _space(kernel, task)
        offered = (
            _choices(slot, context, kernel, space)
            if space else iter([(kernel, SHIPPED, "")])
        )  # fmt: skip
        return _take(offered, slot, context.taken)


def _choices(
    slot: Slot, context: Context, kernel: Candidate, space: tuning.Space
) -> Iterator[tuple[Candidate, str, str]]:
    """Kernels with the idea and the knob behind each, the most wanted first."""
    parents = [
        {name: knob.value for name, knob in one.knobs.items()}
        for one in (
            replace(kernel, source=parent.source)
            for parent in context.log.some(slot.parents) if parent.source
        )
    ]  # fmt: skip
    random = context.random
    if not parents:
        yield kernel, SHIPPED, ""
        if slot.ideas:
            yield from _turned(kernel, _by_idea(space.default, space, slot, random))
    elif len(parents) > 1 and slot.operator in ("", "crossover"):
        yield from _turned(kernel, _crossed(parents, space, random))
    elif slot.ideas:
        yield from _turned(kernel, _by_idea(parents[0], space, slot, random))
    if parents:
        yield from _turned(kernel, _neighbours(parents[0], space, slot.arm, random))
    yield from _turned(kernel, _anywhere(space, random))


def _take(
    offered: Iterator[tuple[Candidate, str, str]], slot: Slot, taken: set[str]
) -> list[Draft]:
    """The first ``slot.size`` that were not taken before."""
    drafts: list[Draft] = []
    for kernel, idea, arm in offered:
        if len(drafts) == slot.size:
            break
        if kernel.digest in taken:
            continue
        taken.add(kernel.digest)
        operator = "turn" if arm else ("init" if idea == SHIPPED else "draw")
        drafts.append(Draft(kernel, idea=idea, arm=arm or slot.arm, operator=operator))
    return drafts or [Draft(None, detail="every setting of the kernel was tried")]


def shipped(task: Task) -> Candidate | None:
    """The kernel of the catalogue in the task's language."""
    found = catalogue.candidates(task.op.name, task.backend)
    return next((one for one in found if one.language == task.language), None)


def _space(kernel: Candidate, task: Task) -> tuning.Space | None:
    """None for a kernel that has nothing to turn."""
    try:
        return tuning.Space.of(kernel, task.backend, task.target, task.op.precision)
    except ConfigError:
        return None


def _turned(
    kernel: Candidate, settings: Iterator[tuple[Settings, str, str]]
) -> Iterator[tuple[Candidate, str, str]]:
    for one, idea, arm in settings:
        yield kernel.turn(one), idea, arm


def _by_idea(
    start: Settings, space: tuning.Space, slot: Slot, random: Random
) -> Iterator[tuple[Settings, str, str]]:
    """So many knobs, and of each so many values."""
    knobs = [name for name, values in space.choices.items() if len(values) > 1]
    random.shuffle(knobs)
    for name in knobs[: slot.ideas]:
        others = [value for value in space.choices[name] if value != start[name]]
        random.shuffle(others)
        for value in others[: slot.n]:
            yield {**start, name: value}, f"{name}: {start[name]} → {value}", name


def _neighbours(
    start: Settings, space: tuning.Space, arm: str, random: Random
) -> Iterator[tuple[Settings, str, str]]:
    """One knob turned (the arm's, if it is one), then any two."""
    knobs = [arm] if arm in space.choices else list(space.choices)
    single = [
        ({**start, name: value}, f"{name}: {start[name]} → {value}", name)
        for name in knobs for value in space.choices[name] if value != start[name]
    ]  # fmt: skip
    random.shuffle(single)
    yield from single
    for _ in range(DRAWS):
        names = random.sample(list(space.choices), min(2, len(space.choices)))
        settings = {**start, **{name: random.choice(space.choices[name]) for name in names}}
        changed = [n for n in names if settings[n] != start[n]]
        idea = ", ".join(f"{n}: {start[n]} → {settings[n]}" for n in changed)
        if changed:
            yield settings, idea, changed[0]


def _crossed(
    parents: Sequence[Settings], space: tuning.Space, random: Random
) -> Iterator[tuple[Settings, str, str]]:
    for _ in range(DRAWS):
        settings = {name: random.choice(parents[:2])[name] for name in space.choices}
        yield settings, "knobs of two kernels", ""


def _anywhere(space: tuning.Space, random: Random) -> Iterator[tuple[Settings, str, str]]:
    for _ in range(DRAWS):
        drawn = {name: random.choice(values) for name, values in space.choices.items()}
        yield drawn, "settings at random", ""
    if math.prod(map(len, space.choices.values())) <= SEARCHED:
        for settings in space.everything():
            yield settings, "settings that were left", ""

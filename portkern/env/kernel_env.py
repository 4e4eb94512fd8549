"""A Gymnasium environment whose actions are replies of a model, and whose rewards are kernels."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium import spaces

from portkern.agent.proposer import reading
from portkern.agent.replies import Unread
from portkern.agent.task import Task
from portkern.cells.selection import load_op
from portkern.env import told
from portkern.env.judge import Judge
from portkern.env.place import EvaluationPlace
from portkern.env.sizes import told_and_drawn
from portkern.errors import ConfigError
from portkern.learn import rewards, turns
from portkern.learn.first_prompt import first_prompt
from portkern.learn.pinned import PinnedTimes
from portkern.learn.rewards import Turn
from portkern.records.record import Record
from portkern.spec.safe_name import SafeName

#: What a model's reply and what it is told may have.
MOST_CHARACTERS = 1 << 16
_CHARACTERS = "".join(chr(n) for n in range(32, 127)) + "\n\t"

PlaceReward = Callable[[Mapping[str, Turn]], float]


class KernelEnv(gymnasium.Env[str, str]):
    """``reset`` gives the task as a prompt, ``step`` takes a reply with a kernel and gives what
    became of it. An episode has ``turns`` attempts, which is a part of the task and no cut: it
    terminates with the last, or with one that is right everywhere, if ``until_right``.

    The same source has to be right in all ``places``; prompts are for the first one. ``op`` is one
    operator or several, of which each episode draws one. Each step is evaluated on the sizes that
    are told and on one that is drawn (``hidden``), so that a kernel for known sizes is not paid.
    ``reward`` is the name of one in :mod:`portkern.learn.rewards`, ``portability``, or a function
    of the turns by place; empty: ``kevin`` for one place, ``portability`` for several.

    ``pinned`` is a file of the reference's times, with which those of kernels are compared: the
    first time of each that is sure enough on this machine, with these versions, stands.

    ``step`` raises :class:`portkern.env.Unavailable` where the machine could not evaluate: the turn
    does not count, and may be asked again. ``info`` has the records and the turns by place.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as gymnasium declares it

    def __init__(
        self,
        op: str | Sequence[str],
        places: Sequence[str] = ("cpu@x86_64",),
        *,
        reward: str | PlaceReward = "",
        turns: int = 1,
        until_right: bool = False,
        dtype: str = "float32",
        timed: bool = False,
        hidden: bool = True,
        reports: str | Path = "reports",
        run: str = "env",
        pinned: str | Path = "",
        served: bool = True,
    ) -> None:
        self.ops = [load_op(name) for name in ([op] if isinstance(op, str) else op)]
        self.places = [EvaluationPlace.parse(text) for text in places]
        if not self.ops or not self.places or turns < 1:
            raise ConfigError("Expected an operator, a place and a turn at least")
        self.turns, self.until_right, self.dtype, self.hidden = turns, until_right, dtype, hidden
        self.reward = _reward(reward, len(self.places)) if isinstance(reward, str) else reward
        self.judge = Judge(Path(reports) / SafeName(run), timed=timed, served=served)
        self.pinned = PinnedTimes(Path(pinned)) if pinned else None
        text = spaces.Text(MOST_CHARACTERS, min_length=0, charset=_CHARACTERS)
        self.observation_space = self.action_space = text
        self.op, self.turn = self.ops[0], 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """``options``: ``op`` names the episode's operator."""
        super().reset(seed=seed)
        wanted = (options or {}).get("op")
        known = {op.name: op for op in self.ops}
        if wanted is not None and wanted not in known:
            raise ConfigError(f"Got op={wanted!r}, expected one of {', '.join(known)}")
        drawn = self.ops[int(self.np_random.integers(len(self.ops)))]
        self.op, self.turn = known.get(str(wanted), drawn), 0
        messages = first_prompt(self.tasks()[0])
        asked = [{"role": message.role, "content": message.content} for message in messages]
        prompt = "\n\n".join(message.content for message in messages)
        if len(self.places) > 1:
            where = ", ".join(map(str, self.places))
            prompt += f"\n\nThe same source has to be right on all of these: {where}."
        return _shown(prompt), {"op": self.op.name, "messages": asked}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        records = self.evaluate(action)
        by_place = {place: turns.turn_of(some, self.pinned) for place, some in records.items()}
        value = float(self.reward(by_place))
        self.turn += 1
        right = all(turn.rewardable for turn in by_place.values())
        info = {"records": records, "turns": by_place, "right": right}
        seen = _shown(told.result(records))
        over = self.turn >= self.turns or (self.until_right and right)
        return seen, value, over, False, info

    def tasks(self) -> list[Task]:
        """Raises Unavailable where a place has nothing that runs its kernels."""
        known = {"ci": tuple(self.op.workloads["ci"])}
        return [place.task(self.op, self.dtype, known) for place in self.places]

    def evaluate(self, action: str) -> dict[str, list[Record]]:
        """The records of a reply by place. Raises Unavailable."""
        sizes = told_and_drawn(self.op, self.np_random if self.hidden else None)
        found: dict[str, list[Record]] = {}
        for place, task in zip(self.places, self.tasks(), strict=True):
            code = reading.kernel(action, task)
            source = action if isinstance(code, Unread) else code.source
            found[str(place)] = self.judge.records(place.cells(task, source, sizes))
        return found


def _reward(name: str, places: int) -> PlaceReward:
    """Raises ConfigError."""
    if name == "portability" or (not name and places > 1):
        return rewards.portability
    single = rewards.named(name or "kevin")
    if places > 1:
        raise ConfigError(f"Got reward={name} for {places} places, expected portability")
    return lambda by_place: single(next(iter(by_place.values())))


def _shown(text: str) -> str:
    """The text in the characters and the length that the observation space has."""
    plain = "".join(c if c in string.printable else "?" for c in text)
    return "".join(c for c in plain if c in _CHARACTERS)[:MOST_CHARACTERS]

"""An environment whose actions are decisions, of which a source is assembled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from portkern.env.kernel_env import KernelEnv
from portkern.errors import ConfigError

Choice = NDArray[np.int64]


@dataclass(frozen=True)
class Decisions:
    """Names with what may be chosen, and the source that choices make."""

    choices: Mapping[str, Sequence[str]]
    source: Callable[[Mapping[str, str]], str]

    def __post_init__(self) -> None:
        if not self.choices or not all(self.choices.values()):
            raise ConfigError("Expected decisions with a choice at least for each")

    def assembled(self, action: Sequence[int] | Choice) -> str:
        """Raises ConfigError for a choice that there is not."""
        if len(action) != len(self.choices):
            raise ConfigError(f"Got {len(action)} choices, expected {len(self.choices)}")
        chosen = {}
        for (name, several), index in zip(self.choices.items(), action, strict=True):
            if not 0 <= int(index) < len(several):
                raise ConfigError(f"Got choice {index} of {name}, expected 0 to {len(several) - 1}")
            chosen[name] = several[int(index)]
        return self.source(chosen)


class MacroEnv(gymnasium.ActionWrapper[str, Choice, str]):
    """A :class:`KernelEnv` for policies that choose rather than write."""

    def __init__(self, env: KernelEnv, decisions: Decisions) -> None:
        super().__init__(env)
        self.decisions = decisions
        self.action_space = spaces.MultiDiscrete([len(n) for n in decisions.choices.values()])

    def action(self, action: Choice) -> str:
        return self.decisions.assembled(action)

    @property
    def metadata(self) -> dict[str, Any]:
        return dict(self.env.metadata)

    @metadata.setter
    def metadata(self, value: dict[str, Any]) -> None:
        self.env.metadata = value

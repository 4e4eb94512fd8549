"""The plan of a repair: who mends, and what that may cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from portkern.agent.budget import GenerationBudget
from portkern.agent.llm.role import DEFAULT, Role, roles
from portkern.agent.run import named
from portkern.errors import ConfigError


@dataclass(frozen=True)
class RepairPlan:
    """``models`` and ``prices`` as configured. A file is left as it is after ``patience`` attempts
    in a row that made nothing better; ``replay`` is a run's folder, or None."""

    models: Mapping[str, object]
    prices: Mapping[str, object] = field(default_factory=dict)
    budget: GenerationBudget = field(default_factory=GenerationBudget)
    patience: int = 3
    seed: int = 0
    cache: bool = True
    replay: Path | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError where nobody is named who could mend."""
        if DEFAULT not in self.roles:
            raise ConfigError(
                "repair=true asks a model, and none is named; set "
                f"models.{DEFAULT}.model=<litellm id>, or take repair=false"
            )
        if self.patience < 1:
            raise ConfigError(f"Got patience={self.patience}, expected a number of 1 or more")

    @property
    def roles(self) -> Mapping[str, Role]:
        return roles(named(self.models))

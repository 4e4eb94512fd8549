"""The valid range of every numeric option, by its name: the same in each verb that has it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from portkern.errors import ConfigError

#: Eleven days; beyond it the system's timers overflow sooner or later.
_LONGEST_S = 1_000_000


@dataclass(frozen=True)
class Range:
    """The numbers from ``least`` to ``most``, without ``least`` itself where ``above`` is set."""

    least: float
    most: float
    above: bool = False

    def __str__(self) -> str:
        least, most = f"{self.least:.12g}", f"{self.most:.12g}"
        if self.most == math.inf:
            return f"above {least}" if self.above else f"of {least} or more"
        return f"above {least} and at most {most}" if self.above else f"from {least} to {most}"

    def __contains__(self, value: float) -> bool:  # NaN is in none, infinity neither
        low = value > self.least if self.above else value >= self.least
        return low and value <= self.most and math.isfinite(value)


_COUNT = Range(1, 1_000_000)
_SEED = Range(0, 2**32 - 1)  # what NumPy's and Optuna's generators take
RANGES = {
    "port": Range(0, 65_535),
    "waiting": _COUNT,
    "waiting_per_client": _COUNT,
    "rounds": Range(1, 100_000),
    "budget_s": Range(0, _LONGEST_S),
    "budget_minutes": Range(0, _LONGEST_S),
    "timeout_s": Range(0, _LONGEST_S, above=True),
    "build_timeout_s": Range(0, _LONGEST_S, above=True),
    "node_wait_s": Range(0, _LONGEST_S),
    "straggler_s": Range(0, _LONGEST_S),
    "trials": _COUNT,
    "batch": Range(1, 1_000),
    "finalists": Range(1, 1_000),
    "inflight": Range(1, 1_000),
    "concurrency": Range(1, 1_000),
    "builders": Range(1, 1_000),
    "workers": Range(0, 1_000),
    "jobs": Range(0, 1_000),
    "patience": Range(1, 1_000),
    "window": Range(0, 100_000),
    "runs": Range(1, 100_000),
    "keep": Range(0, 100_000),
    "carry": Range(0, 100_000),
    "races": Range(1, 1_000),
    "n": _COUNT,
    "wanted": Range(0, 1, above=True),
    "rate": Range(0, 1),
    "spread": Range(0, 1),
    "alike": Range(0, 1),
    "reply": _COUNT,
    "turns": _COUNT,
    "attempts": _COUNT,
    "seed": _SEED,
    "seeds": _SEED,
    "search_mb": Range(0, math.inf, above=True),
    "budget.attempts": Range(0, math.inf),
    "budget.tokens": Range(0, math.inf),
    "budget.usd": Range(0, math.inf),
    "budget.wall_s": Range(0, math.inf),
    "budget.device_s": Range(0, math.inf),
}


def check(name: str, value: object) -> None:
    """Checks one option, or all in a list or a group. Raises ConfigError for a number that is
    out of range; one that no range is stated for must at least be finite."""
    if isinstance(value, dict):
        for key, item in value.items():
            check(f"{name}.{key}", item)
    elif isinstance(value, list):
        for item in value:
            check(name, item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        allowed = RANGES.get(name)
        if allowed is not None and value not in allowed:
            raise ConfigError(f"Got {name}={value}, expected a number {allowed}")
        if not math.isfinite(value):
            raise ConfigError(f"Got {name}={value}, expected a finite number")

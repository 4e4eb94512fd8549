"""KernelBench's times of its references: ``results/timing/HARDWARE/NAME.json``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from portkern.errors import ConfigError
from portkern.spec.foreign_text import json_value, read_text

_LEVEL = re.compile(r"level_?(\d+)")
_PROBLEM = re.compile(r"(\d+)_(.*?)(?:\.py)?")


@dataclass(frozen=True)
class KernelBenchBaseline:
    """``times`` are means in milliseconds by level and number of the problem, ``names`` its
    files' names without their endings. ``name`` is what it was timed with."""

    name: str
    times: Mapping[tuple[int, int], float]
    names: Mapping[tuple[int, int], str]

    @classmethod
    def read(cls, path: Path) -> KernelBenchBaseline:
        """Raises ConfigError, one line with the place."""
        try:
            data = json_value(read_text(path))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path} is not JSON: {error}") from error
        if not isinstance(data, dict):
            raise ConfigError(f"{path} holds a {type(data).__name__}, expected times by level")
        times: dict[tuple[int, int], float] = {}
        names: dict[tuple[int, int], str] = {}
        for level, problems in data.items():
            known = _LEVEL.fullmatch(level)
            if known is None or not isinstance(problems, dict):
                raise ConfigError(f"{path}: got {level!r}, expected 'level1' with times by problem")
            for file, entry in problems.items():
                problem = _PROBLEM.fullmatch(file)
                if problem is None:
                    raise ConfigError(f"{path}: {level}: got {file!r}, expected '19_ReLU.py'")
                key = int(known[1]), int(problem[1])
                times[key] = _mean(entry, f"{path}: {level}: {file}")
                names[key] = f"{problem[1]}_{problem[2]}"
        return cls(path.stem, times, names)

    @property
    def only_level(self) -> int | None:
        """The level of all its problems, if they have one level."""
        levels = {level for level, _ in self.times}
        return levels.pop() if len(levels) == 1 else None

    def ms(self, level: int | None, problem: int) -> float | None:
        return None if level is None else self.times.get((level, problem))

    def problem_name(self, level: int | None, problem: int) -> str:
        return "" if level is None else self.names.get((level, problem), "")


def _mean(entry: object, place: str) -> float:
    mean = entry.get("mean") if isinstance(entry, dict) else None
    if isinstance(mean, int | float) and 0 < mean < float("inf"):
        return float(mean)
    raise ConfigError(f"{place}: its mean is {mean!r}, expected milliseconds above 0")

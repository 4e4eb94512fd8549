"""Names that profilers have for their counters, as data: ``counters/<tool>.yaml``.

A neutral metric is read from counters by a rule; a set lists the counters that are collected and
the metrics that they give. A metric that no counter of the set was told for is absent, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator

from portkern.errors import no_such
from portkern.spec.foreign_text import yaml_value

TOOLS = ("ncu", "rocprof", "perf")


@dataclass(frozen=True)
class ProfiledLaunch:
    """The counters of one launch, or of several that cannot be told apart."""

    kernel: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class CountedCalls:
    """``calls``: how often the kernel was called meanwhile; ``missing``: counters that were asked
    for and not told, with what the tool said in their place."""

    launches: Sequence[ProfiledLaunch]
    calls: int
    missing: Mapping[str, str] = field(default_factory=dict)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CounterRule(_Part):
    """``offset + factor · counter / per``: of the ``first`` counter that was told, or of the sum of
    those that ``add`` names. Several launches are averaged by their weight (``mean``), summed and
    divided by the calls (``call``), or the ``largest`` is taken."""

    first: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    per: str = ""
    factor: float = 1.0
    offset: float = 0.0
    over: Literal["mean", "call", "largest"] = "mean"

    @model_validator(mode="after")
    def _one_source(self) -> CounterRule:
        if bool(self.first) == bool(self.add):
            raise ValueError("expected either first: or add:, with the names of counters")
        return self

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({*self.first, *self.add, *([self.per] if self.per else [])})

    def of(self, values: Mapping[str, float]) -> float | None:
        parts = [values[name] for name in (*self.first, *self.add) if name in values]
        if not parts:
            return None
        number = sum(parts) if self.add else parts[0]
        if not self.per:
            return self.offset + self.factor * number
        if not values.get(self.per):
            return None
        return self.offset + self.factor * number / values[self.per]


class CounterSet(_Part):
    """``passes``: what is collected in one run each; ``gives``: the metrics that come of it."""

    passes: tuple[tuple[str, ...], ...]
    gives: tuple[str, ...]


class Vocabulary(_Part):
    program: str
    remedy: str
    weight: str = ""
    always: tuple[str, ...] = ()
    alive: str = ""
    metrics: dict[str, CounterRule]
    sets: dict[str, CounterSet]
    refusals: dict[str, str] = {}

    def collected(self, name: str) -> frozenset[str]:
        """Counters of the set and those that come with every one."""
        return frozenset(counter for each in self.sets[name].passes for counter in each) | {
            *self.always
        }

    def refused(self, log: str) -> str:
        """Advice on a tool that ended with this log; empty when the reason is not known."""
        return next((reason for words, reason in self.refusals.items() if words in log), "")

    def believed(self, launches: Sequence[ProfiledLaunch]) -> list[ProfiledLaunch]:
        """The launches without the zeros of a tool that counted nothing and says so by zeros."""
        alive = [launch.values[self.alive] for launch in launches if self.alive in launch.values]
        if any(alive) or not alive:
            return list(launches)
        return [
            ProfiledLaunch(
                launch.kernel, {k: v for k, v in launch.values.items() if v or k in self.always}
            )
            for launch in launches
        ]

    def neutral(self, counted: CountedCalls) -> dict[str, float]:
        launches = self.believed(counted.launches)
        values = {
            name: self._value(rule, launches, counted.calls) for name, rule in self.metrics.items()
        }
        return {name: value for name, value in values.items() if value is not None}

    def _value(
        self, rule: CounterRule, launches: Sequence[ProfiledLaunch], calls: int
    ) -> float | None:
        weighted = [
            (rule.of(launch.values), launch.values.get(self.weight, 1.0)) for launch in launches
        ]
        known = [(value, weight) for value, weight in weighted if value is not None]
        if not known:
            return None
        if rule.over == "call":
            return sum(value for value, _ in known) / calls
        if rule.over == "largest":
            return max(value for value, _ in known)
        total = sum(weight for _, weight in known)
        if total <= 0:
            return None
        return sum(value * weight for value, weight in known) / total


@cache
def load(tool: str) -> Vocabulary:
    if tool not in TOOLS:
        raise no_such("profiler", tool, TOOLS)
    file = resources.files("portkern.agent.feedback") / "counters" / f"{tool}.yaml"
    return Vocabulary.model_validate(yaml_value(file.read_text(encoding="utf-8")))


@cache
def sets() -> Mapping[str, str]:
    """The names of all sets, with the tool of each."""
    return {name: tool for tool in TOOLS for name in load(tool).sets}

"""The budget of a generation run, and the meter that it is charged to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any, Self

from portkern.errors import BudgetSpent, ConfigError, no_such


@dataclass(frozen=True)
class GenerationBudget:
    """Limits of a run; None sets no limit. ``tokens`` are those of prompts and replies together;
    ``device_s`` the seconds for which the run keeps a device."""

    attempts: int | None = None
    tokens: int | None = None
    usd: float | None = None
    wall_s: float | None = None
    device_s: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            limit = getattr(self, field.name)
            if limit is not None and not limit >= 0:  # nan too
                raise ConfigError(
                    f"Got {field.name}={limit} for a budget, expected 0 or more, or null: no limit"
                )

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Reads a budget as ``budget`` of a configuration holds it. Raises ConfigError."""
        known = [field.name for field in fields(cls)]
        unknown = set(options) - set(known)
        if unknown:
            raise no_such("option of budget", min(unknown), known)
        for name, limit in options.items():
            number = isinstance(limit, int | float) and not isinstance(limit, bool)
            if limit is not None and not number:
                raise ConfigError(f"Got budget.{name}={limit!r}, expected a number or null")
        return cls(**options)


@dataclass(frozen=True)
class Spent:
    """``usd`` is None as soon as one price was unknown."""

    attempts: int = 0
    tokens: int = 0
    usd: float | None = 0.0
    wall_s: float = 0.0
    device_s: float = 0.0


class Held:
    """Part of a budget that is put aside for one request, as a context. What is not settled when
    it ends stays spent: a request that nobody answered may have been charged all the same."""

    def __init__(self, close: Callable[[int, float | None], None], tokens: int, usd: float | None):
        self.tokens, self.usd, self._close = tokens, usd, close
        self._settled = False

    def settle(self, *, tokens: int | None, usd: float | None) -> None:
        """Charges what the request took after all. ``tokens`` is None where nobody said: then
        all that was put aside is charged."""
        if self._settled:
            raise ValueError("this part of the budget is settled already")
        self._settled = True
        self._close(self.tokens if tokens is None else tokens, usd)

    def __enter__(self) -> Held:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._settled:
            self.settle(tokens=None, usd=self.usd)


class Meter:
    """Counts against ``budget``, from any thread.

    Attempts, tokens and USD never exceed it: they are taken before they are used, tokens and USD as
    the most that a request could take. Wall and device seconds cannot be foretold: whoever starts a
    step looks at :attr:`exhausted` first. ``spent`` is what the earlier parts of a resumed run
    used; ``within`` is a meter that tokens and USD are charged to as well.
    """

    def __init__(
        self,
        budget: GenerationBudget | None = None,
        *,
        spent: Spent | None = None,
        name: str = "budget",
        within: Meter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.budget, self.name = budget or GenerationBudget(), name
        self._within, self._clock, self._start = within, clock, clock()
        before = spent or Spent()
        self._attempts, self._tokens, self._usd = before.attempts, before.tokens, before.usd
        self._wall_s, self._device_s = before.wall_s, before.device_s
        self._held_tokens, self._held_usd, self._held = 0, 0.0, 0
        self._lock = threading.Lock()

    # ---- charging

    def reserve(self, *, tokens: int = 0, usd: float | None = 0.0) -> Held:
        """Raises BudgetSpent when that much is not left, ConfigError for an unknown price (None)
        under a limit of USD."""
        outer = self._within.reserve(tokens=tokens, usd=usd) if self._within else None
        try:
            with self._lock:
                self._check_room(tokens, usd)
                self._held += 1
                self._held_tokens += tokens
                self._held_usd += usd or 0.0
        except (BudgetSpent, ConfigError):
            if outer:
                outer.settle(tokens=0, usd=0.0)
            raise

        def close(used_tokens: int, used_usd: float | None) -> None:
            with self._lock:
                self._held -= 1
                self._held_tokens -= tokens
                self._held_usd = self._held_usd - (usd or 0.0) if self._held else 0.0
                self._add(used_tokens, used_usd)
            if outer:
                outer.settle(tokens=used_tokens, usd=used_usd)

        return Held(close, tokens, usd)

    def charge(self, *, tokens: int = 0, usd: float | None = 0.0) -> None:
        """Charges what was used before this meter was there, without asking whether so much is
        left."""
        with self._lock:
            self._add(tokens, usd)
        if self._within:
            self._within.charge(tokens=tokens, usd=usd)

    def spend_attempts(self, count: int = 1) -> None:
        """Raises BudgetSpent when fewer are left."""
        limit = self.budget.attempts
        with self._lock:
            if limit is not None and self._attempts + count > limit:
                raise BudgetSpent(
                    f"{self.name}.attempts={limit}: {self._attempts} are made, and {count} more "
                    "were asked for"
                )
            self._attempts += count

    def spend_device(self, seconds: float) -> None:
        with self._lock:
            self._device_s += seconds

    def _add(self, tokens: int, usd: float | None) -> None:
        self._tokens += tokens
        self._usd = None if self._usd is None or usd is None else self._usd + usd

    def _check_room(self, tokens: int, usd: float | None) -> None:
        budget, used = self.budget, self._tokens + self._held_tokens
        if budget.tokens is not None and used + tokens > budget.tokens:
            raise BudgetSpent(
                f"{self.name}.tokens={budget.tokens}: {self._tokens} are spent, "
                f"{self._held_tokens} put aside, and the next call could take {tokens}"
            )
        if budget.usd is None:
            return
        if usd is None or self._usd is None:
            raise ConfigError(
                f"{self.name}.usd={budget.usd:.10g} cannot be kept: a price is unknown; give "
                "prices={MODEL: {input: USD, output: USD}} per million tokens, or limit "
                f"{self.name}.tokens instead"
            )
        if self._usd + self._held_usd + usd > budget.usd:
            raise BudgetSpent(
                f"{self.name}.usd={budget.usd:.10g}: {self._usd:.6g} are spent, "
                f"{self._held_usd:.6g} put aside, and the next call could take {usd:.6g}"
            )

    # ---- asking

    @property
    def out(self) -> int:
        """How many requests hold a part of this budget, or of the one that it is within."""
        return self._held + (self._within.out if self._within else 0)

    @property
    def spent(self) -> Spent:
        with self._lock:
            wall_s = self._wall_s + self._clock() - self._start
            return Spent(self._attempts, self._tokens, self._usd, wall_s, self._device_s)

    @property
    def limits_usd(self) -> bool:
        return self.budget.usd is not None or bool(self._within and self._within.limits_usd)

    def left(self) -> GenerationBudget:
        """The part of the budget that is neither spent nor put aside, here and in the meter that
        this one is within."""
        used, outer = self.spent, self._within.left() if self._within else GenerationBudget()
        held = {"tokens": self._held_tokens, "usd": self._held_usd}
        left = {}
        for field in fields(GenerationBudget):
            limit, rest = getattr(self.budget, field.name), getattr(outer, field.name)
            if limit is not None:
                taken = (getattr(used, field.name) or 0) + held.get(field.name, 0)
                here = max(limit - taken, 0)
                rest = here if rest is None else min(here, rest)
            left[field.name] = rest
        return GenerationBudget(**left)

    @property
    def exhausted(self) -> str:
        """Which limit is reached, in a sentence; empty while there is something left of each."""
        used = self.spent
        for field in fields(GenerationBudget):
            limit, taken = getattr(self.budget, field.name), getattr(used, field.name)
            if limit is not None and taken is not None and taken >= limit:
                return f"{self.name}.{field.name}={limit:.10g} is spent: {taken:.10g} used"
        return self._within.exhausted if self._within else ""

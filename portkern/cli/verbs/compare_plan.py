"""``portkern compare plan``: how many operators and samples show a wanted difference, and what they
cost, before anything is spent."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from portkern.agent.budget import Held, Meter
from portkern.agent.llm import caps, role
from portkern.agent.llm.prices import Prices
from portkern.agent.run import GenerationRun, named
from portkern.errors import BudgetSpent
from portkern.experiment.compare.design import CHANCE, Design
from portkern.experiment.compare.task import AskedSample, ComparedModel, CompareTask
from portkern.experiment.section import counted

#: The word that asks for a plan.
PLAN: Final = "plan"
_OPS, _SAMPLES = (8, 12, 20, 40, 80, 160), (1, 5, 10, 20)
#: Tasks whose prompts are weighed; others cost as much in the mean.
_MOST_WEIGHED: Final = 24


@dataclass(frozen=True)
class SweepPlan:
    """``usd`` is what one sample of all models in all places of one operator costs at most, None
    where a price is not known; ``tokens`` likewise."""

    design: Design
    ops: int
    samples: int
    tokens: float
    usd: float | None

    def cost(self, ops: int, samples: int) -> float | None:
        return None if self.usd is None else self.usd * ops * samples

    def document(self) -> dict[str, object]:
        design, asked = self.design, (self.ops, self.samples)
        return {
            "wanted": design.wanted,
            "rate": design.rate,
            "tests": design.tests,
            "asked": self._row(*asked),
            "least_difference": design.least_difference(*asked),
            "fewest_ops": design.fewest_ops(self.samples),
            "table": [self._row(ops, n) for ops in self._ops for n in self._counts],
        }

    def lines(self) -> list[str]:
        """The plan for a terminal."""
        design, ops, n = self.design, self.ops, self.samples
        weak, strong = (
            f"{100 * rate:.3g} %" for rate in (design.rate, design.rate + design.wanted)
        )
        return [
            f"How likely a sweep shows pass@1 of {strong} to be better than {weak}, after the "
            f"correction for {counted(design.tests, 'test')}; below it USD at most:",
            *self._table(),
            f"asked for: {counted(ops, 'operator')} × {counted(n, 'sample')}: "
            f"{_chance(design, ops, n)}, {self._price(ops, n)}; {self._least()}",
            self._enough(),
            f"assumed: operators differ by spread={design.spread:g} of the most that they can, and "
            f"two models find them alike={design.alike:g}; nothing was asked, nothing was spent",
        ]

    def _row(self, ops: int, samples: int) -> dict[str, object]:
        tokens = round(self.tokens * ops * samples)
        return {"ops": ops, "samples": samples, "chance": self.design.chance(ops, samples),
                "tokens_at_most": tokens, "usd_at_most": self.cost(ops, samples)}  # fmt: skip

    @property
    def _ops(self) -> list[int]:
        return sorted({*_OPS, self.ops})

    @property
    def _counts(self) -> list[int]:
        return sorted({*_SAMPLES, self.samples})

    def _table(self) -> list[str]:
        rows = [["operators", *(f"n={n}" for n in self._counts)]]
        for ops in self._ops:
            rows.append([str(ops), *(_chance(self.design, ops, n) for n in self._counts)])
            if self.usd is not None:
                rows.append(["", *(_dollars(self.cost(ops, n) or 0.0) for n in self._counts)])
        return ["  ".join([f"{row[0]:>11}", *(f"{cell:>9}" for cell in row[1:])]) for row in rows]

    def _least(self) -> str:
        least = self.design.least_difference(self.ops, self.samples)
        if least is None:
            return "no difference is likely to be shown by these, however large"
        return f"these show {100 * least:.0f} points in {100 * CHANCE:.0f} % of sweeps"

    def _enough(self) -> str:
        enough = self.design.fewest_ops(self.samples)
        if enough is None:
            return (
                f"no number of operators is enough with {counted(self.samples, 'sample')} of each"
            )
        return (
            f"enough for {100 * self.design.wanted:.3g} points in {100 * CHANCE:.0f} % of sweeps: "
            f"{counted(enough, 'operator')} × {counted(self.samples, 'sample')}, "
            f"{self._price(enough, self.samples)}"
        )

    def _price(self, ops: int, samples: int) -> str:
        cost = self.cost(ops, samples)
        if cost is None:
            return f"at most {self.tokens * ops * samples:,.0f} tokens (a price is not known)"
        return f"at most {_dollars(cost)}"


def plan(
    models: Sequence[ComparedModel],
    tasks: Sequence[CompareTask],
    samples: int,
    design: Design,
    *,
    reply: int | None,
    prices: Mapping[str, object],
) -> SweepPlan:
    """``design`` says what is assumed; its places and tests follow from what is asked. ``reply``
    are the tokens of one, as many as a model may write unless given."""
    ops = len({task.op for task in tasks})
    venues = Counter(task.plan.task.ends == "hardware" for task in tasks)
    pairs = max(1, len(models) * (len(models) - 1) // 2)
    known = replace(
        design,
        places=max(1, max(venues.values()) // ops),
        tests=pairs * sum(_numbers(timed, samples) for timed in venues),
    )
    step = -(-len(tasks) // _MOST_WEIGHED)
    weighed = tasks[::step]
    costs = [
        _cost(AskedSample(model, task, 0), reply, Prices.of(prices))
        for model in models
        for task in weighed
    ]
    scale = len(tasks) / len(weighed) / ops
    dollars = [usd for _, usd in costs if usd is not None]
    usd = sum(dollars) * scale if len(dollars) == len(costs) else None
    return SweepPlan(known, ops, samples, sum(tokens for tokens, _ in costs) * scale, usd)


def _numbers(timed: bool, samples: int) -> int:
    """The differences that are tested for each pair of models: see :mod:`.paired`."""
    return 1 + (samples > 1) + 2 * timed


def _cost(asked: AskedSample, reply: int | None, prices: Prices) -> tuple[float, float | None]:
    """Tokens and USD of one sample at most; of one that loops, as if each prompt were as long as
    the first."""
    roles = role.roles(named(asked.model.roles))
    coder = roles[role.DEFAULT]
    attempts = asked.plan.budget.attempts or 1
    most = caps.at_most(coder, coder.model)
    tokens_in = max(_weighed(asked) - most, 0)
    tokens_out = min(reply or most, most)
    price = prices.highest(coder.model, coder.api_base)
    usd = price.usd(tokens_in, tokens_out) * attempts if price else None
    return float((tokens_in + tokens_out) * attempts), usd


def _weighed(asked: AskedSample) -> int:
    """The most tokens that the first request of a sample can take. The request is not sent."""
    scale = _Scale()
    keyless = {name: {k: v for k, v in dict(own).items() if k != "api_key_env"}
               for name, own in named(asked.model.roles).items()}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        unsent = replace(asked.plan, models=keyless, cache=False)
        asyncio.run(GenerationRun(unsent, Path(folder), within=scale).explore())
    return scale.tokens


class _Scale(Meter):
    """A meter that lets nothing through, and knows what was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = 0

    def reserve(self, *, tokens: int = 0, usd: float | None = 0.0) -> Held:
        self.tokens = self.tokens or tokens
        raise BudgetSpent("It is weighed, not sent")


def _chance(design: Design, ops: int, samples: int) -> str:
    return f"{100 * design.chance(ops, samples):.0f} %" if design.possible(ops) else "never"


def _dollars(usd: float) -> str:
    return f"${usd:,.2g}" if usd < 1 else f"${usd:,.2f}"

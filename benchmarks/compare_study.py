"""Whether the intervals of `portkern compare` hold what they say: sweeps of two simulated models
whose strength is known, by the intervals and the test of real ones. Writes
results/compare-coverage.json, and with ``docs=FILE`` its table between the marks of that page.

.venv/bin/python -m benchmarks.compare_study [sweeps=1000] [seed=0] [only=SCENARIO] [docs=FILE]
                                             [jobs=1]

How likely a sample of an op is right is drawn from a beta distribution of each model's own; what is
hard for one is mostly hard for the other. Speedups are log-normal, over ops and over samples of an
op, and independent of that, so that the true values are known in closed form. A number's interval
is right where the true value lies in it: of 1000 sweeps that 95 % intervals should hold, between
920 and 980 do. It takes minutes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, betaln
from scipy.stats import norm

from benchmarks import _script
from portkern.agent.attempt import Status
from portkern.experiment.compare.intervals import (
    pooled_geometric,
    pooled_mean,
    pooled_share,
    share_difference,
)
from portkern.experiment.compare.sample import Sample
from portkern.experiment.statistics import (
    SIGNIFICANT,
    Estimate,
    Floats,
    holm,
    pass_at_k,
    sign_flips,
)

RESULTS = "compare-coverage.json"
K = 5
MODELS: Final = ("first", "second")
#: How alike two models find ops, and one op in two places.
ALIKE = 0.6
PLACES: Final = (("cuda", "h200"), ("triton", "h200"), ("cpu", "x86_64"))
#: The part of 1000 sweeps that 95 % intervals hold, with what chance adds.
LEAST, MOST = 0.92, 0.98
MARKS = ("<!-- compare-coverage -->", "<!-- end of compare-coverage -->")


@dataclass(frozen=True)
class Model:
    """``a`` and ``b`` of the beta distribution; logarithms of speedups: their mean, and how they
    vary over ops and over samples of one."""

    a: float
    b: float
    log_speedup: float = 0.1
    over_ops: float = 0.4
    over_samples: float = 0.2

    @property
    def passed(self) -> float:
        return self.a / (self.a + self.b)

    @property
    def passed_at_k(self) -> float:
        return 1 - math.exp(betaln(self.a, self.b + K) - betaln(self.a, self.b))

    @property
    def fast(self) -> float:
        deviation = math.hypot(self.over_ops, self.over_samples)
        return self.passed * float(norm.cdf(self.log_speedup / deviation))

    @property
    def geometric(self) -> float:
        """The geometric mean speedup, in which an incorrect sample counts as 1."""
        return math.exp(self.passed * self.log_speedup)

    @property
    def geometric_of_correct(self) -> float:
        return math.exp(self.log_speedup)

    @property
    def arithmetic(self) -> float:
        variance = self.over_ops**2 + self.over_samples**2
        return self.passed * math.exp(self.log_speedup + variance / 2)


@dataclass(frozen=True)
class Scenario:
    name: str
    says: str
    first: Model
    second: Model
    ops: int
    n: int = 10
    places: int = 1


SCENARIOS: Final = (
    Scenario("middling", "40 ops, 10 samples", Model(2, 2, 0.3), Model(1.5, 2.5), 40),
    Scenario("few ops", "12 ops, 5 samples", Model(2, 2, 0.3), Model(1.5, 2.5), 12, n=5),
    Scenario("weak", "40 ops, 10 samples, both mostly wrong", Model(0.3, 3), Model(0.3, 6), 40),
    Scenario("extremes", "40 ops, 10 samples, ops are easy or hopeless", Model(0.4, 0.4, 0.3),
             Model(0.3, 0.5), 40),
    Scenario("places", "20 ops in 3 places, 5 samples", Model(2, 2, 0.3), Model(1.5, 2.5), 20,
             n=5, places=3),
    Scenario("equal", "40 ops, 10 samples, equally strong", Model(2, 2), Model(2, 2), 40),
)  # fmt: skip


def main() -> None:
    said = _script.words(("sweeps", "seed", "only", "docs", "jobs"), __doc__)
    sweeps, seed = int(said.get("sweeps", 1000)), int(said.get("seed", 0))
    chosen = [one for one in SCENARIOS if said.get("only", one.name) == one.name]
    with ProcessPoolExecutor(int(said.get("jobs", 1))) as pool:
        count = len(chosen)
        scenarios = list(pool.map(study, chosen, [sweeps] * count, [seed] * count))
    document = {
        "sweeps": sweeps,
        "seed": seed,
        "k": K,
        "scenarios": scenarios,
    }
    for line in table(document):
        print(line)
    if "only" not in said:
        _script.write(RESULTS, document)
    if "docs" in said:
        write_table(Path(said["docs"]), document)


# ---- one scenario


def study(scenario: Scenario, sweeps: int, seed: int) -> dict[str, Any]:
    held: dict[str, list[bool]] = defaultdict(list)
    widths: dict[str, list[float]] = defaultdict(list)
    errors: dict[str, list[float]] = defaultdict(list)
    shown: dict[str, list[bool]] = defaultdict(list)
    ranked = []
    true = truths(scenario)
    for number in range(sweeps):
        found = estimates(drawn(scenario, np.random.default_rng([seed, number])))
        for name, estimate in found.numbers.items():
            low, high = estimate.ends
            held[name].append(low <= true[name] <= high)
            widths[name].append(high - low)
            errors[name].append(estimate.value - true[name])
        for name, is_shown in found.shown.items():
            shown[name].append(is_shown)
        rates = [found.numbers[f"pass@1, {model}"].value for model in MODELS]
        ranked.append(rates[0] > rates[1])
    return {
        "name": scenario.name,
        "says": scenario.says,
        "ops": scenario.ops,
        "n": scenario.n,
        "places": scenario.places,
        "models": {"first": asdict(scenario.first), "second": asdict(scenario.second)},
        "numbers": {
            name: {
                "coverage": _mean(held[name]),
                "width": _mean(widths[name]),
                "bias": _mean(errors[name]),
            }
            for name in held
        },
        "stronger_first": _mean(ranked),
        "shown": {name: _mean(found) for name, found in shown.items()},
    }


@dataclass(frozen=True)
class Drawn:
    """A drawn sweep: by model, op, place and sample whether it is right, and its speedup's
    logarithm."""

    right: npt.NDArray[np.bool_]
    logs: Floats


def drawn(scenario: Scenario, random: np.random.Generator) -> Drawn:
    ops, places, n = scenario.ops, scenario.places, scenario.n
    difficulty = random.normal(size=(1, ops, 1)), random.normal(size=(2, ops, places))
    ease = norm.cdf(math.sqrt(ALIKE) * difficulty[0] + math.sqrt(1 - ALIKE) * difficulty[1])
    right, logs = np.zeros((2, 2, ops, places, n))
    for model, strength in enumerate((scenario.first, scenario.second)):
        rates = betaincinv(strength.a, strength.b, ease[model])
        by_op = random.normal(strength.log_speedup, strength.over_ops, size=(ops, places))
        logs[model] = random.normal(by_op[..., None], strength.over_samples, size=(ops, places, n))
        right[model] = random.random((ops, places, n)) < rates[..., None]
    return Drawn(right > 0, logs)


def samples(sweep: Drawn) -> list[Sample]:
    """The sweep's samples as rows of samples.jsonl."""
    return [
        _sample(
            MODELS[model], op, place, index,
            math.exp(sweep.logs[model, op, place, index]) if right else None,
        )
        for (model, op, place, index), right in np.ndenumerate(sweep.right)
    ]  # fmt: skip


def _sample(model: str, op: int, place: int, index: int, speedup: float | None) -> Sample:
    """One sample; a place whose kernel runs and is wrong has no speedup."""
    backend, target = PLACES[place]
    return Sample(
        model=model,
        op=f"op{op}",
        backend=backend,
        target=target,
        index=index,
        status=Status.WRONG if speedup is None else Status.PASSED,
        evidence="measured",
        speedup=speedup,
    )


def truths(scenario: Scenario) -> dict[str, float]:
    """The true value of each number."""
    first, second = scenario.first, scenario.second
    found: dict[str, float] = {}
    for model, truth in zip(MODELS, (first, second), strict=True):
        found |= {
            f"pass@1, {model}": truth.passed,
            f"pass@{K}, {model}": truth.passed_at_k,
            f"fast_1, {model}": truth.fast,
            f"speedup (geometric), {model}": truth.geometric,
            f"speedup (of correct ones), {model}": truth.geometric_of_correct,
            f"speedup (arithmetic), {model}": truth.arithmetic,
        }
    return found | {
        "pass@1, difference": first.passed - second.passed,
        "fast_1, difference": first.fast - second.fast,
        "speedup (geometric), difference": first.geometric / second.geometric,
    }


@dataclass(frozen=True)
class Estimates:
    """``shown`` by number, and ``any``: the first model is shown to be better."""

    numbers: Mapping[str, Estimate]
    shown: Mapping[str, bool]


def estimates(sweep: Drawn) -> Estimates:
    """The numbers that portkern compare has of a sweep, by its intervals and its test, without what
    else it computes of one: a test holds both against each other."""
    n = sweep.right.shape[-1]
    right = sweep.right.sum(axis=3)
    tasks = np.full(right.shape[1], float(right.shape[2]))
    fast = (sweep.right & (sweep.logs > 0)).sum(axis=3) / n
    geometric = np.where(sweep.right, sweep.logs, 0.0).sum(axis=3)
    arithmetic = np.where(sweep.right, np.exp(sweep.logs), 0.0).sum(axis=3) / n
    of_correct, some = geometric / np.maximum(right, 1), (right > 0).astype(float)
    one, five, most = (_pass_at_k(n, k)[right] for k in (1, K, n))
    numbers: dict[str, Estimate | None] = {}
    for m, model in enumerate(MODELS):
        numbers |= {
            f"pass@1, {model}": pooled_share(one[m].sum(1), tasks),
            f"pass@{K}, {model}": pooled_share(five[m].sum(1), tasks),
            f"fast_1, {model}": pooled_share(fast[m].sum(1), tasks),
            f"speedup (geometric), {model}": pooled_geometric(geometric[m].sum(1) / n, tasks),
            f"speedup (of correct ones), {model}":
                pooled_geometric(of_correct[m].sum(1), some[m].sum(1)),
            f"speedup (arithmetic), {model}": pooled_mean(arithmetic[m].sum(1), tasks),
        }  # fmt: skip
    sums = {
        "pass@1": one.sum(2),
        f"pass@{n}": most.sum(2),
        "fast@1": fast.sum(2),
        "speedup_geometric@1": geometric.sum(2) / n,
    }
    apart = {name: first - second for name, (first, second) in sums.items()}
    p_values = holm([sign_flips(each.tolist()) for each in apart.values()])
    shown = {
        name: p < SIGNIFICANT and float(each.sum()) > 0
        for (name, each), p in zip(apart.items(), p_values, strict=True)
    }
    for name, title in (("pass@1", "pass@1"), ("fast@1", "fast_1")):
        first, second = sums[name]
        numbers[f"{title}, difference"] = share_difference(first, second, tasks)
    numbers["speedup (geometric), difference"] = pooled_geometric(
        apart["speedup_geometric@1"], tasks
    )
    known = {name: number for name, number in numbers.items() if number}
    assert len(known) == len(numbers)
    return Estimates(known, {**shown, "any": min(p_values) < SIGNIFICANT})


@lru_cache
def _pass_at_k(n: int, k: int) -> Floats:
    """pass@k for each number of right samples among n."""
    return np.array([pass_at_k(n, c, k) for c in range(n + 1)])


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 4)


# ---- the table


def table(document: Mapping[str, Any]) -> list[str]:
    """The study as a table in Markdown: for each number the part of sweeps whose interval holds the
    true value."""
    scenarios = document["scenarios"]
    names = list(dict.fromkeys(name for one in scenarios for name in one["numbers"]))
    lines = [
        f"| of {document['sweeps']} sweeps | {' | '.join(one['name'] for one in scenarios)} |",
        f"|---|{'---:|' * len(scenarios)}",
    ]
    for name in names:
        held = (_percent(one["numbers"][name]["coverage"]) for one in scenarios)
        lines.append(f"| {name} | {' | '.join(held)} |")
    first = (_percent(one["stronger_first"]) for one in scenarios)
    lines.append(f"| the first ranks first by pass@1 | {' | '.join(first)} |")
    for name, title in (("pass@1", "pass@1 of the first is shown to be better"),
                        ("any", "any difference is shown")):  # fmt: skip
        found = (_percent(one["shown"][name]) for one in scenarios)
        lines.append(f"| {title} | {' | '.join(found)} |")
    return lines


def _percent(value: float) -> str:
    return f"{value * 100:.1f} %"


def write_table(path: Path, document: Mapping[str, Any]) -> None:
    before, _, rest = path.read_text(encoding="utf-8").partition(MARKS[0])
    _, mark, after = rest.partition(MARKS[1])
    if not mark:
        raise SystemExit(f"{path} has no {MARKS[0]} … {MARKS[1]}; put them where the table goes")
    lines = "\n".join(table(document))
    path.write_text(f"{before}{MARKS[0]}\n{lines}\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()

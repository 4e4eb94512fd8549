"""Whether the intervals of `portkern compare` hold what they say: sweeps of two simulated models
whose strength is known, judged by the code that judges real ones. Writes
results/compare-coverage.json, and with ``docs=FILE`` its table between the marks of that page.

.venv/bin/python -m benchmarks.compare_study [sweeps=1000] [seed=0] [only=SCENARIO] [docs=FILE]

How likely a sample of an op is right is drawn from a beta distribution of each model's own; what is
hard for one is mostly hard for the other. Speedups are log-normal, over ops and over samples of an
op, and independent of that, so that the true values are known in closed form. A number's interval
is right where the true value lies in it: of 1000 sweeps that 95 % intervals should hold, between
920 and 980 do. It takes minutes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.special import betaincinv, betaln
from scipy.stats import norm

from benchmarks import _script
from portkern.agent.attempt import Status
from portkern.experiment.compare.comparison import Comparison, Scope, compare
from portkern.experiment.compare.sample import Sample
from portkern.experiment.statistics import Estimate

RESULTS = "compare-coverage.json"
K = 5
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
        """What is not correct counts as 1."""
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
    said = _script.words(("sweeps", "seed", "only", "docs"), __doc__)
    sweeps, seed = int(said.get("sweeps", 1000)), int(said.get("seed", 0))
    chosen = [one for one in SCENARIOS if said.get("only", one.name) == one.name]
    document = {
        "sweeps": sweeps,
        "seed": seed,
        "k": K,
        "scenarios": [study(scenario, sweeps, seed) for scenario in chosen],
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
    for number in range(sweeps):
        comparison = compare(samples(scenario, np.random.default_rng([seed, number])), ks=[1, K])
        for name, estimate, truth in _numbers(comparison, scenario):
            low, high = estimate.ends
            held[name].append(low <= truth <= high)
            widths[name].append(high - low)
            errors[name].append(estimate.value - truth)
        for difference in comparison.differences:
            better = difference.estimate is not None and difference.estimate.value > 0
            shown[f"{difference.metric}@{difference.k}"].append(difference.shown and better)
        shown["any"].append(any(one.shown for one in comparison.differences))
        rates = [_figure(comparison, model, "pass", 1).value for model in ("first", "second")]
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


def samples(scenario: Scenario, random: np.random.Generator) -> list[Sample]:
    """One sweep."""
    ops, places, n = scenario.ops, scenario.places, scenario.n
    models = (scenario.first, scenario.second)
    difficulty = random.normal(size=(1, ops, 1)), random.normal(size=(2, ops, places))
    latent = math.sqrt(ALIKE) * difficulty[0] + math.sqrt(1 - ALIKE) * difficulty[1]
    ease = norm.cdf(latent)
    found = []
    for model, strength in enumerate(models):
        rates = betaincinv(strength.a, strength.b, ease[model])
        by_op = random.normal(strength.log_speedup, strength.over_ops, size=(ops, places))
        logs = random.normal(by_op[..., None], strength.over_samples, size=(ops, places, n))
        right = random.random((ops, places, n)) < rates[..., None]
        for op, place, index in np.ndindex(ops, places, n):
            speedup = math.exp(logs[op, place, index]) if right[op, place, index] else None
            found.append(_sample(("first", "second")[model], op, place, index, speedup))
    return found


def _sample(model: str, op: int, place: int, index: int, speedup: float | None) -> Sample:
    """What ran and is wrong has no speedup."""
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


def _numbers(comparison: Comparison, scenario: Scenario) -> Iterator[tuple[str, Estimate, float]]:
    """Of each number its name, what is estimated, and what is true."""
    first, second = scenario.first, scenario.second
    for model, truth in (("first", first), ("second", second)):
        for name, metric, k, p, value in (
            ("pass@1", "pass", 1, None, truth.passed),
            (f"pass@{K}", "pass", K, None, truth.passed_at_k),
            ("fast_1", "fast", 1, 1.0, truth.fast),
            ("speedup (geometric)", "speedup_geometric", 1, None, truth.geometric),
            ("speedup (of correct ones)", "speedup_correct_geometric", 1, None,
             truth.geometric_of_correct),
            ("speedup (arithmetic)", "speedup_arithmetic", 1, None, truth.arithmetic),
        ):  # fmt: skip
            yield f"{name}, {model}", _figure(comparison, model, metric, k, p), value
    differing = {
        ("pass", 1): ("pass@1", first.passed - second.passed),
        ("fast", 1): ("fast_1", first.fast - second.fast),
        ("speedup_geometric", 1): ("speedup (geometric)", first.geometric / second.geometric),
    }
    for difference in comparison.differences:
        known = differing.get((difference.metric, difference.k))
        if known and difference.estimate:
            yield f"{known[0]}, difference", difference.estimate, known[1]


def _figure(
    comparison: Comparison, model: str, metric: str, k: int, p: float | None = None
) -> Estimate:
    figure = comparison.figure(Scope(model, "measured"), metric, k, p)
    assert figure is not None and figure.estimate is not None, (model, metric, k)
    return figure.estimate


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 4)


# ---- the table


def table(document: Mapping[str, Any]) -> list[str]:
    """In Markdown: of each number the part of sweeps whose interval holds the true value."""
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

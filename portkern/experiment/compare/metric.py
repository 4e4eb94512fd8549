"""The metrics of a comparison: their names, units and what each says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

#: ``share`` is from 0 to 1, ``times`` a ratio of times; the others are sums.
Unit = Literal["share", "times", "count", "usd", "seconds"]


@dataclass(frozen=True)
class Metric:
    """``better``: whether more of it is better, 1, or less, -1. ``at_k``: there is one for each k.
    ``timed``: it needs times, so that without any there is no number."""

    name: str
    title: str
    unit: Unit
    says: str
    better: int = 1
    at_k: bool = False
    timed: bool = False


METRICS: Final = {
    metric.name: metric
    for metric in (
        Metric("no_code", "no code", "share", "replies without code", -1),
        Metric("build", "build@k", "share", "one of k samples is built", at_k=True),
        Metric("pass", "pass@k", "share", "one of k samples is correct", at_k=True),
        Metric("fast", "fast_p@k", "share",
               "one of k samples is correct and more than p times as fast as the baseline",
               at_k=True, timed=True),
        Metric("speedup_arithmetic", "speedup@k (arithmetic)", "times",
               "the best speedup of k samples; what is not correct counts as 0",
               at_k=True, timed=True),
        Metric("speedup_geometric", "speedup@k (geometric)", "times",
               "the best speedup of k samples; what is not correct falls back to the framework: 1",
               at_k=True, timed=True),
        Metric("speedup_correct", "speedup@k (correct ones, arithmetic)", "times",
               "the best speedup of k correct samples, over the tasks that have so many",
               at_k=True, timed=True),
        Metric("speedup_correct_geometric", "speedup@k (correct ones, geometric)", "times",
               "the same in the geometric mean", at_k=True, timed=True),
        Metric("efficiency", "efficiency@k (roofline)", "share",
               "the largest share of the roofline that k samples reach; failures count as 0",
               at_k=True, timed=True),
        Metric("efficiency_pareval", "efficiency@k (ParEval)", "share",
               "the best speedup of k samples over the number of processing units",
               at_k=True, timed=True),
        Metric("portable_pass", "portable-pass@k", "share",
               "one of k samples is correct in all places that were asked for", at_k=True),
        Metric("heldout", "held-out | seen", "share",
               "correct on sizes that the author did not see, of those correct on the seen ones"),
        Metric("cheat", "cheats", "share", "refused or suspected as a cheat", -1),
        Metric("pp_application", "PP (application)", "share",
               "Pennycook's performance portability, by the best time that is known", timed=True),
        Metric("pp_architectural", "PP (architectural)", "share",
               "Pennycook's performance portability, by the share of the roofline", timed=True),
        Metric("tokens_per_solved", "tokens per solved task", "count",
               "all tokens over the tasks with a correct sample", -1),
        Metric("usd_per_solved", "USD per solved task", "usd",
               "all cost over the tasks with a correct sample", -1),
        Metric("seconds_per_solved", "seconds per solved task", "seconds",
               "all time over the tasks with a correct sample", -1),
    )
}  # fmt: skip

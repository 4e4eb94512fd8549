"""The result of a kernel's evaluation, and what a later call adds to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import get_args

from portkern.evaluator import compare, statistics, worker_reports
from portkern.records.record import Errors, Finding, Launch, Tolerance, Verdict
from portkern.toolchain.machine_code import MachineCode


@dataclass(frozen=True)
class Samples:
    """Microseconds per call of each round, how they were taken and what the device was like;
    ``unsure``: why they could not be checked; ``again``: of a baseline in another process."""

    rounds: tuple[tuple[float, ...], ...]
    method: str
    conditions: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    unsure: str = ""
    again: tuple[tuple[float, ...], ...] = ()

    @property
    def values(self) -> list[float]:
        return statistics.observations(self.rounds)


@dataclass(frozen=True)
class Result:
    """One contestant on one workload. ``samples`` are there when it passed on hardware;
    ``untimed`` why not, where it passed there without; ``harness``: it was cut off by what the
    kernel had no part in; ``code``: of what was compiled as it was loaded."""

    verdict: Verdict
    detail: str = ""
    errors: Errors | None = None
    samples: Samples | None = None
    baselines: Mapping[str, Samples] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    launches: tuple[Launch, ...] = ()
    harness: bool = False
    untimed: str = "it could not be timed"
    code: MachineCode | None = None


def worst(before: Errors | None, now: compare.Comparison) -> Errors:
    names = ("max_abs", "max_rel", "vs_fp64", "reference_vs_fp64")
    return Errors(
        tolerance=_widest(before, now),
        **{
            name: max(getattr(now, name), getattr(before, name) if before else 0.0)
            for name in names
        },
    )


def untimed(result: Result) -> Result:
    """The result without times, for which nobody asked."""
    return replace(result, samples=None, baselines={}, untimed="nobody asked for its time")


def with_timed(result: Result, now: compare.Comparison | None) -> Result:
    """The result with the rule by which the outputs of timed calls were compared; their errors
    are not recorded."""
    if now is None or result.errors is None:
        return result
    errors = result.errors.model_copy(update={"tolerance": _widest(result.errors, now)})
    findings = worker_reports.with_caveat(result.findings, now.caveat)
    return replace(result, errors=errors, findings=findings)


def _widest(before: Errors | None, now: compare.Comparison) -> Tolerance:
    known = (before and before.tolerance) or now.tolerance
    return max(known, now.tolerance, key=get_args(Tolerance).index)

"""Hardware counters of a right kernel, under names that are the same for every tool."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Protocol

from portkern.agent.axes import Measured
from portkern.agent.feedback import ncu, perf, rocprof, vocabulary
from portkern.agent.feedback.metrics import UNITS
from portkern.agent.feedback.rendering import Form, render
from portkern.agent.feedback.subject import FeedbackSubject
from portkern.agent.feedback.vocabulary import CountedCalls, Vocabulary
from portkern.agent.task import Task
from portkern.errors import StorageError, ToolError, WorkerError
from portkern.records.record import Record
from portkern.spec.backend import Missing
from portkern.spec.candidate import Candidate
from portkern.spec.target import Target

#: Whatever counts on the target's hardware.
ANY = "any"
_OF_VENDOR = {"nvidia": "ncu", "amd": "rocprof", "cpu": "perf"}
#: Counters that were asked for and not told are named up to this many.
MOST_NAMED = 6


class Tool(Protocol):
    def __call__(
        self, subject: FeedbackSubject, passes: Sequence[Sequence[str]], *, timeout_s: float
    ) -> CountedCalls: ...


_TOOLS: Mapping[str, Tool] = {"ncu": ncu.count, "rocprof": rocprof.count, "perf": perf.count}


class Counters:
    """Stage 3: it runs the kernel again, so only one that is right gets here. Whatever keeps the
    counters from being read is told in the text, with what to do about it."""

    kind: ClassVar[str] = "counters"
    stage: ClassVar[int] = 3

    def __init__(
        self,
        which: str,
        *,
        render: Form,
        timeout_s: float,
        subject: Callable[
            [Task, Candidate, Sequence[Record]], FeedbackSubject | Missing
        ] = FeedbackSubject.of,
    ) -> None:
        self._which, self._render, self._timeout_s = which, render, timeout_s
        self._subject = subject

    def measure(self, task: Task, candidate: Candidate, records: Sequence[Record]) -> Measured:
        chosen = chosen_set(self._which, task.target)
        if isinstance(chosen, Missing):
            return _untold(str(chosen))
        tool = vocabulary.sets()[chosen]
        words = vocabulary.load(tool)
        if shutil.which(words.program) is None:
            return _untold(f"no {words.program} on PATH; {words.remedy}")
        subject = self._subject(task, candidate, records)
        if isinstance(subject, Missing):
            return _untold(str(subject))
        try:
            counted = _TOOLS[tool](subject, _passes(tool, words, chosen), timeout_s=self._timeout_s)
        except (ToolError, WorkerError, StorageError, OSError) as error:  # a full disk, say
            return _untold(_why(error, words))
        metrics = _ordered(_with_bandwidth(words.neutral(counted), task.target))
        text = "\n".join(filter(None, [render(metrics, self._render), _left_out(counted)]))
        return Measured(metrics, f"Hardware counters ({words.program})", text)


def chosen_set(which: str, target: Target) -> str | Missing:
    """The set that is collected on ``target``: the tool's that counts there where ``which`` is
    another's, so that a preset with NVIDIA's counters has its counterpart on every target."""
    own = _OF_VENDOR.get(target.vendor)
    if own is None:
        return Missing(f"nothing here counts on {target.name}")
    if which == ANY or vocabulary.sets()[which] != own:
        return own
    return which


def _passes(tool: str, words: Vocabulary, chosen: str) -> Sequence[Sequence[str]]:
    """``always`` names what ncu has to be asked for; other tools tell it unasked."""
    passes = words.sets[chosen].passes
    return [words.always, *passes] if tool == "ncu" else passes


def _untold(why: str) -> Measured:
    return Measured({}, "Hardware counters", f"Not counted: {why}.")


def _why(error: Exception, words: Vocabulary) -> str:
    """The remedy where one is known, else the tool's first complaint."""
    log = error.log if isinstance(error, ToolError) else ""
    known = words.refused(f"{error}\n{log}")
    if known:
        return known
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    complaint = next((line for line in lines if "error" in line.partition(" ")[0].lower()), "")
    return f"{error}: {complaint or lines[-1]}" if lines else str(error)


def _with_bandwidth(metrics: dict[str, float], target: Target) -> dict[str, float]:
    """Memory's share of its bandwidth, where the tool tells bytes and time and not that."""
    peak = target.peaks.get("memory")
    needed = ("bytes_read", "bytes_written", "kernel_us")
    if "memory_pct" in metrics or peak is None or not all(metrics.get(n) for n in needed):
        return metrics
    moved = metrics["bytes_read"] + metrics["bytes_written"]
    share = moved / (metrics["kernel_us"] * 1e-6) / (peak.value * 1e9)
    return metrics | {"memory_pct": 100 * share}


def _ordered(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics in the order of the table of metrics."""
    return {name: metrics[name] for name in UNITS if name in metrics}


def _left_out(counted: CountedCalls) -> str:
    """Which counters gave nothing, so that nobody takes their absence for a zero."""
    if not counted.missing:
        return ""
    named = [f"{name} ({why})" for name, why in list(counted.missing.items())[:MOST_NAMED]]
    left = len(counted.missing) - len(named)
    rest = f" and {left} more" if left else ""
    virtual = "not supported" in counted.missing.values()
    hint = "; a virtual machine often has no hardware counters" if virtual else ""
    return f"Not told: {', '.join(named)}{rest}{hint}."

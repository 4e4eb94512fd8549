"""Measurements of a candidate, and the words in which authors are told of them.

Sources run in stages, each when those before found the candidate good enough: 0 ``compile``, 1
``correctness`` and ``simt``, 2 ``resources``, ``timing`` and ``launches``, 3 hardware counters, by
``ncu``, ``rocprof`` or ``perf``. What they measure has the same names for every toolchain and
target, so that strategies and critics need to know none of them. A metric that could not be had is
absent.

================== ========= =======================================================================
name               unit      meaning
================== ========= =======================================================================
build_errors                 errors that the compiler told
registers          /thread   of the kernel with the most
spills             B         per thread, of the kernel with the most (registers on AMD)
shared_bytes       B         per block, of the kernel with the most
threads            /block    of the kernel with the most
occupancy          of 1      what registers, shared memory and threads allow, at worst
median_us          µs        one call on the largest workload that was timed
speedup            x         over the baseline, geometric mean of the workloads
roofline_pct       %         of the roofline's bound, on the largest workload
kernel_us          µs        one call on the device, while it was counted
memory_pct         %         of the bandwidth of device memory
compute_pct        %         of what the arithmetic units can issue
tensor_pct         %         of what the matrix units can issue
occupancy_pct      %         of the warps that fit, those that were there; of a CPU's time, the used
l1_hit_pct         %         of accesses, found in the first-level cache
l2_pct             %         of the last shared cache's bandwidth
l2_hit_pct         %         of accesses, found in the last shared cache
bytes_read         B         from device memory, in one call
bytes_written      B         to device memory, in one call
instructions                 executed in one call; a GPU's are those of warps
ipc                /cycle    instructions, of one multiprocessor or core
stall_memory_pct   %         of the time that warps are there: waiting for device memory
stall_barrier_pct  %         … at a barrier
stall_branch_pct   %         … for the target of a branch
stall_short_pct    %         … for shared memory or special functions
stall_other_pct    %         … for a busy unit, or anything else that was told
divergence_pct     %         of branches: lanes part, or a CPU foretold them wrongly
page_faults                  in one call: memory that is asked of the system each time
================== ========= =======================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import BaseModel, ConfigDict, Field

from portkern.agent import choice
from portkern.agent.axes import FeedbackSource
from portkern.agent.feedback import vocabulary
from portkern.agent.feedback.build_log import BuildLog
from portkern.agent.feedback.correctness import CorrectnessFeedback
from portkern.agent.feedback.hardware import ANY, Counters
from portkern.agent.feedback.launches import LaunchFeedback
from portkern.agent.feedback.rendering import Form
from portkern.agent.feedback.resources import ResourceFeedback
from portkern.agent.feedback.simt import Simt
from portkern.agent.feedback.timing import TimingFeedback
from portkern.errors import no_such

NONE = "none"


class FeedbackOptions(BaseModel):
    """The options of the group ``feedback``; see ``conf/feedback/default.yaml``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sources: list[str] = ["compile", "correctness", "simt", "resources", "timing"]
    counters: str = NONE
    render: Form = "raw"
    log_lines: int = Field(40, ge=1)
    log_chars: int = Field(4000, ge=1)
    findings: int = Field(10, ge=1)
    launches: int = Field(10, ge=1)
    baseline: str = "eager"
    of_critics: list[str] = []
    counters_s: float = Field(300.0, gt=0)


_SOURCES: Mapping[str, Callable[[FeedbackOptions], FeedbackSource]] = {
    "compile": lambda f: BuildLog(lines=f.log_lines, chars=f.log_chars),
    "correctness": lambda f: CorrectnessFeedback(lines=f.log_lines, chars=f.log_chars),
    "simt": lambda f: Simt(findings=f.findings),
    "resources": lambda f: ResourceFeedback(render=f.render),
    "timing": lambda f: TimingFeedback(baseline=f.baseline, render=f.render),
    "launches": lambda f: LaunchFeedback(most=f.launches),
}


def names() -> list[str]:
    return sorted(_SOURCES)


def counter_sets() -> list[str]:
    """The values that the option ``counters`` may have."""
    return [NONE, ANY, *vocabulary.sets()]


def of_critics(options: Mapping[str, object]) -> frozenset[str]:
    """Kinds of sources that those who write kernels are not told of. Raises ConfigError."""
    chosen = choice.checked("feedback", FeedbackOptions, options)
    for name in chosen.of_critics:
        if name not in (*_SOURCES, Counters.kind):
            raise no_such("source", name, [*_SOURCES, Counters.kind])
    return frozenset(chosen.of_critics)


def load(options: Mapping[str, object]) -> list[FeedbackSource]:
    """The sources that ``options``, the group ``feedback``'s, name, in the order of their stages.
    Raises ConfigError."""
    chosen = choice.checked("feedback", FeedbackOptions, options)
    for name in chosen.sources:
        if name not in _SOURCES:
            raise no_such("source", name, _SOURCES)
    if chosen.counters not in counter_sets():
        raise no_such("set of counters", chosen.counters, counter_sets())
    sources = [_SOURCES[name](chosen) for name in dict.fromkeys(chosen.sources)]
    if chosen.counters != NONE:
        sources.append(Counters(chosen.counters, render=chosen.render, timeout_s=chosen.counters_s))
    return sorted(sources, key=lambda source: source.stage)

"""Metrics as text for a prompt: a list of numbers, or a sentence for each that stands out.

Sentences say what was measured and what that usually means; what to do about it is a critic's to
say. So they are the same whatever tool counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from portkern.agent.feedback.metrics import shown

Form = Literal["raw", "nl"]
#: A unit that is busy for this share of the time, in percent, limits what goes through it.
SATURATED = 60.0
#: Below this share of either, neither memory nor arithmetic limits the kernel.
IDLE = 30.0
#: Fewer resident warps than this share seldom hide the latency of memory.
FEW_WARPS = 40.0
#: Caches that serve less than this share of accesses are of little help.
FEW_HITS = 40.0
#: Waiting, for one reason, that is worth a sentence.
MUCH_WAITING = 20.0
#: Branches at which lanes part that are worth a sentence.
MUCH_DIVERGENCE = 10.0
#: One call that takes less than this is mostly its launch.
SHORT_CALL_US = 10.0
#: The share of the roofline that is called close to it, and the one that is called far from it.
CLOSE, FAR = 90.0, 50.0


@dataclass(frozen=True)
class Sentence:
    """Said of a metric that is at least ``least`` and below ``below``."""

    metric: str
    text: str
    least: float = float("-inf")
    below: float = float("inf")

    def fits(self, value: float) -> bool:
        return self.least <= value < self.below


SENTENCES: Sequence[Sentence] = (
    Sentence("spills", "Registers do not suffice: {} per thread go through memory.", least=1),
    Sentence(
        "memory_pct", "Device memory works at {} of its bandwidth, close to its limit.", SATURATED
    ),
    Sentence("memory_pct", "Device memory works at only {} of its bandwidth.", below=IDLE),
    Sentence(
        "compute_pct",
        "The arithmetic units are busy at {} of their rate, close to their limit.",
        SATURATED,
    ),
    Sentence("compute_pct", "The arithmetic units are busy at only {} of their rate.", below=IDLE),
    Sentence("tensor_pct", "The matrix units work at {} of their rate.", least=1),
    Sentence("tensor_pct", "The matrix units are not used.", below=1),
    Sentence(
        "l2_pct",
        "The last shared cache works at {} of its bandwidth, close to its limit.",
        SATURATED,
    ),
    Sentence(
        "l1_hit_pct", "Only {} of accesses are found in the first-level cache.", below=FEW_HITS
    ),
    Sentence(
        "l2_hit_pct", "Only {} of accesses are found in the last shared cache.", below=FEW_HITS
    ),
    Sentence(
        "occupancy_pct",
        "Only {} of the room for work is filled, which may not hide latency.",
        below=FEW_WARPS,
    ),
    Sentence("stall_memory_pct", "Waiting for device memory takes {} of the time.", MUCH_WAITING),
    Sentence("stall_barrier_pct", "Waiting at barriers takes {} of the time.", MUCH_WAITING),
    Sentence(
        "stall_branch_pct",
        "Waiting for the targets of branches takes {} of the time.",
        MUCH_WAITING,
    ),
    Sentence(
        "stall_short_pct",
        "Waiting for shared memory or special functions takes {} of the time.",
        MUCH_WAITING,
    ),
    Sentence("stall_other_pct", "Waiting for busy units takes {} of the time.", MUCH_WAITING),
    Sentence(
        "divergence_pct",
        "At {} of branches the lanes part, or the guess is wrong.",
        MUCH_DIVERGENCE,
    ),
    Sentence("page_faults", "Each call asks the system for memory: {} page faults.", least=1),
    Sentence(
        "median_us", "One call takes {}: launching it is a large part of that.", below=SHORT_CALL_US
    ),
    Sentence(
        "roofline_pct", "It reaches {} of what the hardware's peaks allow; little is left.", CLOSE
    ),
    Sentence("roofline_pct", "It reaches {} of what the hardware's peaks allow.", FAR, CLOSE),
    Sentence("roofline_pct", "It reaches only {} of what the hardware's peaks allow.", below=FAR),
)


def listing(metrics: Mapping[str, float]) -> str:
    """A line each: name, value, unit."""
    return "\n".join(f"{name}: {shown(name, value)}" for name, value in metrics.items())


def sentences(metrics: Mapping[str, float]) -> list[str]:
    """A sentence for each metric that stands out."""
    return [
        sentence.text.format(shown(sentence.metric, metrics[sentence.metric]))
        for sentence in SENTENCES
        if sentence.metric in metrics and sentence.fits(metrics[sentence.metric])
    ]


def render(metrics: Mapping[str, float], form: Form) -> str:
    if form == "raw":
        return listing(metrics)
    return "\n".join(sentences(metrics)) or "Nothing stands out."

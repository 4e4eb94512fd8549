"""CUDA Agent's loop at inference: an agent with tools that goes from milestone to milestone.

Milestones are those of its reward: a right kernel, one that is faster than the framework by a
margin, and one that is faster than the framework's compiler as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import Field

from portkern.agent.attempt import PromptBlock, Status
from portkern.agent.axes import EvaluatedDraft
from portkern.agent.proposer.tool_agent import ToolAgent, ToolOptions

WRONG: Final = -1
#: The condition of each milestone, in words.
MILESTONES: Final = {
    1: "the kernel is right",
    2: "and faster than PyTorch by more than the margin, on every size that is timed",
    3: "and faster than torch.compile by as much",
}
#: What has to be beaten for a milestone beyond the first.
_BEATEN: Final = {2: "eager", 3: "compile"}


class MilestoneOptions(ToolOptions):
    """``margin``: to be faster is to be so by more than this share, with all of the interval."""

    margin: float = Field(default=0.05, ge=0)


class MilestoneAgent(ToolAgent):
    options_type = MilestoneOptions
    options: MilestoneOptions

    def rules(self) -> Sequence[PromptBlock]:
        lines = [f"{number}. {what}" for number, what in MILESTONES.items()]
        lines += [
            f"The margin is {self.options.margin:.0%}.",
            "A wrong kernel is mended before anything else: you cannot end without a right one. "
            "Then go on beyond the last milestone until nothing more is gained.",
            "Before each try say what you expect of it, and afterwards why it came out so. What "
            "changes the algorithm or the traffic to memory comes first, then how well the "
            "hardware is used, sizes and other parameters last.",
        ]
        return [PromptBlock(kind="milestones", title="Milestones", text="\n".join(lines))]

    def judged(self, seen: EvaluatedDraft) -> str:
        number = milestone(seen, self.options.margin)
        following = MILESTONES.get(max(number, 0) + 1)
        reached = "No milestone is reached" if number == WRONG else f"Milestone {number} is reached"
        return f"{reached}; the next one: {following}." if following else f"{reached}, the last."

    def unfinished(self, seen: Sequence[EvaluatedDraft], left: int) -> str:
        if not left or any(milestone(one, self.options.margin) != WRONG for one in seen):
            return ""
        return f"There is no right kernel yet, so you cannot end. {left} tries are left."


def milestone(seen: EvaluatedDraft, margin: float) -> int:
    """The last one that is reached, without a gap; -1 for a kernel that is not right."""
    if seen.status != Status.PASSED:
        return WRONG
    reached = 1
    for number, rival in _BEATEN.items():
        lows = [one.speedup[rival].ci95[0] for one in seen.records if rival in one.speedup]
        if not lows or min(lows) <= 1 + margin:
            break
        reached = number
    return reached

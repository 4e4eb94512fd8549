"""Whether profiling feedback beats a better prompt, at the same number of attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from portkern.experiment.paired import PairedStudy

PLAIN, PROMPT, PROFILE, BOTH = "plain", "prompt", "profile", "both"
_OUTCOME, _MEASURED = "feedback=plain", "feedback=counters"
_KNOWS = ("memory=bm25", "memory.knowledge=[kb,bm25]")


class ProfilingStudy(PairedStudy):
    title = "Does profiling feedback beat a better prompt?"
    arms = (PLAIN, PROMPT, PROFILE, BOTH)
    compared = (PLAIN, PROMPT, PROFILE)
    varied = (*PairedStudy.varied, "memory", "feedback", "hints")
    said: ClassVar = {
        PLAIN: "the task and what became of the last kernel",
        PROMPT: "the same with the target's hints, and shipped kernels that are alike",
        PROFILE: "the same with counters, resources and checkers of the last kernel",
        BOTH: "hints, kernels that are alike, and the profile",
    }
    made: ClassVar = {
        PLAIN: ("hints=false", "memory=last", _OUTCOME),
        PROMPT: ("hints=true", *_KNOWS, _OUTCOME),
        PROFILE: ("hints=false", "memory=last", _MEASURED),
        BOTH: ("hints=true", *_KNOWS, _MEASURED),
    }

    def against(self, arms: Sequence[str]) -> Sequence[tuple[str, str]]:
        wanted = (
            (PROFILE, PROMPT),
            (PROFILE, PLAIN),
            (PROMPT, PLAIN),
            (BOTH, PROMPT),
            (BOTH, PROFILE),
        )
        return [(arm, than) for arm, than in wanted if arm in arms and than in arms]

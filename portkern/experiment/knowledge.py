"""Whether what is told from outside of the run helps, and which of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from portkern.experiment.paired import PairedStudy

OFF, KB, BM25, SKILLS = "off", "kb", "bm25", "skills"


class KnowledgeStudy(PairedStudy):
    """All arms see the last kernel and its results; they differ in what is told besides."""

    title = "Does knowledge from outside help?"
    arms = (OFF, KB, BM25, SKILLS, "embed")
    compared = (OFF, KB, BM25, SKILLS)
    varied = (*PairedStudy.varied, "memory")
    said: ClassVar = {
        OFF: "nothing from outside",
        KB: "facts about the target",
        BM25: "shipped kernels that are alike, looked up by words",
        SKILLS: "what actions brought before",
        "embed": "shipped kernels that are alike, looked up by vectors",
    }
    made: ClassVar = {
        arm: (f"memory={'last' if arm == OFF else arm}",)
        for arm in (OFF, KB, BM25, SKILLS, "embed")
    }

    def against(self, arms: Sequence[str]) -> Sequence[tuple[str, str]]:
        return [(arm, OFF) for arm in arms if arm != OFF and OFF in arms]

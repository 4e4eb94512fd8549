"""Which runs people hold for good or bad, in ``baselines.jsonl`` beside them: a line for each
decision, the newest of a run counts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Literal

from portkern.records.jsonl import JsonLine, LineFile

FILE = "baselines.jsonl"
Standing = Literal["promoted", "demoted", "neither"]


class RunDecision(JsonLine):
    """``promoted``: what ``baseline=promoted`` means; ``demoted``: no measure for other runs."""

    SCHEMA: ClassVar[int] = 1

    schema_: int = 1
    run: str
    standing: Standing
    why: str = ""
    time: str

    @classmethod
    def now(cls, run: str, standing: Standing, why: str) -> RunDecision:
        time = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(run=run, standing=standing, why=why, time=time)


def keep(reports: Path, decision: RunDecision) -> None:
    """Raises StorageError."""
    _file(reports).append([decision])


def decisions(reports: Path) -> dict[str, RunDecision]:
    """The decisions by run, the newest last. Raises RecordError."""
    known: dict[str, RunDecision] = {}
    for decision in _file(reports).read()[0]:
        known.pop(decision.run, None)
        known[decision.run] = decision
    return known


def demoted(reports: Path) -> set[str]:
    """Raises RecordError."""
    return {run for run, one in decisions(reports).items() if one.standing == "demoted"}


def promoted(reports: Path) -> list[str]:
    """The one that was promoted last first. Raises RecordError."""
    known = decisions(reports).items()
    return [run for run, one in reversed(known) if one.standing == "promoted"]


def _file(reports: Path) -> LineFile[RunDecision]:
    return LineFile(reports / FILE, RunDecision.from_json)

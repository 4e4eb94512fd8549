"""How an attempt ended, as it counts: a kernel that was written twice ended twice the same."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from portkern.agent.attempt import Attempt, Status
from portkern.agent.log import Log
from portkern.experiment.refusal import Refusal, refusal_of
from portkern.toolchain.compiler_log import messages

#: The stages in the order in which an attempt meets them.
STAGES: Final = (
    Status.NO_CODE,
    Status.REJECTED,
    Status.BUILD_FAILED,
    Status.CRASHED,
    Status.TIMED_OUT,
    Status.WRONG,
    Status.SUSPICIOUS,
    Status.PASSED,
)
#: It was built, and then it gave no good results.
BAD_RESULTS: Final = (Status.CRASHED, Status.TIMED_OUT, Status.WRONG, Status.SUSPICIOUS)
BUILT: Final = (*BAD_RESULTS, Status.PASSED)
#: ``relu.cpp:12:5:`` or ``relu.cu(12):``, which an added line moves.
_PLACE = re.compile(r"^\S*?[:(]\d+(?::\d+)?\)?:\s*")


@dataclass(frozen=True)
class AttemptEnding:
    """``status`` is None of an attempt that nobody evaluated: no model answered, or there was
    nothing to run it on. ``error`` is the first line of a compiler's errors, without its place;
    ``refusal`` why it was refused, where it was."""

    attempt: Attempt
    status: Status | None
    score: float = 0.0
    timed: bool = False
    error: str = ""
    refusal: Refusal | None = None

    @property
    def cheat(self) -> str:
        """The cheat in the evaluator's words; empty where there is none."""
        return self.refusal.kind if self.refusal and self.refusal.cheat else ""

    @property
    def correct(self) -> bool:
        return self.status is Status.PASSED

    @property
    def built(self) -> bool:
        return self.status in BUILT

    def faster(self, p: float) -> bool:
        """Correct, and more than ``p`` times as fast as the baseline. Above 0 that is known only
        of what was timed."""
        return self.correct and (p == 0 or (self.timed and self.score > p))


def endings(log: Log, answered: Set[str]) -> list[AttemptEnding]:
    """How each attempt ended, in their order. ``answered`` are the calls of models that had a
    reply."""
    return [_ending(attempt, log, answered) for attempt in log]


def _ending(attempt: Attempt, log: Log, answered: Set[str]) -> AttemptEnding:
    first = log.by_digest(attempt.digest) if attempt.status is Status.DUPLICATE else attempt
    if first is None or not _evaluated(first, answered):
        return AttemptEnding(attempt, None)
    error = first_error(first.detail) if first.status is Status.BUILD_FAILED else ""
    return AttemptEnding(
        attempt, first.status, first.score, bool(first.speedups), error, refusal_of(first)
    )


def _evaluated(attempt: Attempt, answered: Set[str]) -> bool:
    """A reply without code is the model's failure; no reply is not."""
    replied = attempt.status is not Status.NO_CODE or not answered.isdisjoint(attempt.calls)
    return attempt.status in STAGES and replied


def first_error(log: str) -> str:
    """The first error in a compiler's log, or the last line of another log, such as Python's."""
    error = next((message.text for message in messages(log) if message.kind == "error"), "")
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return _PLACE.sub("", error or (lines or [""])[-1])

"""The change of a cell from one run to another, and its cause."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from portkern.regression.rule import ChangeKind
from portkern.regression.series import Series


class Cause(StrEnum):
    """The cause of a change, which says who is asked to look at it."""

    REGRESSION = "regression"  # the kernel is another
    TOOLCHAIN = "toolchain"  # the kernel is the same; what builds, drives or runs it is not
    METHOD = "method"  # how it is judged or timed, or what it is compared with, changed
    MACHINE = "machine"  # controls moved alike, or it is another machine
    UNEXPLAINED = "unexplained"  # nothing that is recorded changed, and controls did not move


@dataclass(frozen=True)
class CellChange:
    """``detail`` is one line. ``moved``: the relative change of the time that was compared, +0.2 is
    20 % more; ``visible``: the least that could have been seen. ``because``: what else changed.
    ``recent``: the figure that was compared, of earlier runs and this one, oldest first, as
    multiples of the reference. ``since``: of what is wrong the first bad run, this one included in
    ``nights``; ``last_good``: the run before it that was as it should be, '' where none ever was.
    """

    series: Series
    change: ChangeKind
    detail: str
    moved: float | None = None
    visible: float | None = None
    because: tuple[str, ...] = ()
    quarantined: str = ""
    recent: tuple[float, ...] = ()
    cause: Cause | None = None
    since: str = ""
    nights: int = 0
    last_good: str = ""

    @property
    def stays(self) -> bool:
        """Whether it is what an earlier night found already."""
        return self.nights > 1

    @property
    def doubtful(self) -> bool:
        """Whether it says of a time what further races are to confirm."""
        mended = self.change is ChangeKind.FIXED and self.moved is not None
        return mended or (self.change.timed and not self.stays)

    @property
    def regressed(self) -> bool:
        """Whether the cell has regressed: what always failed has not; what failed once and was
        not mended has."""
        forgotten = self.change is ChangeKind.STILL_FAILING and bool(self.last_good)
        wrong = self.change.regressed or forgotten
        return wrong and not self.quarantined

    def __str__(self) -> str:
        kept = f" ({self.quarantined})" if self.quarantined else ""
        return f"{self.series}: {self.change}: {self.detail}{self.why}{self.age}{kept}"

    @property
    def why(self) -> str:
        """`` (toolchain: c++ 12.2 → 13.1 changed)``, '' where nothing is known."""
        if not self.because and self.cause in (None, Cause.UNEXPLAINED):
            return ""
        changed = f"{', '.join(self.because)} changed" if self.because else ""
        return f" ({': '.join(filter(None, (self.cause, changed)))})"

    @property
    def age(self) -> str:
        """``; since nightly-2026-11-20, 7 nights``, '' for what is new."""
        if not self.stays:
            return ""
        good = f", last good {self.last_good}" if self.last_good else ""
        return f"; since {self.since}, {counted(self.nights)}{good}"


def counted(nights: int) -> str:
    return f"{nights} night{'' if nights == 1 else 's'}"

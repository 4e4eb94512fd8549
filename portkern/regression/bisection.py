"""The first bad one of a series of states, of which some may show nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class FirstBad:
    """``good`` is known to be good and ``bad`` to be bad; those between show nothing."""

    good: int
    bad: int

    @property
    def certain(self) -> bool:
        return self.bad == self.good + 1


def first_bad(good: int, bad: int, is_bad: Callable[[int], bool | None]) -> FirstBad:
    """The first bad state between ``good`` and the later ``bad``, which are what their names say.
    ``is_bad`` says whether a state is bad, None where it shows nothing; it is asked of about log2
    of them, and of each at most once."""
    silent: set[int] = set()
    while True:
        between = [state for state in range(good + 1, bad) if state not in silent]
        if not between:
            return FirstBad(good, bad)
        middle = min(between, key=lambda state: abs(2 * state - good - bad))
        answer = is_bad(middle)
        if answer is None:
            silent.add(middle)
        elif answer:
            bad = middle
        else:
            good = middle

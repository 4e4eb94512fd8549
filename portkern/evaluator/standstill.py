"""Processes that are kept from running until it is their turn, so that whatever is in them disturbs
nobody who is timed before."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from signal import SIGCONT, SIGSTOP

from portkern.evaluator.processor_time import family, ran_s, thread_states

#: Seconds in which all stand still; a thread stops when it is given a processor again.
WITHIN_S = 10.0
FIRST_PAUSE_S, PAUSE_S = 0.00005, 0.001
#: States of threads that are stopped or have ended, and of those that wait for the system alone, as
#: the parent of a process does that was stopped before it began a program (vfork). They do not run,
#: and may still start another: so many looks in a row must find none.
STOPPED, WAITING, LOOKS = set("TtZX"), {"D"}, 20
#: Seconds that what stands still may have run meanwhile: a thread that is seen as stopped is still
#: on its way out of the processor.
LEAVING_S = 0.00005


def stop(pid: int, known: Iterable[int] = ()) -> Collection[int]:
    """Stops a process and all that it started, which none of them can refuse, and returns them.
    None where they do not all stand still, as where new ones are started faster than one can look.
    Those that are ``known`` are stopped at once."""
    stopped = set(known)
    for member in stopped:
        _signal(member, SIGSTOP)
    deadline, unchanged, pause_s = time.monotonic() + WITHIN_S, 0, FIRST_PAUSE_S
    while time.monotonic() < deadline:
        states = {state for member in stopped for state in thread_states(member)}
        members = set(family(pid))  # after the states: who is stopped starts no others
        new = members - stopped
        for other in stopped - members:  # it has ended, and its number may be somebody else's
            _signal(other, SIGCONT)
        unchanged = 0 if new or states - STOPPED - WAITING else unchanged + 1
        if not new and (states <= STOPPED or unchanged > LOOKS):
            return members
        for member in new:
            _signal(member, SIGSTOP)
        stopped = members
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_S)
    return ()


def woke(pid: int, before_s: float, stopped: Collection[int] = ()) -> bool:
    """Whether one of the processes that were ``stopped``, a process and what it started if none are
    given, has run since their processor time was ``before_s``, or has started another: a timer of
    its own may send it SIGCONT."""
    if abs(ran_s(pid, stopped) - before_s) > LEAVING_S:
        return True
    return bool(stopped) and not set(family(pid)).issubset(stopped)


def go_on(pid: int, stopped: Collection[int] = ()) -> None:
    """Lets the processes that were ``stopped`` run again; if none are given, a process and all that
    it started."""
    for member in stopped or list(family(pid)):
        _signal(member, SIGCONT)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # it has ended
        os.kill(pid, number)

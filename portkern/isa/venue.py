"""The venue of compiled AMD objects: the executor beside a build, and what workers need of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from portkern.errors import LaunchError, NeedsHardware
from portkern.isa import runtime_library
from portkern.isa.executor import TABLES
from portkern.isa.finding import Ran
from portkern.spec.backend import Build, Missing, Venue
from portkern.spec.target import Target

#: What ``sanitize`` may name here, and what each looks for.
CHECKERS: Final[Mapping[str, str]] = {
    "bounds": "accesses outside buffers and LDS, which are looked for in any case",
    "waits": "registers and LDS that are used before memory must have filled them (gfx9)",
    "lds": "waves that meet at one byte of LDS without a barrier or an atomic between them",
}


def venue(target: Target) -> Venue | Missing:
    """The venue that executes objects for ``target`` without that hardware; Missing for a target
    without a model."""
    if target.arch not in TABLES:
        known = " ".join(TABLES)
        return Missing(f"no model of {target.arch}: compiled objects are executed for {known}")
    found = runtime_library.find()
    if isinstance(found, Missing):
        return found
    name = f"AMD executor, {target.arch} (wave {target.warp})"
    return Venue("object", name, version=runtime_library.version(found))


def prepare(request: Build) -> Sequence[Path]:
    """The executor's library, built outside of the jail; for :meth:`Backend.prepare`."""
    if not request.executed or isinstance(runtime_library.find(), Missing):
        return ()
    return (runtime_library.ready().parent,)


def accept(kernel: str, ran: Ran) -> None:
    """Raises LaunchError for a launch that did not come to its end, NeedsHardware where no model
    could go on."""
    if ran.complete:
        return
    lacking = ran.needs_hardware
    if lacking is not None:
        raise NeedsHardware(f"{kernel} needs hardware: {lacking}")
    raise LaunchError(f"{kernel} was stopped: {ran.findings[-1]}")

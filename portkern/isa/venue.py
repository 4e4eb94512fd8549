"""The venue of compiled AMD objects: the executor beside a build, and what workers need of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from portkern.errors import LaunchError, NeedsHardware
from portkern.isa import counts, runtime_library
from portkern.isa.executor import TABLES
from portkern.isa.finding import ObjectRan
from portkern.spec.backend import Build, Missing, Venue
from portkern.spec.target import Target

if TYPE_CHECKING:
    from portkern.spec.json_types import JsonObject

#: What ``sanitize`` may name here, and what each looks for.
CHECKERS: Final[Mapping[str, str]] = {
    "bounds": "accesses outside buffers and LDS, which are looked for in any case",
    "waits": "registers and LDS that are used before memory must have filled them",
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


@dataclass
class Launched:
    """The launches of one call, by the names of their kernels; ``checks`` look on."""

    checks: tuple[str, ...] = ()
    launches: list[tuple[str, ObjectRan]] = field(default_factory=list)
    _counted: bool = False

    def begin(self, *, counted: bool) -> None:
        """A call begins: forget the launches of the one before."""
        self.launches.clear()
        self._counted = counted

    @property
    def looking(self) -> tuple[str, ...]:
        """All that looks on while the call's launches run."""
        return (*self.checks, *(["counters"] if self._counted else []))

    def accept(self, kernel: str, ran: ObjectRan) -> None:
        """Keeps a launch. Raises LaunchError for one that did not come to its end, NeedsHardware
        where no model could go on."""
        self.launches.append((kernel, ran))
        if ran.complete:
            return
        lacking = ran.needs_hardware
        if lacking is not None:
            raise NeedsHardware(f"{kernel} needs hardware: {lacking}")
        raise LaunchError(f"{kernel} was stopped: {ran.findings[-1]}")

    def take_findings(self) -> list[JsonObject]:
        """The findings as workers report them: of paths that no wave took once for a kernel."""
        told = {(name, found): None for name, ran in self.launches for found in ran.remarks}
        told |= {(name, found): None for name, ran in self.launches for found in ran.unseen}
        told |= {(name, found): None for name, ran in self.launches for found in ran.findings}
        return [found.to_json(name) for name, found in told]

    def take_launches(self) -> Mapping[str, int]:
        return Counter(name for name, _ in self.launches)

    def take_counts(self) -> Mapping[str, Mapping[str, int]]:
        """Counts of what each kernel did over all its launches, as far as it was counted."""
        by_name: dict[str, list[Mapping[str, int]]] = {}
        for name, ran in self.launches:
            by_name.setdefault(name, []).append(ran.counts)
        return {name: counts.added(several) for name, several in by_name.items()}

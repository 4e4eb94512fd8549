"""The request for a port: its source, its targets and its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from portkern.port.translate import Style
from portkern.spec.target import Target

Way = Literal["hip", "cuda"]
#: ``ring``: kernels are run on elements of a ring as well, for a remark beside the proof.
Arithmetic = Literal["float", "ring"]


@dataclass(frozen=True)
class PortRequest:
    """``timeout_s`` is for a build, ``run_s`` for a run of a program. ``avoid`` are folders that
    belong to no library, as the one of reports. ``tests`` is the command of the library's own
    tests. Without ``build``, the library is only read, translated and looked at."""

    path: Path
    to: Way
    targets: tuple[Target, ...]
    out: Path
    in_place: bool = False
    sanitize: frozenset[str] = frozenset()
    build: bool = True
    prove: bool = True
    jobs: int = 1
    include: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    tests: str = ""
    case: Path | None = None
    timeout_s: float = 120.0
    run_s: float = 20.0
    fresh: bool = False
    avoid: tuple[Path, ...] = ()
    emitted: tuple[str, ...] = ()
    style: Style = "hip"
    arithmetic: Arithmetic = "float"

    def macros(self, of_build: Sequence[str], for_amd: Sequence[str]) -> tuple[str, ...]:
        """The macros that the port is compiled with: those asked for, those that the build files
        define, and those that only builds for AMD define."""
        added = for_amd if self.to == "hip" else ()
        return tuple(dict.fromkeys((*self.defines, *of_build, *added)))

    @property
    def by_width(self) -> Mapping[int, Target]:
        """The first target of each width: a kernel is proven once at each."""
        return {target.warp or 32: target for target in reversed(self.targets)}

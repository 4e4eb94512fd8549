"""The result of a repair: what models made of a port, or of one that they were not asked to
mend."""

from __future__ import annotations

from dataclasses import dataclass

from portkern.port.kernel_port import KernelPort
from portkern.port.repair.record import Repair
from portkern.port.translated import TranslatedFile


@dataclass(frozen=True)
class Repaired:
    """``stopped`` says which budget ended it, or which model that is ``down``; empty when nothing
    was left to do."""

    files: tuple[TranslatedFile, ...]
    ports: tuple[KernelPort, ...]
    repairs: tuple[Repair, ...] = ()
    stopped: str = ""
    down: bool = False

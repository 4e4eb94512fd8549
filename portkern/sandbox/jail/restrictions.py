"""Restrictions that a process puts on itself for good before code of others runs in it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from portkern.sandbox.jail import root, seccomp, system


@dataclass(frozen=True)
class Restrictions:
    """``layers`` are those of the machine. ``reads`` are beside what the jail shows everybody,
    and matter as ``device`` does where it is the machine's own tree. ``own_user``: no process but
    the worker's has its user."""

    layers: frozenset[str]
    reads: tuple[Path, ...]
    device: bool
    own_user: bool

    def apply(
        self, user: int | None, writes: Iterable[Path], *, groups: bool, deadly: bool = False
    ) -> None:
        """Become ``user``, keeping the groups or not; ``deadly``: who tries to look into another
        process is killed, where others are refused."""
        if user is not None:
            become(user, groups=groups)
        system.drop_capabilities()
        system.no_new_privileges()
        if "landlock" in self.layers and "namespaces" not in self.layers:
            nodes = root.devices(accelerators=self.device)
            system.landlock([*root.readable(), *self.reads], [*nodes, *writes])
        if "seccomp" in self.layers:
            apart = "namespaces" in self.layers
            seccomp.install(deadly=deadly, apart=apart, alone=apart or self.own_user)
        # After a change of user a parent's death is not signalled, and the flag is not kept either.
        system.set_dumpable(False)
        system.die_with_parent(signal.SIGKILL)


def become(user: int, *, groups: bool) -> None:
    """``groups`` keeps them: the nodes of AMD's GPUs belong to one."""
    if not groups:
        os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def close_all_but(handles: Sequence[int]) -> None:
    """Closes all file handles but these, the standard ones too."""
    first = 0
    for kept in (*sorted(handles), os.sysconf("SC_OPEN_MAX")):
        if first < kept:  # of an empty range Python would close all
            os.closerange(first, kept)
        first = kept + 1

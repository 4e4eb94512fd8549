"""How a kernel is run: the schedule, the checkers, the limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from portkern.errors import no_such

Order = Literal["forward", "lockstep", "reverse", "random", "priority"]
#: ``kernel`` is ``fast`` by a compiler that takes three fifths of the time, for kernels that run on
#: small inputs; ``cover`` counts lines and branches, where the compiler is GCC; ``ring`` puts
#: elements of a ring in the place of floating-point numbers.
Mode = Literal["fast", "kernel", "check", "asan", "cover", "ring"]

#: What ``sanitize=`` may name. The first four need a checked build and run together in it.
CHECKERS: Mapping[str, str] = {
    "races": "unordered accesses to shared and global memory, by happens-before",
    "bounds": "accesses outside buffers, shared arrays and local arrays; host and freed pointers",
    "uninitialised": "reads of memory that nobody wrote",
    "arithmetic": "signed overflow, shift counts, division by zero, misaligned accesses",
    "schedule": "results that change with the order in which threads run",
    "width": "results that change with the width of the warp (a note)",
    "counters": "memory transactions, bank conflicts, divergence, barriers (no finding)",
}
#: What the executor has no model of, as features of targets are called; clusters of blocks too.
UNMODELLED = (
    *("tcgen05", "tmem", "clusters"),
    *("mfma_scale", "smfmac", "swmmac", "lds_dword", "lds_dwordx3", "lds_dwordx4"),
)
IN_CHECKED_BUILD = frozenset({"races", "bounds", "uninitialised", "arithmetic", "counters"})


def checkers(chosen: Sequence[str]) -> frozenset[str]:
    """The checkers named by ``all``, ``none`` or one by one. Raises ConfigError for another."""
    names: set[str] = set()
    for name in chosen:
        if name not in {*CHECKERS, "all", "none"}:
            raise no_such("checker", name, [*CHECKERS, "all", "none"])
        names |= set(CHECKERS) if name == "all" else {name} - {"none"}
    return frozenset(names)


@dataclass(frozen=True)
class ExecutorOptions:
    """One run. ``workers`` OS threads share the blocks (one while checkers look on). A launch is
    ended with SX405 when no block has finished for ``limit_s`` seconds. ``preempt`` switches
    threads at one checked access in so many. ``lockstep``: lanes of a warp advance together.
    ``widen``: at 64 lanes, CUDA's 0xffffffff names them all. ``account``: what host code reads of
    managed and pinned memory is counted too. After ``launches``, unless that is 0, the program
    ends. ``findings`` is the file that findings are appended to, ``record`` the one to which each
    launch appends what it did to device memory, with at most ``record_bytes`` of contents. ``ring``
    are the parameters of a program built so, see :class:`portkern.simt.execute.ring.Ring`."""

    order: Order = "forward"
    seed: int = 1
    workers: int = 1
    limit_s: float = 4.0
    stack_bytes: int = 640 << 10  # a GPU's 512 KB of local memory, and room for calls
    races: bool = False
    bounds: bool = False
    uninitialised: bool = False
    alignment: bool = False
    counters: bool = False
    preempt: int = 0
    lockstep: bool = False
    widen: bool = False
    account: bool = False
    launches: int = 0
    findings: Path | None = None
    record: Path | None = None
    record_bytes: int = 64 << 20
    ring: str = ""

    def checked(self, chosen: frozenset[str]) -> ExecutorOptions:
        return replace(
            self,
            races="races" in chosen,
            bounds="bounds" in chosen,
            uninitialised="uninitialised" in chosen,
            alignment="arithmetic" in chosen,
            counters="counters" in chosen,
            workers=1,
            limit_s=10 * self.limit_s,
        )

    def settings(self) -> dict[str, str | int | float]:
        files = {"findings": str(self.findings or ""), "record": str(self.record or "")}
        values = asdict(self) | files
        return {k: int(v) if isinstance(v, bool) else v for k, v in values.items()}


#: What the runtime calls the handles that a process may begin with, for findings and the recording.
FINDINGS_HANDLE, RECORD_HANDLE = Path("&3"), Path("&4")

#: The schedules that ``schedule`` compares: the unfair ones find what a fair one never shows.
#: Where there is a checked build, ``lockstep`` is one more: only there can threads be held.
SCHEDULES: tuple[tuple[Order, int], ...] = (
    ("forward", 1),
    ("reverse", 1),
    ("random", 1),
    ("priority", 1),
    ("priority", 2),
    ("priority", 3),
    ("priority", 4),
)


def spell(settings: Mapping[str, str | int | float]) -> str:
    """The settings as the runtime reads them: ``warp=64;order=reverse``."""
    return ";".join(f"{key}={str(value).replace(';', ',')}" for key, value in settings.items())

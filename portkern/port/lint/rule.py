"""The interface of a rule: its arguments and its matches; the rules are in the modules beside
this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from portkern.port.lint.source import Source
from portkern.simt.diagnostics import Severity
from portkern.spec.target import AmdLimits, Target


class Match(NamedTuple):
    """A pitfall at an offset; ``level`` where this case weighs less or more than its kind."""

    code: str
    at: int
    message: str
    level: Severity | None = None


_LDS_BYTES = 65536
_MOST_WAVES = 16


@dataclass(frozen=True)
class Platform:
    """The properties of a target that the rules ask for; without a target, all that is true of
    some AMD device."""

    target: Target | None = None

    @property
    def amd(self) -> bool:
        return self.target is None or self.target.vendor == "amd"

    @property
    def wave64(self) -> bool:
        return self.amd and (self.target is None or self.target.warp == 64)

    @property
    def wave32(self) -> bool:
        return self.target is None or self.target.warp == 32

    @property
    def lds_bytes(self) -> int:
        """The most that every device in question allows one block."""
        bytes_ = self.target.shared_block_bytes if self.target else None
        return bytes_ or _LDS_BYTES

    @property
    def waves_simd(self) -> int:
        limits = self.target.limits if self.target else None
        return limits.waves_simd if isinstance(limits, AmdLimits) else _MOST_WAVES

    @property
    def fp8(self) -> str:
        """``any`` where devices in question differ."""
        return self.target.features.fp8 if self.target else "any"

    @property
    def xf32(self) -> bool:
        return self.target is not None and self.target.features.tf32

    @property
    def textures(self) -> bool:
        """CDNA3 and later have no image instructions."""
        if self.target is None:
            return False
        return bool(self.target.features.extras.get("textures", self.target.family != "cdna4"))

    @property
    def float_atomics(self) -> bool:
        """Whether adding a float in global memory is one instruction."""
        extras = self.target.features.extras if self.target else {}
        return extras.get("f32_atomic_add_default", "cas_loop") != "cas_loop"

    @property
    def clock64(self) -> bool:
        extras = self.target.features.extras if self.target else {}
        return extras.get("clock64_reliable") is not False

    @property
    def name(self) -> str:
        return str(self.target) if self.target else "AMD"


Rule = Callable[[Source, Platform], Iterator[Match]]

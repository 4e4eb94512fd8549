"""Controls, which nobody changed, and how they moved in a night: eager beside each kernel, kernels
of other toolchains, and the calibration kernel of each device. Only these can say that it was the
machine."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from portkern.regression import rule
from portkern.regression.nights import Night
from portkern.regression.outcome import CellOutcome
from portkern.regression.reference import (
    References,
    TimeLevel,
    TimeReference,
    calibrated,
    set_apart,
    torch_of,
)
from portkern.regression.series import Series, moved_on, same_code
from portkern.regression.timed import Statistic, TimedPlace, point

#: Fewer say nothing, unless a calibration kernel, which is timed more than once, is among them.
FEWEST = 4
#: The ``tool`` of calibration kernels, which are controls of all toolchains' kernels.
CALIBRATION = "calibration"
#: The share of the controls that must have moved one way, and the share of their median by which.
MOST, SHARE = 0.75, 0.5
#: So many times what they differ from run to run otherwise is a busy machine.
BUSY = 2.0
#: A median's absolute deviation of a normal distribution, in standard deviations.
_NORMAL = 1.4826


@dataclass(frozen=True)
class Control:
    """``moved`` is the logarithm to its reference; ``usual`` its deviation from run to run;
    ``tool`` is '' of eager."""

    machine: str
    device: str
    tool: str
    moved: float
    usual: float


@dataclass(frozen=True)
class MachinePace:
    """The pace of a machine in a night: how far all of it moved, and how much wider than usual
    its times are scattered, as a deviation; both 0 where controls are few or as ever. ``middle``
    is of the controls whatever they show."""

    moved: float = 0.0
    wider: float = 0.0
    controls: Sequence[Control] = ()
    middle: float = 0.0

    @classmethod
    def of(cls, controls: Sequence[Control]) -> MachinePace:
        if not _enough(controls):
            return cls(controls=controls)
        moves = [one.moved for one in controls]
        middle = statistics.median(moves)
        usual = statistics.median(one.usual for one in controls)
        spread = _NORMAL * statistics.median(abs(move - middle) for move in moves)
        scattered = len(controls) >= FEWEST and spread > max(BUSY * usual, rule.FLOOR)
        wider = math.sqrt(spread**2 - usual**2) if scattered else 0.0
        along = sum(move / middle >= SHARE for move in moves) if middle else 0
        alike = abs(middle) > max(rule.FLOOR, 2 * usual) and along >= MOST * len(moves)
        return cls(middle if alike else 0.0, wider, controls, middle)

    @property
    def busy(self) -> bool:
        return bool(self.moved or self.wider)

    @property
    def known(self) -> bool:
        """Whether there are controls at all."""
        return _enough(self.controls)

    def __str__(self) -> str:
        return self._told

    @cached_property
    def _told(self) -> str:
        tools = sorted({one.tool or "eager" for one in self.controls})
        moves = sorted(math.expm1(one.moved) for one in self.controls)
        if not moves:
            return "no controls"
        named = f"{len(moves)} controls ({', '.join(tools)})"
        fixed = [f"{math.expm1(o.moved):+.1%}" for o in self.controls if o.tool == CALIBRATION]
        beside = f", calibration kernels by {', '.join(fixed)}" if fixed else ""
        return f"{named} moved by {moves[0]:+.0%} to {moves[-1]:+.0%}{beside}"


class Controls:
    """The controls of one night, compared with references."""

    def __init__(self, references: References, night: Night) -> None:
        self._all = list(_found(references, night))
        self.calibrations = [*_calibrations(references, night)]
        self._known: dict[tuple[str, str, str], MachinePace] = {}

    def beside(self, series: Series, machine: str, device: str) -> MachinePace:
        """The pace of the device where its controls are enough, else that of its machine's
        devices of the kind, the processor's or GPUs. What is built by the cell's own toolchain is
        not a control of it."""
        tool = tool_of(series)
        key = machine, device, tool
        if key not in self._known:
            here = [one for one in self._all if one.machine == machine and one.tool != tool]
            own = [one for one in here if one.device == device]
            kind = _is_processor(device, machine)
            alike = [one for one in here if _is_processor(one.device, machine) is kind]
            self._known[key] = MachinePace.of(own if _enough(own) else alike)
        return self._known[key]

    def places(self) -> Iterator[tuple[str, MachinePace]]:
        """The pace of each machine and device, by all of its controls."""
        for machine, device in dict.fromkeys((one.machine, one.device) for one in self._all):
            of_both = [one for one in self._all if (one.machine, one.device) == (machine, device)]
            yield (
                f"{machine}, {device}" if device not in machine else machine,
                MachinePace.of(of_both),
            )


def _is_processor(device: str, machine: str) -> bool:
    """Whether the device is the machine's processor, which OpenCL gives a longer name."""
    processor = machine.partition(" CPUs, ")[2]
    return processor in device if processor and device else device in machine


def _enough(controls: Sequence[Control]) -> bool:
    return len(controls) >= FEWEST or any(one.tool == CALIBRATION for one in controls)


def tool_of(series: Series) -> str:
    return f"{series.backend}/{series.language}"


def _found(references: References, night: Night) -> Iterator[Control]:
    for series, races in night.calibrated():
        one = _calibration(references, series, races)
        if isinstance(one, Control):
            yield one
    for series, new in night.cells.items():
        machine, now = new.environment.machine, point(new)
        reference = references.cells.get((series, machine))
        level = reference.levels.get(TimedPlace.of(new)) if reference else None
        if reference is None or level is None or now is None or not level.first:
            continue
        if new.carried:
            continue
        device = new.environment.device
        eager = [one.eager for one in level.first if one.eager is not None]
        same_eager = reference.torch in ("", torch_of(new))
        if now.eager is not None and eager and same_eager:
            usual = _usual([one.eager for one in level.calm if one.eager is not None])
            moved = now.eager - statistics.median(eager)
            yield Control(machine, device, "", moved, usual)
        if _unchanged(reference, new.source_hash, series, night):
            yield _kernel(series, machine, device, level, now.time)


def _calibrations(references: References, night: Night) -> Iterator[str]:
    """A line for each calibration kernel of the night."""
    for series, races in night.calibrated():
        one, new = _calibration(references, series, races), races[-1]
        told = f"moved by {math.expm1(one.moved):+.1%}" if isinstance(one, Control) else one
        yield f"{new.environment.device}: its calibration kernel in {series.backend} {told}"


def _calibration(
    references: References, series: Series, races: Sequence[CellOutcome]
) -> Control | str:
    """The control that a night's races of a calibration kernel are; why they are none, in a
    line."""
    new, now = races[-1], calibrated(races)
    where = new.environment.machine, new.environment.device
    reference = references.cells.get((series, new.environment.machine))
    level = reference.levels.get(TimedPlace.of(new)) if reference else None
    if now is None:
        return f"was not timed: {new.verdict}: {new.detail.partition(chr(10))[0]}"
    if reference is None or reference.good is None or level is None:
        return "is timed for the first time"
    if differs := set_apart(reference.good, new):
        return f"begins anew: {', '.join(differs)} changed"
    if len(level.first) < rule.LEAST:  # as it may have to decide alone
        return f"has {len(level.first)} earlier nights, expected {rule.LEAST}"
    moved = now.time - statistics.median(level.values("first", Statistic.TIME))
    return Control(*where, CALIBRATION, moved, _usual(level.values("calm", Statistic.TIME)))


def _kernel(series: Series, machine: str, device: str, level: TimeLevel, now: float) -> Control:
    moved = now - statistics.median(level.values("first", Statistic.TIME))
    usual = _usual(level.values("calm", Statistic.TIME))
    return Control(machine, device, tool_of(series), moved, usual)


def _unchanged(reference: TimeReference, source: str, series: Series, night: Night) -> bool:
    good, new = reference.good, night.cells[series]
    if good is None:
        return False
    compilers = not same_code(good, new)
    return not moved_on(
        good.source_hash, good.environment, source, new.environment, compilers=compilers
    )


def _usual(values: Sequence[float]) -> float:
    """The usual deviation from run to run, with the reference's own share."""
    if len(values) < 2:
        return 0.0
    return math.sqrt(rule.variance(values) * (1 + 1 / len(values)))

"""The state that a device reports while it is timed: clocks, temperature, power, and what slows it.

The evaluator asks, never the worker: NVML for NVIDIA, the kernel's sysfs for AMD, psutil for CPUs.
What a driver does not tell is left out.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pynvml as nvml

from portkern.spec.target import Target
from portkern.toolchain import host

#: NVML's reasons for clocks below their maximum that a kernel's time suffers from
#: (nvmlClocksEventReasons: SW power cap, HW slowdown, SW and HW thermal slowdown, power brake).
SLOWED = {
    0x4: "the power cap",
    0x8: "a hardware slowdown",
    0x20: "its temperature",
    0x40: "its temperature",
    0x80: "a power brake",
}

Reading = Mapping[str, float]


class Watch:
    """Looks at a target's device now and then; ``seen`` has the least and the largest of each
    quantity, ``slowed`` what held the clocks down."""

    def __init__(self, target: Target) -> None:
        self.seen: dict[str, tuple[float, float]] = {}
        self.slowed: set[str] = set()
        self._read = _reader(target)
        self._target, self._since_us = target, time.time_ns() // 1_000

    def look(self) -> None:
        for name, value in self._read(self.slowed).items():
            low, high = self.seen.get(name, (value, value))
            self.seen[name] = min(low, value), max(high, value)

    def others(self, own: Iterable[int]) -> list[int]:
        """The processes that have worked on the device since this began and are not ``own``. None
        where the driver does not tell, or names not one that is ``own``: it then has other numbers
        for them, as in a container."""
        gpu = host.gpu_for(self._target) if self._target.is_gpu else None
        if gpu is None or gpu.vendor != "nvidia":
            return []
        try:
            handle = _handle(gpu.number)
            there = {int(one.pid) for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
            used = nvml.nvmlDeviceGetProcessUtilization(handle, self._since_us)
        except nvml.NVMLError:
            return []
        others = there.difference(own)
        at_work = {int(one.pid) for one in used if one.smUtil}
        return sorted(others & at_work) if others != there else []


def _reader(target: Target) -> Callable[[set[str]], Reading]:
    if not target.is_gpu:
        return _cpu
    gpu = host.gpu_for(target)
    if gpu is None:
        return lambda slowed: {}
    return _nvidia(gpu.number) if gpu.vendor == "nvidia" else _amd(gpu.number)


def _cpu(slowed: set[str]) -> Reading:
    reading: dict[str, float] = {"load": psutil.getloadavg()[0]}
    with suppress(OSError, NotImplementedError, AttributeError):
        frequency = psutil.cpu_freq()
        if frequency is not None and frequency.current:
            reading["clock_mhz"] = round(frequency.current)
    with suppress(OSError, AttributeError):
        sensors = itertools.chain.from_iterable(psutil.sensors_temperatures().values())
        temperatures = [sensor.current for sensor in sensors]
        if temperatures:
            reading["temperature_c"] = max(temperatures)
    return reading


def _handle(index: int) -> Any:
    """NVML's handle of a GPU. Raises NVMLError."""
    nvml.nvmlInit()
    return nvml.nvmlDeviceGetHandleByIndex(index)


def _nvidia(index: int) -> Callable[[set[str]], Reading]:
    try:
        handle = _handle(index)
    except nvml.NVMLError:
        return lambda slowed: {}
    questions: dict[str, Callable[[], float]] = {
        "clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    }

    def read(slowed: set[str]) -> Reading:
        reading = {}
        for name, ask in questions.items():
            with suppress(nvml.NVMLError):
                reading[name] = float(ask())
        with suppress(nvml.NVMLError):
            reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
            slowed |= {why for bit, why in SLOWED.items() if reasons & bit}
        return reading

    return read


def _amd(index: int) -> Callable[[set[str]], Reading]:
    """hwmon counts in Hz, thousandths of a degree and millionths of a watt."""
    cards = sorted(Path("/sys/class/drm").glob("card[0-9]*/device/hwmon/hwmon*"))
    cards = [card for card in cards if (card / "name").read_text().strip() == "amdgpu"]
    files = {
        "clock_mhz": ("freq1_input", 1e-6),
        "memory_mhz": ("freq2_input", 1e-6),
        "temperature_c": ("temp1_input", 1e-3),
        "power_w": ("power1_average", 1e-6),
    }

    def read(slowed: set[str]) -> Reading:
        reading = {}
        for name, (file, unit) in files.items() if index < len(cards) else ():
            with suppress(OSError, ValueError):
                reading[name] = int((cards[index] / file).read_text()) * unit
        return reading

    return read

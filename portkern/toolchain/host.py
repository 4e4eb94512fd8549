"""The hardware of this machine, asked of the system and never of a GPU runtime.

Who only asks must not create a CUDA context, so NVIDIA's management library and the kernel's sysfs
answer; `nvidia-smi`, which asks the same library, takes 0.5 s to start.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from portkern.spec.target import Target

#: The variables of every process that opens a GPU: kernels, baselines and profilers mean the same
#: card by a number. CUDA counts by speed unless told otherwise, nvidia-smi and this module by bus.
GPU_NUMBERING: Mapping[str, str] = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@dataclass(frozen=True)
class Gpu:
    """``arch`` in the targets' spelling (``sm_90``, ``gfx942``). ``index`` counts, per vendor, what
    a process sees; ``number`` is the driver's own, which no variable changes."""

    vendor: str
    name: str
    arch: str
    index: int
    driver: str
    number: int = 0
    uuid: str = ""

    def is_a(self, target: Target) -> bool:
        """Whether this is ``target``: the product when it is one, else the architecture."""
        if self.vendor != target.vendor or self.arch != target.arch:
            return False
        return target.kind == "architecture" or any(m in self.name for m in target.device_names)


def machine() -> str:
    """A description of this machine, in words that name no person's host."""
    system = f"{platform.system()} {platform.machine()}"
    return f"{system}, {os.cpu_count()} CPUs, {cpu_name()}"


@lru_cache
def gpus() -> tuple[Gpu, ...]:
    """The GPUs that the environment's ``*_VISIBLE_DEVICES`` leave, numbered as a process sees
    them."""
    nvidia = visible(_nvidia(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    amd = visible(_amd(), os.environ.get("ROCR_VISIBLE_DEVICES"))
    # HIP takes CUDA's variable where its own is not set, and counts what ROCR's has left
    hip = os.environ.get("HIP_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
    return (*nvidia, *visible(amd, hip))


def visible(listed: Sequence[Gpu], names: str | None) -> list[Gpu]:
    """The GPUs of ``listed`` that ``names`` chooses, by number or the beginning of a UUID. The
    first number without a GPU ends the list, as it does in the drivers."""
    if names is None:
        return list(listed)
    chosen: list[Gpu] = []
    for name in map(str.strip, names.split(",")):
        gpu = next((gpu for gpu in listed if _is_called(gpu, name)), None)
        if gpu is None and name.startswith(("MIG", "GPU-")):
            return list(listed)  # a slice of a GPU, or a UUID that only the driver knows
        if gpu is None:
            break
        chosen.append(replace(gpu, index=len(chosen)))
    return chosen


def _is_called(gpu: Gpu, name: str) -> bool:
    return name == str(gpu.index) or (name.startswith("GPU-") and gpu.uuid.startswith(name))


def gpu_for(target: Target) -> Gpu | None:
    """The first GPU here that is ``target``."""
    return next((gpu for gpu in gpus() if gpu.is_a(target)), None)


def runs_here(target: Target) -> bool:
    """Whether this machine's CPU executes code built for a CPU target."""
    if target.vendor != "cpu" or not _machine_matches(target):
        return False
    return set(target.cpu_flags) <= cpu_flags()


def _machine_matches(target: Target) -> bool:
    return target.name.startswith(platform.machine().replace("arm64", "aarch64"))


@lru_cache
def cpu_flags() -> frozenset[str]:
    match = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", _cpuinfo(), re.MULTILINE)
    return frozenset(match[1].split()) if match else frozenset()


@lru_cache
def cpu_name() -> str:
    match = re.search(r"^model name\s*:\s*(.*)$", _cpuinfo(), re.MULTILINE)
    return match[1].strip() if match else platform.machine()


@lru_cache
def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


def _nvidia() -> list[Gpu]:
    import pynvml as nvml

    try:
        nvml.nvmlInit()
        driver, count = nvml.nvmlSystemGetDriverVersion(), nvml.nvmlDeviceGetCount()
    except nvml.NVMLError:  # no library or no driver: no GPU
        return []
    listed: list[Gpu] = []
    for number in range(count):
        with suppress(nvml.NVMLError):  # lost, or not for this user: others are there all the same
            listed.append(_gpu(number, len(listed), driver))
    return listed


def _gpu(number: int, index: int, driver: str) -> Gpu:
    """The GPU of this number, as NVIDIA's library has it once it is initialised."""
    import pynvml as nvml

    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    arch = "sm_{}{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(handle))
    name, uuid = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetUUID(handle)
    return Gpu("nvidia", name, arch, index, driver, number, uuid)


def _amd() -> list[Gpu]:
    """AMD's compute devices from the kernel driver; CPUs are nodes too, with no gfx version."""
    listed: list[Gpu] = []
    for node in sorted(Path("/sys/class/kfd/kfd/topology/nodes").glob("*/properties")):
        text = node.read_text()
        match = re.search(r"^gfx_target_version (\d+)$", text, re.MULTILINE)
        if not match or int(match[1]) == 0:
            continue
        version = int(match[1])  # 90402 is gfx942: major, minor and stepping, two digits each
        arch = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
        name = (node.parent / "name").read_text().strip() or arch
        module = Path("/sys/module/amdgpu/version")
        driver = module.read_text().strip() if module.exists() else ""
        listed.append(Gpu("amd", name, arch, len(listed), driver, len(listed)))
    return listed

"""Which OpenCL devices are here. A child process asks: a broken driver ends the one that does."""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from ctypes.util import find_library
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from portkern.spec.backend import Missing
from portkern.spec.target import Target
from portkern.toolchain import host
from portkern.toolchain.run_tool import package_dir, package_version

if TYPE_CHECKING:
    import pyopencl

TIMEOUT_S = 120.0
PIP = "pip install 'portkern[opencl]'"
LINKER = "install binutils and gcc, or 'pip install ziglang'"
#: What pip's PoCL of 2022 says of processors that came after it.
UNKNOWN_CPU = "unknown target CPU"
ANOTHER = "apt install pocl-opencl-icd (its LLVM knows more processors)"
#: The device of pip's PoCL that has a thread for each core, and the one that runs a kernel in the
#: thread that enqueues it, where small ones are soonest done. It shows the first unless asked.
PIPS_POCL, POCL_DEVICES = "pocl-binary-distribution", "pthread basic"
#: How the name of the latter begins: PoCL's, and since 4.0.
CALLER = ("basic", "cpu-minimal")
#: What the loader says where no driver has an entry, or none of those has a device.
NO_PLATFORM = "PLATFORM_NOT_FOUND"
#: Lists the devices, then runs a kernel on each: PoCL links one when it is first launched, and
#: aborts the process if it cannot.
_ASK = """
import json, sys
from portkern.backends.opencl.platforms import trial, visible
devices = visible()
for description, _ in devices:
    print(json.dumps(vars(description)), flush=True)
for description, device in devices:
    try:
        trial(device)
    except Exception as error:
        print(error, file=sys.stderr, flush=True)
        continue
    print(json.dumps([description.platform, description.index]), flush=True)
"""


DeviceKind = Literal["cpu", "gpu", "other"]


@dataclass(frozen=True)
class ClDescription:
    """One device as its driver describes it; ``platform`` and ``index`` are its address."""

    platform: int
    index: int
    kind: DeviceKind
    name: str
    vendor: str
    driver: str

    @property
    def address(self) -> str:
        return f"opencl:{self.platform}:{self.index}"


def visible() -> list[tuple[ClDescription, pyopencl.Device]]:
    """Every device of this process with its description, except Oclgrind's, which is a checker, and
    PoCL's that stands beside another."""
    import pyopencl as cl

    kinds: dict[int, DeviceKind] = {cl.device_type.CPU: "cpu", cl.device_type.GPU: "gpu"}
    visible_devices = []
    for number, driver in enumerate(cl.get_platforms()):
        if is_checker(driver):
            continue
        devices = driver.get_devices()
        for index, device in enumerate(devices):
            if len(devices) > 1 and device.name.startswith(CALLER):
                continue
            description = ClDescription(
                number,
                index,
                kinds.get(device.type, "other"),
                device.name.strip(),
                device.vendor.strip(),
                f"{driver.name}: {device.driver_version}",
            )
            visible_devices.append((description, device))
    return visible_devices


def is_checker(driver: pyopencl.Platform) -> bool:
    return "oclgrind" in driver.name.lower()


def checker() -> str | None:
    """The address of Oclgrind's device in this process; None where it is not installed."""
    import pyopencl as cl

    drivers = enumerate(cl.get_platforms())
    return next((f"opencl:{number}:0" for number, one in drivers if is_checker(one)), None)


def checker_options(device: pyopencl.Device) -> list[str]:
    """Options for programs of Oclgrind's: what optimisers write for values that may not matter, it
    cannot run, and functions that are only ``inline`` exist nowhere without them."""
    return ["-cl-opt-disable", "-Dinline="] if is_checker(device.platform) else []


def pocl_devices() -> dict[str, str]:
    """POCL_DEVICES for pip's PoCL, unless it is set: others may have a GPU's driver, too."""
    if "POCL_DEVICES" in os.environ or package_version(PIPS_POCL) is None:
        return {}
    return {"POCL_DEVICES": POCL_DEVICES}


def caller_of(device: pyopencl.Device) -> pyopencl.Device | None:
    """PoCL's device that runs kernels in the thread that enqueues them, beside another of its."""
    others = [other for other in device.platform.get_devices() if other != device]
    return next((other for other in others if other.name.startswith(CALLER)), None)


def trial(device: pyopencl.Device) -> None:
    """Build and run a kernel; a device that cannot ends the process here and not in a worker."""
    import numpy
    import pyopencl as cl

    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    answer = numpy.zeros(4, numpy.int32)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, answer.nbytes)
    source = "kernel void seven(global int* x) { x[get_global_id(0)] = 7; }"
    kernel = cl.Kernel(cl.Program(context, source).build(), "seven")
    kernel(queue, (4,), (1,), buffer)
    cl.enqueue_copy(queue, answer, buffer)
    assert (answer == 7).all()


@lru_cache
def devices() -> tuple[ClDescription, ...] | Missing:
    """The devices that ran a kernel, or why there are none. Asked once per process."""
    if package_version("pyopencl") is None:
        return Missing("pyopencl is not installed", PIP)
    argv = [sys.executable, "-P", "-W", "ignore", "-c", _ASK]
    try:
        child = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **host.GPU_NUMBERING, **environment()},
        )
    except subprocess.TimeoutExpired:
        return Missing(f"the OpenCL drivers did not answer within {TIMEOUT_S:g} s")
    lines = [json.loads(line) for line in child.stdout.splitlines() if line[:1] in "{["]
    listed = [ClDescription(**line) for line in lines if isinstance(line, dict)]
    working = [d for d in listed if [d.platform, d.index] in lines]
    if working:
        return tuple(working)
    return _why_none(listed, child.stderr)


def _why_none(listed: list[ClDescription], log: str) -> Missing:
    lines = log.strip().splitlines() or ["no message"]
    said = next((line for line in lines if line.startswith("error:")), lines[-1])
    if listed:
        remedy = ANOTHER if UNKNOWN_CPU in said else LINKER if _lacks_linker() else ""
        return Missing(f"{listed[0].driver} cannot run a kernel: {said}", remedy)
    if log.strip() and NO_PLATFORM not in said:
        return Missing(f"pyopencl cannot list the devices: {said}")
    nvidia = find_library("nvidia-opencl")
    if nvidia:
        entry = "/etc/OpenCL/vendors/nvidia.icd"
        return Missing(
            f"{nvidia} is here, but no ICD entry names it", f"write its name into {entry}"
        )
    return Missing("no OpenCL platform", f"{PIP} brings PoCL, for CPUs")


def choose(target: Target, devices: Iterable[ClDescription]) -> ClDescription | Missing:
    """The device that is ``target``: the vendor's GPU, a CPU; for the generic one a GPU first."""
    devices = list(devices)
    if target.is_gpu:
        gpu = host.gpu_for(target)
        if gpu is None:
            return Missing(f"no {target.title} here")
        for device in devices:
            if device.kind == "gpu" and (gpu.name in device.name or gpu.arch in device.name):
                return device
        return Missing(f"{gpu.name} is here, but no OpenCL driver for it", _icd_remedy(target))
    if target.vendor == "cpu" and not host.runs_here(target):
        return Missing(f"this CPU is {platform.machine()}", f"run on {target.title}")
    kinds = ("cpu",) if target.vendor == "cpu" else ("gpu", "cpu", "other")
    ranked = sorted((d for d in devices if d.kind in kinds), key=lambda d: kinds.index(d.kind))
    return ranked[0] if ranked else Missing("no OpenCL driver for this CPU", f"{PIP} brings PoCL")


def _icd_remedy(target: Target) -> str:
    if target.vendor == "nvidia":
        return "write libnvidia-opencl.so.1 into /etc/OpenCL/vendors/nvidia.icd"
    return "install ROCm's OpenCL, with an entry in /etc/OpenCL/vendors"


def environment() -> dict[str, str]:
    """The variables that a process needs before it loads pyopencl."""
    # pyopencl's cache of binaries is keyed by source and lies outside of the jail
    settings = {"PYOPENCL_NO_CACHE": "1", **pocl_devices()}
    shim = _linker_shim()
    return settings | ({"PATH": f"{shim}{os.pathsep}{os.environ['PATH']}"} if shim else {})


def _lacks_linker() -> bool:
    return shutil.which("ld") is None or shutil.which("gcc") is None


@lru_cache
def _linker_shim() -> Path | None:
    """A folder with an ``ld`` that is zig's, where PoCL would find no linker or no libgcc."""
    if not _lacks_linker() or package_dir("ziglang") is None:
        return None
    folder = Path(os.environ.get("POCL_CACHE_DIR") or Path.home() / ".cache/portkern/pocl") / "ld"
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"ld.{os.getpid()}"
    fresh.write_text(
        "#!/bin/sh\n# PoCL asks for libgcc, which its kernels do not use.\n"
        'for a; do shift; case "$a" in -lgcc*) ;; *) set -- "$@" "$a";; esac; done\n'
        f'exec {shlex.quote(sys.executable)} -m ziglang ld.lld "$@"\n'
    )
    fresh.chmod(0o755)
    fresh.replace(folder / "ld")
    return folder

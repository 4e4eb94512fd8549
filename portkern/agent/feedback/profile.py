"""Calls a kernel a few times: ``python -m portkern.agent.feedback.profile REQUEST.json``, under a
profiler, by :mod:`portkern.agent.feedback.outside`, which says how it is confined and why not
better.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from portkern.agent.feedback.outside import CALLS, WARM_UP
from portkern.sandbox import message
from portkern.sandbox.jail import root, seccomp, system
from portkern.spec import registry
from portkern.spec.backend import Artifact, Build, Call, Kernel, Venue

#: Files of /proc that drivers and Python ask for; it has the evaluator's environment too.
PROC = (
    "self",
    "driver",
    "devices",
    "modules",
    "cpuinfo",
    "meminfo",
    "stat",
    "sys",
    "filesystems",
    "version",
    "loadavg",
    "uptime",
)
#: Files of /dev that may be seen; it has the disks too.
DEVICES = (*root.DEVICES, *root.ACCELERATORS, "shm")
CAP_SYS_ADMIN = 21
_CAPABILITY_VERSION_3 = 0x20080522


def main(path: str) -> None:
    request = json.loads(Path(path).read_text(encoding="utf-8"))
    build, scratch = message.read(Build, request["build"]), Path(request["scratch"])
    venue = message.read(Venue, request["venue"])
    backend = registry.load(build.candidate.backend)
    _open(venue.device)
    shut(
        request["layers"],
        [Path(path) for path in request["reads"]],
        scratch,
        admin=request["admin"],
    )
    artifact = _copied(Artifact.from_json(request["artifact"]), scratch)
    kernel = backend.load(artifact, build, venue)
    call = _call(kernel, request)
    for _ in range(WARM_UP):
        kernel.launch(call)
    kernel.device.synchronize()
    with _counting(venue.device):
        for _ in range(CALLS):
            kernel.launch(call)
        kernel.device.synchronize()


def _open(device: str) -> None:
    """The driver and the profiler's library in this process reach what they need now."""
    import torch

    torch.zeros(1, device=device)


def shut(layers: Sequence[str], reads: Sequence[Path], scratch: Path, *, admin: bool) -> None:
    """Confines this process from here on. ``admin`` keeps the one capability that the driver
    asks of whoever counts."""
    os.chdir(scratch)
    _keep_capabilities(1 << CAP_SYS_ADMIN if admin and os.geteuid() == 0 else 0)
    if not layers:
        return
    system.no_new_privileges()
    if "landlock" in layers:
        own = [path for path in root.readable() if path != Path("/proc")]
        proc = [Path("/proc") / name for name in PROC]
        devices = [node for name in DEVICES for node in Path("/dev").glob(name)]
        system.landlock([*own, *proc, *reads], [scratch, *devices])
    if "seccomp" in layers:
        seccomp.install()


def _keep_capabilities(bits: int) -> None:
    """Drops all capabilities of this process except those in the mask ``bits``."""
    held = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapPrm:"):
            held = int(line.split()[1], 16)
    low = bits & held
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)(low, low, 0, 0, 0, 0)
    if ctypes.CDLL(None, use_errno=True).capset(ctypes.byref(header), ctypes.byref(data)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _copied(artifact: Artifact, scratch: Path) -> Artifact:
    """Compilers keep what they still make beside it."""
    folder = Path(shutil.copytree(artifact.path.parent, scratch / "artifact"))
    return replace(artifact, path=folder / artifact.path.name)


def _call(kernel: Kernel, request: Mapping[str, Any]) -> Call:
    import torch

    host, device = torch.load(request["inputs"], weights_only=True), kernel.device
    outputs = [torch.empty(size, dtype=getattr(torch, kind)) for size, kind in request["outputs"]]
    return Call(
        [device.upload(tensor) for tensor in host],
        [device.upload(output) for output in outputs],
        request["dims"],
        request["scalars"],
    )


@contextmanager
def _counting(device: str) -> Iterator[None]:
    """A context between the two calls of CUDA that ncu waits for; ROCm's profiler knows none."""
    import torch

    if not device.startswith("cuda") or not torch.version.cuda:
        yield
        return
    profiler: Any = torch.cuda.profiler  # torch leaves it untyped
    profiler.start()
    yield
    profiler.stop()


if __name__ == "__main__":
    main(sys.argv[1])

"""Starts :mod:`portkern.agent.feedback.profile` under a profiler, outside of the jail.

The jail has no room for a profiler of GPUs: Nsight Compute and rocprofv3 start the program that
they look into, speak to it over sockets, and open interfaces of the driver that the jail closes.
So a kernel, which has been evaluated by then, is called in a process of its own that shuts the
doors behind the profiler: once the device is open, Landlock takes away all files but the system's,
Python's, the artifact and a scratch folder, and the network; seccomp the calls that the jail takes
away; capabilities go, but for the one that the driver may ask of whoever counts. Only then the
artifact is loaded. There are no namespaces, no limits of memory, and the user stays the one who
started it, which is why counters of GPUs are off unless they are asked for.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from portkern.agent.feedback.subject import FeedbackSubject
from portkern.errors import ToolError
from portkern.evaluator import inputs
from portkern.sandbox import jail, message, session
from portkern.sandbox.environment import inherited
from portkern.toolchain.run_tool import cache_root, run_tool
from portkern.worker import protocol

#: Calls that are not counted where the profiler can be told so, and those that are.
WARM_UP, CALLS = 2, 3
#: The one folder that the program may write to, beneath the caller's.
SCRATCH = "scratch"
LAYERS = ("landlock", "seccomp")
#: Where NVIDIA's driver says whether it asks for CAP_SYS_ADMIN.
_DRIVER = Path("/proc/driver/nvidia/params")


def under(tool: Sequence[str], subject: FeedbackSubject, folder: Path, *, timeout_s: float) -> str:
    """Runs the program under ``tool``, behind the tool's own arguments, and returns what was
    printed. ``folder`` is empty, and the caller removes it. Raises ToolError when either fails,
    or when nothing confines them."""
    layers = [name for name in LAYERS if name in session.layers().active]
    if "landlock" not in layers and os.environ.get(jail.SWITCH) != "none":
        why = session.layers().missing.get("landlock", "it was turned off")
        raise ToolError(
            "a profiler runs the kernel outside of the jail, and this machine cannot confine it "
            f"there (landlock: {why}); {jail.SWITCH}=none runs it all the same, if you trust it"
        )
    scratch = folder / SCRATCH
    scratch.mkdir()
    request = folder / "request.json"
    request.write_text(json.dumps(_request(subject, folder, scratch, layers)), encoding="utf-8")
    environment = _environment(subject.contestant.venue.environment, scratch)
    program = [sys.executable, "-P", "-m", "portkern.agent.feedback.profile", str(request)]
    return run_tool(
        ["env", "-i", *environment, *tool, *program],
        whose="own",
        timeout_s=timeout_s,
        cwd=scratch,
        error=ToolError,
    )


def _request(
    subject: FeedbackSubject, folder: Path, scratch: Path, layers: Sequence[str]
) -> dict[str, object]:
    import torch

    contestant, work = subject.contestant, subject.workload
    drawn = inputs.draw(subject.op, work, subject.dtype, inputs.BASE)
    torch.save(list(drawn), folder / "inputs.pt")
    outputs = [
        [spec.sizes(work.dims), spec.resolve(subject.dtype)]
        for spec in subject.op.signature.outputs
    ]
    reads = [*contestant.request.reads(), contestant.artifact.path.parent, folder / "inputs.pt"]
    return {
        "build": message.plain(protocol.anonymous(contestant.request.build)),
        "artifact": contestant.artifact.to_json(),
        "venue": message.plain(contestant.venue),
        "inputs": str(folder / "inputs.pt"),
        "outputs": outputs,
        "dims": dict(work.dims),
        "scalars": subject.op.signature.scalar_values(work.scalars),
        "layers": list(layers),
        "scratch": str(scratch),
        "reads": list(map(str, reads)),
        "admin": _asks_for_admin(),
    }


def _asks_for_admin() -> bool:
    parameters = _DRIVER.read_text() if _DRIVER.exists() else ""
    return "RmProfilingAdminOnly: 1" in parameters


def _environment(venue: Mapping[str, str], scratch: Path) -> list[str]:
    """The evaluator's variables that a worker sees: no key is among them, and ``env -i`` leaves
    out the rest."""
    cache = str(cache_root().absolute())
    own = {"HOME": str(scratch), "TMPDIR": str(scratch), "PORTKERN_CACHE_DIR": cache}
    return [f"{name}={value}" for name, value in {**inherited(), **venue, **own}.items()]

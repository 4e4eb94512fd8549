"""The commands on a node of a cluster: it says what it is, and runs a slice of a run.

Drivers call these functions by name, so that each node runs the portkern that is installed there.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from portkern.cells.run import Matrix
from portkern.errors import ConfigError
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.execution.installation import Portkern
from portkern.execution.plan import ExecutionPlan
from portkern.records.record import RecordFile
from portkern.spec import target
from portkern.spec.safe_name import SafeName
from portkern.toolchain import host
from portkern.toolchain.run_tool import cache_root

#: The resource that every node of ours has once: who holds it has the node's devices.
OWNER = "portkern"


def targets() -> list[str]:
    """The targets that this machine is: the levels of its CPU, its GPUs' architectures and
    products."""
    known = [target.load(name) for name in target.names()]
    gpus = host.gpus()
    return [t.name for t in known if host.runs_here(t) or any(gpu.is_a(t) for gpu in gpus)]


def resources() -> dict[str, float]:
    """The resources of this node, as Ray takes them."""
    return {OWNER: 1.0} | dict.fromkeys(targets(), 1.0)


def describe() -> dict[str, str]:
    """The facts that a driver must know before it sends anything."""
    return {
        "portkern": Portkern.here().model_dump_json(),
        "machine": host.machine(),
        "python": platform.python_version(),
    }


def run_slice(document: str) -> list[str]:
    """The records of a plan's cells, as JSON lines in its order. Raises ConfigError for a plan of
    another portkern."""
    _all_threads()
    plan = ExecutionPlan.parse(document, "the slice")
    refused = plan.refusal()
    if refused:
        raise ConfigError(refused)
    with tempfile.TemporaryDirectory(prefix="portkern-slice-") as folder:
        matrix = Matrix(
            plan.load_cells(cache_root() / "plans" / SafeName(plan.id)),
            plan.run,
            RecordFile(Path(folder) / "records.jsonl"),
            ArtifactCache(cache_root() / "builds"),
            plan.trial_options,
        )
        return [record.to_json() for record in matrix.execute()]


def run_job(document: str, promised: Sequence[str], begun: str) -> list[str]:
    """The same as a batch job; the file ``begun`` says that it is no longer queued. Raises
    ConfigError on a machine that is not what was ``promised``."""
    Path(begun).touch()
    missing = set(promised) - set(targets())
    if missing:
        raise ConfigError(
            f"{platform.node()} is no {min(missing)}; correct the partition's targets"
        )
    return run_slice(document)


def _all_threads() -> None:
    """Ray gives tasks that claim no CPU one thread; kernels and baselines are to have those that
    the node's owner gives it, who started Ray's process above this one."""
    above = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    if not any(entry.startswith(b"OMP_NUM_THREADS=") for entry in above):
        os.environ.pop("OMP_NUM_THREADS", None)


def ray_start(address: str, advertised: Mapping[str, float]) -> list[str]:
    """The command that makes this machine a node of the cluster at ``address``; of a new one, as
    its head, when that is empty."""
    place = f"--address={address}" if address else "--head"
    return ["ray", "start", place, f"--resources={json.dumps(dict(advertised))}", "--block"]

"""The worker's side: what it needs installed, and what it is told."""

from __future__ import annotations

import inspect
import subprocess
import sys

from portkern import worker
from portkern.worker import Worker

#: Of portkern's dependencies, what a machine that only runs cells may lack.
NOT_NEEDED = ("hydra", "omegaconf", "rich", "scipy", "jinja2", "filelock", "psutil", "mlflow")


def test_it_starts_without_the_judges_dependencies() -> None:
    """numpy, torch, pydantic and pyyaml are enough to load every backend and target."""
    code = (
        "import sys\n"
        f"for name in {NOT_NEEDED!r}: sys.modules[name] = None\n"
        "import portkern.forkserver\n"
        "from portkern import registry, target\n"
        "backends = [registry.load(name) for name in registry.BUILTIN]\n"
        "targets = [target.load(name) for name in target.names()]\n"
        "print(sum(b.supports(t) for b in backends for t in targets))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_the_worker_of_a_candidate_is_never_told_the_answer() -> None:
    """Only the baseline's request carries the reference; tolerances and seeds are in none."""
    asked = {
        name: set(inspect.signature(getattr(Worker, name)).parameters)
        for name in ("build", "load", "run", "time")
    }
    told = set().union(*asked.values())
    assert told == {
        "self", "request", "artifact", "venue", "inputs", "outputs", "dims", "scalars",
        "results", "after", "fences", "repeats",
    }  # fmt: skip
    assert "check" not in vars(worker)

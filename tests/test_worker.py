"""The worker's side: what it needs installed, and what it is told."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import pytest
import torch

from portkern import ops
from portkern.evaluator import worker_reports
from portkern.toolchain.torch_device import TorchDevice
from portkern.worker import protocol, worker

#: Of portkern's dependencies, what a machine that only runs cells may lack.
NOT_NEEDED = ("hydra", "omegaconf", "rich", "scipy", "jinja2", "filelock", "psutil", "mlflow")


def test_it_starts_without_the_evaluators_dependencies() -> None:
    """numpy, torch, pydantic and pyyaml are enough to load every backend and target."""
    code = (
        "import sys\n"
        f"for name in {NOT_NEEDED!r}: sys.modules[name] = None\n"
        "import portkern.worker.forkserver\n"
        "from portkern.spec import registry, target\n"
        "backends = [registry.load(name) for name in registry.BUILTIN]\n"
        "targets = [target.load(name) for name in target.names()]\n"
        "print(sum(b.supports(t) for b in backends for t in targets))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_the_worker_of_a_candidate_is_never_told_the_answer() -> None:
    """Only the baseline's request carries the reference; tolerances are in none. The seeds are
    those of a round's inputs, which it holds as well."""
    asked = {kind for kind in protocol.REQUESTS.values() if kind is not protocol.Reference}
    told = {field.name for kind in asked for field in fields(kind)}
    assert told == {
        "build",
        "artifact",
        "venue",
        "inputs",
        "outputs",
        "results",
        "after",
        "guards",
        "dims",
        "scalars",
        "seeds",
        "calls",
        "call",
        "traced",
    }
    assert not {"answers", "check"} & set(vars(worker))


class Pretender(torch.Tensor):
    """A tensor that might answer every comparison as it likes."""


X = torch.zeros(4, 8)


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (torch.zeros(8, 4).t(), "has the strides [1, 4], expected it contiguous"),
        (torch.zeros(1, 8).expand(4, 8), "has the strides [0, 1]"),
        (X, "lies in the memory of the input 'x', expected a tensor of its own"),
        (X.clone().as_subclass(Pretender), "is a Pretender, expected a torch.Tensor"),
        (torch.zeros(4, 8, device="meta"), "is on meta, expected the device of the inputs"),
        (torch.zeros(4, 8), ""),
    ],
)
def test_a_returned_tensor_is_new_contiguous_and_on_the_device(
    returned: torch.Tensor, told: str
) -> None:
    odd = worker_reports.oddity(
        ops.load("softmax"), worker.layout(returned, [X], TorchDevice("cpu"))
    )
    assert odd.startswith(told) and bool(odd) == bool(told)

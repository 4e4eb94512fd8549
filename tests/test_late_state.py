"""Changes that our own devices and kernels make late are not the candidate's.

A worker watches the functions that its device holds from the load on: one that our own code made
there while it timed was taken for the candidate's. On a GPU that is read, as there may be none.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from portkern.spec import registry
from portkern.spec.backend import Missing
from portkern.toolchain.torch_device import TorchDevice
from portkern.worker.state_snapshot import Snapshot

ROOT = Path(__file__).parents[1]
#: What is not a function, whatever it holds.
DATA = ("Tensor", "Array", "Buffer", "int", "float", "str", "bool")


def devices() -> Iterator[tuple[str, ast.ClassDef]]:
    """The classes that buffers are uploaded to and calls are timed by."""
    for folder in ("portkern", "backends"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "def upload(" in text else ():
                if isinstance(node, ast.ClassDef) and {"upload", "time"} <= _methods(node).keys():
                    bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                    if "Protocol" not in bases:
                        yield node.name, node


def _methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {part.name: part for part in node.body if isinstance(part, ast.FunctionDef)}


def _set_on_self(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Attributes that are assigned, and how they are annotated there."""
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = list(node.targets)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        note = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
        for target in targets:
            for part in ast.walk(target):
                if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "self":
                    yield part.attr, note


def test_no_device_makes_a_function_late() -> None:
    found = list(devices())
    assert {name for name, _ in found} >= {"TorchDevice", "ClDevice", "JaxDevice", "SimtDevice"}
    for name, device in found:
        _makes_no_function_late(name, device)


def _makes_no_function_late(name: str, device: ast.ClassDef) -> None:
    methods = _methods(device)
    made = dict(_set_on_self(methods["__init__"])) if "__init__" in methods else {}
    for method, function in methods.items():
        if method == "__init__":
            continue
        for attribute, _ in _set_on_self(function):
            note = made.get(attribute)
            assert note is not None, f"{name}.{method} makes {attribute}, __init__ does not"
            assert any(word in note for word in DATA), (
                f"{name}.{method} sets {attribute}: __init__ says {note or 'nothing'!r} of it, "
                f"expected one of {DATA}, which a worker does not watch"
            )


def opened(kind: str) -> Any:
    if kind == "torch":
        return TorchDevice("cpu")
    if kind == "jax":
        pytest.importorskip("jax")
        return importlib.import_module("portkern.backends.pallas.device").JaxDevice("cpu")
    backend = registry.load("opencl")
    pytest.importorskip("pyopencl")
    from portkern.cells.selection import default_target
    from portkern.errors import BackendUnavailable

    try:
        venue = backend.venues(default_target(backend)).best
    except BackendUnavailable as error:
        pytest.skip(str(error))
    if isinstance(venue, Missing):
        pytest.skip(str(venue))
    module = importlib.import_module("portkern.backends.opencl.device")
    return module.ClDevice(venue.device, emulated=False)


@pytest.mark.parametrize("kind", ["torch", "jax", "opencl"])
def test_nothing_that_is_watched_changes_while_a_device_works(kind: str) -> None:
    device, snapshot = opened(kind), Snapshot()
    snapshot.watch(device=device)
    host = torch.arange(8.0)
    buffer = device.refill(device.upload(host), host + 1)
    device.synchronize()
    assert len(device.time([lambda: buffer, lambda: buffer])) == 2
    assert torch.equal(device.download(buffer), host + 1)
    assert snapshot.changes() == []

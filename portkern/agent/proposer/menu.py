"""Data that proposers choose from: actions, donors, and the names that platforms have for the
same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from portkern.agent.slot import Arm
from portkern.agent.task import Task
from portkern.errors import ConfigError, no_such
from portkern.spec import catalogue, registry
from portkern.spec.candidate import Candidate
from portkern.spec.foreign_text import yaml_value

_FOLDER = files(__package__)
#: The closest relatives of a language come first among donors.
_RELATIVES = {
    "hip": ("cuda", "opencl", "triton", "c++"),
    "cuda": ("hip", "opencl", "triton", "c++"),
    "opencl": ("cuda", "hip", "c++"),
    "triton": ("pallas", "cuda", "hip"),
    "pallas": ("triton", "numba"),
    "pallas-tpu": ("pallas", "triton"),
    "pallas-mosaic-gpu": ("pallas", "triton", "cuda"),
    "c++": ("numba", "opencl", "cuda"),
    "numba": ("c++", "pallas", "opencl"),
}


@cache
def _menu(name: str) -> dict[str, Any]:
    known = sorted(f.name.removesuffix(".yaml") for f in (_FOLDER / "menus").iterdir())
    if name not in known:
        raise no_such("menu of actions", name, known)
    return dict(yaml_value((_FOLDER / "menus" / f"{name}.yaml").read_text("utf-8")))


def arms(actions: str, task: Task) -> list[Arm]:
    """The actions of ``menu/<name>`` that the target's vendor has; none when the choice is open.

    Raises ConfigError for actions that are neither.
    """
    if actions in ("open", "critic", "graph"):
        return []
    if not actions.startswith("menu/"):
        raise ConfigError(
            f"Got proposer.actions={actions!r}, expected open, critic, graph or menu/<name>"
        )
    return [
        Arm(name, entry["text"], entry.get("resource", ""))
        for name, entry in _menu(actions.removeprefix("menu/"))["actions"].items()
        if task.target.vendor in entry.get("vendors", [task.target.vendor])
    ]


def donors(task: Task, which: str) -> list[Candidate]:
    """Kernels of the op on other backends, the closest language first. ``which`` is ``catalogue``
    or a backend's name. Raises ConfigError when there is none."""
    names = registry.names() if which == "catalogue" else [which]
    kernels = [
        kernel
        for name in names
        if name != task.backend.name
        for kernel in catalogue.candidates(task.op.name, registry.load(name))
    ]
    if not kernels:
        raise ConfigError(
            f"Nobody has a kernel of {task.op.name!r} to translate from (donor={which}); choose "
            "another donor=, such as a run's folder, or another proposer="
        )
    order = _RELATIVES.get(task.language, ())
    rank = {language: place for place, language in enumerate(order)}
    return sorted(kernels, key=lambda kernel: rank.get(kernel.language, len(order)))


def mapping(sources: Sequence[str], to: str) -> list[tuple[str, str]]:
    """Pairs of what the backends ``sources`` and the backend ``to`` call the same, each once."""
    table = yaml_value((_FOLDER / "platforms.yaml").read_text("utf-8"))
    pairs = [
        (row[source], row[to])
        for row in table
        for source in sources
        if source in row and to in row and row[source] != row[to]
    ]
    return list(dict.fromkeys(pairs))

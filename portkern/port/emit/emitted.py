"""The source that is emitted for a kernel, and what every way refuses or leaves out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from portkern.cuda_source.syntax import SourceKernel
from portkern.port.emit.context import Item
from portkern.port.emit.limits import RefusedEmission, refusals
from portkern.port.emit.rewriting import Rewriting, walk


@dataclass(frozen=True)
class EmittedInstance:
    """A function that stands for a kernel with arguments of its template."""

    name: str
    template: tuple[str, ...] = ()


@dataclass(frozen=True)
class Emitted:
    """``text`` holds a function for each of ``instances``; ``notes`` say what was left out."""

    kernel: SourceKernel
    text: str
    instances: tuple[EmittedInstance, ...]
    notes: tuple[str, ...] = ()


def instances(kernel: SourceKernel, given: Sequence[Sequence[str]]) -> tuple[EmittedInstance, ...]:
    """``given`` are arguments of the template, each list of which makes a function."""
    if not kernel.template:
        return (EmittedInstance(kernel.name),)
    names: dict[str, EmittedInstance] = {}
    for arguments in given:
        suffix = "_".join(re.sub(r"\W+", "_", argument).strip("_") for argument in arguments)
        instance = EmittedInstance(f"{kernel.name}_{suffix}", tuple(arguments))
        names.setdefault(instance.name, instance)
    return tuple(names.values())


def refused(kernel: SourceKernel, text: str, items: Sequence[Item]) -> RefusedEmission | None:
    """The refusal of a kernel that has or needs something that neither way can express; None for
    others."""
    for problem in refusals(text, kernel.line):
        return problem
    for item in items:
        name = next(iter(item.names))
        for problem in refusals(item.text, item.line):
            return RefusedEmission(f"{problem.reason}, in '{name}'", problem.line)
        if item.kind != "constant":
            continue
        if item.text.startswith(("__device__", "__managed__")):
            return RefusedEmission(
                f"'{name}' is a variable of the device that the host fills", item.line
            )
        if "__constant__" in item.text and "=" not in item.text:
            return RefusedEmission(f"'{name}' is constant memory that the host fills", item.line)
    return None


def without_prints(text: str) -> tuple[str, tuple[str, ...]]:
    """Statements that print or assert are left out, with a note."""
    source = Rewriting(text)
    notes = []
    for statement in walk(source.root, "expression_statement"):
        called = re.match(r"(printf|assert)\s*\(", source.text(statement))
        if called:
            source.replace(statement, ";")
            notes.append(f"{called[1]} is left out")
    return (source.whole if notes else text), tuple(dict.fromkeys(notes))

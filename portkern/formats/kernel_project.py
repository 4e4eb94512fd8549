"""Kernels of others as a project of one's own: their sources, a portkern.yaml that lists them, and
what was said of them where they come from."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from portkern.formats.exported import SkippedExport
from portkern.records import atomic_write
from portkern.spec.safe_name import SafeName

FILE, SAID = "portkern.yaml", "said.json"


@dataclass(frozen=True)
class ForeignKernel:
    """``op`` is the name of the operator in the file or Definition ``op_file``; ``said`` is what an
    evaluator of others found, {} if none was asked. ``entry`` and ``style`` as in a project file,
    '' of a class ModelNew, which has neither."""

    place: str
    op: str
    op_file: Path
    backend: str
    variant: str
    source: str
    entry: str = ""
    style: str = ""
    said: Mapping[str, object] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return f"{self.op}.{self.variant}.py"


@dataclass(frozen=True)
class KernelProject:
    """A project of kernels; ``skipped``: what is not a kernel that portkern takes, with the
    reason."""

    kernels: Sequence[ForeignKernel]
    skipped: Sequence[SkippedExport]

    def write(self, folder: Path, title: str) -> None:
        """Raises StorageError."""
        for kernel in self.kernels:
            atomic_write.write(folder / SafeName(kernel.file, "kernel"), kernel.source)
        document = {
            "kernels": [self._entry(kernel) for kernel in self.kernels],
            "ops": list(
                dict.fromkeys(os.path.relpath(one.op_file, folder) for one in self.kernels)
            ),
        }
        head = f"# {title}; what was said of each there is in {SAID}.\n"
        text = yaml.safe_dump(document, sort_keys=False, width=100)
        atomic_write.write(folder / FILE, head + text)
        said = {one.file: {"from": one.place, **one.said} for one in self.kernels}
        atomic_write.write(folder / SAID, json.dumps(said, indent=1) + "\n")

    @staticmethod
    def _entry(kernel: ForeignKernel) -> dict[str, str]:
        entry = {
            "source": kernel.file,
            "op": kernel.op,
            "backend": kernel.backend,
            "variant": kernel.variant,
            "entry": kernel.entry,
            "style": kernel.style,
        }
        return {name: value for name, value in entry.items() if value}

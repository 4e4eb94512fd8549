"""Whether each kernel of a library is right in its own cells, called and, on a GPU, replayed in a
captured graph: Triton's kernels, which have launches for their cells alone, among them.

    python -m benchmarks.library_cells library=NAME [device=cuda] [seconds=600]
    python -m benchmarks.library_cells records=FILE backend=triton device=cuda [seconds=600]

The second builds a library of one backend's kernels first. Writes library-cells-DEVICE.json, or
-BACKEND.json, into results, with what was left out and why, and what a call takes of the host.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import _script
from benchmarks.library import SMALL, exported, in_turns
from benchmarks.library_checks import Case
from portkern.spec.op import Workload

RIGHT, LATE = "right", "not asked: the time is up"
_FAILED = "the kernel ended with an error"


@dataclass(frozen=True)
class Cell:
    """``place`` is the kernel's among those of its operator, slot and dtype; ``key`` the lengths of
    the op's axes, then its whole numbers among the scalars."""

    number: int
    slot: int
    dtype: int
    place: int
    key: tuple[int, ...]


class Cells:
    """The measured cells of one library on one device."""

    def __init__(self, lib: Any, device: str) -> None:
        self.lib, self.device = lib, device

    def __iter__(self) -> Iterator[Cell]:
        """Yields the cells of the kernels that were loaded for the device: those of its plan where
        a kernel has one, else those where it was the fastest that the records know."""
        slot = 0 if self.device == "cpu" else 1
        for (number, at, dtype), kernels in sorted(self.lib._kernels.items()):
            for place, kernel in enumerate(kernels if at == slot else ()):
                for key in self._keys(kernel):
                    yield Cell(number, slot, dtype, place, key)

    def _keys(self, kernel: Mapping[str, Any]) -> list[tuple[int, ...]]:
        if kernel["binaries"]:
            plan = json.loads((self.lib.HERE / kernel["file"]).read_text(encoding="utf-8"))
            return [tuple(one["key"]) for one in plan["cells"]]
        files = [one["file"] for one in self.lib.TABLE["kernels"]]
        own = (c for c in self.lib.TABLE["cells"] if files[c["kernel"]] == kernel["file"])
        return [tuple(one["key"]) for one in own]

    def name(self, cell: Cell) -> str:
        return str(self.lib.TABLE["operators"][cell.number]["name"])

    def drawn(self, cell: Cell, seed: int = 1) -> tuple[Case, list[torch.Tensor], list[Any]]:
        """Inputs and scalars of a cell; whose kernel it is has been decided."""
        case = Case(self.lib, self.name(cell), self.device, self.lib.DTYPES[cell.dtype])
        names = self.lib.TABLE["operators"][cell.number]["key"]
        known = dict(zip(names, cell.key, strict=True))
        whole = {one.name for one in case.op.signature.scalars} & known.keys()
        scalars = {name: known.pop(name) for name in whole}
        values = (ctypes.c_int64 * len(cell.key))(*cell.key)
        place = (cell.number, cell.slot, cell.dtype)
        self.lib._c.pk_know(*place, values, len(values), cell.place, 0)
        return case, *case.draw(Workload("cell", known, scalars), seed)

    def ask(self, cell: Cell) -> str:
        """``right``, or why the operator calls its formula. Raises what a comparison does."""
        case, tensors, scalars = self.drawn(cell)
        said = self.lib.explain(case.op.name, *tensors, *scalars)
        if said["kernel"] is None:
            return str(said["reason"])
        before = self._failed(case)
        case.compare(tensors, scalars, case.ours(*tensors, scalars=scalars))
        if self._failed(case) > before:
            return _FAILED
        if self.device == "cuda":
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                got = case.ours(*tensors, scalars=scalars)
            for kept, other in zip(tensors, self.drawn(cell, 2)[1], strict=True):
                kept.copy_(other)
            graph.replay()
            case.compare(tensors, scalars, got)
        return RIGHT

    def _failed(self, case: Case) -> int:
        fallen = self.lib.receipt()["operators"][case.op.name]["fallbacks"]
        return int(fallen.get(_FAILED, 0))

    def run(self, seconds: float) -> Iterator[tuple[Cell, str]]:
        """How each ended; behind an error of the device nothing of the process can be believed."""
        end, broken = time.monotonic() + seconds, ""
        for cell in self:
            if broken or time.monotonic() > end:
                yield cell, broken or LATE
                continue
            try:
                yield cell, self.ask(cell)
            except Exception as error:  # noqa: BLE001 - the next ones are asked all the same
                said = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                if "CUDA error" in said or "AcceleratorError" in said:
                    broken = "not asked: the device had an error before"
                yield cell, said

    def host_us(self, found: Sequence[tuple[Cell, str]]) -> dict[str, dict[str, float]]:
        """Microseconds of the host of a call, by operator, at the smallest of its cells in float32
        that were right."""
        smallest: dict[str, Cell] = {}
        for cell, said in sorted(found, key=lambda one: sum(one[0].key)):
            if said == RIGHT and cell.dtype == 0 and self.name(cell) in SMALL:
                smallest.setdefault(self.name(cell), cell)
        return {name: self._host_us(cell) for name, cell in smallest.items()}

    def _host_us(self, cell: Cell) -> dict[str, float]:
        case, tensors, scalars = self.drawn(cell)
        ways: dict[str, Callable[[], object]] = {
            "eager": lambda: case.theirs(*tensors, scalars=scalars),
            "kernel": lambda: case.ours(*tensors, scalars=scalars),
        }
        return {name: round(us, 2) for name, us in in_turns(ways).items()}


def document(cells: Cells, found: Sequence[tuple[Cell, str]]) -> dict[str, Any]:
    lib, told = cells.lib, defaultdict[str, list[str]](list)
    for cell, said in found:
        dtype = lib.DTYPES[cell.dtype]
        told[said if said != RIGHT else ""].append(f"{cells.name(cell)} {dtype} {[*cell.key]}")
    formula = {*lib.REASONS} - {_FAILED}
    not_run = {said: len(several) for said, several in told.items() if said in formula}
    wrong = [
        f"{place}: {said}"
        for said, places in told.items()
        if said and not (said in formula or said.startswith("not asked"))
        for place in places
    ]
    return {
        "device": torch.cuda.get_device_name() if cells.device == "cuda" else lib._names[0],
        "torch": torch.__version__,
        "library": lib.TABLE["version"],
        "kernels": len({(c.number, c.dtype, c.place) for c, _ in found}),
        "cells": len(found),
        "right": len(told[""]),
        "the formula": not_run,
        "not asked": sum(len(v) for said, v in told.items() if said.startswith("not asked")),
        "wrong": wrong,
        "by operator": dict(Counter(cells.name(cell) for cell, said in found if said == RIGHT)),
        "left out": list(lib.refused),
        "host_us": cells.host_us(found),
    }


def main() -> int:
    known = ("library", "records", "backend", "device", "seconds")
    given = _script.words(known, __doc__)
    if ("library" in given) == ("records" in given):
        raise SystemExit(__doc__)
    device = given.get("device", "cpu")
    backend = given.get("backend", {"cpu": "cpu", "cuda": "cuda"}[device])
    if "library" in given:
        lib = importlib.import_module(given["library"])
    else:
        lib = exported(Path(given["records"]), backend)
    cells = Cells(lib, device)
    with torch.no_grad():
        found = list(cells.run(float(given.get("seconds", "600"))))
        said = document(cells, found)
    lib.configure()
    _script.write(f"library-cells-{given.get('backend', device)}.json", said)
    print(json.dumps(said, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A process that calls an extension's functions and sends what each of them gave."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from portkern.simt.execute import emulate, source_lines
from portkern.simt.execute.options import SCHEDULES
from portkern.simt.torch_extension import bindings
from real import references
from real.running import Result, finding

#: A verdict that begins so: no function works any more, as in a CUDA context.
FAULT = "LaunchError"


@dataclass(frozen=True)
class Request:
    """Every case of ``functions`` that is not ``done``. ``more`` is for the makers of cases."""

    library: Path
    functions: tuple[str, ...]
    kind: str
    size: str
    done: tuple[str, ...]
    more: Mapping[str, Any]
    settings: Mapping[str, Any]
    work: Path


def main(request: Request, said: Connection, log: Path) -> None:
    """Sends ``(case, None)`` before and ``(case, result)`` after each case."""
    os.chdir(request.work)
    with log.open("w") as file:  # what kernels print, and the last words of a crash
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    import torch

    torch.set_num_threads(1)
    extension = bindings.load(request.library)
    for name, case in references.cases(request.kind, request.functions, request.size, request.more):
        if name in request.done:
            continue
        said.send((name, None))
        result = run(case, extension, request)
        said.send((name, result))
        if result.verdict.startswith(FAULT):
            return


def run(case: references.Case, extension: Any, request: Request) -> Result:
    with tempfile.TemporaryDirectory(prefix="simt-real-") as folder:
        file = Path(folder) / "findings.jsonl"
        chosen = {**request.settings, "findings": str(file)}
        start = time.perf_counter()
        verdict = attempt(case, extension, chosen | {"order": "forward"})
        seconds = round(time.perf_counter() - start, 2)
        if verdict.startswith("mismatch") and "races" not in chosen:
            verdict = other_orders(verdict, case, extension, chosen)
        emulate._runtime().simt_forget()
        diagnostics, _ = source_lines.read(file)
    found = [finding(diagnostic, request.library.parent) for diagnostic in diagnostics]
    return Result(verdict, seconds, found)


def attempt(case: references.Case, extension: Any, chosen: dict[str, Any]) -> str:
    emulate.configure(chosen)
    try:
        return case(extension)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the verdict
        return f"{type(error).__name__}: {error}"[:200]


def other_orders(first: str, case: references.Case, extension: Any, chosen: dict[str, Any]) -> str:
    """The reason of a kernel that is right under one schedule and wrong under another; else
    ``first``."""
    for order, seed in SCHEDULES[1:]:
        if attempt(case, extension, chosen | {"order": order, "seed": seed}) == "match":
            return f"depends on the schedule: match with order={order}, forward {first}"
    return first

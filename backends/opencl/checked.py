"""A call's second run, in Oclgrind, which interprets each work-item: races, barriers that not all
work-items reach, accesses outside of buffers, and values that nobody wrote.

Whatever device a kernel is for, Oclgrind runs it here, in the shape that the device gets. It takes
some ten thousand times as long as a CPU does, so that calls of small workloads alone are checked,
each size once.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portkern.spec.backend import Call

from . import platforms

if TYPE_CHECKING:
    import torch

    from portkern.spec.json_types import Json

    from .device import ClDevice, ClTensor, OpenCLProgram

#: What ``sanitize`` names here, and what is looked for then.
CHECKERS = {
    "races": "accesses that nothing orders, and barriers that not all work-items of a group reach",
    "bounds": "accesses outside of buffers, and values that nobody wrote",
}
#: Sizes whose product, which bounds the steps of most loops, is larger are not checked; no more
#: calls are, once these have taken so many seconds.
MOST_STEPS, MOST_S = 1 << 16, 4.0
#: Messages of one call that are read.
MOST = 400
#: How a message of Oclgrind's begins, the checker that it belongs to, and our code for it.
KINDS = (
    (re.compile(r"(Read-write|Write-write|Write-read) data race"), "races", "cl-race"),
    (re.compile(r"Work-group divergence"), "races", "cl-divergent-barrier"),
    (re.compile(r"Invalid (read|write|access)"), "bounds", "cl-out-of-bounds"),
    (
        # Not what goes to local memory: a tile may hold what lies behind a row, and not use it.
        re.compile(
            r"Uninitialized (value written to global|address)|"
            r"Controlflow depends on uninitialized"
        ),
        "bounds",
        "cl-uninitialised",
    ),
)
_FATAL = "OCLGRIND FATAL ERROR"
_LINE = re.compile(r"^\s+At line (\d+) \(column \d+\) of (\S+?):?$", re.MULTILINE)
_KERNEL = re.compile(r"^\s+Kernel:\s+(\w+)", re.MULTILINE)
_ITEMS = re.compile(r"^\s+(Only \d+ out of \d+ work-items .*)$", re.MULTILINE)

#: Enqueues a call's kernels, given buffers in order and numbers by name.
Enqueue = Callable[..., object]
#: Opens a device by its address, and has the candidate's program and function anew for it.
Compile = Callable[[str], "tuple[ClDevice, OpenCLProgram, Enqueue]"]


class CheckedRun:
    """Runs calls once more, with the checkers ``chosen``. What Oclgrind cannot run is not a
    finding, but a note that races were not looked for, if that is ``told``."""

    def __init__(
        self,
        compile_for: Compile,
        arguments: Callable[[Call], dict[str, Any]],
        chosen: Sequence[str],
        *,
        told: bool,
    ) -> None:
        self._compile, self._arguments, self._chosen = compile_for, arguments, frozenset(chosen)
        self._told = told
        self._known: dict[tuple[tuple[str, int], ...], list[Mapping[str, Json]]] = {}
        self._took_s = 0.0

    def findings(
        self, call: Call, download: Callable[[ClTensor], torch.Tensor]
    ) -> list[Mapping[str, Json]]:
        """The findings of the checkers in a call with these inputs, of each size the first."""
        sizes = tuple(sorted(call.dims.items()))
        if self._chosen and sizes not in self._known:
            steps = math.prod(call.dims.values())
            if platforms.checker() is None:
                self._known[sizes] = self._not_looked("Oclgrind is not installed")
            elif steps >= MOST_STEPS or self._took_s > MOST_S:
                self._known[sizes] = self._not_looked("Oclgrind takes too long for such a size")
            else:
                self._known[sizes] = self._seen(call, download) if steps else []
        return self._known.get(sizes, [])

    def _not_looked(self, why: str) -> list[Mapping[str, Json]]:
        note: Mapping[str, Json] = {
            "code": "races-not-looked-for",
            "severity": "note",
            "message": f"races: not looked for; {why}",
        }
        return [note] if self._told else []

    def _seen(
        self, call: Call, download: Callable[[ClTensor], torch.Tensor]
    ) -> list[Mapping[str, Json]]:
        start = time.monotonic()
        tensors = [download(tensor) for tensor in (*call.inputs, *call.outputs)]
        text = self._run(call, tensors, uninitialised="bounds" in self._chosen)
        if text is not None and _FATAL in text:  # of an instruction that this checker does not know
            text = self._run(call, tensors, uninitialised=False)
        self._took_s += time.monotonic() - start
        if text is None or _FATAL in text:
            return self._not_looked("Oclgrind could not run it")
        return [found for found in _findings(text) if found["checker"] in self._chosen]

    def _run(
        self,
        call: Call,
        tensors: Sequence[torch.Tensor],
        *,
        uninitialised: bool,
    ) -> str | None:
        """The messages of Oclgrind about a call with these inputs and outputs; None where it cannot
        be enqueued."""
        with tempfile.TemporaryDirectory(prefix="oclgrind-") as folder:
            log = Path(folder) / "log"
            # Read where a context is made.
            os.environ |= {
                "OCLGRIND_LOG": str(log),
                "OCLGRIND_MAX_ERRORS": str(MOST),
                "OCLGRIND_NUM_THREADS": "1",
                "OCLGRIND_LOCAL_MEM_SIZE": str(1 << 20),  # PoCL has as much
                "OCLGRIND_DATA_RACES": "1",
                "OCLGRIND_UNINITIALIZED": "1" if uninitialised else "0",
            }
            try:
                device, program, enqueue = self._compile(str(platforms.checker()))
                given = [device.upload(_padded(tensor)).buffer for tensor in tensors]
                enqueue(device.queue, program, *given, **self._arguments(call))
                device.synchronize()
            except Exception:  # noqa: BLE001 - a candidate's code in a place that it may not know
                return None
            return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def _padded(tensor: torch.Tensor) -> torch.Tensor:
    """Its elements, and zeros where :meth:`ClDevice.upload` leaves room to read a last vector."""
    import torch

    flat = tensor.reshape(-1)
    behind = -flat.numel() * flat.itemsize % 16 // flat.itemsize
    return torch.cat([flat, flat.new_zeros(behind)])


def _findings(text: str) -> Iterator[dict[str, Json]]:
    """One finding for each kind, kernel and line; of the same, how often."""
    counted: dict[tuple[str, str, str], dict[str, Json]] = {}
    for block in re.split(r"\n(?=\S)", text):
        first = block.strip().partition("\n")[0]
        for pattern, checker, code in KINDS:
            if not pattern.match(first):
                continue
            lines = [(number, file) for number, file in _LINE.findall(block) if file == "SOURCE"]
            place = f"SOURCE:{lines[0][0]}" if lines else ""
            kernel = next(iter(_KERNEL.findall(block)), "")
            message = "; ".join([first, *_ITEMS.findall(block)])
            finding = counted.setdefault(
                (code, kernel, place),
                {
                    "checker": checker,
                    "code": code,
                    "severity": "error",
                    "message": message,
                    "place": place,
                    "kernel": kernel,
                    "count": 0,
                },
            )
            finding["count"] = int(str(finding["count"])) + 1
    yield from counted.values()

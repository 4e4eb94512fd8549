"""Measures what executing a compiled object costs: instructions of lanes per second of one
processor, with the checks and without, beside tinygrad's emulator on the same launch of the same
object.

    .venv/bin/python -m benchmarks.object_speed [ops=softmax,layernorm,matmul]
        [targets=gfx942,gfx1100] [backends=hip,triton] [dtype=float32] [set=typical]
        [tinygrad=FOLDER]

``tinygrad`` is a checkout of its repository, whose emulator (test/mockgpu/amd) is not in its
package; it is asked for gfx1100, the smallest size, and its second run counts. Prints a table and
writes results/object-speed.json.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks import _script
from benchmarks.object_waits import Row, call_of, loaded
from portkern import ops
from portkern.isa import executor
from portkern.isa.executor import ObjectProgram
from portkern.isa.finding import ObjectRan
from portkern.toolchain import host

ROUNDS = 3
WAYS: Mapping[str, tuple[str, ...]] = {
    "unchecked": (),
    "waits": ("waits",),
    "waits+lds": ("waits", "lds"),
}


def main() -> None:
    words = _script.words(("ops", "targets", "dtype", "set", "tinygrad", "backends"), __doc__)
    names = words.get("ops", "softmax,layernorm,matmul").split(",")
    beside = Path(words["tinygrad"]) if "tinygrad" in words else None
    rows = [
        row
        for arch in words.get("targets", "gfx942,gfx1100").split(",")
        for backend in words.get("backends", "hip,triton").split(",")
        for name in names
        for row in measured(
            Row(backend, name, words.get("dtype", "float32"), arch),
            words.get("set", "typical"),
            beside,
        )
    ]
    _script.write("object-speed.json", {"host": host.machine(), "rows": rows})
    print(table(rows))


def measured(row: Row, which: str, beside: Path | None) -> list[dict[str, Any]]:
    """A row for each kernel that the operator launches, at the first size of the set."""
    op = ops.load(row.op)
    workload = op.workloads[which][0]
    rows: dict[str, dict[str, Any]] = {}
    plain = ObjectProgram.run

    def timed(program: ObjectProgram, name: str, *given: Any, **options: Any) -> ObjectRan:
        lanes = program.object.kernel(name).wave_size
        if name not in rows:
            rows[name] = {
                "op": row.op,
                "size": workload.name,
                "dtype": row.dtype,
                "backend": row.backend,
                "target": row.target,
                "kernel": name[:40],
            }
            for way, checks in WAYS.items():
                looked = {**options, "checks": checks}
                ran, seconds = _taken(partial(plain, program, name, *given, **looked))
                rows[name]["instructions"] = ran.instructions
                rows[name][way] = ran.instructions * lanes / seconds
            if beside:
                try:
                    seconds = _tinygrad(beside, program, name, given, options)
                    rows[name]["tinygrad"] = ran.instructions * lanes / seconds
                except Exception as error:  # noqa: BLE001 - a stranger's program; what ended it is told
                    rows[name]["tinygrad_refuses"] = f"{type(error).__name__}: {error}"[:120]
        return plain(program, name, *given, **options)

    with (
        tempfile.TemporaryDirectory(prefix="speed-") as folder,
        patch.object(ObjectProgram, "run", timed),
    ):
        kernel = loaded(row, Path(folder))
        kernel.launch(call_of(kernel, op, workload, row.dtype))
    return list(rows.values())


def _taken(call: Callable[[], ObjectRan]) -> tuple[ObjectRan, float]:
    """The median of the processor's time, after a first call that decodes."""
    ran, taken = call(), []
    for _ in range(ROUNDS):
        began = time.process_time()
        ran = call()
        taken.append(time.process_time() - began)
    return ran, statistics.median(taken)


def _tinygrad(
    folder: Path,
    program: ObjectProgram,
    name: str,
    given: Sequence[Any],
    options: Mapping[str, Any],
) -> float:
    sys.path.insert(0, str(folder))
    sys.modules.pop("test", None)
    from test.mockgpu.amd import emu  # type: ignore[import-not-found]

    arguments, grid, block = given
    entry, lds = program.object.kernel(name), options.get("dynamic_lds_bytes", 0)
    segment = executor._Segment(entry, arguments, grid, block, lds)
    lds_bytes = entry.lds_bytes + lds
    rsrc2 = entry.rsrc2 & ~(0x1FF << 15) | -(-lds_bytes // 512) << 15
    taken = []
    for _ in range(2):
        began = time.process_time()
        emu.run_asm(
            program.base + entry.entry,
            program.object.text[1],
            *grid,
            *block,
            segment.address,
            rsrc2,
            entry.scratch_bytes,
            executor.TABLES[program.object.processor],
        )
        taken.append(time.process_time() - began)
    return taken[-1]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table in millions of instructions of lanes per second and processor."""
    heads = "object", "size", "instructions", *WAYS, "tinygrad's"
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for row in rows:
        figures = [f"{row[way] / 1e6:,.0f}" for way in WAYS]
        beside = f"{row['tinygrad'] / 1e6:,.1f}" if "tinygrad" in row else ""
        figures.append(beside or row.get("tinygrad_refuses", ""))
        what = f"{row['backend']} `{row['kernel']}`, {row['target']}, {row['dtype']}"
        cells = [what, row["size"], f"{row['instructions']:,}", *figures]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

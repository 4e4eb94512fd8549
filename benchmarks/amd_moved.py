"""The memory traffic of the HIP kernels on AMD GPUs that nobody here has, counted in the SIMT
executor: prints a table and writes results/amd-moved.json.

.venv/bin/python -m benchmarks.amd_moved [ops=NAME,NAME] [targets=gfx942,gfx1100]

Each float32 kernel runs at the heldout sizes, which nobody tuned for. Counted are wavefronts, the
lines of 64 bytes that each memory instruction of a wavefront asks for, before any cache, and the
passes that its accesses to LDS take; beside the bytes that have to be read and written, the lines
that as many contiguous bytes would be, and the passes without bank conflicts. Not measured.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import _script
from portkern import ops
from portkern.evaluator import inputs
from portkern.simt.execute import emulate
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Build, Call, Venue
from portkern.spec.op import Op, Workload
from portkern.spec.target import Target

DTYPE, SET, LINE_BYTES = "float32", "heldout", 64
TARGETS = "gfx942,gfx1100"
#: Counting takes a microsecond for each access.
MOST_FLOPS = 5e7


def main() -> None:
    words = _script.words({"ops", "targets"}, __doc__)
    names = words["ops"].split(",") if "ops" in words else ops.names()
    targets = [target.load(name) for name in words.get("targets", TARGETS).split(",")]
    rows = [row for name in names for where in targets for row in counted(ops.load(name), where)]
    _script.write("amd-moved.json", rows)
    print(table(rows))


def counted(op: Op, where: Target) -> Iterator[dict[str, Any]]:
    """A row for each size whose arithmetic an emulator can do."""
    sizes = [w for w in op.workloads[SET] if op.flops(w.dims) <= MOST_FLOPS]
    with tempfile.TemporaryDirectory() as folder:
        emulator = _emulator(op, where, sizes[0], Path(folder))
        for workload in sizes:
            given = inputs.draw(op, workload, DTYPE, inputs.BASE)
            scalars = op.signature.scalar_values(workload.scalars)
            buffers = [
                [emulator.device.upload(tensor) for tensor in tensors]
                for tensors in (given, _outputs(op, workload))
            ]
            emulator.launch(Call(buffers[0], buffers[1], workload.dims, scalars))
            yield row_of(op, where, workload, emulator.take_counters())
        print(f"amd_moved: {op.name} on {where.name}", file=sys.stderr)


def _emulator(op: Op, where: Target, workload: Workload, folder: Path) -> emulate.Emulator:
    backend = registry.load("hip")
    venue = emulate.venue(where)
    if not isinstance(venue, Venue):
        raise SystemExit(f"{venue.reason}; {venue.remedy}")
    [candidate] = catalogue.candidates(op.name, backend)
    request = Build(
        candidate,
        op.signature,
        DTYPE,
        where,
        workload.dims,
        op.signature.scalar_values(workload.scalars),
        runnable=False,
        emulated=True,
        checked=True,
        emulator=venue.version,
    )
    artifact = backend.build(request, folder)
    emulator = emulate.Emulator(request, "hip", frozenset({"counters"}), folder / emulate.FINDINGS)
    for mode in ("fast", "check"):
        emulator.open(mode, artifact.path.parent / f"simt-{mode}.so")
    return emulator


def _outputs(op: Op, workload: Workload) -> list[Any]:
    import torch

    return [
        torch.zeros(spec.sizes(workload.dims), dtype=getattr(torch, spec.resolve(DTYPE)))
        for spec in op.signature.outputs
    ]


def row_of(
    op: Op, where: Target, workload: Workload, launches: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    def total(name: str) -> int:
        return sum(int(launch["counters"][name]) for launch in launches)

    return {
        "op": op.name,
        "size": workload.name,
        "target": where.name,
        "kernels": [launch["kernel"] for launch in launches],
        "waves": total("warps"),
        "least_bytes": op.nbytes(workload.dims, DTYPE),
        "thread_bytes": total("load_bytes") + total("store_bytes"),
        "line_bytes": total("transactions") * LINE_BYTES,
        "least_line_bytes": total("least_transactions") * LINE_BYTES,
        "lds_passes": total("shared_passes"),
        "least_lds_passes": total("least_shared_passes"),
        "atomics": total("atomics"),
        "barriers": total("barriers"),
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a table in Markdown: a row for each operator's first size, with the targets
    beside each other."""
    targets = list(dict.fromkeys(row["target"] for row in rows))
    heads = ["op", "size", "kB"]
    heads += [f"{name} {what}" for name in targets for what in ("waves", "×", "lines", "LDS")]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["op"], {}).setdefault(row["target"], row)
    for op, of in found.items():
        first = next(iter(of.values()))
        cells = [op, first["size"], f"{first['least_bytes'] / 1e3:.0f}"]
        cells += [text for name in targets for text in _cells(of.get(name))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cells(row: Mapping[str, Any] | None) -> list[str]:
    if row is None:
        return [""] * 4
    passes = row["least_lds_passes"]
    return [
        str(row["waves"]),
        f"{row['line_bytes'] / row['least_bytes']:.2f}",
        f"{row['line_bytes'] / row['least_line_bytes']:.2f}" if row["least_line_bytes"] else "",
        f"{row['lds_passes'] / passes:.2f}" if passes else "",
    ]


if __name__ == "__main__":
    main()

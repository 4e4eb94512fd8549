"""Compares the instructions that the catalogue's HIP and Triton kernels execute on gfx942 and
gfx1100, as counted in their objects, with what the operator needs at least; from the committed
records, without a time.

    .venv/bin/python -m benchmarks.object_counts [ops=NAME,NAME]

Of each operator, backend, target and type it is the largest size that is recorded. At least needed
are the bytes that the operator must move, in accesses of 16 bytes a lane and whole lines, and its
arithmetic: an FMA a lane, or, where a kernel of this operator, type and target has matrix units,
the largest of their instructions. Addresses, conversions and edges are not needed by this measure,
so small sizes are far from it. ``make readme`` makes the page's table, and a nightly compares the
counts themselves (:mod:`portkern.regression.counts`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmarks import _script
from benchmarks.object_records import committed
from portkern.isa import counts
from portkern.records.record import Record, Verdict
from portkern.spec import target

TARGETS = ("gfx942", "gfx1100")
BACKENDS = ("hip", "triton")
#: Bytes of a lane's largest access, and of a line.
ACCESS, LINE = 16, 128
WORST = 10
#: A matrix instruction's name has its sizes: rows, columns and depth.
_SIZES = re.compile(r"_(\d+)x(\d+)x(\d+)")


@dataclass(frozen=True)
class Counted:
    """A record's counts over its launches, and operations of the best matrix instruction that any
    kernel of the same operator, type and target has; 0 where there is none."""

    record: Record
    matrix_flops: int

    @cached_property
    def counts(self) -> dict[str, int]:
        return counts.added(launch.counts for launch in self.record.launches)

    @property
    def kernel(self) -> tuple[str, str]:
        return self.record.op, self.record.backend

    @property
    def least(self) -> float:
        """Instructions that the operator needs at least."""
        roofline, wave = self.record.roofline, target.load(self.record.target).warp
        assert roofline is not None and wave is not None
        by_units = self.matrix_flops or 2 * wave
        return float(roofline.bytes / (ACCESS * wave) + roofline.flops / by_units)

    @property
    def instructions(self) -> float:
        """How many times as many are executed."""
        return self.counts["instructions"] / max(self.least, 1.0)

    @property
    def lines(self) -> float:
        """How many times as many lines of memory are touched as the needed bytes have."""
        roofline = self.record.roofline
        assert roofline is not None
        return self.counts["lines"] / max(roofline.bytes / LINE, 1.0)

    @property
    def passes(self) -> float | None:
        """How many times as many passes of LDS as without conflicts; None without LDS."""
        if not (least := self.counts.get("least_lds_passes")):
            return None
        return self.counts["lds_passes"] / least

    def __str__(self) -> str:
        one, n = self.record, self.counts
        lds = "" if self.passes is None else f"{self.passes:.2f}"
        where = f"| {one.op} | {one.backend}, {one.target}, {one.workload.dtype} | "
        what = f"{one.workload.set} {one.workload.name} | {n['instructions']:,} | {n['waves']:,} | "
        return f"{where}{what}{_times(self.instructions)} | {_times(self.lines)} | {lds} |"


HEADS = (
    "| operator | object | size | instructions | waves | × least | lines × least | LDS × |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def main() -> None:
    words = _script.words({"ops"}, __doc__)
    asked = words["ops"].split(",") if "ops" in words else None
    print(HEADS)
    for one in counted(committed()):
        if asked is None or one.record.op in asked:
            print(one)


def counted(records: Iterable[Record]) -> list[Counted]:
    """The largest recorded size of each kernel, type and target that moves or computes anything,
    the farthest from the least first."""
    largest: dict[tuple[str, ...], Record] = {}
    units: dict[tuple[str, ...], int] = {}
    for one in records:
        passed = one.verdict is Verdict.PASSED and one.counts.instructions is not None
        if one.target not in TARGETS or not passed or not (one.roofline and one.roofline.bytes):
            continue
        problem = one.op, one.target, one.workload.dtype
        units[problem] = max(units.get(problem, 0), *_matrix_flops(one), 0)
        key = *problem, one.backend
        known = largest.get(key)
        if known is None or one.roofline.bytes > (known.roofline.bytes if known.roofline else 0):
            largest[key] = one
    found = [Counted(one, units[key[:3]]) for key, one in largest.items()]
    return sorted(found, key=lambda one: -one.instructions)


def _matrix_flops(record: Record) -> Iterator[int]:
    for launch in record.launches:
        for name in launch.counts:
            if sizes := _SIZES.search(name):
                yield 2 * math.prod(map(int, sizes.groups()))


def table() -> str:
    """A line for each operator, with the farthest of its types, and the worst kernels."""
    rows = counted(committed())
    heads = ["operator", *(f"{b}, {t}" for b in BACKENDS for t in TARGETS)]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for op in sorted({one.record.op for one in rows}):
        cells = [
            _cell([r for r in rows if r.kernel == (op, backend) and r.record.target == name])
            for backend in BACKENDS
            for name in TARGETS
        ]
        lines.append(f"| {op} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", "The worst:", "", HEADS, *map(str, worst(rows))])


def worst(rows: Sequence[Counted]) -> list[Counted]:
    """The farthest of each kernel, of these the first."""
    of_kernel: dict[tuple[str, str], Counted] = {}
    for one in rows:
        of_kernel.setdefault(one.kernel, one)
    return list(of_kernel.values())[:WORST]


def _cell(rows: Sequence[Counted]) -> str:
    if not rows:
        return ""
    return f"{_times(rows[0].instructions)}, {_times(max(one.lines for one in rows))}"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}"


if __name__ == "__main__":
    main()

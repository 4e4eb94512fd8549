"""Which kernels a library has, and which of them is the fastest in which cell: from records."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from portkern.formats.exported import KernelRecords
from portkern.records.record import Evidence, Record, Verdict
from portkern.spec import target as targets
from portkern.spec.op import CELL, Op

if TYPE_CHECKING:
    from portkern.deploy.operators import Operator

#: What an operator in C++ can call on the device that its tensors are on: a C function, or launches
#: that are written down when the library is made.
_CALLED = {("cpu", "c++"), ("cuda", "cuda"), ("triton", "triton")}
_CPUS = re.compile(r"\b(\d+) CPUs")
#: The framework's own time, which a kernel is held against.
BASELINE = "eager"


@dataclass(frozen=True, eq=False)
class KernelOf:
    """A kernel in one dtype, built for one target and measured on one device: the CPU's name with
    their number, or the GPU's."""

    kernel: KernelRecords
    target: str
    device: str

    @property
    def op(self) -> Op:
        return self.kernel.op.op

    @property
    def planned(self) -> bool:
        """Whether its host code is not C's: then a library has its launches."""
        return self.kernel.candidate.language == "triton"

    @property
    def place(self) -> tuple[str, str, str]:
        return self.op.name, self.kernel.dtype, self.device

    def __str__(self) -> str:
        candidate = self.kernel.candidate
        what = f"{self.op.name} {self.kernel.dtype} in {candidate.language}"
        return f"{what} for {self.target} ({candidate.digest})"


@dataclass(frozen=True, eq=False)
class Cell:
    """``key``: lengths of axes, then whole numbers among the scalars. ``speedup`` is the lower end
    of its interval, and is against the least time that any run had of the framework there."""

    kernel: KernelOf
    key: tuple[int, ...]
    speedup: float
    record: Record


@dataclass
class Table:
    cells: list[Cell] = field(default_factory=list)
    kernels: list[KernelOf] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def refuse(self, what: object, why: str) -> None:
        line = f"{what}: {why}"
        if line not in self.refused:
            self.refused.append(line)


def table(
    kernels: Sequence[KernelRecords],
    evidence: Evidence,
    keys: Mapping[str, Sequence[str]],
    limit: Evidence = Evidence.VERIFIED,
) -> Table:
    """``keys`` are the names of each operator's key. A kernel that was bad in any cell of its dtype
    and device is refused whole, and so is what was only emulated: it never ran on hardware."""
    made = Table()
    least = _least_times(kernels)
    best: dict[tuple[tuple[str, str, str], tuple[int, ...]], Cell] = {}
    for kernel in kernels:
        for own, records in _on_devices(kernel, made):
            reason = _refused(own, records, max(evidence, limit))
            if reason:
                made.refuse(own, reason)
                continue
            names = keys[own.op.name]
            for record in records:
                cell = Cell(own, _key(record, own.op, names), _speedup(record, least), record)
                place = own.place, cell.key
                if place not in best or cell.speedup > best[place].speedup:
                    best[place] = cell
    made.cells = list(best.values())
    made.kernels = list(dict.fromkeys(cell.kernel for cell in made.cells))
    return made


def _on_devices(kernel: KernelRecords, made: Table) -> list[tuple[KernelOf, list[Record]]]:
    candidate = kernel.candidate
    if (candidate.backend, candidate.language) not in _CALLED or candidate.style != "dps":
        made.refuse(
            f"{candidate.backend} {candidate.language}",
            "a library's operators call C++ on CPUs, and CUDA and Triton on NVIDIA's GPUs",
        )
        return []
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in kernel.evaluated:
        groups.setdefault((record.target, device_of(record)), []).append(record)
    return [(KernelOf(kernel, *place), records) for place, records in groups.items()]


def device_of(record: Record) -> str:
    """The device of a record, named as a library finds it out where it is imported."""
    if targets.load(record.target).vendor != "cpu":
        return record.environment.device
    count = _CPUS.search(record.environment.machine)
    return f"{record.environment.device}, {count[1] if count else '?'} CPUs"


def _refused(own: KernelOf, records: Sequence[Record], evidence: Evidence) -> str:
    bad = [record for record in records if record.verdict.bad]
    if bad:
        return f"it is {bad[0].verdict} at {bad[0].workload.name}"
    weak = [one for one in records if one.verdict is Verdict.PASSED and one.evidence < evidence]
    if weak:
        return f"its evidence is {weak[0].evidence}, expected {evidence}"
    return "" if records else "nothing of it could be run"


def _key(record: Record, op: Op, names: Sequence[str]) -> tuple[int, ...]:
    known = {**op.signature.scalar_values(record.workload.scalars), **record.workload.dims}
    return tuple(int(known[name]) for name in names)


#: Cell, dtype, device, and how times were taken.
_Place = tuple[str, str, str, str, str]


def _place(record: Record, method: str) -> _Place:
    work = record.workload
    sizes = json.dumps([work.dims, work.scalars], sort_keys=True)
    return record.op, work.dtype, sizes, device_of(record), method


def _least_times(kernels: Sequence[KernelRecords]) -> Mapping[_Place, float]:
    """The framework's least time at each cell, of the runs of all kernels, in microseconds. On a
    bad day the framework is slow, and each kernel that is timed beside it looks fast."""
    least: dict[_Place, float] = {}
    for record in (one for kernel in kernels for one in kernel.evaluated):
        theirs = record.baselines.get(BASELINE)
        if theirs is not None and not theirs.noisy:
            place = _place(record, theirs.method)
            least[place] = min(theirs.median_us, least.get(place, math.inf))
    return least


def _speedup(record: Record, least: Mapping[_Place, float]) -> float:
    """0 where it was not timed or the time says little: then the framework is taken."""
    known, timing = record.speedup.get(BASELINE), record.timing
    if known is None or timing is None or not record.comparable:
        return 0.0
    slowest = (timing.ci95_us or (0.0, timing.median_us))[1]
    theirs = least.get(_place(record, timing.method), math.inf)
    return min(known.ci95[0], theirs / slowest if slowest > 0 else 0.0)


def shape_of(operator: Operator, arguments: Sequence[Any]) -> dict[str, Any] | None:
    """The op, dtype, lengths and scalars of a call of a library's operator, as its C++ reads them;
    None where sizes do not fit."""
    signature, form = operator.op.signature, operator.form
    count = len(signature.inputs)
    tensors = dict(zip((t.name for t in signature.inputs), arguments[:count], strict=True))
    scalars = dict(zip((s.name for s in signature.scalars), arguments[count:], strict=False))
    dims: dict[str, int] = {}
    for axis, (tensor, place) in form.bound.items():
        sizes = tensors[tensor.name].shape
        if axis == form.lead:
            dims[axis] = math.prod(sizes[: len(sizes) - len(tensor.shape) + 1])
        elif len(sizes) >= -place:
            dims[axis] = sizes[place]
    known = signature.scalar_values(scalars)
    for axis, said in form.derived.items():
        dims[axis] = int(said({**dims, **known}))
    for spec in signature.inputs:
        leads, sizes = form.leads(spec), tuple(tensors[spec.name].shape)
        rest = tuple(n if isinstance(n, int) else dims.get(n) for n in spec.shape[leads:])
        if (leads and len(sizes) < len(rest)) or sizes[len(sizes) - len(rest) :] != rest:
            return None
        if not leads and len(sizes) != len(rest):
            return None
    cell = next((t.name for t in signature.inputs if t.dtype == CELL), form.first)
    ordered = {axis: dims[axis] for axis in signature.axes}
    dtype = str(tensors[cell].dtype).removeprefix("torch.")
    whole = {name: known[name] for name in operator.whole}
    return {"op": operator.op.name, "dtype": dtype, "dims": ordered, "scalars": whole}

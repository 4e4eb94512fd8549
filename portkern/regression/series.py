"""A cell as it is followed over runs, and whether times of two runs of it may be compared."""

from __future__ import annotations

from typing import NamedTuple

from portkern.records.record import Environment, Record
from portkern.regression.outcome import CellOutcome

#: What changed where a source was made into other machine code.
CODE = "its machine code"


class Series(NamedTuple):
    """The identity of a cell, which stays when a kernel, portkern or a toolchain changes."""

    op: str
    workload_set: str
    workload: str
    dtype: str
    backend: str
    language: str
    variant: str
    target: str

    @classmethod
    def of(cls, record: Record) -> Series:
        return cls(
            record.op,
            record.workload.set,
            record.workload.name,
            record.workload.dtype,
            record.backend,
            record.language,
            record.variant,
            record.target,
        )

    def __str__(self) -> str:
        row = f"{self.op}.{self.variant}" if self.variant else self.op
        language = "" if self.language == self.backend else f"/{self.language}"
        where = f"{self.backend}{language}@{self.target}"
        return f"{where} {row}[{self.workload_set}/{self.workload}, {self.dtype}]"


def incomparable(before: CellOutcome, after: CellOutcome) -> str:
    """Why their times cannot be compared, '' if they can."""
    said = (
        ("machine", before.environment.machine, after.environment.machine),
        ("device", before.environment.device, after.environment.device),
        ("venue", before.venue, after.venue),
        ("timing method", _method(before), _method(after)),
    )
    return "; ".join(f"{what} {a or 'none'} → {b or 'none'}" for what, a, b in said if a != b)


def changes(before: CellOutcome, after: CellOutcome) -> list[str]:
    """The circumstances that differ between two outcomes: the source, machine code, the driver,
    toolchains, portkern. Empty where equal questions were asked of equal software, and of other
    compilers that made the same machine code."""
    said = before.source_hash, before.environment, after.source_hash, after.environment
    found = moved_on(*said)
    if not found and before.key != after.key:
        found.append("the operator, its options or portkern's evaluator")
    if same_code(before, after):
        return moved_on(*said, compilers=False) if moved_on(*said) else found
    both = before.code and after.code and before.code != after.code
    if both and before.source_hash == after.source_hash:
        found.append(CODE)
    return found


def same_code(before: CellOutcome, after: CellOutcome) -> bool:
    """Whether both are of equal machine code, as far as that is known. Of Triton's kernels a build
    compiles the first configuration alone, so that another Triton may have changed the others."""
    triton = [one.environment.toolchain.get("triton") for one in (before, after)]
    return bool(before.code) and before.code == after.code and triton[0] == triton[1]


def moved_on(
    old: str, one: Environment, new: str, two: Environment, *, compilers: bool = True
) -> list[str]:
    """The differences that sources, by their digests, and environments show. Without
    ``compilers``, torch is the only tool that counts: its eager kernels are compared with."""
    found = ["the kernel's source"] if old != new else []
    if one.driver != two.driver:
        found.append(f"driver {one.driver or 'none'} → {two.driver or 'none'}")
    tools = {*one.toolchain, *two.toolchain}
    for name in sorted(tools if compilers else tools & {"torch"}):
        a, b = one.toolchain.get(name, "none"), two.toolchain.get(name, "none")
        kept = name != "torch" or "none" not in (a, b)  # which was once kept of few cells
        if a != b and kept:
            found.append(f"{name} {a} → {b}")
    if one.harness_version != two.harness_version:
        found.append(f"portkern {one.harness_version} → {two.harness_version}")
    return found


def _method(record: CellOutcome) -> str:
    return record.timing.method if record.timing else ""

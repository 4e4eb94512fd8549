"""A record as one line of text."""

from __future__ import annotations

from portkern.records.record import Record, Verdict


def line(record: Record) -> str:
    """Where, what, the verdict, and why or how fast."""
    where = f"{record.backend}@{record.target}"
    work = f"{record.row}[{record.workload.set}/{record.workload.name}, {record.workload.dtype}]"
    what = f"{record.verdict} ({record.evidence})"
    if record.verdict is Verdict.BUILD_FAILED:
        return f"{where} {work}: {what}"  # the compiler's words stand above
    if record.verdict is not Verdict.PASSED:
        return f"{where} {work}: {what}: {record.detail.partition(chr(10))[0]}"
    counted = counts(record)
    measured = (
        f"error {record.errors.vs_fp64:.1e} (framework {record.errors.reference_vs_fp64:.1e}"
        f"{f', {record.errors.tolerance} tolerance' if record.errors.tolerance else ''})"
        if record.errors
        else ""
    )
    if record.timing and "eager" in record.speedup:
        ratio = record.speedup["eager"]
        low, high = ratio.ci95
        measured += (
            f", {record.timing.median_us:.1f} us, {ratio.value:.2f}x eager [{low:.2f}, {high:.2f}]"
        )
    if record.timing and record.timing.noisy:
        what = f"{record.verdict} ({record.evidence}, noisy)"
        measured += f"; {record.timing.noisy}"
    return "\n    ".join([f"{where} {work}: {what}: {measured}", *counted])


def counts(record: Record) -> list[str]:
    """Lines on what the kernels of one call did, where it was counted, and on what all of them
    asked memory for, beside what the operator has to read and write."""
    told = [f"{launch.name}: {launch.told}" for launch in record.launches if launch.told]
    if not told or not record.roofline or not record.roofline.bytes:
        return told
    asked = sum(
        launch.counts.get(name, 0)
        for launch in record.launches
        for name in ("load_bytes", "store_bytes")
    )
    share = asked / record.roofline.bytes
    return [*told, f"{asked:,} bytes asked of memory, {share:.2f} x what the operator must move"]

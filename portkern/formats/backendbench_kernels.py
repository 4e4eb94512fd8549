"""Folders of kernels as BackendBench reads them: ``generated_kernels/mm__default/`` with a function
``mm__default_kernel_impl``."""

from __future__ import annotations

import json
from collections.abc import Sequence

from portkern.formats import torch_source
from portkern.formats.exported import Export, KernelRecords, NoSuchForm
from portkern.ops.aten import ATEN, NOT_ATEN, AtenOp
from portkern.records.record import Verdict

FOLDER = "generated_kernels"
NOTES = "portkern.json"


def write(kernels: Sequence[KernelRecords], export: Export) -> None:
    """Writes for each operator the kernels that passed whatever they were evaluated on, the
    fastest first: BackendBench takes the first. Raises StorageError."""
    written: dict[str, list[dict[str, object]]] = {}
    for kernel in sorted(kernels, key=_speed, reverse=True):
        item = f"{kernel.name} {kernel.dtype}"
        name = kernel.op.op.name
        aten = None if kernel.op.source or kernel.op.op.definition else ATEN.get(name)
        if aten is None:
            export.skip(
                item, NOT_ATEN.get(name, f"{name} is not an operator of ATen that is known")
            )
            continue
        if not kernel.evaluated or any(record.verdict.bad for record in kernel.evaluated):
            bad = [r for r in kernel.evaluated if r.verdict.bad]
            export.skip(item, f"it is {bad[0].verdict}" if bad else "nothing of it could be run")
            continue
        try:
            text = implementation(kernel, aten)
        except NoSuchForm as error:
            export.skip(item, error)
            continue
        folder = folder_name(aten.name)
        several = written.setdefault(folder, [])
        several.append(_note(kernel))
        export.write(f"{FOLDER}/{folder}/{folder}_implementation_v{len(several)}.py", text)
        export.items += 1
    for folder, notes in written.items():
        document = json.dumps({"implementations": notes}, indent=2) + "\n"
        export.write(f"{FOLDER}/{folder}/{NOTES}", document)


def folder_name(operator: str) -> str:
    """``add.Tensor`` is ``add__Tensor``."""
    return operator.replace(".", "__")


def implementation(kernel: KernelRecords, aten: AtenOp) -> str:
    """A module that defines the function. It refuses what the kernel cannot take, and does not
    fall back to the framework's own. Raises NoSuchForm."""
    if kernel.candidate.style == "module":
        raise NoSuchForm("it is a class ModelNew, and no function")
    module = torch_source.python_module(kernel.candidate, kernel.op.op, [kernel.dtype])
    given = ", ".join([*(f"({text}).contiguous()" for text in aten.given), *aten.scalars])
    native = kernel.candidate.language != "triton"
    first = aten.arguments.partition(",")[0]
    dtype = f" and {first}.dtype == torch.{kernel.dtype}" if native else ""
    return (
        f"{module}\n\ndef {folder_name(aten.name)}_kernel_impl({aten.arguments}):\n"
        f"    if not ({aten.requires}{dtype}):\n"
        f'        raise NotImplementedError("this kernel takes only {kernel.op.op.name} as '
        f'portkern has it")\n'
        f"    out = {torch_source.FUNCTION}({given})\n    return {aten.result}\n"
    )


def _speed(kernel: KernelRecords) -> float:
    """The median speedup of what was timed; unknown is 0."""
    known = sorted(s.value for r in kernel.records for s in r.speedup.values())
    return known[len(known) // 2] if known else 0.0


def _note(kernel: KernelRecords) -> dict[str, object]:
    passed = [r for r in kernel.evaluated if r.verdict is Verdict.PASSED]
    return {
        "source_hash": kernel.candidate.digest,
        "backend": kernel.candidate.backend,
        "dtype": kernel.dtype,
        "targets": sorted({record.target for record in passed}),
        "evidence": sorted({str(record.evidence) for record in passed}),
        "speedup": _speed(kernel) or None,
    }

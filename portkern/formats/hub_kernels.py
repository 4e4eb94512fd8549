"""Packages in the layout of Hugging Face's kernel-builder: ``build.toml``, ``torch-ext/`` and
sources."""

from __future__ import annotations

from collections.abc import Sequence

from portkern.formats import torch_source
from portkern.formats.exported import Export, KernelRecords, NoSuchForm
from portkern.records.record import Record
from portkern.spec import target as targets
from portkern.spec.op import Op

#: The builder's names, and the macros that it defines for each.
_BACKENDS = {"cuda": "cuda", "hip": "rocm", "c++": "cpu"}
_KEYS = {"cuda": "CUDA", "rocm": "CUDA", "cpu": "CPU"}
_SUFFIX = {"cuda": "cu", "rocm": "hip", "cpu": "cpp"}
_EDITION, _VERSION = 5, 1


def write(kernels: Sequence[KernelRecords], export: Export) -> None:
    """A package for each op and dtype, of its kernels that passed whatever they were evaluated on;
    those in Triton make one of their own. Raises StorageError."""
    several = len({kernel.dtype for kernel in kernels}) > 1
    packages: dict[str, list[KernelRecords]] = {}
    for kernel in kernels:
        reason = _refused(kernel)
        if reason:
            export.skip(f"{kernel.name} {kernel.dtype}", reason)
            continue
        parts = [kernel.op.op.name.replace("_", "-")]
        parts += ["triton"] * (kernel.candidate.language == "triton")
        parts += [kernel.dtype] * (several and kernel.candidate.language != "triton")
        packages.setdefault("-".join(parts), []).append(kernel)
    for name, members in packages.items():
        if members[0].candidate.language == "triton":
            _write_triton(name, members, export)
        else:
            _write_native(name, members, export)


def _refused(kernel: KernelRecords) -> str:
    language = kernel.candidate.language
    if kernel.candidate.style == "module":
        return "it is a class ModelNew; the layout wants functions"
    if language != "triton" and language not in _BACKENDS:
        return f"the layout has no place for {language} kernels"
    bad = [record for record in kernel.evaluated if record.verdict.bad]
    if bad:
        return f"it is {bad[0].verdict}"
    return "" if kernel.evaluated else "nothing of it could be run"


def _write_triton(name: str, members: Sequence[KernelRecords], export: Export) -> None:
    """One source serves all dtypes."""
    first = members[0]
    for other in members[1:]:
        if other.candidate.digest != first.candidate.digest:
            export.skip(f"{other.name} {other.dtype}", f"{name} has {first.name} already")
    own = [one for one in members if one.candidate.digest == first.candidate.digest]
    package = name.replace("-", "_")
    try:
        text = torch_source.python_module(first.candidate, first.op.op, first.dtype)
    except NoSuchForm as error:
        for one in own:
            export.skip(f"{one.name} {one.dtype}", error)
        return
    vendors = {targets.load(record.target).vendor for one in own for record in one.evaluated}
    backends = ["cuda"] * ("nvidia" in vendors) + ["rocm"] * ("amd" in vendors)
    export.write(f"{name}/build.toml", _general(name, backends) + "\n[torch-noarch]\n")
    export.write(f"{name}/torch-ext/{package}/kernel.py", text)
    export.write(f"{name}/torch-ext/{package}/__init__.py", _package(first.op.op, "kernel"))
    export.write(f"{name}/README.md", _readme(name, own))
    export.items += len(own)


def _write_native(name: str, members: Sequence[KernelRecords], export: Export) -> None:
    package = name.replace("-", "_")
    chosen: dict[str, tuple[KernelRecords, str]] = {}
    for kernel in members:
        backend = _BACKENDS[kernel.candidate.language]
        item = f"{kernel.name} {kernel.dtype}"
        if backend in chosen:
            export.skip(item, f"{name} has {chosen[backend][0].name} for {backend} already")
            continue
        try:
            unit = torch_source.translation_unit(kernel.candidate, kernel.op.op, kernel.dtype)
        except NoSuchForm as error:
            export.skip(item, error)
            continue
        # What Python's headers would bring is not for packages of any version of Python.
        unit = unit.replace("#include <torch/extension.h>", "#include <torch/all.h>", 1)
        chosen[backend] = kernel, unit
    if not chosen:
        return
    op = next(iter(chosen.values()))[0].op.op
    lines = [_general(name, sorted(chosen))]
    lines.append('\n[torch]\nsrc = ["torch-ext/torch_binding.cpp", "torch-ext/torch_binding.h"]\n')
    for backend, (_, unit) in chosen.items():
        file = f"{package}_{backend}/{package}.{_SUFFIX[backend]}"
        lines.append(
            f'\n[kernel.{package}_{backend}]\nbackend = "{backend}"\ndepends = ["torch"]\n'
            f'src = ["{file}"]\n'
        )
        export.write(f"{name}/{file}", unit)
    export.write(f"{name}/build.toml", "".join(lines))
    export.write(f"{name}/torch-ext/torch_binding.h", _header(op))
    export.write(f"{name}/torch-ext/torch_binding.cpp", _registration(op, sorted(chosen)))
    text = f"import torch\n\nfrom ._ops import ops\n\n\n{torch_source.native_function(op, _CALLED)}"
    export.write(f"{name}/torch-ext/{package}/kernel.py", text)
    export.write(f"{name}/torch-ext/{package}/__init__.py", _package(op, "kernel"))
    export.write(f"{name}/README.md", _readme(name, [kernel for kernel, _ in chosen.values()]))
    export.items += len(chosen)


_CALLED = f"ops.{torch_source.BINDING}"


def _general(name: str, backends: Sequence[str]) -> str:
    listed = ", ".join(f'"{backend}"' for backend in backends)
    return (
        f'[general]\nname = "{name}"\nversion = {_VERSION}\nedition = {_EDITION}\n'
        f"backends = [{listed}]\n"
    )


def _header(op: Op) -> str:
    return f"#pragma once\n\n#include <torch/all.h>\n\n#include <vector>\n\n{_declared(op)}\n"


def _declared(op: Op) -> str:
    return f"{torch_source.binding_head(op)};"


def _registration(op: Op, backends: Sequence[str]) -> str:
    """A schema and, for each backend that is built, where its function is."""
    signature = op.signature
    kinds = {"float32": "float", "int64": "int", "bool": "bool"}
    taken = [f"Tensor {tensor.name}" for tensor in signature.inputs]
    taken += [f"int {axis}" for axis in signature.axes]
    taken += [f"{kinds[scalar.dtype]} {scalar.name}" for scalar in signature.scalars]
    schema = f"{torch_source.BINDING}({', '.join(taken)}) -> Tensor[]"
    lines = [
        f"#if defined({backend.upper()}_KERNEL)\n"
        f'  ops.impl("{torch_source.BINDING}", torch::k{_KEYS[backend]}, '
        f"&{torch_source.BINDING});\n#endif\n"
        for backend in backends
    ]
    return (
        "#include <torch/library.h>\n\n"
        '#include "registration.h"\n#include "torch_binding.h"\n\n'
        f'TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {{\n  ops.def("{schema}");\n'
        f"{''.join(lines)}}}\n\nREGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n"
    )


def _package(op: Op, module: str) -> str:
    """The op under its own name, for tensors of any strides."""
    signature = op.signature
    taken = [tensor.name for tensor in signature.inputs]
    given = [f"{name}.contiguous()" for name in taken] + [s.name for s in signature.scalars]
    taken += [f"{s.name}={s.default!r}" for s in signature.scalars]
    return (
        f"from .{module} import {torch_source.FUNCTION}\n\n\n"
        f"def {op.name}({', '.join(taken)}):\n"
        f"    return {torch_source.FUNCTION}({', '.join(given)})\n\n\n"
        f'__all__ = ["{op.name}"]\n'
    )


def _readme(name: str, kernels: Sequence[KernelRecords]) -> str:
    """What became of the kernels, cell by cell."""
    lines = [
        f"# {name}\n",
        f"{kernels[0].op.op.description or kernels[0].op.op.name}\n",
        "What became of its kernels when portkern evaluated them. *emulated*: on a model of the "
        "target, not on hardware; *measured*: timed on it, beside the framework's own.\n",
        "| target | workload | dtype | verdict | evidence | median µs | × eager | source |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_row(record) for kernel in kernels for record in kernel.records]
    return "\n".join(lines) + "\n"


def _row(record: Record) -> str:
    timing, speedup = record.timing, record.speedup.get("eager")
    cells = [
        record.target,
        record.workload.name,
        record.workload.dtype,
        str(record.verdict),
        str(record.evidence),
        f"{timing.median_us:.2f}" if timing else "",
        f"{speedup.value:.2f}" if speedup else "",
        record.source_hash,
    ]
    return f"| {' | '.join(cell.replace('|', ' ') for cell in cells)} |"

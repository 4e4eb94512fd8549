"""Packages in the layout of Hugging Face's kernel-builder: ``build.toml``, ``torch-ext/`` and
sources, and ``build/``, which its loader takes as it is: native kernels are compiled when they are
first imported from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from portkern.formats import torch_source
from portkern.formats.call_form import CHECKED
from portkern.formats.exported import Export, KernelRecords, NoSuchForm
from portkern.records.record import Record
from portkern.spec import target as targets
from portkern.spec.op import Op

#: The builder's names, and the macros that it defines for each.
_BACKENDS = {"cuda": "cuda", "hip": "rocm", "c++": "cpu"}
_KEYS = {"cuda": "CUDA", "rocm": "CUDA", "cpu": "CPU"}
_SUFFIX = {"cuda": "cu", "rocm": "hip", "cpu": "cpp"}
_EDITION, _VERSION = 5, 1
#: The flags of a C++ compiler, where a package is built on the machine that imports it.
_FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math")


def write(kernels: Sequence[KernelRecords], export: Export) -> None:
    """A package for each op, variant and dtype, of its kernels that passed whatever they were
    evaluated on; those in Triton make one of their own. Raises StorageError."""
    several = len({kernel.dtype for kernel in kernels}) > 1
    packages: dict[str, list[KernelRecords]] = {}
    for kernel in kernels:
        reason = _refused(kernel)
        if reason:
            export.skip(f"{kernel.name} {kernel.dtype}", reason)
            continue
        parts = [kernel.op.op.name.replace("_", "-")]
        parts += [variant for variant in [kernel.variant.replace("_", "-")] if variant]
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
    dtypes = list(dict.fromkeys(one.dtype for one in own))
    try:
        text = torch_source.python_module(first.candidate, first.op.op, dtypes)
    except NoSuchForm as error:
        for one in own:
            export.skip(f"{one.name} {one.dtype}", error)
        return
    vendors = {targets.load(record.target).vendor for one in own for record in one.evaluated}
    backends = ["cuda"] * ("nvidia" in vendors) + ["rocm"] * ("amd" in vendors)
    export.write(f"{name}/build.toml", _general(name, backends) + "\n[torch-noarch]\n")
    files = {"kernel.py": text, "__init__.py": _package(first.op.op, "kernel")}
    for backend in backends:
        _write_build(name, backend, first.candidate.digest, files, export)
    for file, content in files.items():
        export.write(f"{name}/torch-ext/{package}/{file}", content)
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
    first = next(iter(chosen.values()))[0]
    op = first.op.op
    lines = [_general(name, sorted(chosen))]
    lines.append('\n[torch]\nsrc = ["torch-ext/torch_binding.cpp", "torch-ext/torch_binding.h"]\n')
    files = {"kernel.py": _native_module(op, first.dtype), "__init__.py": _package(op, "kernel")}
    for backend, (kernel, unit) in chosen.items():
        file = f"{package}_{backend}/{package}.{_SUFFIX[backend]}"
        lines.append(
            f'\n[kernel.{package}_{backend}]\nbackend = "{backend}"\ndepends = ["torch"]\n'
            f'src = ["{file}"]\n'
        )
        export.write(f"{name}/{file}", unit)
        digest = kernel.candidate.digest
        source = f"{package}.{_SUFFIX[backend]}"
        own = {source: unit + _own_registration(op, package, digest, _KEYS[backend])}
        own["_ops.py"] = _compiled(package, digest, source)
        _write_build(name, backend, digest, files | own, export)
    export.write(f"{name}/build.toml", "".join(lines))
    export.write(f"{name}/torch-ext/torch_binding.h", _header(op))
    export.write(f"{name}/torch-ext/torch_binding.cpp", _registration(op, sorted(chosen)))
    for file, content in files.items():
        export.write(f"{name}/torch-ext/{package}/{file}", content)
    export.write(f"{name}/README.md", _readme(name, [kernel for kernel, _ in chosen.values()]))
    export.items += len(chosen)


def _native_module(op: Op, dtype: str) -> str:
    """The function of tensors, and what torch has to know of the operator behind it to trace it.
    Gradients are refused before the operator is traced: later nobody would ask for them."""
    function = torch_source.native_function(op, f"ops.{torch_source.BINDING}")
    inputs = ", ".join(tensor.name for tensor in op.signature.inputs)
    checked = f"    {CHECKED}({inputs})\n    return "
    return (
        "import torch\n\nfrom ._ops import add_op_namespace_prefix, ops\n\n\n"
        f"{torch_source.fake_function(op, [dtype])}\n\n"
        f'torch.library.register_fake(add_op_namespace_prefix("{torch_source.BINDING}"))(fake)\n'
        f"\n\n{function.replace('    return ', checked, 1)}"
    )


def _write_build(
    name: str, backend: str, digest: str, files: Mapping[str, str], export: Export
) -> None:
    """A variant as the loader takes it: for all versions of torch, compiled there or not at all."""
    folder = f"{name}/build/torch-{backend}"
    for file, content in files.items():
        export.write(f"{folder}/{file}", content)
    document = {
        "name": name,
        "id": _space(name.replace("-", "_"), digest),
        "version": _VERSION,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": backend},
    }
    export.write_json(f"{folder}/metadata.json", document)


def _space(package: str, digest: str) -> str:
    """The namespace of its operators: two versions may be loaded into one process."""
    return f"_{package}_{digest[:8]}"


def _own_registration(op: Op, package: str, digest: str, key: str) -> str:
    return (
        f"\n#include <torch/library.h>\n\nTORCH_LIBRARY({_space(package, digest)}, ops) {{\n"
        f'  ops.def("{torch_source.schema(op)}");\n'
        f'  ops.impl("{torch_source.BINDING}", torch::k{key}, &{torch_source.BINDING});\n}}\n'
    )


def _compiled(package: str, digest: str, source: str) -> str:
    """The module ``_ops`` of a variant that is compiled by who imports it."""
    space = _space(package, digest)
    flags = f", extra_cflags={list(_FLAGS)!r}" if source.endswith(".cpp") else ""
    return (
        "from pathlib import Path\n\nimport torch\n"
        "from torch.utils.cpp_extension import load\n\n"
        f'source = str(Path(__file__).parent / "{source}")\n'
        f'load("{space}", [source], is_python_module=False{flags})\n'
        f"ops = torch.ops.{space}\n\n\n"
        f'def add_op_namespace_prefix(name):\n    return f"{space}::{{name}}"\n'
    )


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
    lines = [
        f"#if defined({backend.upper()}_KERNEL)\n"
        f'  ops.impl("{torch_source.BINDING}", torch::k{_KEYS[backend]}, '
        f"&{torch_source.BINDING});\n#endif\n"
        for backend in backends
    ]
    return (
        "#include <torch/library.h>\n\n"
        '#include "registration.h"\n#include "torch_binding.h"\n\n'
        "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {\n"
        f'  ops.def("{torch_source.schema(op)}");\n'
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
    """The text of the package's README: the outcome of the kernels, cell by cell."""
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

"""``portkern export library``: a wheel with one operator of torch for each op, and its kernels."""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import io
import json
import keyword
import re
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from portkern.deploy import artifacts, signing
from portkern.deploy.artifacts import BuiltArtifact, sha256
from portkern.deploy.evidence import Table, table
from portkern.deploy.objects import carried
from portkern.deploy.operators import Operator, translation_unit
from portkern.deploy.package import _build as compiling
from portkern.deploy.package import hub
from portkern.errors import ConfigError
from portkern.formats.exported import Export, KernelRecords, NoSuchForm
from portkern.records import atomic_write
from portkern.records.record import Evidence
from portkern.spec import target as targets
from portkern.spec.op import Op
from portkern.toolchain.run_tool import cache_root

_PACKAGE = "portkern.deploy.package"
#: What is copied as it is.
_COPIED = (
    *("_apply.py", "_build.py", "_call.py", "_finder.py", "_formulas.py", "_functions.py"),
    *("_graph.py", "_match.py", "_modules.py", "_nodes.py", "_plans.py", "_proof.py"),
    *("_race.py", "_report.py", "_running.py", "_signature.py", "_sites.py", "_text.py"),
    *("_work.py",),
    *("hub.py", "liger.py", "sglang.py", "vllm.py", *compiling.HEADERS),
)
#: Names that are torch's own, or those of functions in every library.
_TAKEN = frozenset("aten prim prims torch torch_library profiler inductor portkern".split())


@dataclass(frozen=True)
class LibraryOptions:
    """``key`` is the file of a private key, which signs the digests of all files; ``objects`` are
    targets of AMD's whose code objects go with the library. ``lazy``: kernels go as texts, which
    are compiled where it is imported."""

    name: str
    evidence: Evidence = Evidence.MEASURED
    version: str = "1.0.0"
    key: str = ""
    objects: tuple[str, ...] = ()
    lazy: bool = False


def check_name(name: str) -> None:
    """Raises ConfigError for what is not a name of a package and of a namespace of torch's."""
    good = re.fullmatch(r"[a-z][a-z0-9_]{0,60}", name) and not keyword.iskeyword(name)
    if not good or name in _TAKEN:
        raise ConfigError(
            f"Got name={name[:80]!r}, expected small letters, digits and underscores, such as "
            "'fast_ops', which is not one of torch's own"
        )


def write(
    kernels: Sequence[KernelRecords],
    export: Export,
    options: LibraryOptions,
    begun: Callable[[str], None] = lambda what: None,
) -> Path | None:
    """Writes the wheel; None where no kernel is left. What is left out is skipped with its reason,
    and ``begun`` is told what is made next. Raises ConfigError for a name that cannot be and where
    no C++ compiler is, and StorageError."""
    check_name(options.name)
    operators = _operators(kernels, options.name, export)
    known = {one.op.name: one for one in operators}
    own = [kernel for kernel in kernels if kernel.op.op.name in known]
    keys = {name: one.key for name, one in known.items()}
    found = table(own, options.evidence, keys)
    built = artifacts.built(found, lazy=options.lazy, begun=begun)
    for line in found.refused:
        what, _, why = line.partition(": ")
        export.skip(what, why)
    beside = carried(own, options.objects, export)
    if not built and not beside:
        return None
    used = {one.kernel.op.name for one in built} | {one.kernel.op.op.name for one in beside}
    numbered = [
        replace(known[name], number=n) for n, name in enumerate(n for n in known if n in used)
    ]
    document = _document(numbered, found, built, options)
    document["objects"] = [one.document() for one in beside]
    begun("compiling the library's operators")
    files = _files(numbered, document, built, options)
    files |= {one.file: one.data for one in beside}
    files |= signing.metadata(files, json.loads(files["table.json"]), options.key)
    export.items += len(built) + len(beside)
    return _wheel(files, export, options)


def _operators(kernels: Sequence[KernelRecords], space: str, export: Export) -> list[Operator]:
    made: dict[str, Operator] = {}
    for op in {kernel.op.op.name: kernel.op.op for kernel in kernels}.values():
        try:
            made[op.name] = Operator.of(op, len(made), space)
            _ = made[op.name].form
        except NoSuchForm as error:
            made.pop(op.name, None)
            export.skip(op.name, error)
    return list(made.values())


def _files(
    operators: Sequence[Operator],
    document: dict[str, Any],
    built: Sequence[BuiltArtifact],
    options: LibraryOptions,
) -> dict[str, bytes]:
    """The files of the package by their places in it."""
    package = importlib.resources.files(_PACKAGE)
    files = {
        "__init__.py": (package / "runtime.py").read_bytes(),
        **{name: (package / name).read_bytes() for name in _COPIED},
        compiling.SOURCE: translation_unit(operators).encode(),
        "_references.py": _references([one.op for one in operators]).encode(),
        "layers.py": hub.text_of_layers([one.op.name for one in operators]).encode(),
    }
    for one in built:
        files |= one.files
    files |= {f"sources/{_source_name(one)}": _source(one) for one in built}
    name, data = _compiled(files)
    files[name] = data
    document["compiled"] = {name: hashlib.sha256(data).hexdigest()}
    said = json.dumps(document, sort_keys=True).encode()
    document["version"] = f"{options.version}+g{hashlib.sha256(said).hexdigest()[:8]}"
    files["table.json"] = json.dumps(document, indent=1).encode()
    return files


def _source_name(one: BuiltArtifact) -> str:
    return f"{one.kernel.kernel.candidate.digest}.txt"


def _source(one: BuiltArtifact) -> bytes:
    candidate = one.kernel.kernel.candidate
    parts = [candidate.source, *(f"// {n}\n{t}" for n, t in candidate.companions.files)]
    return "\n".join(parts).encode()


def _compiled(files: Mapping[str, bytes]) -> tuple[str, bytes]:
    """The operators for the torch of this machine. Raises ConfigError."""
    import torch

    name = compiling.compiled_name(torch.__version__, cuda=torch.version.cuda is not None)
    with tempfile.TemporaryDirectory(prefix="portkern-library-") as folder:
        place = Path(folder)
        for file in (*compiling.HEADERS, compiling.SOURCE):
            (place / file).write_bytes(files[file])
        kept = cache_root() / "libraries" / _digest(files) / name
        if not kept.is_file():
            try:
                compiling.build(place, kept)
            except compiling.CannotBuild as error:
                raise ConfigError(f"The library's operators cannot be compiled: {error}") from error
        return name, kept.read_bytes()


def _digest(files: Mapping[str, bytes]) -> str:
    names = (*compiling.HEADERS, compiling.SOURCE, "_build.py")
    return sha256(b"".join(files[name] for name in names))[:16]


def _document(
    operators: Sequence[Operator],
    found: Table,
    built: Sequence[BuiltArtifact],
    options: LibraryOptions,
) -> dict[str, Any]:
    """The table that the library reads when it is imported, with where each entry came from."""
    numbers = {one.op.name: place for place, one in enumerate(operators)}
    places = {one.kernel: place for place, one in enumerate(built)}
    cells = [cell for cell in found.cells if cell.kernel in places]
    records = [
        {
            "id": cell.record.id,
            "run": cell.record.run,
            "time": cell.record.time,
            "workload": cell.record.workload.name,
            "evidence": str(cell.record.evidence),
            "speedup": {n: list(s.ci95) for n, s in cell.record.speedup.items()},
            "toolchain": dict(cell.record.environment.toolchain),
            "driver": cell.record.environment.driver,
            "portkern": cell.record.environment.harness_version,
        }
        for cell in cells
    ]
    return {
        "name": options.name,
        "version": options.version,
        "evidence": str(options.evidence),
        "operators": [
            {
                "name": one.op.name,
                "key": list(one.key),
                "schema": one.schema,
                "inputs": len(one.op.signature.inputs),
                "scalars": one.op.signature.scalar_values({}),
            }
            for one in operators
        ],
        "kernels": [_kernel(one, numbers) for one in built],
        "cells": [
            {
                "kernel": places[cell.kernel],
                "key": list(cell.key),
                "speedup": cell.speedup,
                "record": number,
            }
            for number, cell in enumerate(cells)
        ],
        "records": records,
        "refused": found.refused,
    }


def _kernel(one: BuiltArtifact, numbers: Mapping[str, int]) -> dict[str, Any]:
    own, candidate = one.kernel, one.kernel.kernel.candidate
    passed = own.kernel.evaluated
    return {
        "op": numbers[own.op.name],
        "dtype": own.kernel.dtype,
        "device": own.device,
        "target": own.target,
        "cpu_flags": list(targets.load(own.target).cpu_flags),
        "backend": candidate.backend,
        "language": candidate.language,
        "entry": candidate.entry,
        "source_hash": candidate.digest,
        "file": one.file,
        "sha256": one.sha256,
        "build": asdict(one.recipe) if one.recipe else None,
        "binaries": {name: sha256(data) for name, data in one.binaries.items()},
        "evidence": str(min(record.evidence for record in passed)),
    }


def _references(ops: Sequence[Op]) -> str:
    """The formulas in Python, by the operators' names."""
    texts = [op.reference_source.replace("def run(", f"def {op.name}(", 1) for op in ops]
    texts = [text.replace("torch.nn.functional.rms_norm(", "_rms_norm(") for text in texts]
    return "\n\n\n".join([_HEAD, *(text.strip() for text in texts)]) + "\n"


_HEAD = '''"""What each operator computes."""

from __future__ import annotations

import torch


def _rms_norm(x, sizes, weight, eps):
    """As torch's own, which up to 2.11 takes a length that is a symbol for a number."""
    if all(isinstance(one, int) for one in sizes):
        return torch.nn.functional.rms_norm(x, sizes, weight, eps)
    scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
    return (x * scale * weight).to(x.dtype)'''


# ---- The wheel


def _wheel(files: Mapping[str, bytes], export: Export, options: LibraryOptions) -> Path:
    """Raises StorageError."""
    version = json.loads(files["table.json"])["version"]
    about = f"{options.name}-{version}.dist-info"
    tag = "py3-none-linux_x86_64"
    members = {f"{options.name}/{name}": data for name, data in files.items()}
    members[f"{about}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {options.name}\nVersion: {version}\n"
        "Summary: Kernels as operators of torch, chosen by what was measured\n"
        "Requires-Python: >=3.10\nRequires-Dist: torch>=2.6\n"
    ).encode()
    members[f"{about}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: portkern\nRoot-Is-Purelib: false\nTag: {tag}\n"
    ).encode()
    lines = [f"{name},sha256={_urlsafe(data)},{len(data)}" for name, data in members.items()]
    members[f"{about}/RECORD"] = ("\n".join([*lines, f"{about}/RECORD,,"]) + "\n").encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(
                zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED
            )
    path = export.folder / f"{options.name}-{version}-{tag}.whl"
    atomic_write.write(path, buffer.getvalue())
    export.files.append(path)
    return path


def _urlsafe(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")

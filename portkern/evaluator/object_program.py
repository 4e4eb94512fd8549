"""Programs whose kernels are executed as they are compiled: what builds them, and what starts them
in the jail."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from portkern.errors import BackendUnavailable
from portkern.evaluator.jailed_compilers import JailedCompilers
from portkern.isa import runtime_library, venue
from portkern.isa.executor import TABLES
from portkern.simt.execute import runtime_library as simt_library
from portkern.simt.execute.build import is_host
from portkern.simt.execute.compile_options import CompileOptions, language_of
from portkern.spec.backend import Missing
from portkern.spec.file_build import FileBuild
from portkern.spec.target import Target

_WORKER = "portkern.worker.object_program"


def lacking(target: Target) -> Missing | None:
    """Why code for the target is not executed here."""
    found = venue.venue(target)
    return found if isinstance(found, Missing) else None


def build(
    compilers: JailedCompilers,
    source: Path,
    out: Path,
    options: CompileOptions,
    *,
    further: Sequence[Path] = (),
) -> tuple[Path, Path]:
    """The library of a HIP program's host code, as ``out``, and its code object. Raises BuildError,
    and BackendUnavailable where objects for the target are not executed here."""
    target, language = options.target, options.language or language_of(source, *further)
    if target is None or target.vendor != "amd" or language != "hip":
        raise BackendUnavailable(
            f"Got {source.name} for {target or 'no target'}: objects of HIP programs are executed, "
            f"for {' '.join(TABLES)}; venue=source runs others"
        )
    if (missing := lacking(target)) is not None:
        raise BackendUnavailable(str(missing))
    library = compilers.program(source, out, replace(options, objects=True), further=further)
    request = FileBuild(
        source.absolute(),
        target,
        tuple(folder.absolute() for folder in options.search),
        tuple(options.defines),
        timeout_s=options.timeout_s,
        further=tuple(file.absolute() for file in further if not is_host(file)),
    )
    return library, compilers.file("hip", request, out.parent).object


def command(
    library: Path,
    object_: Path,
    target: Target,
    checks: Sequence[str] = (),
    *,
    limit_s: float,
    record_bytes: int = 0,
) -> tuple[str, ...]:
    """The command that runs it, to which its own arguments are added; a request has it ``apart``,
    with the same limit. What launches did is recorded with contents of so many bytes."""
    options = {
        "object": str(object_),
        "target": str(target),
        "checks": list(checks),
        "record_bytes": record_bytes,
        "limit_s": limit_s,
        "runtime": str(simt_library.ready().runtime),
    }
    return sys.executable, "-P", "-m", _WORKER, json.dumps(options), str(library)


def reads() -> Sequence[Path]:
    """Folders of ours that such a process reads. Raises BackendUnavailable."""
    return runtime_library.ready().parent, simt_library.ready().folder

"""Builds a PyTorch extension for the executor, and calls it in a process of its own.

Of the text only the binding changes: the functions that this one file defines are listed, for the
files of a collection are meant to be linked with others.
"""

from __future__ import annotations

import multiprocessing
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portkern.errors import BuildError, PortkernError
from portkern.simt.execute import build
from portkern.simt.execute.options import Mode
from real import child
from real.running import Result, settings

CALL_LIMIT_S = 240.0
# Each begins with PyTorch imported, which takes longer than most cases.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["torch", "portkern.simt.torch_extension.bindings"])

_DEFINED = re.compile(
    r"^(?P<template>template\s*<[^;{}]*>\s*\n)?[A-Za-z_][\w:<>, ]*?\s+\*?(?P<name>\w+)\s*"
    r"\((?P<arguments>[^(){};]*(?:\([^()]*\)[^(){};]*)*)\)\s*(?P<end>[{;])",
    re.MULTILINE,
)
_BOUND = re.compile(r"TORCH_BINDING_COMMON_EXTENSION\(\s*(\w+)\s*\)|m\.def\(\s*\"(\w+)\"")


@dataclass(frozen=True)
class Library:
    """A built library: its functions to call, or why there is none."""

    file: str
    functions: tuple[str, ...] = ()
    library: Path | None = None
    refused: str = ""


def exported(text: str) -> tuple[str, ...]:
    """Functions with tensors among their arguments that the file itself defines."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    defined, declared = [], set()
    for found in _DEFINED.finditer(text):
        if found["end"] == ";":
            declared.add(found["name"])
        elif not found["template"] and (
            "torch::Tensor" in found["arguments"] or found["name"].endswith("cublas_handle")
        ):
            defined.append(found["name"])
    bound = [a or b for a, b in _BOUND.findall(text.partition("PYBIND11_MODULE")[2])]
    by_macro = [name for name in bound if name not in declared and name not in defined]
    return tuple(dict.fromkeys([*defined, *by_macro]))


def rebound(text: str, functions: Sequence[str]) -> str:
    """The text with a binding of ``functions`` in place of its own."""
    at = text.find("PYBIND11_MODULE")
    if at >= 0:
        text = text[:at]
    lines = "".join(f'    m.def("{name}", &{name});\n' for name in functions)
    return f"{text}\n#include <torch/extension.h>\nPYBIND11_MODULE(extension, m) {{\n{lines}}}\n"


def reason(error: PortkernError) -> str:
    """A build's failure in one line."""
    first = next((x for x in getattr(error, "log", "").splitlines() if "error:" in x), "")
    said = f"{error}: {first}"
    if isinstance(error, build.UnmodelledSource):
        more = len(error.diagnostics) - 1
        said = str(error.diagnostics[0]) + (f" (and {more} more)" if more else "")
    return re.sub(r"/[^\s:]*/", "", said)  # no folders of this machine


def build_text(
    text: str,
    name: str,
    folder: Path,
    mode: Mode,
    *,
    search: Sequence[Path] = (),
    defines: Sequence[str] = (),
    functions: Sequence[str] = (),
) -> Library:
    folder.mkdir(parents=True, exist_ok=True)
    known = tuple(functions) or exported(text)
    source = folder / Path(name).name
    source.write_text(rebound(text, known), encoding="utf-8")
    out = folder / f"{source.stem}-{mode}.so"
    try:
        build.build_extension(
            source, out, build.CompileOptions(mode=mode, search=search, defines=defines)
        )
    except BuildError as error:
        return Library(name, known, None, reason(error))
    return Library(name, known, out)


@dataclass
class Calls:
    """The task of a child process: call each function of ``library`` as ``case`` says."""

    library: Library
    kind: str  # "leetcuda" or "good_kernels"
    mode: str
    size: str = "full"
    warp: int = 32
    more: dict[str, Any] = field(default_factory=dict)


def call(calls: Calls, work: Path) -> dict[str, Result]:
    """Results by case. What a fault leaves behind is not met by the next case: it goes on in a new
    process."""
    results: dict[str, Result] = {}
    while _call_rest(calls, results, work):
        pass
    return results


def _call_rest(calls: Calls, results: dict[str, Result], work: Path) -> bool:
    """Whether a process ended before its time, so that there may be more to do."""
    library = calls.library
    assert library.library
    request = child.Request(
        library.library,
        library.functions,
        calls.kind,
        calls.size,
        tuple(results),
        calls.more,
        settings(calls.mode, warp=calls.warp),
        work,
    )
    heard, said = _FORKS.Pipe(duplex=False)
    log = library.library.with_suffix(f".{threading.get_ident()}.log")
    process = _FORKS.Process(target=child.main, args=(request, said, log), daemon=True)
    process.start()
    said.close()
    started, again, ended = "", False, "crashed"
    until = time.monotonic() + CALL_LIMIT_S
    while True:
        try:
            if not heard.poll(max(0.0, until - time.monotonic())):
                process.kill()
                ended = "out of time"
                break
            case, result = heard.recv()
        except EOFError:
            break
        again = result is not None and result.verdict.startswith(child.FAULT)
        if result:
            results[case] = result
        started = "" if result else case
    process.join()
    tail = log.read_text(encoding="utf-8", errors="replace")[-500:] if log.exists() else ""
    if started:
        results[started] = Result(ended, log=tail)
    elif not results:
        results["all"] = Result("cannot be loaded", log=tail)
    return bool(started) or again

"""Builds a PyTorch extension for the executor, and calls it in a process of its own.

Of the text only the binding changes: the functions that this one file defines are listed, for the
files of a collection are meant to be linked with others.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portkern.errors import BuildError, PortkernError
from portkern.simt import build
from portkern.simt.options import Mode, spell
from real.running import Finding, Result, settings

CALL_LIMIT_S = 240.0
#: Exit status of a child that stops after an illegal access, as a CUDA context would.
FAULTED = 3

_DEFINED = re.compile(
    r"^(?P<template>template\s*<[^;{}]*>\s*\n)?[A-Za-z_][\w:<>, ]*?\s+\*?(?P<name>\w+)\s*"
    r"\((?P<arguments>[^(){};]*(?:\([^()]*\)[^(){};]*)*)\)\s*(?P<end>[{;])", re.MULTILINE,
)  # fmt: skip
_BOUND = re.compile(r"TORCH_BINDING_COMMON_EXTENSION\(\s*(\w+)\s*\)|m\.def\(\s*\"(\w+)\"")


@dataclass(frozen=True)
class Library:
    """What was built: the functions to call, or why there is none."""

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
    said = str(error) if isinstance(error, build.Unmodelled) else f"{error}: {first}"
    return re.sub(r"/[^\s:]*/", "", said)  # no folders of this machine


def build_text(
    text: str, name: str, folder: Path, mode: Mode, *, search: Sequence[Path] = (),
    defines: Sequence[str] = (), functions: Sequence[str] = (),
) -> Library:  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    known = tuple(functions) or exported(text)
    source = folder / Path(name).name
    source.write_text(rebound(text, known), encoding="utf-8")
    out = folder / f"{source.stem}-{mode}.so"
    try:
        build.build_extension(source, out, mode=mode, search=search, defines=defines)
    except BuildError as error:
        return Library(name, known, None, reason(error))
    return Library(name, known, out)


@dataclass
class Calls:
    """What a child process is to do: call each function of ``library`` as ``case`` says."""

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
    while True:
        missing = _call_rest(calls, results, work)
        if not missing:
            return results


def _call_rest(calls: Calls, results: dict[str, Result], work: Path) -> bool:
    """Whether a child died and there may be more to do."""
    library = calls.library
    assert library.library
    request = {
        "library": str(library.library), "file": library.file, "functions": library.functions,
        "kind": calls.kind, "size": calls.size, "done": list(results), "more": calls.more,
        "settings": settings(calls.mode, warp=calls.warp), "root": str(library.library.parent),
    }  # fmt: skip
    here = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(
        [str(here), os.environ.get("PYTHONPATH", "")]), "PORTKERN_SIMT": spell({"limit_s": 20}),
        "OMP_NUM_THREADS": "1"}  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "real.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="replace", env=environment, cwd=work,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, log = process.communicate(json.dumps(request), timeout=CALL_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, log = process.communicate()
    started = ""
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        said = json.loads(line)
        if "start" in said:
            started = said["start"]
            continue
        started = ""
        results[said["case"]] = Result(
            said["verdict"], said["seconds"], [Finding(**one) for one in said["findings"]]
        )
    if started:
        results[started] = Result("crashed", log=log[-500:])
        return True
    if process.returncode not in (0, FAULTED) and not results:
        results["all"] = Result("cannot be loaded", log=log[-500:])
    return process.returncode == FAULTED

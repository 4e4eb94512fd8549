"""LeetCUDA: which files compile, and which exported functions agree with PyTorch on the CPU."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from portkern.errors import BuildError
from portkern.simt import build
from portkern.simt.options import Mode
from real import extension
from real.running import Result, commit, in_parallel, run, settings

#: Programs without a reference: main()'s arguments, and constants that it reads none for.
PROGRAMS: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "swizzle/hgemm_mma_swizzle.cu": (("128", "128", "64", "0", "1"), {}),
    "swizzle/mat_trans_swizzle.cu": (("64", "64"), {}),
    "swizzle/mma_simple_swizzle.cu": ((), {}),
    "nvidia-nsight/elementwise.cu": (("1",), {"S": "16", "K": "1024"}),
    "nvidia-nsight/relu.cu": (("1",), {"S": "16", "K": "1024"}),
}
#: Broken upstream, and what is needed for its kernels to run all the same.
REPAIRED: Mapping[str, tuple[str, str]] = {"mat-transpose/mat_transpose.cu": ("< < <", "<<<")}
#: float32 elementwise functions and those whose launchers round up are also run at odd sizes.
_ODD = re.compile(r"elementwise/|relu/|elu/|gelu/|swish/|sigmoid/|hard|rope/|histogram/|gemv/|merge")


def run_all(checkout: Path, work: Path, only: str = "") -> dict[str, Any]:
    kernels = checkout / "kernels"
    files = sorted(f for f in kernels.rglob("*.cu") if f.stat().st_size)
    names = [str(f.relative_to(kernels)) for f in files]
    names = [name for name in names if re.search(only, name)]
    found: dict[str, Any] = {"commit": commit(checkout), "compiles": {}, "cases": {}}
    for mode in ("fast", "check"):
        start = time.perf_counter()
        built = in_parallel(lambda name, m=mode: _build(kernels, name, work / m, m), names)
        found[f"{mode}_build_s"] = round(time.perf_counter() - start)
        libraries = dict(zip(names, built, strict=True))
        if mode == "fast":
            found["compiles"] = {name: one.refused for name, one in libraries.items()}
            _run_all(found, kernels, libraries, work, "fast", mode, "full", 32)
            _run_all(found, kernels, libraries, work, "warp 64", mode, "full", 64)
        else:
            _run_all(found, kernels, libraries, work, "check", mode, "check", 32)
            odd = {name: one for name, one in libraries.items() if _ODD.search(name)}
            _run_all(found, kernels, odd, work, "odd", mode, "odd", 32)
    return found


def _build(kernels: Path, name: str, work: Path, mode: Mode) -> extension.Library:
    folder = work / name.removesuffix(".cu")
    folder.mkdir(parents=True, exist_ok=True)
    text = (kernels / name).read_text(encoding="utf-8-sig", errors="replace")
    search = [(kernels / name).parent, kernels / name.split("/")[0] / "utils"]
    if name in PROGRAMS:
        return _program(text, name, folder, mode)
    if name not in REPAIRED:
        return extension.build_text(text, name, folder, mode, search=search)
    as_published = extension.build_text(text, name, folder, mode, search=search)
    whole = text.replace(*REPAIRED[name])
    repaired = extension.build_text(whole, name, folder, mode, search=search)
    return extension.Library(
        name, repaired.functions, repaired.library, as_published.refused or repaired.refused
    )


def _program(text: str, name: str, folder: Path, mode: Mode) -> extension.Library:
    for constant, value in PROGRAMS[name][1].items():
        text = re.sub(rf"(\bconstexpr int {constant} = )\d+;", rf"\g<1>{value};", text)
    source = folder / Path(name).name
    source.write_text(text, encoding="utf-8")
    try:
        out = build.build_program(source, folder / "program", mode=mode)
    except BuildError as error:
        return extension.Library(name, (), None, extension.reason(error))
    return extension.Library(name, (), out)


def _run_all(
    found: dict[str, Any], kernels: Path, libraries: Mapping[str, extension.Library], work: Path,
    how: str, mode: str, size: str, warp: int,
) -> None:  # fmt: skip
    def one(item: tuple[str, extension.Library]) -> dict[str, Result]:
        name, library = item
        if library.library is None:
            return {}
        if name in PROGRAMS:
            return {"main": _run_program(name, library.library, mode, work, warp)}
        return extension.call(extension.Calls(library, "leetcuda", mode, size, warp), work)

    todo = list(libraries.items())
    for (name, _), results in zip(todo, in_parallel(one, todo), strict=True):
        cases = found["cases"].setdefault(name, {})
        for case, result in results.items():
            cases.setdefault(case, {})[how] = result


def _run_program(name: str, program: Path, mode: str, work: Path, warp: int) -> Result:
    status, output, findings, seconds = run(
        [str(program), *PROGRAMS[name][0]], settings(mode, warp=warp), cwd=work,
        root=program.parent,
    )  # fmt: skip
    return Result("runs" if status == 0 else f"status {status}", seconds, findings, output[-300:])

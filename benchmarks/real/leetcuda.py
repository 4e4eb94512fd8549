"""LeetCUDA: which files compile, and which exported functions agree with PyTorch on the CPU."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path

from portkern.errors import BuildError
from portkern.simt.execute import build
from portkern.simt.execute.options import Mode
from real import extension
from real.report import Collection, Entry
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
#: The defines of the collection's own build scripts: files with a main() are part of the extension.
_DEFINES = tuple(f"NO_{kind}_HGEMM_BIN" for kind in ("MMA", "WMMA", "CUBLAS", "CUTE"))
#: float32 elementwise functions and those whose launchers round up are also run at odd sizes.
_ODD = re.compile(
    r"elementwise/|relu/|elu/|gelu/|swish/|sigmoid/|hard|rope/|histogram/|gemv/|merge"
)


def run_all(checkout: Path, work: Path, only: str = "") -> Collection:
    kernels = checkout / "kernels"
    files = sorted(f for f in kernels.rglob("*.cu") if f.stat().st_size)
    names = [str(f.relative_to(kernels)) for f in files]
    names = [name for name in names if re.search(only, name)]
    found: Found = {}
    refused: dict[str, str] = {}
    seconds: dict[str, float] = {}
    modes: tuple[Mode, ...] = ("fast", "check")
    for mode in modes:
        start = time.perf_counter()
        built = in_parallel(lambda name, m=mode: _build(kernels, name, work / m, m), names)
        seconds.setdefault("build_s", round(time.perf_counter() - start, 1))
        libraries = dict(zip(names, built, strict=True))
        if mode == "fast":
            refused = {name: one.refused for name, one in libraries.items() if one.refused}
            _run_all(found, libraries, work, "fast", mode, "full", 32)
            seconds["suite_s"] = round(time.perf_counter() - start, 1)
            _run_all(found, libraries, work, "warp 64", mode, "full", 64)
        else:
            _run_all(found, libraries, work, "check", mode, "check", 32)
            odd = {name: one for name, one in libraries.items() if _ODD.search(name)}
            _run_all(found, odd, work, "odd", mode, "odd", 32)
    entries = [Entry(file, case, results) for (file, case), results in found.items()]
    return Collection("LeetCUDA", commit(checkout), entries, refused, len(names), seconds)


Found = dict[tuple[str, str], dict[str, Result]]


def _build(kernels: Path, name: str, work: Path, mode: Mode) -> extension.Library:
    folder = work / name.removesuffix(".cu")
    folder.mkdir(parents=True, exist_ok=True)
    text = (kernels / name).read_text(encoding="utf-8-sig", errors="replace")
    utils = kernels / name.split("/")[0] / "utils"
    search = [(kernels / name).parent, *([utils] if utils.is_dir() else [])]
    if name in PROGRAMS:
        return _program(text, name, folder, mode)
    if name not in REPAIRED:
        return extension.build_text(text, name, folder, mode, search=search, defines=_DEFINES)
    as_published = extension.build_text(text, name, folder, mode, search=search, defines=_DEFINES)
    whole = text.replace(*REPAIRED[name])
    repaired = extension.build_text(whole, name, folder, mode, search=search, defines=_DEFINES)
    broken = as_published.refused and f"{as_published.refused}; its kernels run when that is mended"
    return extension.Library(name, repaired.functions, repaired.library, repaired.refused or broken)


def _program(text: str, name: str, folder: Path, mode: Mode) -> extension.Library:
    for constant, value in PROGRAMS[name][1].items():
        text = re.sub(rf"(\bconstexpr int {constant} = )\d+;", rf"\g<1>{value};", text)
    source = folder / Path(name).name
    source.write_text(text, encoding="utf-8")
    try:
        out = build.build_program(source, folder / "program", build.CompileOptions(mode=mode))
    except BuildError as error:
        return extension.Library(name, (), None, extension.reason(error))
    return extension.Library(name, (), out)


def _run_all(
    found: Found,
    libraries: Mapping[str, extension.Library],
    work: Path,
    how: str,
    mode: str,
    size: str,
    warp: int,
) -> None:
    def one(item: tuple[str, extension.Library]) -> dict[str, Result]:
        name, library = item
        if library.library is None:
            return {}
        if name in PROGRAMS:
            return {"main": _run_program(name, library.library, mode, work, warp)}
        return extension.call(extension.Calls(library, "leetcuda", mode, size, warp), work)

    todo = list(libraries.items())
    for (name, _), results in zip(todo, in_parallel(one, todo), strict=True):
        for case, result in results.items():
            found.setdefault((name, case), {})[how] = result


def _run_program(name: str, program: Path, mode: str, work: Path, warp: int) -> Result:
    status, output, findings, seconds = run(
        [str(program), *PROGRAMS[name][0]], settings(mode, warp=warp), cwd=work, root=program.parent
    )
    return Result("runs" if status == 0 else f"status {status}", seconds, findings, output[-300:])

"""good-kernels: six published CUDA kernels, each in a Python file beside its reference."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from portkern.simt.execute.options import Mode
from real import extension
from real.report import Collection, Entry
from real.running import Result, commit, in_parallel


def run_all(checkout: Path, work: Path) -> Collection:
    folders = sorted(file.parent for file in checkout.glob("*/src.py"))
    results: dict[str, dict[str, Result]] = {folder.name: {} for folder in folders}
    ways: tuple[tuple[str, Mode, str, int], ...] = (
        ("fast", "fast", "full", 32),
        ("check", "check", "check", 32),
        ("odd", "check", "odd", 32),
        ("warp 64", "fast", "full", 64),
    )
    texts = {folder: _source(folder) for folder in folders}  # one by one: load_inline is global
    libraries: dict[Mode, dict[Path, extension.Library]] = {}
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    for how, mode, size, warp in ways:
        if mode not in libraries:
            made = in_parallel(lambda f, m=mode: _build(*texts[f], f, m, work), folders)
            libraries[mode] = dict(zip(folders, made, strict=True))

        def one(
            folder: Path, mode: Mode = mode, size: str = size, warp: int = warp
        ) -> dict[str, Result]:
            library = libraries[mode][folder]
            if library.library is None:
                return {folder.name: Result("no build", log=library.refused)}
            calls = extension.Calls(
                library, "good_kernels", mode, size, warp, {"folder": str(folder)}
            )
            return extension.call(calls, work)

        for found in in_parallel(one, folders):
            for case, result in found.items():
                results.setdefault(case, {})[how] = result
        seconds.setdefault("suite_s", round(time.perf_counter() - start, 1))
    refused = {f.name: one.refused for f, one in libraries["fast"].items() if one.library is None}
    entries = [Entry(case.split(",")[0], case, found) for case, found in results.items()]
    return Collection("good-kernels", commit(checkout), entries, refused, len(folders), seconds)


def _source(folder: Path) -> tuple[str, list[str]]:
    """The C++ and CUDA that the published file gives to load_inline, and the functions to bind."""
    from real import references

    given: dict[str, Any] = {}

    class Recorded:
        def __getattr__(self, name: str) -> None: ...

    def record(**arguments: Any) -> Recorded:
        given.update(arguments)
        return Recorded()

    references.module(folder / "src.py", record)
    texts = _all(given.get("cpp_sources")) + _all(given.get("cuda_sources"))
    return "#include <torch/extension.h>\n" + "\n".join(texts), _all(given["functions"])


def _build(
    text: str, functions: list[str], folder: Path, mode: Mode, work: Path
) -> extension.Library:
    return extension.build_text(
        text, f"{folder.name}.cu", work / folder.name, mode, functions=functions
    )


def _all(texts: Any) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts or [])

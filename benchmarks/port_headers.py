"""Measures the time that precompiled headers of PyTorch spare: files of extensions, built with them
and without.

.venv/bin/python -m benchmarks.port_headers FILE [FILE ...] [to=gfx942] [write=true]
.venv/bin/python -m benchmarks.port_headers page

Each FILE is one of a port's tree, built for the target outside of the jail, so that the seconds of
a processor that its compiler took are known, and not those that others took beside it. The first
file that begins with a header makes the precompiled one, which takes as long as a build and is not
counted; all are kept in the cache folder. With write=true the rows go to results/port-headers.json,
and ``page`` puts them into docs/port.md.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import port_table
from benchmarks._script import RESULTS, show_on_page, write
from portkern.port import first_headers, torch_headers
from portkern.spec import registry
from portkern.spec import target as targets
from portkern.spec.file_build import FileBuild, FileBuilder, HeaderPrecompiler
from portkern.toolchain import host
from portkern.toolchain.run_tool import package_version

T = TypeVar("T")
_TIMEOUT_S = 600.0


def main() -> None:
    if sys.argv[1:] == ["page"]:
        known = json.loads(RESULTS.joinpath("port-headers.json").read_text("utf-8"))
        show_on_page(port_table.PAGE, "benchmarks/port_headers.py", markdown(known["rows"]))
        return
    files = [word for word in sys.argv[1:] if "=" not in word]
    given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    if not files or not {*given} <= {"to", "write"}:
        raise SystemExit(__doc__)
    rows = [_row(Path(file).absolute(), given.get("to", "gfx942")) for file in files]
    print(markdown(rows))
    if given.get("write") == "true":
        said = {"host": host.machine(), "torch": package_version("torch"), "rows": rows}
        write("port-headers.json", said)


def _row(file: Path, to: str) -> dict[str, Any]:
    text = file.read_text("utf-8", "replace")
    texts = [path.read_text("utf-8", "replace") for path in file.parents[1].rglob("*.[ch]*")]
    torch = torch_headers.of([text, *texts], ())
    if torch is None:
        raise SystemExit(f"{file} names no header of PyTorch, or torch is not installed")
    include, backend = (file.parent, *torch.include), registry.load("hip")
    assert isinstance(backend, FileBuilder) and isinstance(backend, HeaderPrecompiler)
    request = FileBuild(file, targets.load(to), include, torch.macros(()), timeout_s=_TIMEOUT_S)
    first = first_headers.of(file, include, torch)
    row: dict[str, Any] = {"file": file.name, "target": to, "first": first and first.names}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        plain, row["without_s"] = _timed(lambda: backend.build_file(request, place))
        if first is None:
            return row
        headers = backend.precompile(request, first)
        with_them = replace(request, precompiled=(headers,) if headers else ())
        short, row["with_s"] = _timed(lambda: backend.build_file(with_them, place))
    return row | {"same": plain.kernels == short.kernels, "kernels": len(plain.kernels)}


def _timed(do: Callable[[], T]) -> tuple[T, float]:
    """The result of ``do``, and the seconds of a processor that its child processes took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    made = do()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return made, round(spent, 1)


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join([*_lines(rows), ""])


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| file | begins with | instances | without, CPU s | with, CPU s | same kernels |"
    yield "|" + "---|" * 6
    for row in rows:
        cells = [row["file"], ", ".join(row["first"] or ["–"]), row.get("kernels", "–")]
        cells += [row["without_s"], row.get("with_s", "–")]
        cells += [{True: "yes", False: "no"}.get(row.get("same"), "–")]
        yield "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    main()

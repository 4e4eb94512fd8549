"""Runs a library's setup.py, which builds nothing here, and tells what extensions it lists.

Called as ``python -m portkern.simt.torch_extension.setup TARGET``, in the jail, from the library's
folder. The script sees a torch with the target for its GPU and a compiler of CUDA beside it; each
extension that it makes is told by one line on standard output, which begins with :data:`MARK`.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from portkern.simt.execute.compile_options import CompileOptions
from portkern.simt.torch_extension import script
from portkern.spec import target as targets

#: Before the JSON of a :class:`ListedSources` line.
MARK = "\x1eportkern-extension "
#: Where scripts are told that CUDA lies, and what its compiler says of itself.
_HOME = "/usr/local/cuda"
_RELEASE = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 12.8, V12.8.93\n"
_COMPILERS = frozenset(["nvcc", "hipcc"])


@dataclass(frozen=True)
class ListedSources:
    """An extension as a script makes it; paths begin at the library, where they lie in it."""

    name: str
    sources: tuple[str, ...]
    include: tuple[str, ...]
    defines: tuple[str, ...]


def main() -> int:
    target = targets.load(sys.argv[1])
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")  # what the script prints is another

    import setuptools  # type: ignore[import-untyped]
    from torch.utils import cpp_extension

    of_torch: Any = cpp_extension
    of_python: Any = setuptools
    telling = _telling(of_python.Extension, out)
    of_torch.CUDAExtension = of_torch.CppExtension = telling
    of_python.Extension = of_python.extension.Extension = telling
    of_torch.CUDA_HOME = _HOME
    of_python.setup = _nothing
    _answer_for_compilers()
    os.environ.setdefault("FORCE_CUDA", "1")
    sys.argv = ["setup.py", "build_ext"]
    sys.path.insert(0, str(Path.cwd()))
    options = CompileOptions(target=target)
    with tempfile.TemporaryDirectory(prefix="portkern-setup-") as place:
        with script.patch(script.Extensions(Path(place), options), target):
            runpy.run_path("setup.py", run_name="__main__")
    return 0


def _telling(extension: Any, out: TextIO) -> type:
    """The class of extensions, of which each tells of itself; a script may have classes of its own
    that inherit it."""

    class Telling(extension):  # type: ignore[misc]
        def __init__(self, name: str, sources: Sequence[Any], *args: object, **given: Any) -> None:
            include, defines = _settings(given)
            files = tuple(map(_from_here, sources))
            known = ListedSources(name, files, tuple(map(_from_here, include)), defines)
            out.write(f"{MARK}{json.dumps(asdict(known))}\n")
            out.flush()
            super().__init__(name, [])

    return Telling


def _settings(given: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The folders and macros of an extension, also those among its flags."""
    flags = given.get("extra_compile_args") or []
    lists = flags.values() if isinstance(flags, dict) else [flags]
    plain = [flag for each in lists for flag in each if isinstance(flag, str)]
    macros = [
        name if value is None else f"{name}={value}"
        for name, value, *_ in ((*tuple(pair), None) for pair in given.get("define_macros") or [])
    ]
    include = [str(folder) for folder in given.get("include_dirs") or []]
    include += [flag[2:] for flag in plain if flag.startswith("-I")]
    macros += [flag[2:] for flag in plain if flag.startswith("-D")]
    return tuple(include), tuple(macros)


def _from_here(path: Any) -> str:
    """The path from the library's folder, where it lies in it."""
    whole = Path(os.path.realpath(path))
    return str(whole.relative_to(Path.cwd())) if whole.is_relative_to(Path.cwd()) else str(whole)


def _nothing(*_: object, **__: object) -> None:
    """Stands for setup(), and does nothing."""


def _answer_for_compilers() -> None:
    """Scripts ask a compiler for its version, which need not be here."""
    real = subprocess.check_output

    def check_output(command: Any, *args: Any, **named: Any) -> Any:
        words = command if isinstance(command, (list, tuple)) else str(command).split()
        if words and Path(str(words[0])).name in _COMPILERS:
            text = named.get("text") or named.get("universal_newlines") or named.get("encoding")
            return _RELEASE if text else _RELEASE.encode()
        return real(command, *args, **named)

    of_python: Any = subprocess
    of_python.check_output = check_output


if __name__ == "__main__":
    sys.exit(main())

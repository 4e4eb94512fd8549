"""Extensions of PyTorch in C++ for this CPU, built by the compiler that is here: torch's own way
needs ninja and reads its headers, which take 20 s, for each one."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from portkern.errors import BackendUnavailable, BuildError, ToolError
from portkern.spec.backend import Missing
from portkern.toolchain.compilers import Compiler
from portkern.toolchain.make_once import make_once
from portkern.toolchain.run_tool import cache_root, package_dir, package_version, run_tool

TIMEOUT_S = 300.0
#: Texts or files, as torch takes them.
Texts: TypeAlias = str | Sequence[str] | None
_HEADER = "torch/extension.h"
_BINDING = re.compile(r"\bPYBIND11_MODULE\s*\(")


def prepare(compiler: Compiler, march: str) -> tuple[Path, ...]:
    """The folder of torch's headers as this compiler has read them, made outside of the jail; none
    where it makes none."""
    if compiler.name != "g++" or not _torch():
        return ()
    made = _precompiled(compiler, march)

    def compile_(to: Path) -> None:
        umbrella = made.with_suffix("")
        umbrella.write_text(f"#include <{_HEADER}>\n", encoding="utf-8")
        argv = [*compiler.argv, *_flags(compiler, march), "-x", "c++-header"]
        run_tool([*argv, umbrella, "-o", to], whose="own", timeout_s=TIMEOUT_S, error=ToolError)

    with suppress(ToolError, OSError):  # each extension then reads them itself
        make_once(made, compile_)
    return (made.parent,) if made.exists() else ()


def missing() -> Missing | None:
    """The parts that a machine with a compiler still lacks in order to build extensions."""
    if not _torch():
        return Missing("no headers of torch here", "pip install torch")
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return Missing("no Python.h here", "install Python's development headers")
    return None


def install(compiler: Compiler, march: str, folder: Path) -> None:
    """Put :class:`HostExtensionBuilder` into the place of torch's ``load_inline`` and ``load``."""
    if isinstance(lacks := missing(), Missing):
        raise BackendUnavailable(str(lacks))
    builder = HostExtensionBuilder(compiler, march, folder)
    take_over(builder.load_inline, builder.load)


def take_over(load_inline: Callable[..., object], load: Callable[..., object]) -> None:
    """They stand in for torch's, for the rest of the process."""
    cpp_extension: Any = importlib.import_module("torch.utils.cpp_extension")
    cpp_extension.load_inline, cpp_extension.load = load_inline, load


class HostExtensionBuilder:
    """Builds extensions of C++ alone: CUDA sources are for another backend."""

    def __init__(self, compiler: Compiler, march: str, folder: Path) -> None:
        self._compiler, self._march, self._folder = compiler, march, folder
        self._built = 0

    def load_inline(
        self,
        name: str,
        cpp_sources: Texts = (),
        cuda_sources: Texts = (),
        functions: Texts = None,
        extra_cflags: Sequence[str] | None = None,
        *_: object,
        **__: object,
    ) -> types.ModuleType:
        """Does what torch's own does; a flag that relaxes floating point has no effect."""
        if cuda_sources:
            raise BuildError(f"load_inline({name!r}) has cuda_sources; expected C++ for a CPU")
        names = list(functions) if isinstance(functions, Mapping) else listed(functions)
        return self._build(name, listed(cpp_sources), names)

    def load(self, name: str, sources: Texts, *_: object, **__: object) -> types.ModuleType:
        """Builds and loads files that the candidate wrote itself."""
        try:
            texts = [Path(file).read_text(encoding="utf-8") for file in listed(sources)]
        except (OSError, UnicodeDecodeError) as error:
            raise BuildError(
                f"load({name!r}) reads {error}: files do not travel with a candidate; "
                "put the text into load_inline"
            ) from error
        return self._build(name, texts, [])

    def _build(self, name: str, texts: Sequence[str], functions: Sequence[str]) -> types.ModuleType:
        self._built += 1
        plain = f"{re.sub(r'[^A-Za-z0-9_]', '_', name)}_{self._built}"
        text = source_text(name, texts, functions)
        source, library = self._folder / f"{plain}.cpp", self._folder / f"{plain}.so"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text, encoding="utf-8")
        made = _precompiled(self._compiler, self._march)
        head = ["-include", str(made.with_suffix(""))] if made.exists() else []
        lib = _torch() / "lib"
        links = ["-L", str(lib), "-ltorch", "-ltorch_cpu", "-ltorch_python", "-lc10"]
        run_tool(
            [
                *self._compiler.argv,
                *_flags(self._compiler, self._march),
                *head,
                f"-DTORCH_EXTENSION_NAME={plain}",
                "-shared",
                source,
                "-o",
                library,
                *links,
            ],
            whose="foreign",
            timeout_s=TIMEOUT_S,
            cwd=self._folder,
        )
        return _imported(plain, library)


def source_text(name: str, texts: Sequence[str], functions: Sequence[str]) -> str:
    """One translation unit with bindings of ``functions``. Raises BuildError where nothing is
    bound."""
    text = f"#include <{_HEADER}>\n" + "\n".join(texts)
    if functions:
        lines = "".join(f'  m.def("{one}", &{one}, "{one}");\n' for one in functions)
        return text + f"\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{lines}}}\n"
    if not _BINDING.search(text):
        raise BuildError(
            f"The extension {name!r} binds no function; expected functions=[...] or a "
            "PYBIND11_MODULE"
        )
    return text


def listed(value: Texts | Path) -> list[str]:
    """One text, several or none, as torch takes them."""
    if value is None:
        return []
    return [str(value)] if isinstance(value, str | Path) else list(value)


def _imported(name: str, library: Path) -> types.ModuleType:
    import torch  # noqa: F401 - the library is linked with it

    spec = importlib.util.spec_from_file_location(name, library)
    assert spec is not None and spec.loader is not None  # the suffix is .so
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _torch() -> Path:
    """The package's folder; an empty path without headers."""
    folder = package_dir("torch")
    return folder if folder and (folder / "include").is_dir() else Path()


def _flags(compiler: Compiler, march: str) -> list[str]:
    include = _torch() / "include"
    folders = (include, include / "torch" / "csrc" / "api" / "include")
    python = sysconfig.get_path("include")
    return [
        "-std=c++17",
        "-O2",
        "-fPIC",
        "-w",
        march,
        *compiler.openmp,
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        *(part for folder in folders for part in ("-isystem", str(folder))),
        "-isystem",
        python,
    ]


def _precompiled(compiler: Compiler, march: str) -> Path:
    parts = [*compiler.argv, compiler.version, *_flags(compiler, march)]
    parts.append(str(package_version("torch")))
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return cache_root() / "headers" / f"torch-{digest}" / "extension.h.gch"

"""Runs a Python script whose extensions of PyTorch are built for the executor.

Called as ``python -m portkern.simt.torch_extension.script OPTIONS SCRIPT ARGS``, where OPTIONS is
JSON: ``target``, ``mode``, ``define``, ``include``, ``build_timeout_s``. What the script asks
torch.utils.cpp_extension for is built and opened here, and what it puts on "cuda" stays on the CPU,
from where each call copies it into the executor's memory and back.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from portkern.errors import BuildError
from portkern.simt.execute import build
from portkern.simt.torch_extension import bindings
from portkern.spec import target as targets
from portkern.spec.target import Target
from portkern.toolchain.torch_stand_in import passing_for_gpu

if TYPE_CHECKING:
    from portkern.simt.torch_extension.bindings import Extension

#: Versions that torch says it was built with, of which libraries ask the first number.
_CUDA, _HIP = "12.8", "6.4.0"
_NOTHING_TO_DO = (
    *("synchronize", "empty_cache", "set_device", "manual_seed", "manual_seed_all", "init"),
    *("reset_peak_memory_stats", "reset_max_memory_allocated", "_lazy_init"),
)
#: Operators by their names: they live as long as what defined them.
_defined: dict[str, object] = {}
#: What torch puts before the two texts of load_inline.
_CPP_HEAD = "#include <torch/extension.h>\n"
_CUDA_HEAD = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"


@dataclass(frozen=True)
class Extensions:
    """The stand-in for torch.utils.cpp_extension: ``load`` and ``load_inline`` have its
    parameters, of which those for compilers are understood where they are macros and folders. One
    that ``refused`` gives a reason for is not opened, so that nothing of it has run by then."""

    folder: Path
    options: build.CompileOptions
    refused: Callable[[Path], str] = lambda _: ""

    def load(
        self,
        name: str,
        sources: str | Sequence[str],
        extra_cflags: Sequence[str] | None = None,
        extra_cuda_cflags: Sequence[str] | None = None,
        extra_ldflags: Sequence[str] | None = None,
        extra_include_paths: Sequence[str] | None = None,
        **_: object,
    ) -> Extension:
        paths = [Path(source) for source in _listed(sources)]
        flags = [*(extra_cflags or ()), *(extra_cuda_cflags or ())]
        return self._build(name, paths, flags, extra_include_paths or ())

    def load_inline(
        self,
        name: str,
        cpp_sources: str | Sequence[str] = (),
        cuda_sources: str | Sequence[str] = (),
        functions: str | Sequence[str] | Mapping[str, str] | None = None,
        extra_cflags: Sequence[str] | None = None,
        extra_cuda_cflags: Sequence[str] | None = None,
        extra_ldflags: Sequence[str] | None = None,
        extra_include_paths: Sequence[str] | None = None,
        **_: object,
    ) -> Extension:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        main, device = folder / "main.cpp", folder / "cuda.cu"
        named = functions if isinstance(functions, Mapping) else {f: f for f in _listed(functions)}
        text = _CPP_HEAD + "\n".join(_listed(cpp_sources)) + "\n"
        if named:
            lines = [f'm.def("{f}", &{f}, {json.dumps(doc)});' for f, doc in named.items()]
            text += "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n" + "\n".join(lines) + "\n}\n"
        main.write_text(text, encoding="utf-8")
        device.write_text(_CUDA_HEAD + "\n".join(_listed(cuda_sources)) + "\n", encoding="utf-8")
        paths = [main, device] if _listed(cuda_sources) else [main]
        flags = [*(extra_cflags or ()), *(extra_cuda_cflags or ())]
        return self._build(name, paths, flags, extra_include_paths or ())

    def _build(
        self, name: str, sources: Sequence[Path], flags: Sequence[str], folders: Sequence[str]
    ) -> Extension:
        identifier = re.sub(r"\W", "_", name)
        defines = [
            *self.options.defines,
            f"TORCH_EXTENSION_NAME={identifier}",
            *(flag[2:] for flag in flags if flag.startswith("-D")),
        ]
        search = [
            *self.options.search,
            *map(Path, folders),
            *(Path(flag[2:]) for flag in flags if flag.startswith("-I")),
        ]
        options = build.CompileOptions(
            target=self.options.target,
            language=self.options.language,
            mode=self.options.mode,
            defines=defines,
            search=search,
            timeout_s=self.options.timeout_s,
            statements=self.options.statements,
        )
        out = Path(tempfile.mkdtemp(dir=self.folder)) / f"{name}.so"
        library = build.build_extension(sources[0], out, options, further=sources[1:])
        if why := self.refused(library):
            raise BuildError(f"{name}: {why}")
        extension = bindings.load(library)
        register(extension)
        return extension


def register(extension: Extension) -> None:
    """Registers the functions that TORCH_LIBRARY named, as torch.ops.namespace.name: as operators,
    which TorchScript knows too, where their types can be said in a schema."""
    import torch

    # The table is the runtime's, with what the libraries before this one named.
    named = extension.registered.functions if extension.registered is not None else {}
    for name, function in named.items():
        if name in _defined:
            continue
        space, _, short = name.partition("::")
        try:
            _define(space, short, function)
        except (RuntimeError, ValueError):  # a schema that this torch does not read
            setattr(getattr(torch.ops, space), short, function)


def _define(space: str, short: str, function: bindings.BoundFunction) -> None:
    import torch

    schema = f"{short}{function.schema}"
    arguments = torch._C.parse_schema(f"{space}::{schema}").arguments

    def call(*given: object, **named: object) -> object:
        rest = arguments[len(given) :]
        return function(*given, *(named.get(a.name, a.default_value) for a in rest))

    library: Any = torch.library.Library(space, "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(schema)
    library.impl(short, call, "CompositeImplicitAutograd")
    _defined[f"{space}::{short}"] = library


def _listed(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def patch(extensions: Extensions, target: Target) -> AbstractContextManager[None]:
    """Does what :func:`passing_for` does, and has extensions that are loaded built for the
    executor."""
    from torch.utils import cpp_extension as of_torch

    cpp_extension: Any = of_torch
    cpp_extension.load = extensions.load
    cpp_extension.load_inline = extensions.load_inline
    return passing_for(target)


def passing_for(target: Target) -> AbstractContextManager[None]:
    """Make torch of this process one with the target for its only GPU; within the context that is
    returned, tensors say that they lie on it."""
    import torch

    cuda: Any = torch.cuda
    major, minor = _capability(target)
    cuda.is_available = lambda: True
    cuda.is_bf16_supported = lambda *_args, **_named: True
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda.get_device_name = lambda device=None: target.title
    cuda.get_device_capability = lambda device=None: (major, minor)
    cuda.get_device_properties = lambda device=None: SimpleNamespace(
        name=target.title, major=major, minor=minor, warp_size=target.warp, multi_processor_count=1
    )
    for name in _NOTHING_TO_DO:
        setattr(cuda, name, lambda *_args, **_named: None)
    for name in ("max_memory_allocated", "memory_allocated", "memory_reserved"):
        setattr(cuda, name, lambda *_args, **_named: 0)
    cuda.device = lambda *_args: nullcontext()
    cuda.current_stream = cuda.default_stream = lambda device=None: _Stream()
    cuda.Event = _Event
    version: Any = torch.version
    version.cuda, version.hip = (None, _HIP) if target.vendor == "amd" else (_CUDA, None)
    return passing_for_gpu()


def _capability(target: Target) -> tuple[int, int]:
    """The compute capability as torch numbers it: gfx942 is 9.4, gfx90a 9.0, gfx1100 11.0, and
    sm_90 9.0."""
    if target.vendor == "amd":  # whose last is hexadecimal
        number = target.arch.removeprefix("gfx")
        return int(number[:-2]), int(number[-2], 16)
    digits = re.sub(r"\D", "", target.arch)
    return int(digits[:-1]), int(digits[-1])


class _Stream:
    """torch.cuda's only stream, in which all is done."""

    cuda_stream = 0

    def synchronize(self) -> None:
        pass

    def wait_stream(self, other: object) -> None:
        pass


class _Event:
    """torch.cuda.Event: host time, in which a launch is done when it returns."""

    def __init__(self, enable_timing: bool = False, **_: object) -> None:
        self._at_s = 0.0

    def record(self, stream: object = None) -> None:
        self._at_s = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, later: _Event) -> float:
        return (later._at_s - self._at_s) * 1e3


def main() -> None:
    options, script, *arguments = sys.argv[1:]
    asked = json.loads(options)
    target = targets.load(asked["target"])
    compiled = build.CompileOptions(
        target=target,
        mode=asked["mode"],
        defines=asked["define"],
        search=[Path(folder) for folder in asked["include"]],
        timeout_s=asked["build_timeout_s"],
    )
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).absolute().parent)
    with tempfile.TemporaryDirectory(prefix="portkern-script-") as folder:
        extensions = Extensions(Path(folder), compiled)
        with patch(extensions, target):
            runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()

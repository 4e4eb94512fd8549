"""A class ModelNew with extensions in CUDA or HIP. On the executor these run there, and the rest of
it on the host, which passes for a GPU while it does; on hardware torch builds them."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.errors import BackendUnavailable
from portkern.simt.diagnostics import Diagnostic
from portkern.simt.execute import emulate, runtime_library, source_lines
from portkern.simt.execute.machine import settings
from portkern.simt.execute.options import IN_CHECKED_BUILD, ExecutorOptions, Mode
from portkern.simt.torch_extension import inline
from portkern.simt.torch_extension.inline import ExtensionBuilder
from portkern.spec.backend import Artifact, Build, Call, Kernel, Missing, Venue
from portkern.toolchain import torch_extension, torch_module
from portkern.toolchain.torch_device import TorchDevice
from portkern.toolchain.torch_stand_in import passing_for_gpu

if TYPE_CHECKING:
    import torch

    from portkern.spec.json_types import JsonObject

_EXTENSIONS = "torch-extensions"
_DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)")
#: HIP's warp operations; CUDA's take a mask and end in ``_sync``.
_UNMASKED = re.compile(r"\b(__(?:shfl(?:_up|_down|_xor)?|ballot|any|all))\s*\(")


def unmodelled(request: Build) -> Missing | None:
    """The parts of an extension that the executor has no model of, found in its text before any
    of its code runs."""
    used = _unmasked(request.candidate.source) if request.emulated else ""
    if not used:
        return None
    return Missing(
        f"the SIMT executor has HIP's {used}, which takes no mask, in .hip files only",
        "run it on hardware",
    )


def _unmasked(source: str) -> str:
    """The first warp operation without a mask that is used; a macro is where its name is, and one
    that is also defined with a mask has that definition in CUDA."""
    lines = source.splitlines()
    plain = "\n".join(line for line in lines if not _DEFINE.match(line))
    defined = [(line, macro[1]) for line in lines if (macro := _DEFINE.match(line))]
    masked = {name for line, name in defined if not _UNMASKED.search(line)}
    for line in lines:
        found, macro = _UNMASKED.search(line), _DEFINE.match(line)
        if macro and macro[1] in masked:
            continue
        if found and (macro is None or re.search(rf"\b{macro[1]}\b", plain)):
            return found[1]
    return ""


def modes(request: Build) -> tuple[Mode, ...]:
    return ("fast", "check") if request.checked else ("fast",)


def prepare(request: Build) -> tuple[Path, ...]:
    if not request.emulated:
        return ()
    return inline.prepare(request.target, modes(request), request.candidate.source)


def build(request: Build, workdir: Path) -> Artifact:
    """The source as it is. Where it is to be emulated, its extensions are built once to see whether
    they can be. Raises BuildError."""
    artifact = torch_module.write(request, workdir)
    if request.emulated and not isinstance(runtime_library.find(), Missing):
        folder = workdir / _EXTENSIONS
        try:
            _construct(artifact.path, request, folder, ("fast",))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return artifact


def load(artifact: Artifact, request: Build, venue: Venue) -> Kernel:
    """Raises BackendUnavailable where there is no executor."""
    if venue.kind == "hardware":
        os.environ.setdefault("TORCH_EXTENSIONS_DIR", tempfile.mkdtemp(prefix="extensions-"))
        return torch_module.load(artifact, request, TorchDevice(venue.device))
    if isinstance(missing := runtime_library.find(), Missing):
        raise BackendUnavailable(f"The SIMT executor: {missing}")
    chosen = frozenset(venue.sanitize) & IN_CHECKED_BUILD
    wanted: tuple[Mode, ...] = ("fast", "check") if chosen else ("fast",)
    builder, module = _construct(artifact.path, request, Path(_EXTENSIONS).absolute(), wanted)
    emulated = EmulatedModule(request, builder, module, chosen)
    return Kernel(TorchDevice("cpu"), emulated.launch, emulated.findings, emulated.launches)


def _construct(
    path: Path, request: Build, folder: Path, wanted: Sequence[Mode]
) -> tuple[ExtensionBuilder, torch_module.TorchModule]:
    import torch

    builder = ExtensionBuilder(request.target, wanted, folder)
    emulate.configure(settings(request.target, "cuda") | ExecutorOptions().settings())
    torch_extension.take_over(builder.load_inline, builder.load)
    with passing_for_gpu():
        defined = torch_module.import_class(path, request.candidate.entry)
    return builder, torch_module.TorchModule(defined, request, torch.device("cpu"))


class EmulatedModule:
    """Each call runs as it is, then again in the checked build, whose findings are kept."""

    def __init__(
        self,
        request: Build,
        builder: ExtensionBuilder,
        module: torch_module.TorchModule,
        chosen: frozenset[str],
    ) -> None:
        self._request, self._builder, self._module = request, builder, module
        self._chosen = chosen
        self._file = Path(emulate.FINDINGS).absolute()
        self._diagnostics: list[Diagnostic] = []
        self._launched: Mapping[str, int] = {}

    def findings(self) -> Sequence[JsonObject]:
        return [diagnostic.to_json() for diagnostic in self._diagnostics]

    def launches(self) -> Mapping[str, int]:
        return self._launched

    def launch(self, call: Call) -> Sequence[torch.Tensor]:
        self._diagnostics = []
        workers = len(os.sched_getaffinity(0))
        plain = ExecutorOptions(workers=workers, findings=self._file)
        emulate.take_launches()  # those of before
        outputs = self._run("fast", plain, lambda: self._module.launch(call))
        self._launched = emulate.take_launches()
        if self._chosen:
            again = Call([one.clone() for one in call.inputs], (), call.dims, call.scalars)
            run = plain.checked(self._chosen)
            self._run("check", run, lambda: self._module.launch(again))
        return outputs

    def _run(
        self, mode: Mode, run: ExecutorOptions, call: Callable[[], Sequence[torch.Tensor]]
    ) -> Sequence[torch.Tensor]:
        emulate.configure(settings(self._request.target, "cuda") | run.settings())
        emulate.forgive()
        self._file.unlink(missing_ok=True)
        try:
            with self._builder.in_mode(mode), passing_for_gpu():
                return call()
        finally:
            emulate.forget()
            self._diagnostics += source_lines.read(self._file)[0]

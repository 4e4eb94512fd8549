"""JAX's Pallas, which has three lowerings: Triton for GPUs, Mosaic for TPUs, and Mosaic GPU for
NVIDIA's from Hopper on. Imports say which one a kernel is for; a target says which it takes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from portkern.errors import BuildError
from portkern.spec.backend import (
    Artifact,
    Backend,
    Build,
    Call,
    Device,
    Kernel,
    Missing,
    Ready,
    Venue,
    Venues,
)
from portkern.spec.candidate import Candidate
from portkern.spec.op import Signature
from portkern.spec.target import Target
from portkern.toolchain import host, returned
from portkern.toolchain.run_tool import package_version

from . import mosaic_gpu, mosaic_tpu
from .interpreter import InterpreterFindings

if TYPE_CHECKING:
    import jax

#: Distributions that let JAX open a vendor's GPU.
PLUGINS = {
    "nvidia": ("jax-cuda13-plugin", "jax-cuda12-plugin", "jax-cuda13-pjrt", "jax-cuda12-pjrt"),
    "amd": ("jax-rocm7-plugin", "jax-rocm6-plugin", "jax-rocm60-plugin"),
}


#: Lowerings other than Triton's, whose sources are known by what they import.
TPU, MOSAIC_GPU = "pallas-tpu", "pallas-mosaic-gpu"


def _imports(module: str) -> re.Pattern[str]:
    return re.compile(
        rf"^\s*(from\s+jax\.experimental\.pallas\s+import\s+\(?[\w\s,]*\b{module}\b"
        rf"|(from|import)\s+jax\.experimental\.pallas\.{module}\b)",
        re.MULTILINE,
    )


_OF = {TPU: _imports("tpu"), MOSAIC_GPU: _imports("mosaic_gpu")}


class PallasBackend(Backend):
    name = "pallas"
    languages: ClassVar = {".py": "pallas"}
    dialects: ClassVar[Mapping[str, str]] = {
        TPU: "portkern.backends.tpu",
        MOSAIC_GPU: "portkern.backends.mosaic",
    }
    usual_target = "sm_90"
    marks: ClassVar[tuple[str, ...]] = ("jax",)
    turns: ClassVar[Mapping[str, str]] = {
        "num_warps": "num_warps of CompilerParams",
        "num_stages": "num_stages of CompilerParams",
    }
    matrix_units = "compiler"
    specialises = True
    # Not jax: its import starts threads, and a process forked from them may hang.
    preload = ("torch",)
    style: ClassVar[Literal["return"]] = "return"

    def supports(self, target: Target) -> bool:
        return target.vendor in (*PLUGINS, "google")

    def languages_on(self, target: Target) -> list[str]:
        if target.vendor == "google":
            return [TPU]
        through_mosaic = [MOSAIC_GPU] if target.arch in mosaic_gpu.ARCHITECTURES else []
        return [*self.languages.values(), *through_mosaic]

    def language_of(self, suffix: str, source: str) -> str:
        language = super().language_of(suffix, source)
        return next((other for other, found in _OF.items() if found.search(source)), language)

    def fits(self, candidate: Candidate, target: Target) -> bool | Missing:
        of_hopper = candidate.language == MOSAIC_GPU and "wgmma" in candidate.source
        if of_hopper and target.arch in mosaic_gpu.ARCHITECTURES and target.family != "hopper":
            return Missing(f"wgmma is Hopper's; {target.name} takes tcgen05")
        return super().fits(candidate, target)

    def accepts(self, candidate: Candidate, dtype: str) -> bool | Missing:
        if candidate.language == TPU and dtype == "float16":
            return Missing("a TPU has no float16: Mosaic loads no vectors of it")
        return super().accepts(candidate, dtype)

    def builds(self, request: Build) -> bool | Missing:
        if request.candidate.language == MOSAIC_GPU and package_version("absl-py") is None:
            return Missing("no absl-py, which Pallas' Mosaic GPU imports", mosaic_gpu.WANTED)
        return True

    def probe(self, target: Target) -> Ready | Missing:
        versions = {name: package_version(name) for name in ("jax", "jaxlib")}
        absent = [name for name, version in versions.items() if version is None]
        if absent:
            return Missing(f"no {absent[0]}", "pip install 'portkern[pallas]'")
        plugins = {name: package_version(name) for name in PLUGINS.get(target.vendor, ())}
        compiler = "libtpu" if target.vendor == "google" else "triton"
        found = versions | plugins | {compiler: package_version(compiler)}
        here = {k: v for k, v in found.items() if v}
        return Ready(here, {k: v for k, v in mosaic_tpu.TERMS.items() if k in here})

    def environment(self, target: Target) -> Mapping[str, str]:
        return mosaic_tpu.ENVIRONMENT if target.vendor == "google" else {}

    def venues(self, target: Target) -> Venues:
        ready = self.probe(target)
        if isinstance(ready, Missing):
            return Venues(ready, ready)
        if target.vendor == "google":
            return Venues(
                Missing(f"no {target.name} here"), _interpreter("mosaic", mosaic_tpu.EMULATOR)
            )
        emulator = Venue("emulator", "Pallas interpret mode", environment={"JAX_PLATFORMS": "cpu"})
        return Venues(_hardware(target), emulator)

    def emulator(self, candidate: Candidate, venue: Venue) -> Venue | Missing:
        through_mosaic = candidate.language == MOSAIC_GPU
        return _interpreter("mosaic_gpu", mosaic_gpu.EMULATOR) if through_mosaic else venue

    def build(self, request: Build, workdir: Path) -> Artifact:
        """Lower for the target's platform with no device. The artifact's kind says how far that
        went: ``cubin`` or ``hsaco`` are the target's code, ``stablehlo`` is not."""
        source = workdir / f"{request.candidate.op}.py"
        source.write_text(request.candidate.source, encoding="utf-8")
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # lowering opens no GPU
        os.environ["TRITON_CACHE_DIR"] = str(workdir / "triton-cache")
        os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # as XLA does
        from ..triton.candidate import build_error, import_entry
        from .lowering import compile_modules, lower

        try:
            entry = import_entry(source, request.candidate.entry)
            through_mosaic = {TPU: mosaic_tpu.build, MOSAIC_GPU: mosaic_gpu.build}
            if made := through_mosaic.get(request.candidate.language):
                return made(entry, request, source, workdir)
            modules = lower(entry, request, workdir)
        except BuildError:
            raise
        # The candidate's own code runs here, at import and while traced: it may raise anything.
        except Exception as error:
            raise build_error(request, error) from error
        if not modules:
            return Artifact(source, "python", log="the entry makes no pallas_call")
        kind, resources, log = compile_modules(modules, request.target, workdir)
        return Artifact(source, kind, resources, log)

    def declaration(self, signature: Signature, language: str) -> str:
        """Scalars and ``interpret`` come by keyword."""
        taken = [t.name for t in signature.inputs]
        named = [s.name for s in signature.scalars]
        return f"def {signature.name}({', '.join([*taken, '*', *named, 'interpret=False'])}):"

    def load(self, artifact: Artifact, request: Build, venue: Venue) -> Kernel:
        import jax

        from ..triton.candidate import import_entry
        from .as_on_device import as_on_device
        from .device import JaxDevice

        emulated, name = venue.kind == "emulator", artifact.path.name
        made = {TPU: mosaic_tpu.TpuFindings, MOSAIC_GPU: mosaic_gpu.MosaicFindings}
        heard = made.get(request.candidate.language)
        findings = heard(name) if heard else InterpreterFindings()
        looks: Callable[[], AbstractContextManager[None]] = nullcontext
        if emulated:
            findings.install()
            looks = partial(as_on_device, request.target, findings.interpret)
        wide = any(output.dtype == "int64" for output in request.signature.outputs)
        device = JaxDevice(venue.device, widens=wide)
        with looks():
            entry = import_entry(artifact.path, request.candidate.entry)
        function = jax.jit(
            partial(entry, interpret=False),
            static_argnames=[scalar.name for scalar in request.signature.scalars],
        )

        def launch(call: Call) -> Sequence[jax.Array]:
            with looks():
                result = findings.call(lambda: function(*call.inputs, **call.scalars))
            outputs = returned.outputs(
                result, request, call.dims, kind=jax.Array, called="jax.Array"
            )
            device.enqueued(outputs)
            return outputs

        opened: Device = device
        return Kernel(opened, launch, findings) if emulated else Kernel(opened, launch)


def _interpreter(lowering: str, emulator: Venue) -> Venue | Missing:
    """``emulator``, where the installed jax has the lowering's interpret mode. It is looked for as
    a folder: to import it would import jax."""
    found = find_spec("jax")
    where = Path((found and found.origin) or "").parent / "_src" / "pallas" / lowering / "interpret"
    if found and where.is_dir():
        return emulator
    return Missing(f"jax {package_version('jax')} has no {emulator.name}", "pip install -U jax")


def _hardware(target: Target) -> Venue | Missing:
    gpu = host.gpu_for(target)
    if gpu is None:
        return Missing(f"no {target.name} here")
    if not any(package_version(plugin) for plugin in PLUGINS[target.vendor]):
        plugin = PLUGINS[target.vendor][0]
        return Missing(f"jax has no plugin for {target.vendor} GPUs", f"pip install {plugin}")
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    return Venue("hardware", gpu.name, f"cuda:{gpu.index}", environment)

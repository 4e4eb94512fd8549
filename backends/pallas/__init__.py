"""JAX's Pallas. Its Triton lowering is for GPUs, and runs on one or as on one; Mosaic is for TPUs,
compiled by libtpu and run in TPU interpret mode. The target says which of the two it is."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
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

from . import mosaic_tpu
from .interpreter import Findings

if TYPE_CHECKING:
    import jax

#: Distributions that let JAX open a vendor's GPU.
PLUGINS = {
    "nvidia": ("jax-cuda13-plugin", "jax-cuda12-plugin", "jax-cuda13-pjrt", "jax-cuda12-pjrt"),
    "amd": ("jax-rocm7-plugin", "jax-rocm6-plugin", "jax-rocm60-plugin"),
}


#: The dialect of kernels for TPUs, and how its sources are known: by what they import.
TPU = "pallas-tpu"
_OF_TPU = re.compile(
    r"^\s*(from\s+jax\.experimental\.pallas\s+import\s+\(?[\w\s,]*\btpu\b"
    r"|(from|import)\s+jax\.experimental\.pallas\.tpu\b)",
    re.MULTILINE,
)
#: Pallas' other lowering for GPUs, which builds and runs nowhere here yet.
_OF_MOSAIC_GPU = re.compile(
    r"^\s*(from\s+jax\.experimental\.pallas\s+import\s+\(?[\w\s,]*\bmosaic_gpu\b"
    r"|(from|import)\s+jax\.experimental\.pallas\.mosaic_gpu\b)",
    re.MULTILINE,
)


class PallasBackend(Backend):
    name = "pallas"
    languages: ClassVar = {".py": "pallas"}
    dialects: ClassVar[Mapping[str, tuple[str, str]]] = {"google": (TPU, "portkern.backends.tpu")}
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

    def language_of(self, suffix: str, source: str) -> str:
        language = super().language_of(suffix, source)
        return TPU if _OF_TPU.search(source) else language

    def accepts(self, candidate: Candidate, dtype: str) -> bool | Missing:
        if candidate.language == TPU and dtype == "float16":
            return Missing("a TPU has no float16: Mosaic loads no vectors of it")
        if _OF_MOSAIC_GPU.search(candidate.source):
            return Missing(
                "it is for Pallas' Mosaic GPU lowering; GPUs take the Triton lowering here"
            )
        return super().accepts(candidate, dtype)

    def probe(self, target: Target) -> Ready | Missing:
        versions = {name: package_version(name) for name in ("jax", "jaxlib")}
        absent = [name for name, version in versions.items() if version is None]
        if absent:
            return Missing(f"no {absent[0]}", "pip install 'portkern[pallas]'")
        plugins = {name: package_version(name) for name in PLUGINS.get(target.vendor, ())}
        compiler = "libtpu" if target.vendor == "google" else "triton"
        found = versions | plugins | {compiler: package_version(compiler)}
        return Ready({k: v for k, v in found.items() if v})

    def environment(self, target: Target) -> Mapping[str, str]:
        return mosaic_tpu.ENVIRONMENT if target.vendor == "google" else {}

    def venues(self, target: Target) -> Venues:
        ready = self.probe(target)
        if isinstance(ready, Missing):
            return Venues(ready, ready)
        if target.vendor == "google":
            return Venues(Missing(f"no {target.name} here"), mosaic_tpu.EMULATOR)
        emulator = Venue("emulator", "Pallas interpret mode", environment={"JAX_PLATFORMS": "cpu"})
        return Venues(_hardware(target), emulator)

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
            if request.target.vendor == "google":
                return mosaic_tpu.build(entry, request, source, workdir)
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
        from .device import JaxDevice

        emulated, on_tpu = venue.kind == "emulator", request.target.vendor == "google"
        findings = mosaic_tpu.Findings(artifact.path.name) if on_tpu else Findings()
        if emulated:
            findings.install()
        wide = any(output.dtype == "int64" for output in request.signature.outputs)
        device = JaxDevice(venue.device, widens=wide)
        entry = import_entry(artifact.path, request.candidate.entry)
        function = jax.jit(
            partial(entry, interpret=findings.interpret if emulated else False),
            static_argnames=[scalar.name for scalar in request.signature.scalars],
        )

        def launch(call: Call) -> Sequence[jax.Array]:
            result = findings.call(lambda: function(*call.inputs, **call.scalars))
            outputs = returned.outputs(
                result, request, call.dims, kind=jax.Array, called="jax.Array"
            )
            device.enqueued(outputs)
            return outputs

        opened: Device = device
        return Kernel(opened, launch, findings) if emulated else Kernel(opened, launch)


def _hardware(target: Target) -> Venue | Missing:
    gpu = host.gpu_for(target)
    if gpu is None:
        return Missing(f"no {target.name} here")
    if not any(package_version(plugin) for plugin in PLUGINS[target.vendor]):
        plugin = PLUGINS[target.vendor][0]
        return Missing(f"jax has no plugin for {target.vendor} GPUs", f"pip install {plugin}")
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    return Venue("hardware", gpu.name, f"cuda:{gpu.index}", environment)

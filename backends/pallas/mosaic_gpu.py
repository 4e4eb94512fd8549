"""Pallas for NVIDIA's GPUs from Hopper on, through Mosaic: compiled by XLA for a GPU that need not
be here, and run in GPU interpret mode, which has copies by TMA, barriers and wgmma, and looks for
races."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portkern.errors import BuildError
from portkern.spec.backend import Artifact, Build, Missing, Resources, Venue
from portkern.spec.target import NvidiaLimits, Target
from portkern.toolchain.run_tool import package_version

from .asynchrony import Asynchrony
from .lowering import abstract_device
from .mosaic_tpu import TpuFindings

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Architectures whose code it makes, with what XLA calls them.
ARCHITECTURES = {"sm_90": (9, 0), "sm_100": (10, 0)}
#: Distributions that bring XLA's compiler for CUDA, and with it Mosaic's; and what brings them.
COMPILERS = ("jax-cuda13-pjrt", "jax-cuda12-pjrt")
WANTED = "pip install 'portkern[mosaic]'"
EMULATOR = Venue(
    "emulator", "GPU interpret mode", environment={"JAX_PLATFORMS": "cpu"}, sanitize=("races",)
)
#: XLA asks cuDNN and others for their versions, which nothing here needs to compile.
_ENVIRONMENT: Mapping[str, str] = {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
_CUSTOM_CALL = "mosaic_gpu_v2"
_PTXAS = re.compile(
    r"Function properties for (?P<kernel>\S+)\n.*?(?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads\n.*?Used (?P<registers>\d+) registers",
    re.DOTALL,
)
_THREADS = re.compile(r"^\.(?:maxntid|reqntid) (\d+)", re.MULTILINE)
_SHARED = re.compile(r"dynamic_shared_memory_size %c(\d+)_i32")


def build(entry: Callable[..., object], request: Build, source: Path, workdir: Path) -> Artifact:
    """Raises whatever the candidate or Pallas' lowering raises, and BuildError with the compiler's
    words. Without XLA's compiler the artifact is what Mosaic is given: no evidence of a build."""
    import jax

    described: Any = jax.ShapeDtypeStruct  # untyped
    # An empty array launches nothing, and the GPU's code is still asked for.
    dims = {axis: length or 1 for axis, length in request.dims.items()}
    shapes = [(spec.sizes(dims), spec.resolve(request.dtype)) for spec in request.signature.inputs]
    function = partial(entry, **request.scalars)
    gpu = _gpu(request.target)
    with abstract_device(request.target):
        if isinstance(gpu, Missing):
            traced = jax.jit(function).trace(*(described(*shape) for shape in shapes))
            lowered = traced.lower(lowering_platforms=("cuda",))
            (workdir / f"{request.candidate.op}.mlir").write_text(lowered.as_text(), "utf-8")
            return Artifact(source, "stablehlo", log=str(gpu))
        dump = workdir / "mosaic"
        dump.mkdir(exist_ok=True)
        os.environ["MOSAIC_GPU_DUMP_TO"] = str(dump)
        arguments = [described(*shape, sharding=gpu) for shape in shapes]
        traced = jax.jit(function, out_shardings=gpu).trace(*arguments)
        lowered = traced.lower(lowering_platforms=("cuda",))
        try:
            text = lowered.compile().as_text() or ""
        except jax.errors.JaxRuntimeError as error:
            raise BuildError(_refusal(str(error), request), log=str(error)) from error
    if _CUSTOM_CALL not in text:
        return Artifact(source, "python", log="the entry makes no kernel of Mosaic's")
    (workdir / f"{request.candidate.op}.hlo").write_text(text, encoding="utf-8")
    log = "\n".join(file.read_text() for file in sorted(dump.glob("*.ptxas")))
    return Artifact(source, "cubin", tuple(_resources(dump)), log)


def _gpu(target: Target) -> Any:
    """Where arguments lie: on a GPU that is described, not there. Missing without a compiler,
    or one that takes no such description."""
    import jax
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    if not any(map(package_version, COMPILERS)):
        return Missing(f"no {COMPILERS[0]}", WANTED)
    os.environ.update(_ENVIRONMENT)
    config = _description(target)
    ask = partial(topologies.get_topology_desc, target.name, "cuda", topology="1x1x1")
    try:
        try:
            described = ask(target_config=config)
        except NotImplementedError:  # jax looked for plugins before it was told not to ask cuDNN
            plugin: Any = import_module("jax_plugins.xla_cuda13")
            plugin.initialize()
            described = ask(target_config=config)
    except (ImportError, NotImplementedError, jax.errors.JaxRuntimeError) as error:
        return Missing(f"XLA's compiler describes no {target.name}: {error}", WANTED)
    return SingleDeviceSharding(described.devices[0])


def _description(target: Target) -> str:
    """The GPU in XLA's words; what the target does not say is an H100's, and decides how XLA's own
    kernels are laid out, not Mosaic's."""
    assert isinstance(target.limits, NvidiaLimits)
    limits, (major, minor) = target.limits, ARCHITECTURES[target.arch]
    facts = {
        "threads_per_block_limit": limits.threads_block,
        "threads_per_warp": target.warp or 32,
        "shared_memory_per_block": limits.smem_static_bytes,
        "shared_memory_per_core": limits.smem_sm_bytes,
        "shared_memory_per_block_optin": limits.smem_block_bytes,
        "threads_per_core_limit": limits.warps_sm * (target.warp or 32),
        "core_count": target.multiprocessors or 132,
        "fpus_per_core": 128,
        "block_dim_limit_x": limits.grid_dim_max[0],
        "block_dim_limit_y": limits.grid_dim_max[1],
        "block_dim_limit_z": limits.grid_dim_max[2],
        "memory_bandwidth": 3_350_000_000_000,
        "l2_cache_size": target.l2_bytes or 52_428_800,
        "clock_rate_ghz": 1.98,
        "device_memory_size": int((target.memory_gb or 80) * 1e9),
        "registers_per_core_limit": limits.registers_sm,
        "registers_per_block_limit": limits.registers_block,
    }
    said = " ".join(f"{name}: {value}" for name, value in facts.items())
    return (
        f"gpu_device_info {{ {said} cuda_compute_capability {{ major: {major} minor: {minor} }} }}"
        f' platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 10 }}'
        f' device_description_str: "{target.title}"'
    )


def _refusal(words: str, request: Build) -> str:
    """The compiler's error in one line."""
    head = words.strip().partition("\n")[0]
    return f"{request.candidate.entry} does not compile for {request.target.name}: {head}"


def _resources(dump: Path) -> Iterator[Resources]:
    """Reads what each kernel uses in the files that Mosaic left: of ptxas, PTX and passes."""
    for file in sorted(dump.glob("*.ptxas")):
        if (said := _PTXAS.search(file.read_text())) is None:
            continue
        threads = _THREADS.search(file.with_suffix(".ptx").read_text())
        passes = file.with_suffix(".mlir-passes.log")
        shared = _SHARED.search(passes.read_text()) if passes.is_file() else None
        yield Resources(
            said["kernel"],
            registers=int(said["registers"]),
            spills=int(said["stores"]) + int(said["loads"]),
            shared_bytes=int(shared[1]) if shared else None,
            threads=int(threads[1]) if threads else None,
        )


class MosaicFindings(TpuFindings):
    """The findings of GPU interpret mode in the last call: races, and what is not waited for. A
    barrier that is used against its phases, or an access outside of a buffer, ends the call."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asynchrony = Asynchrony(self.say)

    @property
    def interpret(self) -> Any:
        return _parameters()(detect_races=True, uninitialized_memory="nan")

    def install(self) -> None:
        """Hear what the interpreter prints and does. Raises ImportError where jax has none."""
        from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks

        _parameters()
        for lowering in ("mosaic", "mosaic_gpu"):
            name = f"jax._src.pallas.{lowering}.interpret.race_detection_state"
            with contextlib.suppress(ModuleNotFoundError):
                vars(import_module(name))["print"] = self._heard
        if not hasattr(gpu_callbacks, "wait_smem_to_gmem"):  # jax 0.11 follows copies itself
            self.asynchrony.install()

    def call(self, kernel: Callable[[], object]) -> object:
        self.asynchrony.clear()
        return super().call(kernel)

    def reset(self) -> None:
        from jax._src.pallas.mosaic_gpu.interpret import interpret_pallas_call

        forget: Any = interpret_pallas_call.reset_gpu_interpret_mode_state  # untyped
        forget()


def _parameters() -> Any:
    """The class that asks for GPU interpret mode, public or not yet."""
    from jax.experimental.pallas import mosaic_gpu

    for name in ("InterpretGPUParams", "InterpretParams"):
        if hasattr(mosaic_gpu, name):
            return getattr(mosaic_gpu, name)
    from jax._src.pallas.mosaic_gpu.interpret import params

    return params.InterpretGPUParams

"""Lowers a Pallas candidate for a GPU that need not be here, and on to the GPU's own code.

JAX writes each ``pallas_call`` into the program as a module of Triton's dialect. XLA would compile
that with the Triton inside it; where the ``triton`` wheel is installed, so do we.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portkern.errors import BuildError
from portkern.spec.backend import Build, Resources
from portkern.spec.target import Target

if TYPE_CHECKING:
    from jaxlib.mlir import ir

_CUSTOM_CALL = "__gpu$xla.gpu.triton"
#: JAX 0.11 reads the compute capability off a device's name; AMD's is its architecture.
DEVICE_KINDS = {
    "sm_80": "NVIDIA A100",
    "sm_86": "NVIDIA A10",
    "sm_89": "NVIDIA L40",
    "sm_90": "NVIDIA H200",
    "sm_100": "NVIDIA B200",
    "sm_120": "NVIDIA RTX PRO 6000",
}


@dataclass(frozen=True)
class TritonModule:
    """One ``pallas_call`` in the text of Triton's dialect, with the options it is compiled with."""

    name: str
    text: str
    num_warps: int
    num_stages: int


def lower(entry: Callable[..., object], request: Build, workdir: Path) -> list[TritonModule]:
    """Raises whatever the candidate or Pallas' lowering raises."""
    import jax

    # An empty array launches nothing, and the target's code is still asked for.
    dims = {axis: length or 1 for axis, length in request.dims.items()}
    arguments = [
        jax.ShapeDtypeStruct(spec.sizes(dims), spec.resolve(request.dtype))  # type: ignore[no-untyped-call]
        for spec in request.signature.inputs
    ]
    platform = "cuda" if request.target.vendor == "nvidia" else "rocm"
    with abstract_device(request.target):
        traced = jax.jit(partial(entry, **request.scalars)).trace(*arguments)
        lowered = traced.lower(lowering_platforms=(platform,))
    (workdir / f"{request.candidate.op}.mlir").write_text(lowered.as_text(), encoding="utf-8")
    calls = _custom_calls(lowered.compiler_ir("stablehlo").operation)
    return [_triton_module(call) for call in calls]


def compile_modules(
    modules: list[TritonModule], target: Target, workdir: Path
) -> tuple[str, tuple[Resources, ...], str]:
    """Kind, resources and log. ``stablehlo`` is what there is without the wheel's compiler."""
    if find_spec("triton") is None:
        return "stablehlo", (), "no Triton to compile the target's code with"
    import triton

    from ..triton.binaries import kind_of, resources
    from ..triton.standin import gpu_target

    log = io.StringIO()
    with triton.knobs.nvidia.scope(), contextlib.redirect_stdout(log):
        triton.knobs.nvidia.dump_ptxas_log = True
        for index, module in enumerate(modules):
            file = workdir / f"{index}_{module.name}.ttir"
            file.write_text(module.text, encoding="utf-8")
            options = {"num_warps": module.num_warps, "num_stages": module.num_stages}
            try:
                triton.compile(str(file), target=gpu_target(target), options=options)
            except RuntimeError as error:  # MLIR's; the two packages need not share a dialect
                what = f"triton {triton.__version__} does not compile {file.name}: {error}"
                return "stablehlo", (), what
    used = resources(workdir / "triton-cache", kind_of(target), log.getvalue())
    _check_shared(used, target)
    return kind_of(target), used, log.getvalue().strip()


def _check_shared(used: tuple[Resources, ...], target: Target) -> None:
    limit = target.shared_block_bytes
    for kernel in used:
        if limit is not None and (kernel.shared_bytes or 0) > limit:
            raise BuildError(
                f"{kernel.kernel} needs {kernel.shared_bytes} bytes of shared memory, "
                f"{target.name} has {limit}; use smaller blocks or fewer stages"
            )


def abstract_device(target: Target) -> AbstractContextManager[object]:
    """Tells JAX 0.11 what it lowers for; 0.10 assumes compute capability 9.0 with no GPU here."""
    import jax

    if not hasattr(jax.sharding, "AbstractDevice"):
        return nullcontext()
    device = jax.sharding.AbstractDevice(
        device_kind=DEVICE_KINDS.get(target.arch, target.arch), num_cores=None, platform="gpu"
    )
    mesh = jax.sharding.AbstractMesh((), (), abstract_device=device)
    return jax.sharding.use_abstract_mesh(mesh)


def _custom_calls(operation: ir.Operation) -> Iterator[object]:
    if operation.name == "stablehlo.custom_call":
        target: Any = operation.attributes["call_target_name"]  # attributes are typed by their base
        if target.value == _CUSTOM_CALL:
            yield operation.attributes["mhlo.backend_config"]
    for region in operation.regions:
        for block in region:
            for inner in block:
                yield from _custom_calls(inner.operation)


def _triton_module(config: Any) -> TritonModule:
    from jaxlib.mlir import ir
    from jaxlib.triton import dialect

    context = ir.Context()
    dialect.register_dialect(context)
    with context:
        # Bytecode is tied to the producer's version of MLIR; its text both sides read.
        text = str(ir.Module.parse(config["ir"].value_bytes))
    return TritonModule(
        config["name"].value, text, config["num_warps"].value, config["num_stages"].value
    )

"""Pallas for TPUs: compiled by libtpu for a chip that need not be here, and run in TPU interpret
mode, which has DMAs and semaphores and looks for races."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portkern.errors import BuildError, LaunchError
from portkern.spec.backend import Artifact, Build, Resources, Venue
from portkern.spec.json_types import Json
from portkern.spec.target import Target, TpuLimits
from portkern.toolchain.run_tool import package_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: libtpu asks a machine of Google's who it is, locks a file so that one process has the chip, and
#: writes logs; here it is a compiler.
ENVIRONMENT: Mapping[str, str] = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_LOG_DIR": "disabled",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
}
EMULATOR = Venue(
    "emulator", "TPU interpret mode", environment={"JAX_PLATFORMS": "cpu"}, sanitize=("races",)
)
TERMS = {"libtpu": "Google's, under https://cloud.google.com/terms"}
#: What libtpu says of the memory of kernels; 1 is VMEM.
_USED = re.compile(
    r'"used_scoped_memory_configs":\[\{"memory_space":"1","offset":"\d+","size":"(\d+)"'
)
_WINDOW = re.compile(r"(?:input|output) window allocation[^.]*\.")
#: Each of a race's two places.
_PLACE = re.compile(r"([^\s/]+\.py):(\d+)")
_RAISED = re.compile(r"\w*(Error|Exception): ")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_SHOWN = 16
#: Copies in flight that the race detector tells apart. It has one by default, and misses what two
#: copies do that wait for each other's semaphores.
CLOCKS = 1024


def build(entry: Callable[..., object], request: Build, source: Path, workdir: Path) -> Artifact:
    """Raises whatever the candidate or Pallas' lowering raises, and BuildError with the compiler's
    words. Without libtpu the artifact is what Mosaic is given: no evidence of a build."""
    import jax

    described: Any = jax.ShapeDtypeStruct  # untyped
    # An empty array launches nothing, and the chip's code is still asked for.
    dims = {axis: length or 1 for axis, length in request.dims.items()}
    shapes = [(spec.sizes(dims), spec.resolve(request.dtype)) for spec in request.signature.inputs]
    function = _for_chip(entry, request)
    if package_version("libtpu") is None:
        arguments = [described(*shape) for shape in shapes]
        lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("tpu",))
        (workdir / f"{request.candidate.op}.mlir").write_text(lowered.as_text(), encoding="utf-8")
        return Artifact(source, "stablehlo", log="no libtpu; pip install 'portkern[tpu]'")
    chip = _chip(request.target)
    arguments = [described(*shape, sharding=chip) for shape in shapes]
    lowered = (
        jax.jit(function, out_shardings=chip).trace(*arguments).lower(lowering_platforms=("tpu",))
    )
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        raise BuildError(_refusal(str(error), request), log=str(error)) from error
    text = compiled.as_text() or ""
    if "tpu_custom_call" not in text:
        return Artifact(source, "python", log="the entry makes no pallas_call")
    (workdir / f"{request.candidate.op}.hlo").write_text(text, encoding="utf-8")
    return Artifact(source, "tpu", _resources(text), _costs(compiled.cost_analysis()))


def _for_chip(entry: Callable[..., object], request: Build) -> Callable[..., object]:
    """The entry where Pallas asks which chip it lowers for: it would ask this machine's device."""
    from jax import sharding

    assert isinstance(request.target.limits, TpuLimits)
    kind = sharding.AbstractDevice(request.target.limits.device_kind, 1, "tpu")
    described = sharding.AbstractMesh((), (), abstract_device=kind)

    @wraps(entry)  # kernels are named after it
    def function(*arguments: object) -> object:
        with sharding.use_abstract_mesh(described):
            return entry(*arguments, **request.scalars)

    return function


def _chip(target: Target) -> Any:
    """Where arguments lie: on the first chip of a host that is described, not there."""
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    assert isinstance(target.limits, TpuLimits)
    host = topologies.get_topology_desc(
        platform="tpu", topology_name=target.limits.topology, chips_per_host_bounds=(2, 2, 1)
    )
    return SingleDeviceSharding(host.devices[0])


def _refusal(words: str, request: Build) -> str:
    """The compiler's error in one line; it names the block that VMEM has no room for."""
    head = words.strip().partition("\n")[0]
    window = _WINDOW.search(words)
    beside = "" if window is None or window[0] in head else f" ({window[0]})"
    return f"{request.candidate.entry} does not compile for {request.target.name}: {head}{beside}"


def _resources(text: str) -> tuple[Resources, ...]:
    used = []
    for line in text.splitlines():
        found = _USED.search(line)
        if found and 'custom_call_target="tpu_custom_call"' in line:
            name = line.strip().removeprefix("ROOT ").partition(" = ")[0].lstrip("%")
            used.append(Resources(name, vmem_bytes=int(found[1])))
    return tuple(used)


def _costs(analysis: Any) -> str:
    """The compiler's own figures, which are estimates."""
    wanted = ("flops", "bytes accessed", "optimal_seconds")
    shown = [f"{key} {analysis[key]:g}" for key in wanted if key in (analysis or {})]
    return f"libtpu estimates {', '.join(shown) or 'nothing'}"


class TpuFindings:
    """The findings of TPU interpret mode in the last call: races, and semaphores left with a
    count. An access outside of a buffer ends the call."""

    def __init__(self, name: str) -> None:
        self.name = name  # of the kernel's file
        self.seen: list[dict[str, Json]] = []

    @property
    def interpret(self) -> Any:
        from jax.experimental.pallas import tpu

        # Copies are made at once: what nobody waits for is a race, or leaves its semaphore a count.
        return tpu.InterpretParams(
            detect_races=True,
            uninitialized_memory="nan",
            dma_execution_mode="eager",
            vector_clock_size=CLOCKS,
        )

    def install(self) -> None:
        """Hear what the interpreter prints. Raises ImportError where jax has none."""
        from jax._src.pallas.mosaic.interpret import interpret_pallas_call, race_detection_state

        for module in (interpret_pallas_call, race_detection_state):
            vars(module)["print"] = self._heard

    def call(self, kernel: Callable[[], object]) -> object:
        """Raises LaunchError with the interpreter's reason where it ends the kernel."""
        import jax

        self.seen.clear()
        try:
            return jax.block_until_ready(kernel())  # type: ignore[no-untyped-call]
        except jax.errors.JaxRuntimeError as error:
            self.reset()
            raise LaunchError(_last_words(str(error), self.name)) from error

    def reset(self) -> None:
        """Forget the state of a call that was ended."""
        from jax._src.pallas.mosaic.interpret import interpret_pallas_call

        forget: Any = interpret_pallas_call.reset_tpu_interpret_mode_state  # untyped
        forget()

    def say(self, code: str, message: str, place: str = "", also: str = "") -> None:
        """Once for each place."""
        said: dict[str, Json] = {"code": code, "severity": "error", "message": message}
        said |= {"place": place, "also": also}
        if said not in self.seen:
            self.seen.append(said)

    def _heard(self, *words: object) -> None:
        said = " ".join(map(str, words))
        race = said.startswith("RACE DETECTED")
        places = [f"{file}:{line}" for file, line in _PLACE.findall(said)]
        message = "two accesses of a buffer that nothing orders, such as a wait that is missing"
        self.say(
            "race" if race else "semaphore-left",
            message if race else said.partition("\n")[0],
            places[0] if places else "",
            places[1] if len(places) > 1 else "",
        )

    def __call__(self) -> Sequence[dict[str, Json]]:
        return self.seen[:_SHOWN]


def _last_words(text: str, name: str) -> str:
    """The exception at the end of a traceback, and the line of the kernel that it is about."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if _RAISED.match(line)] or lines or ["the kernel ended"]
    places = [found[2] for found in _FRAME.finditer(text) if Path(found[1]).name == name]
    return f"{name}:{places[-1]}: {said[-1]}" if places else said[-1]

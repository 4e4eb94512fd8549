"""The opencl backend, on PoCL: as a CPU's own driver, and as the stand-in of a GPU."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from portkern import ops
from portkern.errors import BuildError
from portkern.records.record import Verdict
from portkern.spec import catalogue, registry
from portkern.spec import target as targets
from portkern.spec.backend import Backend, Build, Call, Kernel, Missing, Ready, Venue
from portkern.spec.candidate import Candidate
from portkern.spec.op import Workload
from portkern.testing import QUICK, evaluate
from portkern.toolchain import host

platforms = importlib.import_module("portkern.backends.opencl.platforms")
POCL = platforms.ClDescription(0, 0, "cpu", "pthread-x86", "GenuineIntel", "PoCL: 3.0")
H200 = platforms.ClDescription(1, 0, "gpu", "NVIDIA H200", "NVIDIA Corporation", "CUDA: 580")


@pytest.fixture(scope="module")
def backend() -> Backend:
    backend = registry.load("opencl")
    state = backend.probe(targets.load("opencl_generic"))
    if isinstance(state, Missing):
        pytest.skip(str(state))
    return backend


def request(source: str, *, op: str = "relu", dtype: str = "float32", where: str) -> Build:
    signature = ops.load(op).signature
    candidate = Candidate(op, "opencl", "opencl", source, entry=op)
    dims = ops.load(op).workloads["ci"][0].dims
    target, scalars = targets.load(where), signature.scalar_values({})
    return Build(candidate, signature, dtype, target, dims, scalars)


def shipped(op: str) -> str:
    [candidate] = catalogue.candidates(op, registry.load("opencl"))
    return candidate.source


def loaded(backend: Backend, build: Build, folder: Path) -> Kernel:
    venue = backend.venues(build.target).best
    if isinstance(venue, Missing):
        pytest.skip(str(venue))
    return backend.load(backend.build(build, folder), build, venue)


def call(kernel: Kernel, op: str, dims: dict[str, int], inputs: list[Any]) -> Any:
    device, signature = kernel.device, ops.load(op).signature
    outputs = [
        torch.full(t.sizes(dims), torch.nan, dtype=inputs[0].dtype) for t in signature.outputs
    ]
    arguments = Call(
        [device.upload(t) for t in inputs],
        [device.upload(t) for t in outputs],
        dims,
        signature.scalar_values({}),
    )
    return device.download(kernel.launch(arguments)[0])


def test_it_claims_gpus_and_the_generic_cpus_whose_driver_compiles_for_them(
    backend: Backend,
) -> None:
    claimed = {name for name in targets.names() if backend.supports(targets.load(name))}
    assert {"opencl_generic", "x86_64", "aarch64", "sm_90", "gfx942"} <= claimed
    assert not {"x86_64_avx2", "x86_64_avx512"} & claimed


def test_probe_names_the_driver_and_leaves_the_checker_out(backend: Backend) -> None:
    state = backend.probe(targets.load("x86_64"))
    assert isinstance(state, Ready)
    assert "pyopencl" in state.toolchain
    assert not any("oclgrind" in part.lower() for part in state.toolchain)


# Both shapes of a kernel: what a CPU gets, and what a GPU gets, run by a CPU.
@pytest.mark.sampled("where")
@pytest.mark.parametrize("where", ["opencl_generic", "gfx942"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("size", [(0, 8), (3, 1000), (2, 131)], ids=str)
def test_softmax_is_right_as_a_cpu_and_as_a_gpu(
    backend: Backend, where: str, dtype: str, size: tuple[int, int], tmp_path: Path
) -> None:
    build = request(shipped("softmax"), op="softmax", dtype=dtype, where=where)
    kernel = loaded(backend, build, tmp_path)
    x = (torch.randn(size) * 3).to(getattr(torch, dtype))
    x[:1] = -1e4
    y = call(kernel, "softmax", {"rows": size[0], "cols": size[1]}, [x])
    assert y.dtype == x.dtype and y.shape == x.shape
    assert torch.allclose(y.double(), x.double().softmax(-1), atol=torch.finfo(x.dtype).eps)


@pytest.mark.parametrize("where", ["opencl_generic", "gfx942"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_stored_rounded_to_nearest_even(
    backend: Backend, where: str, dtype: str, tmp_path: Path
) -> None:
    kernel = loaded(backend, request(shipped("add"), op="add", dtype=dtype, where=where), tmp_path)
    kind = getattr(torch, dtype)
    bits = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)
    a = bits.view(kind)[None].contiguous()
    b = a[0].roll(12345).contiguous()
    got = call(kernel, "add", {"m": 1, "n": 65536}, [a, b])
    wanted = a + b
    assert torch.equal(got.isnan(), wanted.isnan())
    assert torch.equal(got[~got.isnan()], wanted[~wanted.isnan()])


def test_knobs_reach_the_program_as_macros(backend: Backend, tmp_path: Path) -> None:
    source = (
        "VALUE = 3  # knob: 3 5\n"
        'SOURCE = "kernel void put(global storage_t* y, long n) '
        '{ if (get_global_id(0) < n) STORE(y, get_global_id(0), VALUE); }"\n'
        "def relu(queue, program, x, y, *, n):\n"
        "    program.put(queue, (n,), None, y, n)\n"
    )
    build = request(source, where="opencl_generic")
    turned = Build(
        build.candidate.turn({"VALUE": 5}),
        build.signature,
        build.dtype,
        build.target,
        build.dims,
        build.scalars,
    )
    y = call(loaded(backend, turned, tmp_path), "relu", {"n": 7}, [torch.randn(7)])
    assert y.tolist() == [5.0] * 7


OUTSIDE = """
SOURCE = '''
kernel void r(global const float* x, global float* y, long n) {{
  const long i = get_global_id(0);
  const float v = i < n ? x[i] : 0.0f;
  {store}
}}
'''

def relu(queue, program, x, y, *, n):
    program.r(queue, (-(-int(n) // 256) * 256,), (256,), x, y, n)
"""


@pytest.mark.parametrize("where", ["opencl_generic", "gfx942"])
@pytest.mark.parametrize(
    ("store", "found"),
    [
        ("y[i] = fmax(v, 0.0f);", "its output 'y': 0 bytes before it"),
        ("if (i < n) y[i] = fmax(v, 0.0f); if (i == 9) y[-2] = 7.0f;", "and 0 behind it"),
        ("if (i < n) y[i] = fmax(v, 0.0f);", ""),
    ],
)
def test_what_a_kernel_writes_beside_its_output_is_wrong(
    backend: Backend, where: str, store: str, found: str, tmp_path: Path
) -> None:
    candidate = Candidate(
        "relu", "opencl", "opencl", OUTSIDE.format(store=store), entry="relu", author="test"
    )
    results = evaluate(
        candidate,
        ops.load("relu"),
        backend,
        targets.load(where),
        [Workload("odd", {"n": 1000})],
        folder=tmp_path,
        options=replace(QUICK, timed=False, distributions=("normal",)),
    )
    assert isinstance(results, list), results
    assert results[0].verdict is (Verdict.WRONG if found else Verdict.PASSED), results[0]
    assert found in results[0].detail


IN_GROUPS = """
SOURCE = '''
kernel void r(global const float* x, global float* y, long n) {{
  local float cell[64];
  const long i = get_global_id(0);
  const int l = get_local_id(0);
  {body}
}}
'''

def relu(queue, program, x, y, *, n):
    program.r(queue, (-(-int(n) // 64) * 64,), (64,), x, y, n)
"""
THROUGH_LOCAL = (
    "cell[l] = i < n ? x[i] : 0.0f; barrier(CLK_LOCAL_MEM_FENCE); "
    "const float v = cell[63 - l]; {between} cell[63 - l] = fmax(v, 0.0f); "
    "barrier(CLK_LOCAL_MEM_FENCE); if (i < n) y[i] = cell[l];"
)
CHECKED = {
    "right": (THROUGH_LOCAL.format(between=""), ""),
    "a barrier behind a return": (
        "if (i >= n) return; cell[l] = x[i]; barrier(CLK_LOCAL_MEM_FENCE); "
        "y[i] = fmax(cell[l], 0.0f);",
        "cl-divergent-barrier",
    ),
    "a barrier in a loop of each item's own length": (
        "for (int k = 0; k < 1 + (i == 9); ++k) barrier(CLK_LOCAL_MEM_FENCE); "
        "if (i < n) y[i] = fmax(x[i], 0.0f);",
        "cl-divergent-barrier",
    ),
    "local memory without a barrier": (
        "cell[l] = 0.0f; barrier(CLK_LOCAL_MEM_FENCE); cell[l] = i < n ? x[i] : 0.0f; "
        "if (i < n) y[i] = cell[l ^ 1] < -99.0f ? 0.0f : fmax(x[i], 0.0f);",
        "cl-race",
    ),
    "one element written by two groups": (
        "if (i < n && i) y[i] = fmax(x[i], 0.0f); if (i == 5 || i == 70) y[0] = i;",
        "cl-race",
    ),
    "a sum without a start value": (
        "float sum; if (i < n && x[i] > 9.0f) sum = 0.0f; "
        "if (i < n) y[i] = sum > 1.0f ? x[i] : fmax(x[i], 0.0f);",
        "cl-uninitialised",
    ),
    "a read behind the input": (
        "const float v = x[i]; if (i < n) y[i] = fmax(v, 0.0f);",
        "cl-out-of-bounds",
    ),
}


@pytest.mark.sampled()
@pytest.mark.parametrize(("body", "code"), CHECKED.values(), ids=CHECKED)
def test_small_calls_run_once_more_in_oclgrind(
    backend: Backend, body: str, code: str, tmp_path: Path
) -> None:
    importlib.import_module("portkern.backends.opencl.device").load_pyopencl()
    if platforms.checker() is None:
        pytest.skip("Oclgrind is not installed")
    source = IN_GROUPS.format(body=body)
    results = evaluate(
        Candidate("relu", "opencl", "opencl", source, entry="relu", author="test"),
        ops.load("relu"),
        backend,
        targets.load("opencl_generic"),
        [Workload("odd", {"n": 200})],
        folder=tmp_path,
        options=replace(QUICK, timed=False, distributions=("uniform",)),
        sanitize=("races", "bounds"),
    )
    assert isinstance(results, list), results
    found = {finding.code for finding in results[0].findings if finding.severity == "error"}
    assert code in found if code else not found, results[0]
    assert results[0].verdict is (Verdict.WRONG if code else Verdict.PASSED), results[0]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def relu(queue, program, x, y, *, n):\n    pass\n", "no string SOURCE"),
        ('SOURCE = ""\n', r"expected def relu\(queue, program, x, y, \*, n\)"),
        ("this is not Python", "cannot be imported"),
    ],
)
def test_an_incomplete_module_is_told_what_is_missing(
    backend: Backend, tmp_path: Path, source: str, message: str
) -> None:
    with pytest.raises(BuildError, match=message):
        backend.build(request(source, where="opencl_generic"), tmp_path)


@pytest.mark.parametrize("where", ["opencl_generic", "gfx942"])
def test_a_program_that_does_not_compile_fails_with_the_drivers_log(
    backend: Backend, tmp_path: Path, where: str
) -> None:
    source = (
        'SOURCE = "kernel void f(global float* x) { x[0] = nothing; }"\n'
        "def relu(queue, program, x, y, *, n):\n    pass\n"
    )
    with pytest.raises(BuildError) as caught:
        backend.build(request(source, where=where), tmp_path)
    assert "nothing" in caught.value.log


def test_a_cpus_time_is_the_hosts(backend: Backend, tmp_path: Path) -> None:
    kernel = loaded(backend, request(shipped("relu"), where="x86_64"), tmp_path)
    x = kernel.device.upload(torch.randn(1000))
    arguments = Call([x], [kernel.device.upload(torch.zeros(1000))], {"n": 1000}, {})
    samples = kernel.device.time([lambda: kernel.launch(arguments)] * 3)
    assert len(samples) == 3 and min(samples) > 0
    assert "host clock" in kernel.device.method


def test_what_the_driver_made_is_known_and_depends_on_no_folder_and_no_call(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(source: str, folder: str, where: str = "x86_64") -> bytes:
        (tmp_path / folder).mkdir()
        # The driver keeps no program, and writes its source into a file of another name.
        monkeypatch.setenv("POCL_KERNEL_CACHE", "0")
        kernel = loaded(backend, request(source, where=where), tmp_path / folder)
        assert call(kernel, "relu", {"n": 1000}, [torch.ones(1000)]).sum() == 1000
        return kernel.code()

    one = made(shipped("relu"), "one")
    assert one and one == made(f"# more\n{shipped('relu')}", "two")
    assert one != made(shipped("relu").replace("(vec_t)(0.0f)", "(vec_t)(0.5f)"), "three")
    assert not made(shipped("relu"), "gpu", "gfx942"), "what stands in for a GPU is not its code"


def test_the_generic_target_prefers_a_gpu_and_a_cpu_target_a_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "runs_here", lambda target: True)
    assert platforms.choose(targets.load("opencl_generic"), [POCL, H200]) == H200
    assert platforms.choose(targets.load("x86_64"), [H200, POCL]) == POCL


@pytest.mark.parametrize(
    ("team", "caller"), [("pthread-znver4", "basic-znver4"), ("cpu-znver4", "cpu-minimal-znver4")]
)
def test_the_device_of_pocl_that_runs_in_the_callers_thread_only_stands_beside_the_one_with_threads(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, team: str, caller: str
) -> None:
    """The names are those of PoCL 3 and of PoCL 4, in either order; one thread took ten times as
    long."""
    import pyopencl as cl

    driver = SimpleNamespace(name="Portable Computing Language")
    devices = [
        SimpleNamespace(
            name=name, vendor="", driver_version="", type=cl.device_type.CPU, platform=driver
        )
        for name in (caller, team)
    ]
    driver.get_devices = lambda: devices
    monkeypatch.setattr(cl, "get_platforms", lambda: [driver])
    assert [description.name for description, _ in platforms.visible()] == [team]
    assert platforms.caller_of(devices[1]) is devices[0]


def test_a_gpu_without_an_icd_entry_is_told_where_to_write_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = host.Gpu("nvidia", "NVIDIA H200", "sm_90", 0, "580")
    monkeypatch.setattr(host, "gpu_for", lambda target: gpu)
    answer = platforms.choose(targets.load("h200"), [POCL])
    assert isinstance(answer, Missing) and "nvidia.icd" in answer.remedy
    assert platforms.choose(targets.load("h200"), [POCL, H200]) == H200


def test_a_gpus_absence_leaves_the_cpu_as_its_emulator(backend: Backend) -> None:
    if host.gpus():
        pytest.skip("this machine has a GPU")
    venues = backend.venues(targets.load("mi300x"))
    assert isinstance(venues.hardware, Missing) and "here" in venues.hardware.reason
    assert isinstance(venues.emulator, Venue) and venues.emulator.device.startswith("opencl:")
    assert isinstance(backend.venues(targets.load("x86_64")).emulator, Missing)


def devices_anew() -> object:
    """Asked now, and again by whoever asks next."""
    platforms.devices.cache_clear()
    try:
        return platforms.devices()
    finally:
        platforms.devices.cache_clear()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("raise SystemExit('a driver died')", "a driver died"), ("pass", "no OpenCL platform")],
)
def test_a_driver_that_ends_its_process_is_a_reason_and_not_a_crash(
    monkeypatch: pytest.MonkeyPatch, answer: str, expected: str
) -> None:
    pytest.importorskip("pyopencl")
    listed = {"platform": 0, "index": 0, "kind": "cpu", "name": "c", "vendor": "v", "driver": "d"}
    found = f"import json; print(json.dumps({listed}))\n" if "died" in expected else ""
    monkeypatch.setattr(platforms, "_ASK", found + answer)
    monkeypatch.setattr(platforms, "find_library", lambda name: None)
    state = devices_anew()
    assert isinstance(state, Missing) and expected in state.reason


def test_what_keeps_pyopencl_from_listing_devices_is_said_and_no_driver_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pyopencl")
    monkeypatch.setattr(platforms, "_ASK", "import a_module_that_pyopencl_needs")
    monkeypatch.setattr(platforms, "find_library", lambda name: f"lib{name}.so.1")
    state = devices_anew()
    assert isinstance(state, Missing) and "a_module_that_pyopencl_needs" in state.reason
    assert "ICD" not in str(state)


def test_devices_are_found_from_a_folder_with_modules_of_any_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such as a checkout of portkern, whose own folder has no backends."""
    pytest.importorskip("pyopencl")
    for name in ("json.py", "portkern.py", "numpy.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    state = devices_anew()
    assert not isinstance(state, Missing), state


def test_pocl_works_without_binutils_by_zigs_linker(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    pytest.importorskip("pyopencl")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    code = (
        "from portkern.backends.opencl import platforms\n"
        "print(platforms.environment()['PATH'].split(':')[0]); print(platforms.devices())"
    )
    cache = {"POCL_CACHE_DIR": str(tmp_path / "pocl")}  # nothing linked earlier is found there
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, **cache, "PATH": str(tmp_path / "bin")},
    )
    folder, found = answer.stdout.splitlines()
    assert "-lgcc" in Path(folder, "ld").read_text()
    assert "ClDescription" in found, found


def test_timing_leaves_the_device_of_a_gpu_as_the_worker_found_it(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluator takes what differs afterwards for a function that the candidate replaced."""
    module = importlib.import_module("portkern.backends.opencl.device")
    cl = module.load_pyopencl()
    monkeypatch.setattr(cl.device_type, "GPU", cl.device_type.CPU)
    [first, *_] = platforms.devices()
    device = module.ClDevice(first.address, emulated=False)
    before = dict(vars(device))
    [took_us] = device.time([lambda: device.upload(torch.zeros(1 << 20))])
    assert took_us > 0
    assert vars(device) == before


TURNS = """
SOURCE = '''
kernel void copy(global const float* x, global float* y) {
  y[get_global_id(0)] = x[get_global_id(0)];
}
kernel void advance(global float* y, float times, float more) {
  y[get_global_id(0)] = y[get_global_id(0)] * times + more;
}
'''

def relu(queue, program, x, y, *, n):
    import numpy
    near = program.nearby(queue, 1)
    assert program.nearby(queue, 1 << 30) is queue
    assert (near is queue) != program.cpu
    program.copy(queue, (n,), (1,), x, y)
    for _ in range(5):
        program.advance(program.nearby(queue, 1), (n,), (1,), y, numpy.float32(1), numpy.float32(1))
        program.advance(queue, (n,), (1,), y, numpy.float32(2), numpy.float32(0))
"""


@pytest.mark.parametrize("where", ["opencl_generic", "gfx942"])
def test_little_work_is_done_nearby_on_a_cpu_alone_and_in_its_turn(
    backend: Backend, where: str, tmp_path: Path
) -> None:
    kernel = loaded(backend, request(TURNS, where=where), tmp_path)
    y = call(kernel, "relu", {"n": 100000}, [torch.zeros(100000)])
    assert (y == 62).all()  # 2 + 4 + 8 + 16 + 32

"""Compiled AMD kernels, executed: right where they are right, and stopped where they cannot be."""

from __future__ import annotations

import io
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from elftools.elf.elffile import ELFFile

from benchmarks import object_waits
from portkern import ops
from portkern.errors import BuildError, LaunchError
from portkern.evaluator.inputs import DRAWS
from portkern.isa import disassembly, runtime_library
from portkern.isa.executor import TABLES, LaunchBuffer, ObjectProgram
from portkern.isa.finding import FindingKind, ObjectRan
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Artifact, Build, Call, Missing, Venue
from portkern.spec.candidate import Candidate
from portkern.spec.file_build import FileBuild
from portkern.spec.op import Op, Workload

#: The share of the largest element of the right answer.
CLOSE = {"float32": 2e-5, "bfloat16": 1.6e-2, "float16": 2e-3}
HIP = [*zip(ops.ALL, cycle(("float32", "bfloat16", "float16")), strict=False)]
ARCHS = ("gfx942", "gfx90a", "gfx1100")


@pytest.fixture(autouse=True)
def _executor() -> None:
    found = runtime_library.find()
    if isinstance(found, Missing):
        pytest.skip(str(found))


def ready(name: str, arch: str) -> Any:
    backend = registry.load(name)
    answer = backend.probe(target.load(arch))
    if isinstance(answer, Missing):
        pytest.skip(str(answer))
    return backend


def build_of(op: Op, candidate: Candidate, arch: str, dtype: str) -> Build:
    request = Build(candidate, op.signature, dtype, target.load(arch), {}, {}, runnable=False)
    return request


def call_of(op: Op, workload: Workload, dtype: str) -> Call:
    """Random inputs; outputs hold what no kernel writes."""
    generator = torch.Generator().manual_seed(len(op.name))
    inputs = []
    for spec in op.signature.inputs:
        kind, size = getattr(torch, spec.resolve(dtype)), spec.sizes(workload.dims)
        if kind.is_floating_point:
            drawn = torch.randn(size, generator=generator)
        elif kind == torch.bool:
            drawn = torch.rand(size, generator=generator) < 0.5
        else:
            low, high = spec.bounds(workload.dims)
            drawn = torch.randint(low, high, size, generator=generator)
        if op.draws.get(spec.name) in DRAWS:
            drawn = DRAWS[op.draws[spec.name]](drawn)
        inputs.append(drawn.to(kind))
    outputs = [
        torch.full(spec.sizes(workload.dims), -77, dtype=getattr(torch, spec.resolve(dtype)))
        for spec in op.signature.outputs
    ]
    return Call(inputs, outputs, workload.dims, op.signature.scalar_values(workload.scalars))


def assert_right(op: Op, call: Call, outputs: object, dtype: str) -> None:
    wide = [x.double() if x.is_floating_point() else x for x in call.inputs]
    right = op.reference(*wide, **call.scalars)
    expected = right if isinstance(right, tuple) else (right,)
    got = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    for result, answer in zip(got, expected, strict=True):
        if not result.is_floating_point():
            assert torch.equal(result, answer.to(result.dtype))
        else:
            scale = max(float(answer.double().abs().max()), 1e-30) if answer.numel() else 1.0
            torch.testing.assert_close(
                result.double(), answer.double(), rtol=0, atol=CLOSE[dtype] * scale
            )


@pytest.mark.sampled("arch")
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("name", "dtype"), HIP)
def test_compiled_hip_kernels_compute_what_they_should(
    name: str, dtype: str, arch: str, tmp_path: Path
) -> None:
    backend, op = ready("hip", arch), ops.load(name)
    [candidate] = catalogue.candidates(name, backend)
    request = replace(build_of(op, candidate, arch, dtype), executed=True)
    artifact = backend.build(request, tmp_path)
    hip_objects = import_module("portkern.backends.hip.objects")
    kernel = hip_objects.load(artifact, request, ("waits", "lds"))
    for workload in op.workloads["ci"]:
        call = call_of(op, workload, dtype)
        inputs = [kernel.device.upload(x) for x in call.inputs]
        outputs = [kernel.device.upload(x) for x in call.outputs]
        kernel.launch(Call(inputs, outputs, call.dims, call.scalars))
        assert not [f for f in kernel.findings() if f["severity"] == "error"]
        assert kernel.launches()
        assert_right(op, call, [kernel.device.download(x) for x in outputs], dtype)


@pytest.mark.sampled("arch")
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize(("name", "dtype"), HIP)
def test_compiled_triton_kernels_compute_what_they_should(
    name: str, dtype: str, arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, op = ready("triton", arch), ops.load(name)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    [candidate] = catalogue.candidates(name, backend)
    file = tmp_path / f"{name}.py"
    file.write_text(candidate.source, encoding="utf-8")
    request = build_of(op, candidate, arch, dtype)
    kernel = backend.load(
        Artifact(file, "hsaco"), request, Venue("object", arch, sanitize=("waits", "lds"))
    )
    for workload in op.workloads["ci"]:
        call = replace(call_of(op, workload, dtype), counted=True)
        outputs = kernel.launch(call)
        assert kernel.launches()
        assert all(counts["instructions"] for counts in kernel.counts().values())
        assert not [f for f in kernel.findings() if f["severity"] == "error"]
        assert_right(op, call, outputs, dtype)


# ---- the decoder, held to the compiler's own assembler


def code_of(data: bytes) -> bytes:
    section = ELFFile(io.BytesIO(data)).get_section_by_name(".text")
    assert section is not None
    return bytes(section.data())


def assert_reassembles(path: Path) -> int:
    """The text of all decoded instructions, assembled, is the object's code to the last bit."""
    from triton.backends.amd.compiler import assemble_amdgcn

    program = ObjectProgram(path)
    lines = [line for _, line in disassembly.text(program, 64)]
    start, size = program.object.text
    assembled = assemble_amdgcn("\n".join([".text", *lines, ""]), program.object.processor, "")
    assert code_of(assembled) == program.object.image[start : start + size]
    return len(lines)


@pytest.mark.sampled()
@pytest.mark.parametrize(("name", "dtype"), HIP)
def test_decoded_instructions_assemble_to_the_same_bits(
    name: str, dtype: str, tmp_path: Path
) -> None:
    backend, op = ready("hip", "gfx942"), ops.load(name)
    ready("triton", "gfx942")
    [candidate] = catalogue.candidates(name, backend)
    artifact = backend.build(build_of(op, candidate, "gfx942", dtype), tmp_path)
    assert assert_reassembles(artifact.path) > 100


@pytest.mark.sampled()
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("name", ["softmax", "rope", "conv2d"])
def test_every_instruction_of_a_kernel_has_a_model(name: str, arch: str, tmp_path: Path) -> None:
    backend, op = ready("hip", arch), ops.load(name)
    [candidate] = catalogue.candidates(name, backend)
    program = ObjectProgram(backend.build(build_of(op, candidate, arch, "float32"), tmp_path).path)
    kernel = next(iter(program.object.kernels.values()))
    lacking = {
        one.mnemonic
        for one in program.instructions(kernel.wave_size)
        if one.mnemonic not in ("", "s_code_end") and not one.modelled
    }
    assert not lacking


# ---- single kernels, compiled once for each architecture

PRELUDE = "#include <hip/hip_runtime.h>\n"
EXPRESSIONS: dict[str, tuple[str, Callable[[np.ndarray, int], np.ndarray]]] = {
    "xor": ("__shfl_xor(v, 5)", lambda v, w: v[v ^ 5]),
    "down": ("__shfl_down(v, 3)", lambda v, w: v[np.where(v % w + 3 < w, (v + 3) % 64, v)]),
    "ballot": (
        "(int)__popcll(__ballot(v > 31))",
        lambda v, w: np.repeat((v > 31).reshape(-1, w).sum(1), w),
    ),
    "dpp": (
        "__builtin_amdgcn_update_dpp(0, v, 0x111, 15, 15, true)",
        lambda v, w: np.where(v % 16, np.roll(v, 1), 0),
    ),
    "swizzle": ("__builtin_amdgcn_ds_swizzle(v, 0x041f)", lambda v, w: v[v ^ 1]),
    "bpermute": (
        "__builtin_amdgcn_ds_bpermute(4 * (v * 7 % warpSize), v)",
        lambda v, w: v[v // w * w + v * 7 % w],
    ),
    "bits": (
        "__clz(v) + __ffs(v) * 64 + __popc(v) * 4096",
        lambda v, w: np.array(
            [
                32 - k.bit_length() + (k & -k).bit_length() * 64 + k.bit_count() * 4096
                for k in map(int, v)
            ]
        ),
    ),
}
KERNELS = (
    PRELUDE
    + r"""
template <int every> __device__ void chained_(const int* x, int* y, int* done) {
    const int t = threadIdx.x;
    int before = 0;
    if (t % every) {
        while (atomicAdd(&done[t - 1], 0) == 0) {}
        before = atomicAdd(&y[t - 1], 0);
    }
    atomicExch(&y[t], before + x[t]);
    __threadfence();
    atomicExch(&done[t], 1);
}
template <int together> __device__ void in_order_(int* out, int* total) {
    __shared__ volatile int turn, used;
    if (threadIdx.x == 0) turn = used = 0;
    __syncthreads();
    const int mine = threadIdx.x / together;
    while (turn != mine) {}
    if (threadIdx.x % together == 0) {
        out[used] = threadIdx.x;
        used = used + 1;
        __threadfence_block();
        turn = mine + 1;
    }
    __syncthreads();
    if (threadIdx.x == 0) *total = used;
}
template <int every> __device__ void push_(unsigned* turn, unsigned* tail, int* sum) {
    if (threadIdx.x % every) return;
    const unsigned ticket = atomicAdd(tail, 1u), slot = ticket % 16, round = ticket / 16;
    while (atomicAdd(&turn[slot], 0u) != round) {}
    atomicAdd(&sum[slot], 1);
    __threadfence();
    atomicAdd(&turn[slot], 1u);
}
extern "C" {
__global__ void scan(const int* x, int* y, int* done) { chained_<64>(x, y, done); }
__global__ void scan_alone(const int* x, int* y, int* done) { chained_<1>(x, y, done); }
__global__ void turnstile(int* out, int* total) { in_order_<1>(out, total); }
__global__ void turnstile_pairs(int* out, int* total) { in_order_<2>(out, total); }
__global__ void turnstile_waves(int* out, int* total) { in_order_<WAVE>(out, total); }
__global__ void queue(unsigned* turn, unsigned* tail, int* sum) { push_<1>(turn, tail, sum); }
__global__ void queue_some(unsigned* turn, unsigned* tail, int* sum) { push_<2>(turn, tail, sum); }
__global__ void queue_waves(unsigned* turn, unsigned* tail, int* sum) {
    push_<WAVE>(turn, tail, sum);
}
__global__ void backwards(int* done, int* order, int* count) {
    if (threadIdx.x) return;
    const int me = blockIdx.x;
    if (me + 1 < gridDim.x) while (atomicAdd(&done[me + 1], 0) == 0) {}
    order[atomicAdd(count, 1)] = me;
    __threadfence();
    atomicExch(&done[me], 1);
}
__global__ void stores(int* x, int n) { x[threadIdx.x + n] = 1; }
__global__ void loads(int* x, int n) { x[0] = x[threadIdx.x + n]; }
extern __shared__ int lds[];
__global__ void reversed(int* x) {
    lds[threadIdx.x] = threadIdx.x;
    __syncthreads();
    x[threadIdx.x] = lds[63 - threadIdx.x];
}
__global__ void spread(int* x, int by) { x[threadIdx.x * by] = 1; }
__global__ void banks(int* x, int by) {
    lds[threadIdx.x * by] = threadIdx.x;
    __syncthreads();
    x[threadIdx.x] = lds[(63 - threadIdx.x) * by];
}
__global__ void some(int* x, int most) { if (threadIdx.x < most) x[threadIdx.x] += 1; }
__global__ void exchange(const int* x, int* y) {
    __shared__ int kept[256];
    const int t = threadIdx.x;
    kept[t] = x[t];
    __syncthreads();
    y[t] = kept[255 - t] + x[255 - t];
}
__global__ void in_rounds(const int* x, int* y, int rounds) {
    __shared__ int kept[256];
    const int t = threadIdx.x;
    int sum = 0;
    for (int k = 0; k < rounds; ++k) {
        kept[t] = x[t] + k;
        __syncthreads();
        sum += kept[(t + 64) % 256];
        __syncthreads();
    }
    y[t] = sum;
}
__global__ void by_turns(const int* x, int* y) {
    __shared__ int kept[256];
    __shared__ int turn;
    const int t = threadIdx.x;
    if (t == 0) atomicExch(&turn, 0);
    __syncthreads();
    const int wave = t / WAVE;
    if (t % WAVE == 0) while (atomicAdd(&turn, 0) != wave) {}
    kept[t] = x[t] + (wave ? kept[t - WAVE] : 0);
    __threadfence_block();
    if (t % WAVE == 0) atomicAdd(&turn, 1);
    y[t] = kept[t];
}
__global__ void endless(volatile int* x) { for (unsigned k = 0;; ++k) x[threadIdx.x] = k; }
__global__ void trap(int* x) { x[0] = 1; __builtin_trap(); }
__global__ void where(int* x) {
    int id;
    asm volatile("s_getreg_b32 %0, hwreg(2)" : "=s"(id));
    x[threadIdx.x] = id;
}
__global__ void quotients(const float* x, const float* y, float* z) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    z[i] = x[i] / y[i];
}
__global__ void mixes(const unsigned* x, const float* y, float* z) {
    const int i = threadIdx.x;
    asm("v_fma_mix_f32 %0, %1, 1.0, %2 op_sel_hi:[1,1,0]" : "=v"(z[i]) : "v"(x[i]), "v"(y[i]));
    asm("v_fma_mix_f32 %0, %1, 0.5, %2 op_sel:[1,0,0] op_sel_hi:[1,0,0]"
        : "=v"(z[i + 64]) : "v"(x[i]), "v"(y[i]));
    asm("v_fma_mix_f32 %0, -|%1|, %2, neg(2.0) op_sel_hi:[1,0,1]"
        : "=v"(z[i + 128]) : "v"(x[i]), "v"(y[i]));
    unsigned both = x[i];
    asm("v_fma_mixhi_f16 %0, %0, 4.0, |%1| op_sel_hi:[1,1,0]" : "+v"(both) : "v"(y[i]));
    z[i + 192] = __uint_as_float(both);
}
#if defined(__gfx942__) || defined(__gfx950__)
__global__ void straight(const int* x, int* y) {
    __shared__ int kept[2][64];
    const int t = threadIdx.x;
    int got[2];
    typedef __attribute__((address_space(1))) int* global;
    typedef __attribute__((address_space(3))) int* local;
    for (int k = 0; k < 2; ++k)
        __builtin_amdgcn_global_load_lds((global)(x + 64 * k + t), (local)&kept[k][0], 4, 0, 0);
    asm volatile("s_waitcnt vmcnt(1)\n s_barrier\n ds_read_b32 %0, %1\n s_waitcnt lgkmcnt(0)"
        : "=v"(got[0]) : "v"((local)&kept[0][t]));
    asm volatile("s_waitcnt vmcnt(0)\n s_barrier\n ds_read_b32 %0, %1\n s_waitcnt lgkmcnt(0)"
        : "=v"(got[1]) : "v"((local)&kept[1][t]));
    y[t] = got[0], y[t + 64] = got[1];
}
#endif
#if defined(__gfx90a__) || defined(__gfx942__)
typedef _Float16 reals4 __attribute__((ext_vector_type(4)));
typedef float floats4 __attribute__((ext_vector_type(4)));
__global__ void reals_16(const reals4* x, const reals4* y, floats4* z) {
    const int i = threadIdx.x;
    z[i] = __builtin_amdgcn_mfma_f32_16x16x16f16(x[i], y[i], z[i], 0, 0, 0);
}
#endif
#ifdef __gfx950__
__global__ void columns(const unsigned long* x, unsigned long* y) {
    __shared__ unsigned long kept[64];
    const int i = threadIdx.x;
    kept[i] = x[i];
    __syncthreads();
    unsigned long got;
    asm volatile("ds_read_b64_tr_b16 %0, %1\n s_waitcnt lgkmcnt(0)" : "=v"(got)
        : "v"((unsigned)(unsigned long)&kept[i]));
    y[i] = got;
}
#endif
#ifdef __gfx90a__
typedef int ints4 __attribute__((ext_vector_type(4)));
typedef float floats16 __attribute__((ext_vector_type(16)));
typedef short shorts2 __attribute__((ext_vector_type(2)));
typedef short shorts4 __attribute__((ext_vector_type(4)));
__global__ void bytes_16(const int* x, const int* y, ints4* z) {
    const int i = threadIdx.x;
    z[i] = __builtin_amdgcn_mfma_i32_16x16x16i8(x[i], y[i], z[i], 0, 0, 0);
}
__global__ void halves_32(const shorts2* x, const shorts2* y, floats16* z) {
    const int i = threadIdx.x;
    z[i] = __builtin_amdgcn_mfma_f32_32x32x4bf16(x[i], y[i], z[i], 0, 0, 0);
}
__global__ void halves_32_1k(const shorts4* x, const shorts4* y, floats16* z) {
    const int i = threadIdx.x;
    z[i] = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(x[i], y[i], z[i], 0, 0, 0);
}
#endif
"""
    + "".join(
        f"__global__ void lanes_{name}(const int* x, int* y) {{ const int v = x[threadIdx.x];"
        f" y[threadIdx.x] = {expression}; }}\n"
        for name, (expression, _) in EXPRESSIONS.items()
    )
    + "}\n"
)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ObjectProgram]:
    made: dict[str, ObjectProgram] = {}

    def compiled(arch: str) -> ObjectProgram:
        if arch not in made:
            backend, built_for = ready("hip", arch), target.load(arch)
            folder = tmp_path_factory.mktemp(arch)
            (folder / "kernels.hip").write_text(KERNELS, encoding="utf-8")
            defines = (f"WAVE={built_for.warp}",)
            request = FileBuild(folder / "kernels.hip", built_for, defines=defines)
            made[arch] = ObjectProgram(backend.build_file(request, folder).object)
        return made[arch]

    return compiled


Programs = Callable[[str], ObjectProgram]


def pointer(array: np.ndarray) -> bytes:
    return struct.pack("<Q", array.ctypes.data)


def buffer(array: np.ndarray, *, writable: bool = True) -> LaunchBuffer:
    return LaunchBuffer(array.ctypes.data, array.nbytes, writable)


def launch(
    program: ObjectProgram,
    name: str,
    *given: np.ndarray | int,
    block: int = 64,
    grid: int = 1,
    limit: int = 1 << 26,
    checks: tuple[str, ...] = (),
    lds: int = 0,
) -> ObjectRan:
    """Runs the kernel on arrays and on numbers of 32 bits."""
    values = [struct.pack("<i", a) if isinstance(a, int) else pointer(a) for a in given]
    memory = [buffer(a) for a in given if not isinstance(a, int)]
    sizes = (grid, 1, 1), (block, 1, 1)
    return program.run(
        name, values, *sizes, buffers=memory, limit=limit, checks=checks, dynamic_lds_bytes=lds
    )


def ints(count: int) -> np.ndarray:
    return np.zeros(count, np.int32)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize(
    ("name", "arrays"),
    [
        ("scan", (np.ones(64, np.int32), ints(64), ints(64))),
        ("turnstile", (ints(64), ints(1))),
        ("turnstile_pairs", (ints(64), ints(1))),
        ("queue", (ints(16), ints(1), ints(16))),
    ],
)
def test_lanes_of_a_wave_that_wait_for_each_other_hang(
    programs: Programs, name: str, arrays: tuple[np.ndarray, ...], arch: str
) -> None:
    ran = launch(programs(arch), name, *(array.copy() for array in arrays))
    assert ran.hangs
    assert not ran.complete
    assert ran.findings[-1].kind is FindingKind.IN_STEP
    assert ran.findings[-1].address
    assert ran.needs_hardware is None


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_lanes_that_wait_for_nobody_and_waves_that_wait_for_waves_end(
    programs: Programs, arch: str
) -> None:
    wave, program = target.load(arch).warp or 64, programs(arch)
    y = ints(64)
    assert launch(program, "scan_alone", np.full(64, 3, np.int32), y, ints(64)).clean
    assert (y == 3).all()
    out, total = ints(256), ints(1)
    assert launch(program, "turnstile_waves", out, total, block=256).clean
    assert list(out[: total[0]]) == list(range(0, 256, wave))
    turns, tail, sums = ints(16), ints(1), ints(16)
    assert launch(program, "queue_waves", turns, tail, sums, block=1024).clean
    assert sums.sum() == 1024 // wave


def test_what_hangs_in_waves_of_64_may_end_in_waves_of_32(programs: Programs) -> None:
    """Tickets of every second lane: 32 of a wave for 16 slots, or 16."""
    assert launch(programs("gfx942"), "queue_some", ints(16), ints(1), ints(16)).hangs
    sums = ints(16)
    assert launch(programs("gfx1100"), "queue_some", ints(16), ints(1), sums).clean
    assert (sums == 2).all()


def test_workgroups_that_wait_for_later_ones_are_run_beside_them(programs: Programs) -> None:
    order = ints(9)
    assert launch(programs("gfx942"), "backwards", ints(9), order, ints(1), grid=9).clean
    assert list(order) == list(range(8, -1, -1))


@pytest.mark.parametrize(
    ("name", "kind"), [("stores", FindingKind.STORE_OUTSIDE), ("loads", FindingKind.LOAD_OUTSIDE)]
)
def test_one_element_past_a_buffer_is_found_and_not_touched(
    programs: Programs, name: str, kind: FindingKind
) -> None:
    whole = np.full(128, 7, np.int32)
    inside = [LaunchBuffer(whole.ctypes.data, 64 * 4)]

    def run(past: int) -> ObjectRan:
        values, sizes = [pointer(whole), struct.pack("<i", past)], ((1, 1, 1), (64, 1, 1))
        return programs("gfx942").run(name, values, *sizes, buffers=inside)

    ran = run(1)
    assert ran.complete
    assert [(finding.kind, finding.lane) for finding in ran.findings] == [(kind, 63)]
    assert ran.findings[0].accessed == whole.ctypes.data + 64 * 4
    assert (whole[64:] == 7).all()
    assert run(0).clean


def test_a_store_into_a_buffer_that_is_only_read_is_found(programs: Programs) -> None:
    x = ints(64)
    given = [pointer(x), struct.pack("<i", 0)], (1, 1, 1), (64, 1, 1)
    ran = programs("gfx942").run("stores", *given, buffers=[buffer(x, writable=False)])
    assert {finding.kind for finding in ran.findings} == {FindingKind.STORE_OUTSIDE}
    assert not x.any()


def test_lds_ends_where_the_launch_says(programs: Programs) -> None:
    x = ints(64)
    given = [pointer(x)], (1, 1, 1), (64, 1, 1)
    for size, outside in ((256, 0), (252, 2)):
        ran = programs("gfx942").run(
            "reversed", *given, buffers=[buffer(x)], dynamic_lds_bytes=size
        )
        assert [f.kind for f in ran.findings] == [FindingKind.LDS_OUTSIDE] * outside


def test_what_is_not_modelled_is_named_with_its_address(programs: Programs) -> None:
    program = programs("gfx942")
    ran = launch(program, "where", ints(64))
    assert not ran.complete
    assert ran.needs_hardware is not None
    assert ran.needs_hardware.mnemonic == "s_getreg_b32"
    at = {one.address: one.mnemonic for one in program.instructions(64)}
    assert at[ran.needs_hardware.address] == "s_getreg_b32"


def test_an_endless_loop_ends_at_the_limit_and_a_trap_is_one(programs: Programs) -> None:
    program = programs("gfx942")
    ran = launch(program, "endless", ints(64), limit=1 << 21)
    assert ran.findings[-1].kind is FindingKind.LIMIT
    assert ran.instructions < 1 << 22
    ran = launch(program, "trap", ints(64))
    assert ran.findings[-1].kind in (FindingKind.TRAP, FindingKind.UNMODELLED)
    assert not ran.complete


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_divisions_are_rounded_correctly(programs: Programs, arch: str) -> None:
    """The oracle of three instructions whose text in the manual is not right word for word."""
    rng = np.random.default_rng(5)
    x, y = (rng.integers(0, 1 << 32, 1 << 16, np.uint32).view(np.float32) for _ in range(2))
    z = np.zeros_like(x)
    assert launch(programs(arch), "quotients", x, y, z, block=256, grid=256).clean
    with np.errstate(all="ignore"):
        right = x / y
    same = (z.view(np.uint32) == right.view(np.uint32)) | (np.isnan(z) & np.isnan(right))
    assert same.all()


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_mixed_sources_are_halves_floats_and_constants_of_either(
    programs: Programs, arch: str
) -> None:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((64, 2)).astype(np.float16)
    y, z = rng.standard_normal(64).astype(np.float32), np.zeros((4, 64), np.float32)
    assert launch(programs(arch), "mixes", x, y, z).clean
    low, high = x.astype(np.float64).T
    right = [low + y, high / 2 + y, -abs(low) * y - 2]
    np.testing.assert_array_equal(z[:3], np.array(right).astype(np.float32))
    both = z[3].view(np.float16).reshape(64, 2)
    np.testing.assert_array_equal(both[:, 0], x[:, 0])
    fused = (4 * low + abs(y)).astype(np.float32).astype(np.float16)
    np.testing.assert_array_equal(both[:, 1], fused)


@pytest.mark.parametrize(
    ("name", "size", "held"), [("bytes_16", 16, 4), ("halves_32", 32, 2), ("halves_32_1k", 32, 4)]
)
def test_matrix_instructions_of_gfx90a_alone_multiply(
    programs: Programs, name: str, size: int, held: int
) -> None:
    """Lane l holds row or column l % size, at the depths from l // size * held on."""
    rng = np.random.default_rng(7)
    bytes_, groups = name == "bytes_16", 64 // size
    a, b = (rng.integers(-100, 100, (64, held)) for _ in range(2))
    kept = [np.ascontiguousarray(m, np.int8) if bytes_ else brain(m) for m in (a, b)]
    z = np.zeros((64, size // groups), np.int32 if bytes_ else np.float32)
    assert launch(programs("gfx90a"), name, *kept, z).clean
    wide = [m.reshape(groups, size, held).swapaxes(1, 2).reshape(-1, size) for m in (a, b)]
    # Four rows of one group of lanes, then those of the next.
    rows = (wide[0].T @ wide[1]).reshape(-1, groups, 4, size)
    assert (z == rows.transpose(1, 3, 0, 2).reshape(64, -1)).all()


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_a_result_without_its_denormal_factors_comes_with_a_remark(
    programs: Programs, arch: str
) -> None:
    """Lane 0 holds the first four factors of row 0, lanes 0 to 15 the results of that row."""
    x, y = np.ones((64, 4), np.float16), np.ones((64, 4), np.float16)
    for factor, flushed in ((2.0**-15, arch == "gfx90a"), (2.0**-14, False), (0.0, False)):
        x[0], z = factor, np.zeros((64, 4), np.float32)
        ran = launch(programs(arch), "reals_16", x, y, z)
        assert ran.clean
        assert (z[:16, 0] == (12 if flushed else 12 + 4 * factor)).all()
        told = [remark.to_json("reals_16") for remark in ran.remarks]
        assert [(one["code"], one["severity"]) for one in told] == [
            ("object-flushed-factor", "note")
        ] * flushed


@pytest.mark.full
def test_lds_is_read_by_columns_of_sixteen_lanes_on_gfx950(programs: Programs) -> None:
    x, y = np.arange(256, dtype=np.uint16), np.zeros((4, 16, 4), np.uint16)
    assert launch(programs("gfx950"), "columns", x, y).clean
    assert (y == x.reshape(4, 4, 16).swapaxes(1, 2)).all()


def brain(numbers: np.ndarray) -> np.ndarray:
    """Small integers as bfloat16's bits."""
    return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def test_the_table_of_gfx90a_has_its_assemblers_opcodes() -> None:
    ready("triton", "gfx90a")
    from triton.backends.amd.compiler import assemble_amdgcn

    rows = (runtime_library.TABLES / "gfx90a.tsv").read_text(encoding="utf-8").splitlines()
    for _, opcode, name, operands in (row.split("\t") for row in rows if row[0] != "#"):
        bits = dict(operand.split(":") for operand in operands.split())
        a, c = (int(bits[k]) // 32 - 1 for k in ("src0", "vdst"))
        given = f"a[0:{c}], v[0:{a}], v[2:{a + 2}], a[0:{c}]"
        code = code_of(assemble_amdgcn(f".text\n{name} {given}\n", "gfx90a", ""))
        assert (int(code[2]) & 0x7F) == int(opcode), name


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_what_passes_between_lanes(programs: Programs, name: str, arch: str) -> None:
    x, y = np.arange(64, dtype=np.int32), ints(64)
    assert launch(programs(arch), f"lanes_{name}", x, y).clean
    assert list(y) == list(EXPRESSIONS[name][1](x, target.load(arch).warp or 64))


@pytest.mark.full
def test_findings_name_the_line_where_the_object_says_it(tmp_path: Path) -> None:
    backend, relu = ready("hip", "gfx942"), ops.load("relu")
    source = (
        "__global__ void f(const float* x, float* y, long n) {\n"
        "    y[threadIdx.x] = x[\n        threadIdx.x + 1];\n}\n"
    )
    clang = import_module("portkern.backends.hip.clang")
    file = tmp_path / "lines.hip"
    file.write_text(PRELUDE + source, encoding="utf-8")
    candidate = Candidate("relu", backend.name, "hip", source, "relu")
    request = build_of(relu, candidate, "gfx942", "float32")
    artifact = clang.build(clang.find(), request, file, tmp_path, ["-gline-tables-only"])
    x, y = np.ones(64, np.float32), np.ones(64, np.float32)
    program = ObjectProgram(artifact.path)
    [name] = program.object.kernels
    given = [pointer(x), pointer(y), bytes(8)], (1, 1, 1), (64, 1, 1)
    ran = program.run(name, *given, buffers=[buffer(x, writable=False), buffer(y)])
    assert [finding.line for finding in ran.findings] == ["lines.hip:3"]


# ---- what comes from outside


@pytest.fixture
def whole(programs: Programs) -> bytes:
    return programs("gfx942").path.read_bytes()


def test_objects_that_are_not_whole_are_refused(whole: bytes, tmp_path: Path) -> None:
    file = tmp_path / "stranger.hsaco"
    for length in range(0, len(whole) - 1, max(1, len(whole) // 40)):
        file.write_bytes(whole[:length])
        with pytest.raises(BuildError):
            ObjectProgram(file)
    another = bytearray(whole)
    another[48] = 0x2F  # the processor in the ELF header's flags
    file.write_bytes(bytes(another))
    with pytest.raises(BuildError, match="processor 0x2f"):
        ObjectProgram(file)


def test_random_code_ends_with_a_finding(whole: bytes, tmp_path: Path) -> None:
    section = ELFFile(io.BytesIO(whole)).get_section_by_name(".text")
    assert section is not None
    start, size = section["sh_offset"], section["sh_size"]
    rng = np.random.default_rng(11)
    file = tmp_path / "stranger.hsaco"
    for _ in range(60):
        data = bytearray(whole)
        # Whole words, and single bits of what the compiler wrote.
        at = start + 4 * int(rng.integers(0, size // 4))
        data[at : at + 4] = rng.bytes(4)
        data[start + int(rng.integers(0, size))] ^= 1 << int(rng.integers(0, 8))
        file.write_bytes(bytes(data))
        x = ints(64)
        ran = ObjectProgram(file).run(
            "reversed",
            [pointer(x)],
            (1, 1, 1),
            (64, 1, 1),
            buffers=[buffer(x)],
            dynamic_lds_bytes=256,
            limit=1 << 20,
        )
        assert ran.complete or ran.findings


def test_launches_that_a_gpu_refuses_are_refused(whole: bytes, tmp_path: Path) -> None:
    file = tmp_path / "whole.hsaco"
    file.write_bytes(whole)
    program, x = ObjectProgram(file), ints(64)
    with pytest.raises(LaunchError, match="blocks"):
        program.run("reversed", [pointer(x)], (1, 1, 1), (2048, 1, 1))
    with pytest.raises(LaunchError, match="takes 1 arguments, got 0"):
        program.run("reversed", [], (1, 1, 1), (64, 1, 1))
    with pytest.raises(LaunchError, match="LDS"):
        program.run("reversed", [pointer(x)], (1, 1, 1), (64, 1, 1), dynamic_lds_bytes=1 << 20)
    with pytest.raises(BuildError, match="No kernel 'g'"):
        program.run("g", [pointer(x)], (1, 1, 1), (64, 1, 1))


# ---- waits and barriers

CHECKED = ("waits", "lds")
NOTHING = 0xBF800000
EXCHANGES: list[tuple[str, tuple[int, ...]]] = [("exchange", ()), ("in_rounds", (3,))]


def found(program: ObjectProgram, name: str, numbers: tuple[int, ...]) -> set[FindingKind]:
    x, y = np.arange(256, dtype=np.int32), ints(256)
    ran = launch(program, name, x, y, *numbers, block=256, checks=CHECKED)
    return {finding.kind for finding in ran.findings}


def own(program: ObjectProgram, name: str, *mnemonics: str) -> list[int]:
    """The addresses of such instructions of a kernel."""
    kernel = program.object.kernel(name)
    instructions = program.instructions(kernel.wave_size)
    every = [one.address for one in instructions if one.mnemonic in mnemonics]
    starts = sorted(kernel.entry for kernel in program.object.kernels.values())
    end = next((other for other in starts if other > kernel.entry), 1 << 62)
    return [address for address in every if kernel.entry <= address < end]


def waits_of(program: ObjectProgram, name: str) -> list[int]:
    return own(program, name, *object_waits.WAITS[TABLES[program.object.processor]])


def executed(
    program: ObjectProgram, name: str, numbers: tuple[int, ...], addresses: list[int]
) -> list[int]:
    """The addresses that a launch comes by."""
    trap = object_waits.TRAPS[TABLES[program.object.processor]]
    return [
        at
        for at in addresses
        if FindingKind.TRAP in found(program.altered({at: trap}), name, numbers)
    ]


@pytest.mark.full
@pytest.mark.parametrize("arch", ["gfx942", "gfx90a", "gfx1100", "gfx1201"])
@pytest.mark.parametrize(("name", "numbers"), EXCHANGES)
def test_a_wait_that_is_left_out_is_found_where_it_is_missed(
    programs: Programs, name: str, numbers: tuple[int, ...], arch: str
) -> None:
    program = programs(arch)
    assert not found(program, name, numbers)
    waits = executed(program, name, numbers, waits_of(program, name))
    seen = [found(program.altered({at: NOTHING}), name, numbers) for at in waits]
    assert len(waits) >= 3
    # One before a barrier may wait for reads of LDS alone, which no register shows.
    assert sum(map(bool, seen)) >= len(waits) - 1
    assert set().union(*seen) == {FindingKind.UNWAITED, FindingKind.UNWAITED_LDS}


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_a_wait_that_is_left_out_is_found_in_the_code_alone(programs: Programs, arch: str) -> None:
    program = programs(arch)
    kernels = program.object.kernels
    assert not any(program.missing_waits(name) for name in kernels)
    for name, _ in EXCHANGES:
        waits = waits_of(program, name)
        seen = [program.altered({at: NOTHING}).missing_waits(name) for at in waits]
        # As above: one before a barrier may wait for reads of LDS alone.
        assert len(waits) >= 3 and sum(map(bool, seen)) >= len(waits) - 1
        assert not any(finding.executed for several in seen for finding in several)


def test_a_wait_is_missed_on_a_path_that_no_wave_takes(programs: Programs) -> None:
    """The load is behind a branch: running says nothing, the code does."""
    program, x = programs("gfx942"), ints(64)
    [load] = own(program, "some", "global_load_dword")
    wait = next(at for at in own(program, "some", "s_waitcnt") if at > load)
    broken = program.altered({wait: NOTHING})
    for most, executed in ((0, False), (64, True)):
        assert launch(program, "some", x, most, checks=CHECKED).clean
        ran = launch(broken, "some", x, most, checks=CHECKED)
        assert ran.clean is not executed
        [said, *_] = ran.findings or ran.unseen
        assert (said.kind, said.executed) == (FindingKind.UNWAITED, executed)
        assert ("on a path" in str(said)) is not executed
        assert said.to_json("some")["severity"] == ("error" if executed else "warning")


def test_loads_into_lds_are_waited_for_before_their_bytes_are_read(programs: Programs) -> None:
    """One of two is still under way at the first barrier, as nobody reads it yet."""
    program, x, y = programs("gfx942"), np.arange(128, dtype=np.int32), ints(128)
    assert launch(program, "straight", x, y, checks=CHECKED).clean
    assert (x == y).all()
    for barrier in own(program, "straight", "s_barrier"):
        early = program.altered({barrier - 4: NOTHING})
        ran = launch(early, "straight", x, ints(128), checks=CHECKED)
        assert {finding.kind for finding in ran.findings} == {FindingKind.UNFILLED_LDS}


@pytest.mark.full
@pytest.mark.parametrize("arch", ["gfx942", "gfx90a"])
@pytest.mark.parametrize(("name", "numbers"), EXCHANGES)
def test_a_barrier_that_is_left_out_is_a_race_in_lds(
    programs: Programs, name: str, numbers: tuple[int, ...], arch: str
) -> None:
    program = programs(arch)
    barriers = executed(program, name, numbers, own(program, name, "s_barrier"))
    assert barriers
    for at in barriers:
        assert FindingKind.LDS_RACE in found(program.altered({at: NOTHING}), name, numbers)


@pytest.mark.full
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_waves_that_take_turns_by_atomics_do_not_race(programs: Programs, arch: str) -> None:
    x, y = np.ones(256, np.int32), ints(256)
    ran = launch(programs(arch), "by_turns", x, y, block=256, checks=CHECKED)
    assert ran.clean, ran.findings
    wave = target.load(arch).warp or 64
    assert np.array_equal(y, np.arange(256) // wave + 1)


# ---- counts


def counted(
    program: ObjectProgram, name: str, *given: np.ndarray | int, lds: int = 0
) -> Counter[str]:
    ran = launch(program, name, *given, checks=("counters",), lds=lds)
    assert ran.clean, ran.findings
    return Counter(ran.counts)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_lines_bytes_and_lanes_of_accesses_are_counted(programs: Programs, arch: str) -> None:
    program, waves = programs(arch), 64 // (target.load(arch).warp or 64)
    close, far = (counted(program, "spread", ints(64 * 32), by) for by in (1, 32))
    for one in (close, far):
        assert (one["waves"], one["requests"], one["memory"]) == (waves, waves, waves)
        assert (one["store_bytes"], one["load_bytes"], one["least_lines"]) == (256, 0, 2)
        assert one["lanes"] == one["lane_slots"]
    assert (close["lines"], far["lines"]) == (2, 64)
    few = counted(program, "some", ints(64), 5)
    assert few["load_bytes"] == few["store_bytes"] == 20
    assert few["lanes"] < few["lane_slots"]
    kinds = ("vector", "matrix", "scalar", "waits", "branches", "barriers", "lds", "memory")
    parts = sum(few[kind] for kind in (*kinds, "scratch", "scalar_memory"))
    assert few["instructions"] == parts


@pytest.mark.parametrize(("by", "passes"), [(1, 4), (2, 8), (32, 128), (33, 4)])
def test_lanes_at_one_bank_of_lds_take_a_pass_each(
    programs: Programs, by: int, passes: int
) -> None:
    seen = counted(programs("gfx942"), "banks", ints(64), by, lds=64 * 33 * 4)
    assert (seen["lds_passes"], seen["least_lds_passes"]) == (passes, 4)
    assert (seen["lds_bytes"], seen["lds_requests"]) == (512, 2)


def test_counts_are_the_same_each_time_and_matrix_instructions_have_their_names(
    programs: Programs,
) -> None:
    def once() -> Counter[str]:
        values = np.ones((64, 4), np.int8), np.ones((64, 4), np.int8), np.zeros((64, 4), np.int32)
        return counted(programs("gfx90a"), "bytes_16", *values)

    assert once() == once()
    assert once()["matrix"] == once()["v_mfma_i32_16x16x16i8"] == 1

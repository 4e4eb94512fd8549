"""Faults of AMD's compilers that public reports suspect: small kernels of our own, judged by what
the compiled object computes.

python -m tests.suspects            # judges all that can be, and writes docs/silicon.md
"""

from __future__ import annotations

import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, util
from pathlib import Path
from typing import Any

import numpy as np

from portkern.isa.executor import LaunchBuffer, ObjectProgram
from portkern.spec import registry, target
from portkern.spec.file_build import FileBuild

FOLDER = Path(__file__).parent / "data" / "suspects"
PAGE = Path(__file__).parents[1] / "docs" / "silicon.md"
DISMISSED, CONFIRMED, OUT = "dismissed", "confirmed", "out of reach"
_RNG = 20_261_130
#: What looks on while a kernel runs; a finding is a fault as well.
CHECKS = ("waits", "lds")
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Suspect:
    """``report``: who says so; ``said``: what; ``judge`` runs it for a processor and gives what is
    wrong, nothing where all is right; ``why``: of one that is out of reach, what is missing."""

    name: str
    report: str
    said: str
    chips: tuple[str, ...] = ()
    judge: Callable[[str], str] | None = None
    why: str = ""
    judged: str = DISMISSED


@cache
def hip_program(arch: str) -> ObjectProgram:
    folder = Path(tempfile.mkdtemp(prefix="suspects-"))
    file = folder / "kernels.hip"
    file.write_text((FOLDER / "kernels.hip").read_text(encoding="utf-8"), encoding="utf-8")
    built = registry.load("hip").build_file(FileBuild(file, target.load(arch)), folder)  # type: ignore[attr-defined]
    return ObjectProgram(built.object)


@cache
def _triton_kernels() -> Any:
    spec = util.spec_from_file_location("triton_kernels", FOLDER / "triton_kernels.py")
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_KINDS = {"float32": "fp32", "int32": "i32", "int64": "i64", "uint8": "u8", "float16": "fp16"}


@dataclass
class Compiled:
    """A Triton kernel for a processor: its object, its LDS, its threads."""

    program: ObjectProgram
    name: str
    shared: int
    warps: int


def triton_kernel(
    name: str, given: Sequence[object], constants: Mapping[str, int], arch: str, **options: int
) -> Compiled:
    compiler = import_module("triton.compiler")
    backends = import_module("triton.backends.compiler")
    function = getattr(_triton_kernels(), name)
    kinds = [_kind(value) for value in given] + ["constexpr"] * len(constants)
    signature = dict(zip(function.arg_names, kinds, strict=True))
    source = compiler.ASTSource(function, signature, constexprs=dict(constants))
    warp = target.load(arch).warp or 64
    built = compiler.compile(
        source, target=backends.GPUTarget("hip", arch, warp), options=options or None
    )
    file = Path(tempfile.mkdtemp(prefix="suspects-")) / "kernel.hsaco"
    file.write_bytes(built.asm["hsaco"])
    metadata = built.metadata
    return Compiled(ObjectProgram(file), metadata.name, metadata.shared, metadata.num_warps)


def _kind(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"*{'bf16' if value.dtype == np.uint16 else _KINDS[str(value.dtype)]}"
    return "i32"


@dataclass
class Launch:
    """The ending of a launch: an empty ``fault`` where it ended and nothing was found."""

    fault: str = ""
    arrays: list[Array] = field(default_factory=list)


def run(
    program: ObjectProgram, name: str, given: Sequence[Array | int], grid: int | tuple[int, int],
    threads: int, shared: int = 0,
) -> Launch:  # fmt: skip
    values = [
        struct.pack("<i", v) if isinstance(v, int) else struct.pack("<Q", v.ctypes.data)
        for v in given
    ]
    kernel = program.object.kernel(name)
    values += [bytes(a.size) for a in kernel.explicit[len(values) :]]
    arrays = [v for v in given if not isinstance(v, int)]
    sizes = grid if isinstance(grid, tuple) else (grid, 1)
    ran = program.run(
        name, values, (*sizes, 1), (threads, 1, 1),
        buffers=[LaunchBuffer(a.ctypes.data, a.nbytes) for a in arrays],
        dynamic_lds_bytes=shared, limit=1 << 27, checks=CHECKS,
    )  # fmt: skip
    return Launch("" if ran.clean else str(ran.findings[-1]), arrays)


def launched(
    arch: str, name: str, given: Sequence[Array | int], constants: Mapping[str, int],
    grid: int | tuple[int, int] = 1, **options: int,
) -> str:  # fmt: skip
    """Compiles and runs a Triton kernel; what went wrong."""
    kernel = triton_kernel(name, given, constants, arch, **options)
    wave = kernel.program.object.kernel(kernel.name).wave_size
    return run(
        kernel.program, kernel.name, given, grid, kernel.warps * wave, kernel.shared
    ).fault  # fmt: skip


def far(got: Array, want: Array, tolerance: float = 0.0) -> str:
    """How many numbers are not what they should be."""
    if got.dtype.kind in "iu":
        bad = got != want.astype(got.dtype)
    else:
        size = max(float(np.abs(want).max()), 1e-30)
        bad = ~(np.abs(got.astype(np.float64) - want) <= tolerance * size)
    return f"{int(bad.sum())} of {bad.size} numbers are wrong" if bad.any() else ""


def rng() -> np.random.Generator:
    return np.random.default_rng(_RNG)


def bfloats(x: Array) -> Array:
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    return np.asarray((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def floats(x: Array) -> Array:
    return np.asarray((x.astype(np.uint32) << 16).view(np.float32))


# ---- Triton


def loop_over_rows(arch: str) -> str:
    n, rows = 64, 37
    x = rng().standard_normal((rows, 2 * n)).astype(np.float32)
    said = ""
    for warps in (1, 2, 8):
        scales, out = np.zeros(rows, np.float32), np.zeros((rows, n), np.uint8)
        said = said or launched(
            arch, "rows_in_a_loop", (x, scales, out, rows), {"N": n}, num_warps=warps
        )
        scale = np.abs(x).max(1) / np.float32(7)
        said = said or far(scales, scale, 1e-6)
        nibbles = np.floor(x / scale[:, None] + 8.5).astype(np.int64) & 15
        got = np.stack([out & 15, out >> 4], 2).reshape(rows, -1)
        wrong = np.abs(got.astype(int) - nibbles) > 1  # a quotient may be a rounding away
        said = said or (f"{int(wrong.sum())} packed numbers are wrong" if wrong.any() else "")
    return said


def scan_over_waves(arch: str) -> str:
    n = 4000
    x = rng().standard_normal(n).astype(np.float32)
    want = np.logaddexp.accumulate(x.astype(np.float64))
    amd = import_module("triton").knobs.amd
    said = ""
    for buffers in (False, True):
        with amd.scope():
            amd.use_buffer_ops = buffers
            out = np.zeros(n, np.float32)
            said = said or launched(
                arch, "running_log_of_sums", (x, out, n), {"N": 2048}, num_warps=8
            )
            said = said or far(out, want, 1e-5)
    return said


def log_of_large(arch: str) -> str:
    n = 640
    x, number = bfloats(rng().standard_normal(n)), rng().integers(10, 131768, n)
    out = np.zeros(n, np.uint16)
    said = launched(arch, "times_log", (x, number, out, n), {"N": 256}, grid=3)
    want = floats(x).astype(np.float64) * np.log(number[np.arange(n) // 64] + 1.0)
    return said or far(floats(out), want, 4e-3)


def bins(arch: str) -> str:
    x = rng().integers(0, 40, 256).astype(np.int32) * 3 % 64
    out = np.zeros(64, np.int32)
    said = launched(arch, "bins_in_use", (x, out), {"N": 256, "BINS": 64})
    return said or far(out, np.isin(np.arange(64), x).astype(np.int64))


def truths(arch: str) -> str:
    x = rng().integers(-9, 9, 128).astype(np.int32)
    kept = x[x >= 0]
    out = np.full(128, -1, np.int32)
    said = launched(arch, "places_by_truth", (x, out), {"N": 128})
    return said or far(out[: len(kept)], kept)


def nearest(arch: str) -> str:
    points = rng().standard_normal((128, 32)).astype(np.float16)
    centres = rng().standard_normal((16, 32)).astype(np.float16)
    counts = np.zeros(16, np.int32)
    given = (points, centres, counts)
    said = launched(arch, "nearest_counted", given, {"N": 128, "D": 32, "C": 16})
    picked = (points.astype(np.float64) @ centres.T.astype(np.float64)).argmin(1)
    return said or far(counts, np.bincount(picked, minlength=16))


def lone_store(arch: str) -> str:
    n = 300
    x, y = rng().standard_normal(n).astype(np.float32), np.zeros(n, np.float32)
    other, flag = np.zeros(2, np.float32), np.ones(1, np.int32)
    said = launched(arch, "doubled_beside_a_lone_store", (x, y, other, flag, n), {"N": 128}, grid=3)
    return said or far(y, 2.0 * x.astype(np.float64)) or far(other, np.ones(2))


def greatest(arch: str) -> str:
    x = rng().integers(0, 8, (300, 40)).astype(np.float32)
    out = np.zeros(40, np.int32)
    given = (x, out, 300, 40)
    said = launched(arch, "first_of_the_greatest", given, {"R": 128, "C": 16}, grid=3)
    return said or far(out, x.argmax(0))


def gate(arch: str) -> str:
    rows, width = 5, 896
    x = bfloats(rng().standard_normal((rows, 2 * width)))
    out = np.zeros((rows, width), np.uint16)
    said = launched(arch, "gated", (x, out, width), {"N": 256}, grid=rows)
    wide = floats(x).astype(np.float64)
    first, second = wide[:, :width], wide[:, width:]
    return said or far(floats(out), first / (1 + np.exp(-first)) * second, 4e-3)


def pipelined(arch: str) -> str:
    m, n, depth = 70, 50, 200
    a, b = (bfloats(rng().standard_normal(size)) for size in ((m, depth), (depth, n)))
    want = floats(a).astype(np.float64) @ floats(b).astype(np.float64)
    said = ""
    for stages in (1, 2, 3):
        c = np.zeros((m, n), np.float32)
        said = said or launched(
            arch, "product", (a, b, c, m, n, depth), {"M": 64, "N": 32, "K": 32}, grid=(2, 2),
            num_stages=stages,
        )  # fmt: skip
        said = said or far(c, want, 1e-5)
    return said


def two_at_once(arch: str) -> str:
    m, n, depth = 64, 32, 96
    a, c = (bfloats(rng().standard_normal((m, depth))) for _ in range(2))
    b, d = (bfloats(rng().standard_normal((depth, n))) for _ in range(2))
    out = np.zeros((m, n), np.float32)
    given = (a, b, c, d, out, depth)
    said = launched(arch, "two_products", given, {"M": m, "N": n, "K": 32})
    wide = [floats(x).astype(np.float64) for x in (a, b, c, d)]
    return said or far(out, wide[0] @ wide[1] + wide[2] @ wide[3], 1e-5)


def normed(arch: str) -> str:
    rows, width = 4, 700
    x, weight = bfloats(rng().standard_normal((rows, width)) * 30), bfloats(rng().random(width))
    out = np.zeros((rows, width), np.uint16)
    said = launched(arch, "normed_and_gated", (x, weight, out, width), {"N": 1024}, grid=rows)
    wide = floats(x).astype(np.float64)
    row = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    row = row * floats(weight)
    erf = np.vectorize(import_module("math").erf)
    return said or far(floats(out), 0.5 * row * (1 + erf(row * 0.70710678)), 4e-3)


def attention(arch: str) -> str:
    length, d = 100, 64
    q, k, v = (bfloats(rng().standard_normal((length, d))) for _ in range(3))
    x, y, z = (floats(a).astype(np.float64) for a in (q, k, v))
    said = ""
    for causal in (0, 1):
        out = np.zeros((length, d), np.float32)
        said = said or launched(
            arch, "attended", (q, k, v, out, length, causal), {"M": 64, "N": 32, "D": d}, grid=2
        )
        score = x @ y.T * 0.125
        score = np.where(np.tri(length) > 0, score, -np.inf) if causal else score
        weight = np.exp(score - score.max(1, keepdims=True))
        said = said or far(out, weight / weight.sum(1, keepdims=True) @ z, 1e-2)
    return said


# ---- HIP


def sweeps(arch: str) -> str:
    n, times = 48, 3
    x, y = (rng().standard_normal(n) * 0.1).astype(np.float32), np.zeros(1024, np.float32)
    said = run(hip_program(arch), "sweeps", (x, y, n, times), 1, 1024).fault
    kept, last = x.astype(np.float64), 0.0
    for _ in range(times):
        last = float(sum(kept[k] * kept[:k].sum() for k in range(n)))
        kept = kept * 0.5 + last * 0.001
    return said or far(y, last + kept[np.arange(1024) % n], 1e-4)


def assigned(arch: str) -> str:
    x, y = np.arange(64, dtype=np.int32) * 5 - 90, np.zeros(64, np.int32)
    said = run(hip_program(arch), "assigned", (x, y), 1, 64).fault
    return said or far(y, 4 * x.astype(np.int64) + 1 + 2)


def _words() -> tuple[Array, Array]:
    return rng().integers(0, 1 << 32, 64, dtype=np.uint32), np.zeros(64, np.uint32)


def joined(arch: str) -> str:
    x, y = _words()
    said = run(hip_program(arch), "joined", (x, y), 1, 64).fault
    high = (x >> np.uint32(16)).astype(np.int64)
    return said or far(y, high + (high & 255 | 256) * 3)


def returned(arch: str) -> str:
    x, y = _words()
    said = run(hip_program(arch), "returned", (x, y), 1, 64).fault

    def made(v: Array) -> Array:
        return (v & 0xFFFF) << 16 | v >> 8 & 255

    n = made(x.astype(np.int64))
    m = made(n)
    want = (n >> 16) + (m & 255) * 65536 + (n & 255)
    return said or far(y, want & 0xFFFFFFFF)


def numbered(arch: str) -> str:
    y = np.zeros(5 * 96, np.uint64)
    said = run(hip_program(arch), "numbered", (y,), 5, 96).fault
    t = np.arange(len(y), dtype=np.uint64)
    return said or far(y, t * np.uint64(0x100000001) + t // np.uint64(96) * np.uint64(0xFFFFFFFF))


def nested(arch: str) -> str:
    x, y = np.arange(64, dtype=np.int32) * 7 % 23, np.zeros(64, np.int32)
    said = run(hip_program(arch), "nested", (x, y), 1, 64).fault
    want = []
    for t, bound in enumerate(x.tolist()):
        total = 0
        for i in range(bound):
            total += sum(j ^ t for j in range(i, max(bound, i + 1)))
            total += 0 if i == 5 and t & 1 else 3
        want.append(total)
    return said or far(y, np.array(want))


_GITHUB = "https://github.com/"
_LLVM = "llvm/llvm-project/issues/"
_TRITON = "triton-lang/triton/issues/"
RDNA, CDNA = ("gfx1100", "gfx1201"), ("gfx942", "gfx950")
SUSPECTS = (
    Suspect(
        "loop_over_rows",
        f"{_TRITON}11378",
        "a loop of a length known at run time alone gives "
        "wrong numbers or leaves its buffers (gfx1151)",
        RDNA,
        loop_over_rows,
    ),
    Suspect(
        "scan_over_waves",
        "ROCm/triton/issues/947",
        "scans over several waves are wrong without buffer operations (gfx942)",
        ("gfx942",),
        scan_over_waves,
    ),
    Suspect(
        "log_of_large",
        f"{_TRITON}8306",
        "NaN from a logarithm of large whole numbers",
        ("gfx942",),
        log_of_large,
    ),
    Suspect(
        "bins",
        "triton-lang/triton/pull/11577",
        "a comparison of a histogram's counts is folded to false (3.8.0)",
        ("gfx1100", "gfx942"),
        bins,
    ),
    Suspect(
        "truths", f"{_TRITON}5897", "a running sum of truth values stays a bit", ("gfx942",), truths
    ),
    Suspect(
        "nearest",
        f"{_TRITON}6987",
        "a histogram of what argmin of a product gives is wrong",
        ("gfx942",),
        nearest,
    ),
    Suspect(
        "lone_store",
        f"{_TRITON}11153",
        "a store that one program alone makes changes what the others compute",
        ("gfx942", "gfx1100"),
        lone_store,
    ),
    Suspect(
        "greatest",
        "ROCm/triton/issues/505",
        "argmax among equal numbers gives a later one (MI250X)",
        ("gfx90a",),
        greatest,
    ),
    Suspect(
        "gate",
        f"{_TRITON}10808",
        "a gated activation of a mixture of experts leaves memory (gfx1100)",
        ("gfx1100",),
        gate,
    ),
    Suspect(
        "pipelined",
        "ROCm/aiter/pull/4163",
        "pipelined products give wrong numbers (gfx950)",
        CDNA,
        pipelined,
    ),
    Suspect(
        "two_at_once",
        f"{_TRITON}10821",
        "two products into one accumulator are wrong",
        ("gfx950", "gfx1201"),
        two_at_once,
    ),
    Suspect(
        "normed",
        "pytorch/pytorch/issues/187401",
        "NaN from bfloat16, silently (gfx950)",
        ("gfx950",),
        normed,
    ),
    Suspect(
        "attention",
        f"{_LLVM}221911",
        "attention is wrong by a choice of scalars that is scheduled (gfx950)",
        ("gfx950",),
        attention,
    ),
    Suspect(
        "sweeps",
        f"{_LLVM}207883",
        "LDS is not read again behind a barrier in a large group (gfx11)",
        ("gfx1100",),
        sweeps,
    ),
    Suspect(
        "assigned",
        f"{_LLVM}198606",
        "structures assigned within an expression of several parts are lost",
        ("gfx942",),
        assigned,
    ),
    Suspect(
        "joined",
        f"{_LLVM}198613",
        "unions within structures are assigned wrongly",
        ("gfx942",),
        joined,
    ),
    Suspect(
        "returned",
        f"{_LLVM}198603",
        "unions that functions return lose a part",
        ("gfx942",),
        returned,
    ),
    Suspect(
        "numbered",
        f"{_LLVM}59358",
        "v_mad_u64_u32 writes into its own sources (gfx1100)",
        ("gfx1100",),
        numbered,
    ),
    Suspect(
        "nested", f"{_LLVM}109391", "a loop within a loop is skipped (gfx11)", ("gfx1100",), nested
    ),
    Suspect(
        "quantised",
        "ggml-org/llama.cpp/issues/28211",
        "logits are wrong (gfx1150, gfx1151)",
        why="no model of gfx1151; it has been traced to one predicate of host code",
        judged=OUT,
    ),
    Suspect(
        "garbled",
        "ggml-org/llama.cpp/issues/12527",
        "text is garbled (gfx1201)",
        why="hipBLASLt's own kernels, which are not compiled from source here",
        judged=OUT,
    ),
    Suspect(
        "latent",
        "ROCm/vllm/pull/902",
        "NaN from a persistent kernel for 32 heads and more (gfx950)",
        why="a kernel that is published as an object alone, of hand-written assembly",
        judged=OUT,
    ),
    Suspect(
        "overtaken",
        f"{_LLVM}222932",
        "an operand of WMMA is overwritten too early (gfx1250)",
        why="no model of gfx1250, and none of required idle states there",
        judged=OUT,
    ),
)


def judgeable() -> Iterator[tuple[Suspect, str]]:
    for suspect in SUSPECTS:
        for arch in suspect.chips:
            yield suspect, arch


def page(compilers: str) -> str:
    rows = []
    for s in SUSPECTS:
        verdict = f"{s.judged}: {s.why}" if s.why else s.judged
        link = f"[{s.report}]({_GITHUB}{s.report})"
        rows.append(f"| {s.said} | {link} | {' '.join(s.chips) or 'none'} | {verdict} |")
    head = (FOLDER / "page.md").read_text(encoding="utf-8")
    return head.replace("{compilers}", compilers) + "\n".join(rows) + "\n"


COMPILERS = "Triton 3.9.0 and clang 22"


def main() -> int:
    different = 0
    for suspect, arch in judgeable():
        assert suspect.judge is not None
        said = suspect.judge(arch)
        judged = CONFIRMED if said else DISMISSED
        sys.stdout.write(f"{suspect.name} {arch}: {judged} {said}\n")
        different += judged != suspect.judged
    PAGE.write_text(page(COMPILERS), encoding="utf-8")
    return different


if __name__ == "__main__":
    sys.exit(main())

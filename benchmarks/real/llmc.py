"""llm.c's dev/cuda: each program compares each of its kernels with its own CPU function.

The files run as they are, but for constants of main(): problem sizes, and the number of repeats of
the timing loop, which is 0. Where a kernel exists for float32 only, the program's switch for
bfloat16 is off.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from portkern.errors import BuildError
from portkern.simt.execute import build, runtime_library
from portkern.simt.execute.options import Mode
from real.report import Collection, Entry
from real.running import Result, commit, in_parallel, run, settings

Sizes = Mapping[str, int | str]


@dataclass(frozen=True)
class Program:
    """``fast``, ``check`` and ``odd`` replace main()'s constants; the first two keep to what the
    launchers ask for (whole blocks, whole vectors), ``odd`` does not. ``units`` is the number of
    multiprocessors where H100's is too many for the program."""

    file: str
    kernels: tuple[int, ...]
    fast: Sizes = field(default_factory=dict)
    check: Sizes = field(default_factory=dict)
    odd: Sizes = field(default_factory=dict)
    float32: bool = False
    units: int = 132
    checked_units: int = 0  # where a device full of blocks takes long to check; 0: as `units`
    note: str = ""
    absent: bool = False  # it needs a library that is not modelled

    @property
    def key(self) -> str:
        return f"{self.file}-{'-'.join(map(str, self.kernels))}"

    def sizes(self, mode: str) -> Sizes:
        return {"fast": self.fast, "check": self.check or self.fast, "odd": self.odd}[mode]


_TOKENS = {"B": 2, "T": 512, "C": 64}
_FEW = {"B": 2, "T": 16, "C": 64}
_UNEVEN = {"B": 3, "T": 11, "C": 64}

PROGRAMS = (
    Program("adamw", (1, 2), {"num_parameters": 65536}, {"num_parameters": 4096},
            {"num_parameters": 1001}),
    Program("attention_backward", (1, 2, 3, 4, 5, 6, 7, 8), {"B": 1, "T": 256, "C": 64, "NH": 2},
            {"B": 1, "T": 256, "C": 16, "NH": 1}, {"B": 1, "T": 75, "C": 16, "NH": 1}),
    Program("attention_forward", (1, 2, 3, 4, 5, 6), {"B": 2, "T": 64, "C": 96, "NH": 2},
            {"B": 1, "T": 64, "C": 64, "NH": 1}, {"B": 1, "T": 50, "C": 72, "NH": 2}),
    Program("attention_forward", (10,), note="calls cuDNN, which has no model", absent=True),
    Program("classifier_fused", (1, 2, 3, 4, 5), {"B": 2, "T": 32, "V": 1537},
            {"B": 1, "T": 32, "V": 1537}, {"B": 1, "T": 9, "V": 77}),
    Program("crossentropy_forward", (1,), {"B": 4, "T": 256, "V": 513},
            {"B": 2, "T": 16, "V": 65}, {"B": 3, "T": 11, "V": 17}),
    Program("crossentropy_softmax_backward", (1,), {"B": 2, "T": 16, "V": 1025},
            {"B": 2, "T": 4, "V": 257}, {"B": 3, "T": 3, "V": 17}),
    Program("encoder_backward", (1, 2), {"B": 2, "T": 64, "C": 96, "V": 257},
            {"B": 2, "T": 8, "C": 64, "V": 65}, {"B": 3, "T": 5, "C": 50, "V": 17}),
    Program("encoder_forward", (1, 2, 3), {"B": 2, "T": 256, "C": 96, "V": 257},
            {"B": 2, "T": 16, "C": 64, "V": 65}, {"B": 3, "T": 5, "C": 56, "V": 17}),
    Program("fused_residual_forward", (1, 2, 3, 4, 5, 6), {"B": 2, "T": 512, "C": 256},
            {"B": 1, "T": 1024, "C": 256}, {"B": 1, "T": 19, "C": 256}),
    Program("gelu_backward", (1, 2), _TOKENS, _FEW, _UNEVEN),
    Program("gelu_forward", (1, 2), _TOKENS, _FEW, _UNEVEN),
    Program("global_norm", (1, 2, 3), {"C": 96, "L": 2}, {"C": 16, "L": 2}, {"C": 13, "L": 1},
            units=16),
    Program("global_norm", (4,), {"C": 96, "L": 2}, {"C": 16, "L": 2}, {"C": 13, "L": 1},
            units=16, note="on 16 multiprocessors: asserts on 64 or more of 2048 threads"),
    Program("layernorm_backward", (1,), {"B": 2, "T": 32, "C": 512}, {"B": 1, "T": 32, "C": 1600},
            {"B": 3, "T": 5, "C": 104}, float32=True, note="in float32, which alone it is for"),
    Program("layernorm_backward", (2, 3, 4, 5, 6, 7, 10), {"B": 2, "T": 32, "C": 512},
            {"B": 1, "T": 32, "C": 1600}, {"B": 3, "T": 5, "C": 104}, checked_units=16),
    Program("layernorm_backward", (8, 9), {"B": 2, "T": 32, "C": 512}, {"B": 1, "T": 32, "C": 512},
            {"B": 1, "T": 32, "C": 1600}, checked_units=16,
            note="at C = 512: wrong or refused at the program's own C of 1600"),
    Program("layernorm_forward", (1, 2, 3, 4, 5, 6), {"B": 2, "T": 512, "C": 128},
            {"B": 2, "T": 16, "C": 128}, {"B": 3, "T": 5, "C": 100}),
    Program("matmul_backward", (1,), {"B": 2, "T": 64, "C": 64, "OC": 256},
            {"B": 2, "T": 8, "C": 16, "OC": 64}, {"B": 3, "T": 5, "C": 13, "OC": 50}),
    Program("matmul_backward_bias", (1, 2, 3, 4, 7, 8), {"B": 2, "T": 64, "C": 64, "OC": 3072},
            {"B": 2, "T": 16, "C": 64, "OC": 768}, {"B": 3, "T": 5, "C": 64, "OC": 72}),
    Program("matmul_backward_bias", (5,), {"B": 2, "T": 64, "C": 64, "OC": 512},
            {"B": 2, "T": 16, "C": 64, "OC": 512}, {"B": 3, "T": 5, "C": 64, "OC": 72},
            float32=True, note="in float32, which alone it is for"),
    Program("matmul_backward_bias", (9,), {"B": 2, "T": 64, "C": 64, "OC": 3072},
            {"B": 2, "T": 16, "C": 64, "OC": 3072}, {"B": 3, "T": 5, "C": 64, "OC": 72},
            units=16, note="on 16 multiprocessors: its buffer is too small for H100's 132"),
    Program("matmul_forward", (1, 2, 3, 4), {"B": 1, "T": 256, "C": 64, "OC": 256},
            {"B": 1, "T": 128, "C": 32, "OC": 128}, {"B": 1, "T": 100, "C": 32, "OC": 100}),
    Program("nccl_all_reduce", (0,), note="calls NCCL and MPI, which have no model",
            absent=True),
    Program("permute", (0,), {}, {"dim_1": 5, "dim_2": 6, "dim_3": 7, "dim_4": 8},
            {"dim_1": 5, "dim_2": 3, "dim_3": 7, "dim_4": 9}),
    Program("residual_forward", (1, 2), _TOKENS, _FEW, _UNEVEN),
    Program("softmax_forward", (1, 2, 3, 4, 5, 6, 7, 8), {"B": 4, "T": 32, "V": 1537},
            {"B": 1, "T": 32, "V": 1537}, {"B": 1, "T": 9, "V": 77}),
    Program("trimat_forward", (0, 1, 2, 3, 4), {"B": 1, "T": 256, "C": 128, "NH": 2},
            {"B": 1, "T": 128, "C": 64, "NH": 2}, {"B": 1, "T": 100, "C": 48, "NH": 1}),
)  # fmt: skip


@dataclass
class Variant:
    """One kernel of one program, with its results by how it was run."""

    program: Program
    kernel: int
    results: dict[str, Result] = field(default_factory=dict)


def run_all(checkout: Path, work: Path) -> Collection:
    """The suite (built and run at width 32, as timed), then checked, at odd sizes, at width 64."""
    source = checkout / "dev/cuda"
    runtime_library.ready().headers("cuda", "fast")  # made once per machine, not once per suite
    variants = [Variant(p, k) for p in PROGRAMS for k in p.kernels]
    start = time.perf_counter()
    programs = _build_all(source, work, "fast")
    built = time.perf_counter()
    _run_all(variants, programs, "fast", "fast", warp=32)
    suite = time.perf_counter()
    _run_all(variants, programs, "warp 64", "fast", warp=64)
    for name, mode in (("check", "check"), ("odd", "odd")):
        _run_all(variants, _build_all(source, work, mode), name, "check", warp=32)
    files = {p.file for p in PROGRAMS}
    refused = {f"{p.file}.cu": p.note for p in PROGRAMS if p.absent and not _others(p)}
    return Collection(
        "llm.c", commit(checkout),
        [Entry(f"{v.program.file}.cu", _label(v), v.results, v.program.note) for v in variants],
        refused, len(files),
        {"build_s": round(built - start, 1), "suite_s": round(suite - start, 1)},
    )  # fmt: skip


def _others(program: Program) -> bool:
    return any(p.file == program.file and not p.absent for p in PROGRAMS)


def _label(variant: Variant) -> str:
    return f"kernel {variant.kernel}"


Built = dict[str, Path | str]


def _build_all(source: Path, work: Path, sizes: str) -> Built:
    def one(program: Program) -> Path | str:
        if program.absent:
            return program.note
        return _build(program, source, work / sizes / program.key, sizes)

    return dict(zip((p.key for p in PROGRAMS), in_parallel(one, PROGRAMS), strict=True))


def _build(program: Program, source: Path, folder: Path, sizes: str) -> Path | str:
    """The executable, or why there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{program.file}.cu"
    text = (source / name).read_text(encoding="utf-8")
    (folder / name).write_text(resized(text, program.sizes(sizes), program.float32))
    (folder / "common.h").write_text((source / "common.h").read_text(encoding="utf-8"))
    mode: Mode = "fast" if sizes == "fast" else "check"
    try:
        return build.build_program(
            folder / name, folder / "program", build.CompileOptions(mode=mode)
        )
    except BuildError as error:
        lines = [line for line in error.log.splitlines() if "error" in line]
        return "; ".join([str(error), *lines[:1]])


def resized(text: str, sizes: Sizes, float32: bool) -> str:
    """Only main()'s constants change, and the switch for bfloat16; lines stay where they are."""
    at = text.index("int main")
    head, main = text[:at], text[at:]
    for name, value in sizes.items():
        pattern = rf"(\b(?:int|long|size_t|int64_t) {name} = )[^;]+;"
        main, found = re.subn(pattern, rf"\g<1>{value};", main, count=1)
        if found != 1:
            raise ValueError(f"main() has no constant {name!r}")
    main = re.sub(r"(\bint repeat_times = )\d+;", r"\g<1>0;", main)
    if float32:
        head = head.replace("#define ENABLE_BF16", "//", 1)
    return head + main


def _run_all(variants: list[Variant], built: Built, name: str, mode: str, *, warp: int) -> None:
    def one(variant: Variant) -> Result:
        program = built[variant.program.key]
        if isinstance(program, str):
            return Result("no model" if variant.program.absent else "no build", log=program)
        described = variant.program
        units = described.checked_units if mode == "check" else 0
        chosen = settings(mode, warp=warp, units=units or described.units)
        status, output, findings, seconds = run(
            [str(program), str(variant.kernel)], chosen, cwd=program.parent, root=program.parent
        )
        return Result(_verdict(status, output), round(seconds, 2), findings, _tail(output))

    for variant, result in zip(variants, in_parallel(one, variants), strict=True):
        variant.results[name] = result


def _verdict(status: int | None, output: str) -> str:
    if status is None:
        return "out of time"
    if "[CUDA ERROR]" in output:
        return output.partition("[CUDA ERROR]")[2].splitlines()[1].strip()
    if status == 0 and re.search("[Aa]ll results match", output):
        return "match"
    if "Invalid kernel number" in output:
        return "not in this build"
    if "Mismatch" in output:
        return "mismatch"
    if "Assertion" in output:
        return "its own assertion"
    return f"status {status}"


def _tail(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-3:])

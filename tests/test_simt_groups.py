"""Warp intrinsics, atomics, cooperative groups and cub of the SIMT executor, as programs that check
themselves (``tests/simt/groups``). What they expect of CUDA was also met on an H200."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from portkern.errors import BuildError
from portkern.simt.execute import runtime_library
from portkern.simt.execute.build import CompileOptions, build_program
from portkern.simt.execute.machine import Language
from portkern.simt.execute.options import ExecutorOptions, Mode, Order, checkers
from portkern.simt.execute.program import ProgramOutcome, run

pytestmark = pytest.mark.skipif(
    not isinstance(runtime_library.find(), runtime_library.Toolbox),
    reason=str(runtime_library.find()),
)

PROGRAMS = Path(__file__).parent / "simt" / "groups"
RIGHT = sorted(p.name for p in PROGRAMS.glob("*.cu") if p.stem != "misuse") + sorted(
    p.name for p in PROGRAMS.glob("*.hip")
)
SCHEDULES: tuple[tuple[Order, int], ...] = (("forward", 1), ("random", 2), ("priority", 3))

Build = Callable[[str, Mode], Path]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Each program built once, by its file name and mode."""
    folder = tmp_path_factory.mktemp("groups")
    done: dict[tuple[str, Mode], Path] = {}

    def build(name: str, mode: Mode) -> Path:
        if (name, mode) not in done:
            out = folder / f"{name.replace('.', '-')}-{mode}"
            done[name, mode] = build_program(PROGRAMS / name, out, CompileOptions(mode=mode))
        return done[name, mode]

    return build


def language(name: str) -> Language:
    return "hip" if name.endswith(".hip") else "cuda"


@pytest.mark.sampled("name")
@pytest.mark.parametrize("warp", [32, 64])
@pytest.mark.parametrize("name", RIGHT)
def test_results_are_the_devices_in_every_order(name: str, warp: int, built: Build) -> None:
    for order, seed in SCHEDULES:
        how = ExecutorOptions(order=order, seed=seed, workers=2, widen=True)
        outcome = run(built(name, "fast"), how, language=language(name), warp=warp)
        assert (outcome.status, outcome.output.strip()) == (0, "ok"), (order, outcome)
        assert not outcome.findings, order


@pytest.mark.sampled()
@pytest.mark.parametrize("warp", [32, 64])
@pytest.mark.parametrize("name", RIGHT)
def test_checkers_find_nothing_in_correct_programs(name: str, warp: int, built: Build) -> None:
    how = ExecutorOptions(widen=True).checked(checkers(["all"]))
    outcome = run(built(name, "check"), how, language=language(name), warp=warp)
    assert (outcome.status, outcome.output.strip()) == (0, "ok"), outcome
    assert not outcome.findings


def misuse(kernel: str, warp: int, built: Build) -> ProgramOutcome:
    how = ExecutorOptions().checked(checkers(["all"]))
    return run(built("misuse.cu", "check"), how, warp=warp, arguments=[kernel])


@pytest.mark.parametrize(
    ("kernel", "warp", "code"),
    [
        ("shuffle_beyond_the_block", 32, "SX306"),
        ("shuffle_from_outside_the_mask", 32, "SX306"),
        ("shuffle_from_outside_the_mask", 64, "SX306"),
        ("odd_width", 32, "SX307"),
        ("not_in_its_mask", 32, "SX304"),
        ("thirty_two_lanes", 64, "SX310"),
        ("reduce_part_of_a_tile", 32, "SX306"),
        ("tile_of_two_warps", 32, "SX409"),
        ("uneven_partition", 32, "SX307"),
        ("rank_beyond_the_group", 64, "SX306"),
        ("trap", 32, "SX408"),
        ("reduce_again_without_barrier", 32, "SX201"),
        ("scan_again_without_barrier", 32, "SX201"),
        ("exchange_again_without_barrier", 64, "SX201"),
        ("histogram_read_too_early", 64, "SX201"),
        ("block_scope_between_blocks", 32, "SX206"),
    ],
)
def test_misuse_is_reported_at_the_callers_line(
    kernel: str, warp: int, code: str, built: Build
) -> None:
    outcome = misuse(kernel, warp, built)
    assert code in outcome.codes
    found = next(finding for finding in outcome.findings if finding.code == code)
    lines = (PROGRAMS / "misuse.cu").read_text(encoding="utf-8").splitlines()
    begin = next(i for i, line in enumerate(lines, 1) if f"void {kernel}(" in line)
    if code not in ("SX201", "SX206"):  # races are where the memory is touched: in the library
        assert found.file.endswith("misuse.cu")
        assert begin <= found.line < begin + 8


def test_masks_and_tiles_that_fit_the_warp_are_silent(built: Build) -> None:
    assert not misuse("thirty_two_lanes", 32, built).findings
    assert not misuse("tile_of_two_warps", 64, built).findings


def test_only_the_first_thread_has_a_block_reductions_result(built: Build) -> None:
    sums = misuse("result_beside_thread_0", 32, built).output.split()
    assert sums[0] == "48"
    assert "48" not in sums[1:]


def test_a_lane_that_takes_no_part_gives_all_ones(built: Build) -> None:
    values = misuse("shuffle_from_outside_the_mask", 32, built).output.split()
    assert values[:9] == ["-1"] * 8 + ["0"]


@pytest.mark.parametrize(
    ("spoken", "statement"),
    [
        ("cuda", "struct Pair { int a; } v = {1}; __shfl_sync(~0u, v, 0)"),
        ("cuda", "__shfl(1, 0)"),
        ("cuda", "size_t n = 0; atomicAdd(&n, (size_t)1)"),
        ("cuda", "float x = 0; atomicMax(&x, 1.0f)"),
        ("cuda", "double x = 0; atomicAdd((float*)&x, &x)"),
        (
            "cuda",
            "cooperative_groups::tiled_partition<24>(cooperative_groups::this_thread_block())",
        ),
        ("hip", "__shfl_sync(0xffffffff, 1, 0)"),
        ("hip", "__ballot_sync(~0u, 1)"),
        ("hip", "int x = 1; __ldcg(&x)"),
    ],
)
def test_what_the_vendors_headers_lack_does_not_compile(
    spoken: Language, statement: str, tmp_path: Path
) -> None:
    header = "hip/hip_cooperative_groups.h" if spoken == "hip" else "cooperative_groups.h"
    source = tmp_path / f"lacks.{'hip' if spoken == 'hip' else 'cu'}"
    source.write_text(
        f"#include <{header}>\n__global__ void k() {{ {statement}; }}\nint main() {{}}\n"
    )
    with pytest.raises(BuildError):
        build_program(source, tmp_path / "lacks")

"""Triton kernels are compiled for AMD targets over their configurations, in the jail."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import sys
import time
from pathlib import Path, PurePosixPath

import pytest

from portkern.errors import WorkerError
from portkern.port import triton_proof
from portkern.port.library import read
from portkern.port.proof import Outcome
from portkern.port.triton_case import SIZE, TritonCase, launches
from portkern.port.triton_infer import infer
from portkern.port.triton_library import (
    TritonOutcome,
    TritonResult,
    compile_all,
    ported,
    refused,
)
from portkern.port.triton_source import TritonConfig, kernels
from portkern.spec import registry, target
from portkern.spec.backend import Missing

HEAD = "import triton\nimport triton.language as tl\n"
SOFTMAX = f"""{HEAD}
MODE_FAST: tl.constexpr = tl.constexpr(3)

@triton.jit
def exponential(x):
    return tl.exp(x)

@triton.autotune(
    configs=[triton.Config({{"BLOCK": b}}, num_warps=w) for b in [256, 512] for w in [4, 32]],
    key=["n"])
@triton.jit
def softmax(out_ptr, in_ptr, stride, n, scale, mode: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    start = in_ptr + row * stride
    x = tl.load(start + columns, mask=columns < n, other=-float("inf"))
    if mode == MODE_FAST:
        x = x * scale
    e = exponential(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * stride + columns, e / tl.sum(e, axis=0), mask=columns < n)
"""
MATMUL = f"""{HEAD}
@triton.autotune(configs=[triton.Config({{"BM": 16, "BN": 16, "BK": 1024}}, num_warps=8,
                                        num_stages=4)], key=[])
@triton.jit
def matmul(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + i + k[None, :])
        y = tl.load(b + (i + k[:, None]) * BN + n[None, :])
        acc += tl.dot(x, y)
    tl.store(c + m[:, None] * BN + n[None, :], acc)
"""


def compiled(root: Path, text: str, *targets: str) -> list[TritonResult]:
    """The results with Triton and in a jail; skips with the reason where one is missing."""
    (root / "kernels.py").write_text(text)
    probe = registry.load("triton").probe(target.load("gfx942"))
    if isinstance(probe, Missing):
        pytest.skip(str(probe))
    try:
        return list(compile_all(read(root), [target.load(name) for name in targets]))
    except WorkerError as error:
        pytest.skip(str(error))


def test_what_a_parameter_is_follows_from_its_use() -> None:
    known = infer(SOFTMAX)["softmax"]
    assert known.signature == {
        "out_ptr": "*fp32",
        "in_ptr": "*fp32",
        "stride": "i32",
        "n": "i32",
        "scale": "fp32",
    }
    assert known.constants["mode"] == 3
    assert any("scale" in assumption for assumption in known.assumed)


@pytest.mark.parametrize(
    ("body", "signature"),
    [
        ("tl.store(y + i, tl.load(x + i))", {"x": "*fp32", "y": "*fp32", "i": "i32"}),
        ("x += i * 4\n    tl.store(y, tl.load(x))", {"x": "*fp32", "y": "*fp32", "i": "i32"}),
        (
            "p = x + i\n    q = p + 4\n    tl.atomic_add(q, y)",
            {"x": "*fp32", "y": "i32", "i": "i32"},
        ),
        ("helper(x, i)", {"x": "*fp32", "y": "i32", "i": "i32"}),
    ],
)
def test_addresses_are_followed_to_the_parameter(body: str, signature: dict[str, str]) -> None:
    text = f"def helper(a, b):\n    tl.store(a + b, 1)\ndef k(x, y, i):\n    {body}\n"
    assert infer(text)["k"].signature == signature


@pytest.mark.parametrize(
    ("knobs", "arch", "words"),
    [
        ({"num_warps": 32}, "gfx942", "at most num_warps=16"),
        ({"num_warps": 32}, "gfx1100", ""),
        ({"num_warps": 16}, "gfx942", ""),
        ({"num_warps": 3}, "gfx942", "power of two"),
        ({"num_ctas": 2}, "gfx942", "clusters"),
        ({"num_stages": 0}, "gfx942", "num_stages"),
        ({}, "sm_90", "not AMD's"),
    ],
)
def test_knobs_that_no_launch_can_have_are_refused_by_data(
    knobs: dict[str, int], arch: str, words: str
) -> None:
    reason = refused(TritonConfig({}, knobs), target.load(arch))
    assert bool(reason) == bool(words)
    assert words in reason


@pytest.mark.full
def test_a_kernel_is_compiled_over_its_configurations_for_each_target(tmp_path: Path) -> None:
    results = compiled(tmp_path, SOFTMAX, "gfx942", "gfx1100")
    softmax = {
        (r.target, r.config.values["BLOCK"], r.config.knobs["num_warps"]): r
        for r in results
        if r.kernel == "softmax"
    }
    # Those with 16 warps stand for those with 32 on gfx942.
    assert len(softmax) == 10
    assert {k for k, r in softmax.items() if r.outcome is TritonOutcome.REFUSED} == {
        ("gfx942", 256, 32),
        ("gfx942", 512, 32),
    }
    for result in softmax.values():
        if result.outcome is TritonOutcome.REFUSED:
            continue
        assert result.outcome is TritonOutcome.COMPILED, result.why
        assert result.resources is not None
        assert result.resources.vgprs > 0
    assert {r.outcome for r in results if r.kernel == "exponential"} == {TritonOutcome.HELPER}


@pytest.mark.full
def test_what_fails_is_reported_and_the_rest_goes_on(tmp_path: Path) -> None:
    text = f"""{HEAD}
@triton.jit
def bad(x):
    tl.store(x, undefined_name)
@triton.jit
def good(x):
    tl.store(x, 1.0)
"""
    ends = f"{HEAD}import os\nos.kill(os.getpid(), 11)\n@triton.jit\ndef crashes(x):\n    pass\n"
    (tmp_path / "a_process_that_ends.py").write_text(ends)
    long = f"{HEAD}print('x' * 5_000_000)\n@triton.jit\ndef told(x):\n    pass\n"
    (tmp_path / "a_text_without_an_end.py").write_text(long)
    results = {r.kernel: r for r in compiled(tmp_path, text, "gfx942")}
    assert results["bad"].outcome is TritonOutcome.FAILED
    assert "undefined_name" in results["bad"].why
    assert results["crashes"].outcome is TritonOutcome.FAILED
    assert "crashed" in results["crashes"].why
    assert results["told"].why == "its answer is more than a process can tell"
    assert results["good"].outcome is TritonOutcome.COMPILED


@pytest.mark.full
def test_the_library_runs_in_the_jail_alone(tmp_path: Path) -> None:
    text = f"""{HEAD}
import os, pathlib
pathlib.Path({str(tmp_path / "escaped")!r}).write_text("x")
@triton.jit
def k(x):
    tl.store(x, 1.0)
"""
    (result,) = compiled(tmp_path, text, "gfx942")
    assert result.outcome is TritonOutcome.UNKNOWN
    assert result.why.startswith("the library cannot be imported: ImportError: ")
    assert result.why.endswith(" (kernels.py, line 5)")
    assert not (tmp_path / "escaped").exists()


@pytest.mark.full
def test_lds_beyond_the_block_limit_is_refused(tmp_path: Path) -> None:
    (result,) = compiled(tmp_path, MATMUL, "gfx942")
    assert result.outcome in (TritonOutcome.REFUSED, TritonOutcome.FAILED)
    assert "LDS" in result.why or "shared memory" in result.why or "resource" in result.why


@pytest.mark.parametrize(
    ("arch", "knobs"), [("gfx942", [{"num_warps": 16, "num_ctas": 1}]), ("gfx1100", [])]
)
def test_knobs_that_no_launch_can_have_become_the_nearest_that_one_can(
    arch: str, knobs: list[dict[str, int]]
) -> None:
    configs = (TritonConfig({}, {"num_warps": 4}), TritonConfig({}, {"num_warps": 32}))
    if knobs:
        configs = (configs[0], TritonConfig({}, {"num_warps": 32, "num_ctas": 1}))
    assert [config.knobs for config in ported(configs, target.load(arch))] == knobs


def case_of(
    launch: str, parameters: str = "x, n, BLOCK: tl.constexpr", before: str = ""
) -> TritonCase:
    """The case of a kernel that host code launches so."""
    text = f"{before}\ndef k({parameters}):\n    tl.store(x + tl.program_id(0), n)\n"
    text += f"LIMIT = 64\ndef host(x, n, m, b, num_blocks):\n    {launch}\n"
    (only,) = launches(ast.parse(text), "k")
    return only.case(infer(text)["k"])


@pytest.mark.parametrize(
    ("launch", "grid"),
    [
        ("k[(n, 2)](x, n, BLOCK=16)", (SIZE, 2)),
        ("w = 16\n    grid = (triton.cdiv(m, w),)\n    k[grid](x, m, BLOCK=w)", (2,)),
        ("k[lambda meta: (triton.cdiv(m, meta['BLOCK']), 1)](x, m, BLOCK=16)", (2, 1)),
        ("def grid(meta): return (-(-m // meta['BLOCK']),)\n    k[grid](x, m, 16)", (2,)),
        ("k[(x.shape[0],)](x, n, BLOCK=16)", (3,)),
        ("r, c = x.shape\n    k[(r, x.size(-1))](x, c, BLOCK=16)", (3, SIZE)),
        ("k[(triton.cdiv(n, LIMIT),)](x, n, LIMIT)", (1,)),
        ("k[(2,)](x, n, triton.next_power_of_2(n))", (2,)),
    ],
)
def test_the_grid_and_the_constants_are_those_of_the_launch(
    launch: str, grid: tuple[int, ...]
) -> None:
    case = case_of(launch)
    assert (case.grid, case.guesses) == (grid, ())
    assert case.constants["BLOCK"] == (64 if "LIMIT" in launch else 32 if "next" in launch else 16)


@pytest.mark.parametrize(
    ("launch", "guessed"),
    [
        ("pass", ["constexpr BLOCK", "grid of unknown size"]),
        ("k[(num_blocks,)](x, n, BLOCK=16)", ["grid of unknown size"]),
        ("k[(math.ceil(n / 16),)](x, n, BLOCK=16)", ["grid of unknown size"]),
        ("k[(cdiv(n, b), *x.shape)](x, n, BLOCK=b)", ["constexpr BLOCK", "grid of unknown size"]),
        ("k[(n,)](x, n, BLOCK=b)", ["constexpr BLOCK"]),
        ("k[(n,)](x, n, BLOCK=choose(n))", ["constexpr BLOCK"]),
        ("b = 16\n    if n > 9: b = 32\n    k[(n,)](x, n, BLOCK=b)", ["constexpr BLOCK"]),
        ("k[(n,)](x, n, **options)", ["constexpr BLOCK"]),
        ("k[(n,)](x, choose(n), 16)", ["value of n", "grid of unknown size"]),
        ("k[(2048,)](x, n, BLOCK=16)", ["grid of 2048 programs"]),
    ],
)
def test_what_is_assumed_of_a_launch_is_a_guess(launch: str, guessed: list[str]) -> None:
    names = [guess.what for guess in case_of(launch).guesses]
    assert names == guessed


@pytest.mark.parametrize(
    ("before", "launch"),
    [
        ("try:\n    from .tuned import B\nexcept ImportError:\n    B = 64", ""),
        ("if m:\n    import B\nelse:\n    B = 64", ""),
        ("B = 64\nfrom .tuned import *", ""),
        ("B = 64\ndef configure(b):\n    global B\n    B = b", ""),
        ("B = 64\nglobals()['B'] = 32", ""),
        ("", "B = 64\n    match b:\n        case {'b': B}: pass"),
        ("", "B = 64\n    try: pass\n    except ValueError as B: pass"),
        ("", "B = 64\n    def choose():\n        nonlocal B\n        B = 32"),
        ("", "B = [16]\n    B[0] = 32\n    B = B[0]"),
    ],
)
def test_a_name_of_several_values_has_none(before: str, launch: str) -> None:
    case = case_of(f"{launch or 'pass'}\n    k[(4,)](x, n, BLOCK=B)", before=before)
    assert [guess.what for guess in case.guesses] == ["constexpr BLOCK"]


@pytest.mark.parametrize(
    ("before", "launch", "block"),
    [
        ("B = 16", "def other():\n        B = 32", 16),
        ("N = 16\nB = 2 * N", "N = m", 32),
        ("B = 16", "if n: B = 8", 8),
    ],
)
def test_a_name_is_that_of_the_nearest_scope(before: str, launch: str, block: int) -> None:
    case = case_of(f"{launch}\n    k[(4,)](x, n, BLOCK=B)", before=before)
    assert (case.constants, case.guesses) == ({"BLOCK": block}, ())


@pytest.mark.parametrize(
    "grid",
    [
        "num_ctas",
        "workers",
        "self.num_ctas",
        "m",  # which neither the kernel is given nor a tensor says
        "table.max(16)",
        "b['BLOCK']",
        "2 ** m",
        "*x.shape",
        "(*x.shape, 4)[1]",
        "cdiv(n, 16)",  # which is not what its name says, here
    ],
)
def test_a_grid_is_made_of_sizes_and_of_what_the_kernel_is_given(grid: str) -> None:
    before = "def cdiv(a, b):\n    return a // b"
    (guess,) = case_of(f"k[({grid},)](x, n, BLOCK=16)", before=before).guesses
    assert guess.what == "grid of unknown size"


def test_a_library_may_have_its_own_name_of_what_divides_up() -> None:
    before = "def cdiv(a, b):\n    return (a + b - 1) // b"
    case = case_of("k[(cdiv(n, 16),)](x, n, BLOCK=16)", before=before)
    assert (case.grid, case.guesses) == ((2,), ())


@pytest.mark.parametrize(
    ("before", "grid"),
    [("@chooses_block", "(n,)"), ("", "lambda n, m=2: (n,)"), ("", "lambda n: (n,)")],
)
def test_what_takes_part_in_a_launch_and_is_not_read_is_a_guess(before: str, grid: str) -> None:
    assert len(case_of(f"k[{grid}](x, n, BLOCK=16)", before=before).guesses) == 1


@pytest.mark.parametrize("change", ["grid[1] = 8", "grid.append(2)", "fill(grid)", "also = grid"])
def test_a_list_that_may_be_changed_is_not_known(change: str) -> None:
    (guess,) = case_of(f"grid = [n, 2]\n    {change}\n    k[grid](x, n, BLOCK=16)").guesses
    assert guess.what == "grid of unknown size"


@pytest.mark.parametrize(
    ("given", "half"),
    [
        ("n", 8),
        ("n, -3", -3),
        ("n, n >> 1", SIZE // 2),
        ("n, (n + 63) & ~63", 64),
        ("n, n if n > 100 else 1", 1),
        ("n, n ** 2", SIZE**2),
    ],
)
def test_numbers_of_a_kernel_are_those_of_the_launch(given: str, half: int) -> None:
    case = case_of(f"k[(4,)](x, {given})", "x, n, half=8, BLOCK: tl.constexpr = 16")
    assert (case.scalars["half"], case.guesses) == (half, ())


@pytest.mark.parametrize("given", ["n, choose(n)", "n, 1 << n ** 9", "n, *b", "n, **b"])
def test_a_number_that_the_launch_does_not_say_is_a_guess(given: str) -> None:
    case = case_of(f"k[(4,)](x, {given})", "x, n, half=8, BLOCK: tl.constexpr = 16")
    assert case.guesses[0].what == "value of half"


@pytest.mark.parametrize(
    "given",
    [
        "n",
        "m",
        "m.item()",
        "n <= 1024",
        "n % 16 == 0",
        "1 if x.shape[0] > 4 else 2",
        "min(n, 3)",
        "x.dim()",
    ],
)
def test_a_constant_that_data_choose_is_a_guess(given: str) -> None:
    (guess,) = case_of(f"k[(4,)](x, n, MODE={given})", "x, n, MODE: tl.constexpr").guesses
    assert guess.what == "constexpr MODE"


@pytest.mark.parametrize(
    "launch",
    [
        "f = k; f[(4,)](x, n, BLOCK=32)",
        "g = k[(4,)]; g(x, n, BLOCK=32)",
        "k.run(x, n, grid=(4,), BLOCK=32)",
        "wrap_triton(k)[(4,)](x, n, BLOCK=32)",
        "getattr(m, 'k')[(4,)](x, n, BLOCK=32)",
        "globals()['k'][(4,)](x, n, BLOCK=32)",
    ],
)
def test_a_launch_that_is_not_read_is_a_guess(launch: str) -> None:
    case = case_of(f"k[(n,)](x, n, BLOCK=16); {launch}")
    assert [guess.what for guess in case.guesses] == ["launches that are not read"]


def test_names_and_decorators_of_a_kernel_launch_nothing() -> None:
    case = case_of(
        "k[(n,)](x, n, BLOCK=16); print(k.__name__); m.k(n)", before="@rows.k\ndef f(): 0"
    )
    assert case.guesses == ()


@pytest.mark.parametrize(
    "block",
    ["1" + "+1" * 300, "9" * 900, "9" * 900 + "*" + "9" * 900, str(1 << 64), "-" * 900 + "1"],
)
def test_a_text_that_only_an_attacker_writes_ends_no_run(tmp_path: Path, block: str) -> None:
    text = "@triton.jit\ndef k(x, n, BLOCK: tl.constexpr):\n    tl.store(x, n)\n"
    text += f"def host(x, n):\n    k[(n,)](x, n, BLOCK={block})\n"
    (tmp_path / "k.py").write_text(HEAD + text)
    library = read(tmp_path)
    cdna = target.load("gfx942")
    proved = triton_proof.prove(library, [cdna], library.triton, [], timeout_s=0)
    (line,) = proved.values()
    assert line.outcome == Outcome.UNPROVEN
    assert line.why


def test_a_long_list_is_not_read_for_each_use() -> None:
    numbers = ", ".join(map(str, range(20_000)))
    before = f"ROWS = [{numbers}]"
    began = time.process_time()
    case = case_of("k[(ROWS[1], ROWS[2], ROWS[3])](x, ROWS[4], BLOCK=ROWS[5])", before=before)
    assert time.process_time() - began < 5
    assert len(case.guesses) == 3


def test_a_default_is_a_constant_where_the_launch_gives_none() -> None:
    parameters = "x, n, BLOCK: tl.constexpr = 128, FLAG: tl.constexpr = None"
    case = case_of("k[(n,)](x, n)", parameters)
    assert case.constants == {"BLOCK": 128, "FLAG": None}
    assert case.guesses == ()


def test_rows_of_made_up_tensors_do_not_overlap() -> None:
    text = """def k(x, stride_xm, stride_xn, y, y_row_stride, n, d_y_seq_stride, d_y_dim_stride,
    d_x_seq_stride):
    row = tl.program_id(0)
    tl.store(y + row * y_row_stride, tl.load(x + row * stride_xm + n * stride_xn))
"""
    (only,) = launches(ast.parse(text), "k")
    scalars = only.case(infer(text)["k"]).scalars
    assert scalars["stride_xn"] == 1
    assert scalars["stride_xm"] >= SIZE
    assert scalars["y_row_stride"] >= SIZE
    assert scalars["d_y_dim_stride"] == 1  # another tensor's than d_x


PROVABLE = f"""{HEAD}
import torch
from triton.language.extra import libdevice

@triton.jit
def same(x_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    of_number = libdevice.rsqrt(eps.to(tl.float32))
    tl.store(y_ptr + i, libdevice.tanh(x) + of_number + tl.float32(1), mask=i < n)

@triton.jit
def last_wins(y_ptr, n):
    tl.store(y_ptr, tl.program_id(0))

@triton.jit
def far(x_ptr, y_ptr, n):
    tl.store(y_ptr, tl.load(x_ptr + n * 1000000))

@triton.autotune(configs=[triton.Config({{"BLOCK": b}}) for b in (16, 32)], key=[])
@triton.jit
def of_blocks(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n), mask=i < n)

@triton.autotune(configs=[triton.Config({{"BLOCK": b}}) for b in (16, 32)], key=[])
@triton.jit
def of_the_first_block(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

@triton.heuristics({{"less": lambda arguments: torch.version.hip is None}})
@triton.jit
def chosen_by_vendor(x_ptr, y_ptr, n, less: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    if less:
        tl.store(y_ptr + i, x, mask=i < n)
    else:
        tl.store(y_ptr + i, 0.5 * x, mask=i < n)

@triton.jit
def of_no_launch(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

@triton.jit
def of_many(x_ptr, y_ptr):
    tl.store(y_ptr + tl.program_id(0), tl.load(x_ptr + tl.program_id(0)))

@triton.jit
def of_a_mode(x_ptr, y_ptr, MODE: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0))
    tl.store(y_ptr + tl.program_id(0), x if MODE else 2 * x)

@triton.jit
def of_two_launches(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if BLOCK > 32:
        tl.store(y_ptr + tl.program_id(0), tl.program_id(0))
    else:
        tl.store(y_ptr, tl.program_id(0))

def host(x, y, n, mode):
    same[(triton.cdiv(n, 16),)](x, y, n, 1e-5, BLOCK=16)
    last_wins[(4,)](y, n)
    far[(4,)](x, y, n)
    of_blocks[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n)
    of_the_first_block[(1,)](x, y, n)
    chosen_by_vendor[(1,)](x, y, n, BLOCK=32)
    of_many[(5000,)](x, y)
    of_a_mode[(n,)](x, y, mode)
    of_two_launches[(4,)](x, y, n, BLOCK=64)
    of_two_launches[(4,)](x, y, n, BLOCK=32)
"""


@pytest.mark.full
def test_kernels_are_run_in_the_interpreter_as_the_original_and_as_the_port(
    tmp_path: Path,
) -> None:
    (tmp_path / "kernels.py").write_text(PROVABLE)
    probe = registry.load("triton").probe(target.load("gfx942"))
    if isinstance(probe, Missing):
        pytest.skip(str(probe))
    library = read(tmp_path)
    try:
        lines = triton_proof.prove(
            library, [target.load("gfx942")], library.triton, [], timeout_s=300
        )
    except WorkerError as error:
        pytest.skip(str(error))
    names = {(str(kernel.path), kernel.line): kernel.name for kernel in library.triton}
    proofs = {names[place]: line for (place, _), line in lines.items()}
    outcomes = {name: line.outcome for name, line in proofs.items()}
    assert outcomes == {
        "same": Outcome.PROVEN,
        "last_wins": Outcome.UNPROVEN,
        "far": Outcome.UNPROVEN,
        "of_blocks": Outcome.PROVEN,
        "of_the_first_block": Outcome.UNPROVEN,
        "chosen_by_vendor": Outcome.WRONG,
        "of_no_launch": Outcome.UNPROVEN,
        "of_many": Outcome.UNPROVEN,
        "of_a_mode": Outcome.UNPROVEN,
        "of_two_launches": Outcome.UNPROVEN,
    }, {name: line.why for name, line in proofs.items()}
    assert "'y_ptr'[0] is" in proofs["chosen_by_vendor"].why
    assert "the order of its programs" in proofs["last_wins"].why
    assert "outside its buffers" in proofs["far"].why
    assert "its configuration" in proofs["of_the_first_block"].why
    assert "constexpr BLOCK: tried 1024; grid of unknown size" in proofs["of_no_launch"].why
    assert proofs["of_many"].why == "grid of 5000 programs: tried 3"
    assert proofs["of_a_mode"].why == "constexpr MODE: tried True; grid of unknown size: tried 3"
    assert "the order of its programs" in proofs["of_two_launches"].why
    coverage = proofs["same"].coverage
    assert coverage is not None and coverage.lines == coverage.lines_total


def test_a_file_of_a_folder_without_a_package_file_imports_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(sys, "path", list(sys.path))
    functions = importlib.import_module("portkern.backends.triton.library_functions")
    package = tmp_path / "of_kernels"
    (package / "more").mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "numbers.py").write_text("FACTOR = 3\n", encoding="utf-8")
    text = f"{HEAD}from of_kernels.numbers import FACTOR\n\n@triton.jit\ndef k(x): pass\n"
    (package / "more" / "k.py").write_text(text, encoding="utf-8")
    found = functions.function_of(str(package / "more"), {"path": "k.py", "kernel": "k", "line": 5})
    assert found.__module__ == "of_kernels.more.k"


def test_functions_are_found_in_classes_and_in_files_of_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(sys, "path", list(sys.path))
    functions = importlib.import_module("portkern.backends.triton.library_functions")
    method = "    @staticmethod\n    @triton.jit\n    def forward(x): pass\n"
    text = f"{HEAD}class First:\n{method}class Second:\n{method}"
    for folder in ("alone", "other", "of_rows/deep/er"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "k.py").write_text(text, encoding="utf-8")
    (tmp_path / "of_rows" / "__init__.py").write_text("", encoding="utf-8")
    found = [
        functions.function_of(str(tmp_path), {"path": path, "kernel": "forward", "line": line})
        for path in ("alone/k.py", "other/k.py", "of_rows/deep/er/k.py")
        for line in (4, 8)
    ]
    assert [one.fn.__qualname__ for one in found] == ["First.forward", "Second.forward"] * 3
    assert len({one.fn.__code__.co_filename for one in found}) == 3
    assert found[-1].fn.__module__ == "of_rows.deep.er.k"


def test_a_stride_is_a_number_whatever_tensor_it_is_of() -> None:
    text = "def k(p_ptr, p_stride, p_, p_num_cols, n):\n    tl.store(p_ptr + p_stride, n)\n"
    assert infer(text)["k"].signature == {
        "p_ptr": "*fp32",
        "p_stride": "i32",
        "p_": "*fp32",
        "p_num_cols": "i32",
        "n": "i32",
    }


def test_a_library_may_ask_for_a_gpu_and_import_what_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importing = importlib.import_module("portkern.backends.triton.library_import")
    (tmp_path / "asks_for_a_gpu.py").write_text(
        "import torch\n"
        "import absent_layers.inner.torch as layers\n"
        "from absent_layers import rearrange, jit\n"
        "major = torch.cuda.get_device_capability(torch.cuda.current_device())[0]\n"
        "units = torch.cuda.get_device_properties(0).multi_processor_count\n"
        "@jit\ndef kept(): return 7\n"
        "class Layer(layers.Base): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    gfx942 = target.load("gfx942")
    with importing.device(gfx942):
        module = importing.imported(lambda: importlib.import_module("asks_for_a_gpu"), "asks")
    assert (module.major, module.kept(), module.units) == (9, 7, gfx942.multiprocessors or 1)
    with pytest.raises(ModuleNotFoundError):
        importing.imported(lambda: importlib.import_module("asks.lost"), "asks")


def test_a_package_whose_parts_import_each_other_is_imported_without_what_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each module that is absent ends an import in the middle, and the next one begins anew."""
    importing = importlib.import_module("portkern.backends.triton.library_import")
    (tmp_path / "rows" / "ops").mkdir(parents=True)
    for path, text in {
        "__init__.py": "from rows.ops.cap import cap\n",
        "ops/__init__.py": "",
        "ops/cap.py": "from ..settings import LIMIT\ndef cap(): return LIMIT\n",
        "settings.py": "from importlib.metadata import version\n"
        "from absent_models import Config, Layer\n"
        "import absent_rows\n"
        "def settings(config: Config | None = None) -> 'list[Layer]': return []\n"
        "IS_NEW = absent_rows.LIMIT >= 3 or isinstance(7, Config)\n"
        "LIMIT = 7 if IS_NEW else int(version('absent'))\n",
    }.items():
        (tmp_path / "rows" / path).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "version", importlib.metadata.version)
    module = importing.imported(lambda: importlib.import_module("rows.ops.cap"), "rows")
    assert module.cap() == 0
    assert sys.modules["rows"].cap is module.cap
    assert importlib.util.find_spec("absent_rows") is not None


def test_a_function_that_returns_a_value_is_a_part_of_kernels_of_other_files() -> None:
    text = f"{HEAD}@triton.jit\ndef half(x):\n    return x / 2\n"
    text += "@triton.jit\ndef clear(x, n):\n    if n == 0:\n        return\n    tl.store(x, 0)\n"
    assert [k.helper for k in kernels(text, PurePosixPath("a.py"))] == [True, False]

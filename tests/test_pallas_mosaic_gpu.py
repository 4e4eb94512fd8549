"""Pallas for Hopper through Mosaic GPU: what XLA compiles with no GPU here, and what GPU interpret
mode and its checker find."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from portkern import ops
from portkern.cells.selection import RunStage, SelectedCell
from portkern.errors import BuildError, LaunchError
from portkern.records.record import Verdict
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Artifact, Build, Call, Missing, Ready, Venue
from portkern.spec.candidate import Candidate

PALLAS = registry.load("pallas")
H200 = target.load("h200")
LANGUAGE = "pallas-mosaic-gpu"
READY = PALLAS.probe(H200)
pytestmark = pytest.mark.skipif(isinstance(READY, Missing), reason=f"pallas: {READY}")
compiled = pytest.mark.skipif(
    not (isinstance(READY, Ready) and any(name.endswith("-pjrt") for name in READY.toolchain)),
    reason="no compiler of XLA's for CUDA; pip install 'portkern[mosaic]'",
)
ROWS = 32  # of 128 elements

HEAD = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def call(body, grid=(4,), slots=1, barriers=1, arrivals=1):
    def relu(x, *, interpret=False):
        rows = x.reshape(-1, 128)
        memory = plgpu.SMEM((slots, 8, 128), jnp.float32)
        return plgpu.kernel(
            body, out_type=jax.ShapeDtypeStruct(rows.shape, x.dtype), grid=grid,
            grid_names=("i",)[:len(grid)], interpret=interpret,
            scratch_types=[memory, memory, plgpu.Barrier(
                num_arrivals=arrivals, num_barriers=barriers)])(rows).reshape(-1)
    return relu
"""
ONE = """
def body(x_ref, o_ref, x, o, came):
    at = pl.ds(jax.lax.axis_index("i") * 8, 8)
    plgpu.copy_gmem_to_smem(x_ref.at[at], x.at[0], came.at[0])
    plgpu.barrier_wait(came.at[0])
    o[0] = jnp.maximum(x[0], 0)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(o.at[0], o_ref.at[at])
    plgpu.wait_smem_to_gmem(0)
relu = call(body)
"""
TURNS = """
def body(x_ref, o_ref, x, o, came):
    def load(k):
        at = x_ref.at[pl.ds(k * 8, 8)]
        plgpu.copy_gmem_to_smem(at, x.at[k % 2], came.at[k % 2])
    load(0)
    for k in range(4):
        if k < 3:
            load(k + 1)
        plgpu.barrier_wait(came.at[k % 2])
        plgpu.wait_smem_to_gmem(1)
        o[k % 2] = jnp.maximum(x[k % 2], 0)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o.at[k % 2], o_ref.at[pl.ds(k * 8, 8)])
    plgpu.wait_smem_to_gmem(0)
relu = call(body, grid=(), slots=2, barriers=2)
"""
PAIR = """
def body(x_ref, o_ref, x, o, came):
    def at(k):
        return pl.ds(jax.lax.axis_index("i") * 16 + k * 8, 8)
    for k in range(2):
        plgpu.copy_gmem_to_smem(x_ref.at[at(k)], x.at[k], came.at[0])
    plgpu.barrier_wait(came.at[0])
    for k in range(2):
        o[k] = jnp.maximum(x[k], 0)
    plgpu.commit_smem()
    for k in range(2):
        plgpu.copy_smem_to_gmem(o.at[k], o_ref.at[at(k)])
    plgpu.wait_smem_to_gmem(0)
relu = call(body, grid=(2,), slots=2, arrivals=2)
"""
LOOP = """
def body(x_ref, o_ref, x, o, came):
    def load(k):
        plgpu.copy_gmem_to_smem(x_ref.at[pl.ds(k * 8, 8)], x.at[k % 2], came.at[k % 2])
    load(0)
    def step(k, carry):
        @pl.when(k < 3)
        def _ahead():
            load(k + 1)
        slot = jax.lax.rem(k, 2)
        plgpu.barrier_wait(came.at[slot])
        o[0] = jnp.maximum(x[slot], 0)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o.at[0], o_ref.at[pl.ds(k * 8, 8)])
        plgpu.wait_smem_to_gmem(0)
        return carry
    jax.lax.fori_loop(0, 4, step, 0)
relu = call(body, grid=(), slots=2, barriers=2)
"""
HONEST = {
    "one tile at a time": ONE,
    "two slots in turn": TURNS,
    "two copies for a barrier": PAIR,
    "two slots in a loop": LOOP,
    "programs that store the same where they meet": ONE.replace(
        'jax.lax.axis_index("i") * 8', 'jnp.minimum(jax.lax.axis_index("i") * 8, 24)'
    ).replace("call(body)", "call(body, grid=(5,))"),
}
WAIT = "    plgpu.barrier_wait(came.at[0])\n"
COMMIT = "    plgpu.commit_smem()\n"
LEFT = "    plgpu.wait_smem_to_gmem(0)\n"

#: What is said of it, a source with that fault, and the same without it.
SEEDED = {
    "no wait for the copy": ("race", ONE.replace(WAIT, ""), ONE),
    "the wait comes after the use": (
        "race", ONE.replace(WAIT, "").replace(COMMIT, COMMIT + WAIT), ONE
    ),
    "the wait is for the other slot": (
        "waits for ever", TURNS.replace("wait(came.at[k % 2])", "wait(came.at[(k + 1) % 2])")
        .replace("if k < 3:\n            load(k + 1)", "pass"), TURNS
    ),
    "the other slot is read": ("race", LOOP.replace("x[slot]", "x[1 - slot]"), LOOP),
    "a slot is filled again while it is read": (
        "race", TURNS.replace("x.at[k % 2], came", "x.at[0], came").replace("x[k % 2]", "x[0]"),
        TURNS,
    ),
    "a barrier of one arrival for two copies": (
        "completed again", PAIR.replace("arrivals=2", "arrivals=1"), PAIR
    ),
    "a barrier of two arrivals for one copy": (
        "waits for ever", ONE.replace("call(body)", "call(body, arrivals=2)"), ONE
    ),
    "a copy into the same barrier before it was waited for": (
        "completed again", TURNS.replace("came.at[k % 2]", "came.at[0]"), TURNS
    ),
    "what is stored is not committed": ("not-committed", ONE.replace(COMMIT, ""), ONE),
    "it is committed too early": (
        "not-committed",
        PAIR.replace(COMMIT, "").replace("        o[k] =", f"    {COMMIT}        o[k] ="),
        PAIR,
    ),
    "no wait for the copy out": ("race", ONE.replace(LEFT, ""), ONE),
    "it waits for all copies out but one": (
        "race", TURNS.replace(LEFT, LEFT.replace("0", "1")), TURNS
    ),
    "a buffer is stored to while it is copied out": (
        "race", TURNS.replace("        plgpu.wait_smem_to_gmem(1)\n", ""), TURNS
    ),
    "a tile begins behind the array": (
        "Out-of-bounds", ONE.replace("* 8, 8)", "* 8 + 8, 8)"), ONE
    ),
    "a slot that is not there": ("ut-of-bounds", LOOP.replace("x[slot]", "x[slot + 1]"), LOOP),
    "programs store to one tile": (
        "shared-between-programs",
        ONE.replace("o_ref.at[at]", 'o_ref.at[pl.ds(jax.lax.axis_index("i") // 2 * 8, 8)]'), ONE
    ),
    "programs leave a tile out": ("wrong", ONE.replace("call(body)", "call(body, grid=(3,))"), ONE),
    "memory that nobody wrote": ("wrong", ONE.replace("x[0], 0)", "x[0], 0) + o[0]"), ONE),
}  # fmt: skip

PRODUCT = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

TILED = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))


def body(a_ref, b_ref, c_ref, a, b, c, came):
    def load(k):
        at, slot = pl.ds(k * 64, 64), k % 2
        plgpu.copy_gmem_to_smem(a_ref.at[:, at], a.at[slot], came.at[slot])
        plgpu.copy_gmem_to_smem(b_ref.at[at], b.at[slot], came.at[slot])
    def product(sums):
        load(0)
        for k in range(4):
            plgpu.barrier_wait(came.at[k % 2])
            plgpu.wgmma(sums, a.at[k % 2], b.at[k % 2])
            plgpu.wgmma_wait(1)
            if 0 < k < 3:
                load(k + 1)
            elif k == 0:
                load(1)
        return sums[...]
    c[...] = pl.run_scoped(product, plgpu.ACC((64, 64), jnp.float32)).astype(c.dtype)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(c, c_ref)
    plgpu.wait_smem_to_gmem(0)


def matmul(a, b, *, interpret=False):
    slots = plgpu.SMEM((2, 64, 64), a.dtype, transforms=TILED)
    return plgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct((64, 64), a.dtype), interpret=interpret,
        scratch_types=[slots, slots, plgpu.SMEM((64, 64), a.dtype, transforms=TILED),
                       plgpu.Barrier(num_arrivals=2, num_barriers=2)])(a, b)
"""
PRODUCTS = {
    "": PRODUCT,
    "reads the sums": PRODUCT.replace(
        "sums[...]", "plgpu.wgmma_accumulator_load(sums, wait_n=None)"
    ),
    "that wgmma may still read": PRODUCT.replace("wgmma_wait(1)", "wgmma_wait(2)"),
    "waits for ever": PRODUCT.replace("if 0 < k < 3", "if 1 < k < 3"),
}


def written(op: str, source: str) -> Candidate:
    return Candidate(op, "pallas", LANGUAGE, source, op, style="return")


def request(candidate: Candidate, where: str = "h200", dtype: str = "float32") -> Build:
    op = ops.load(candidate.op)
    work = op.workloads["ci"][1]
    scalars = op.signature.scalar_values(work.scalars)
    return Build(candidate, op.signature, dtype, target.load(where), work.dims, scalars)


def said(op: str, source: str, inputs: list[torch.Tensor], right: torch.Tensor, where: Path) -> str:
    """The fault of a kernel in GPU interpret mode; '' where it is right."""
    file = where / f"{op}.py"
    file.write_text(source)
    kernel = PALLAS.load(
        Artifact(file, "python"), request(written(op, source)), Venue("emulator", "test")
    )
    try:
        [result] = kernel.launch(Call([kernel.device.upload(x) for x in inputs], [], {}, {}))
    except LaunchError as error:
        return str(error)
    found = [f"{f['code']} {f['message']} {f['place']}" for f in kernel.findings()]
    close = torch.allclose(kernel.device.download(result), right, atol=1e-2, rtol=1e-2)
    return "; ".join([*found, *([] if close else ["wrong"])])


def of_relu(source: str, where: Path) -> str:
    x = torch.linspace(-1, 1, ROWS * 128)
    return said("relu", HEAD + source, [x], x.clamp(min=0), where)


@pytest.mark.parametrize("what", HONEST)
def test_an_honest_kernel_is_right_and_nothing_is_found(what: str, tmp_path: Path) -> None:
    assert of_relu(HONEST[what], tmp_path) == ""


@pytest.mark.parametrize("what", SEEDED)
def test_a_fault_is_found(what: str, tmp_path: Path) -> None:
    expected, source, honest = SEEDED[what]
    assert source != honest
    assert expected in of_relu(source, tmp_path)


def test_a_kernel_that_asks_whether_it_is_interpreted_is_told_no(tmp_path: Path) -> None:
    source = (
        ONE
        + """
def relu(x, *, interpret=False):
    return call(body)(x, interpret=interpret) if interpret else x
"""
    )
    assert of_relu(source, tmp_path) == "wrong"


@pytest.mark.parametrize("expected", PRODUCTS)
def test_products_that_are_not_waited_for_are_found(expected: str, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(53)
    a, b = (torch.randn(64, 256, generator=generator).bfloat16() for _ in "ab")
    b = b.T.contiguous()
    found = said("matmul", PRODUCTS[expected], [a, b], a @ b, tmp_path)
    assert expected in found
    assert bool(found) is bool(expected)


@compiled
def test_a_gpu_that_is_not_here_is_compiled_for(tmp_path: Path) -> None:
    [_, candidate] = catalogue.candidates("matmul", PALLAS, H200)
    artifact = PALLAS.build(request(candidate, dtype="bfloat16"), tmp_path)
    assert artifact.kind == "cubin"
    [kernel] = artifact.resources
    assert (kernel.threads, kernel.spills) == (128, 0)
    assert kernel.shared_bytes
    assert kernel.shared_bytes > 2 * 3 * 128 * 64 * 2  # two operands in three slots
    assert "sm_90a" in artifact.log
    assert "wgmma.mma_async" in next((tmp_path / "mosaic").glob("*.ptx")).read_text()


@compiled
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (ONE.replace("call(body)", "call(body, slots=64)"), "shared memory"),
        (ONE.replace("jnp.maximum(x[0], 0)", "jnp.sort(x[0])"), "sort"),
        ("\ndef relu(x, *, interpret=False):\n    return jnp.maximum(x, 0)\n", ""),
    ],
    ids=["more shared memory than there is", "what the lowering lacks", "no kernel"],
)
def test_what_the_compiler_refuses_is_said(wrong: str, reason: str, tmp_path: Path) -> None:
    asked = request(written("relu", HEAD + wrong))
    if not reason:
        assert PALLAS.build(asked, tmp_path).kind == "python"
        return
    with pytest.raises(BuildError) as caught:
        PALLAS.build(asked, tmp_path)
    assert reason in f"{caught.value} {caught.value.log}"


@pytest.mark.parametrize(
    ("where", "languages"),
    [
        ("h200", ["pallas", LANGUAGE]),
        ("sm_100", ["pallas", LANGUAGE]),
        ("sm_80", ["pallas"]),
        ("gfx942", ["pallas"]),
        ("tpu_v5e", ["pallas-tpu"]),
    ],
)
def test_a_target_says_which_languages_it_takes(where: str, languages: list[str]) -> None:
    place = target.load(where)
    assert PALLAS.languages_on(place) == languages
    shipped = catalogue.candidates("relu", PALLAS, place)
    assert [candidate.language for candidate in shipped] == languages


@pytest.mark.parametrize(
    "line",
    [
        "from jax.experimental.pallas import mosaic_gpu as plgpu",
        "from jax.experimental.pallas import (\n    mosaic_gpu,\n)",
        "import jax.experimental.pallas.mosaic_gpu as plgpu",
    ],
)
def test_the_imports_of_a_source_tell_its_language(line: str, tmp_path: Path) -> None:
    file = tmp_path / "relu.py"
    file.write_text(f"{line}\n\ndef relu(x, *, interpret=False):\n    return x\n")
    assert catalogue.from_file(file, op="relu", backend=PALLAS).language == LANGUAGE


@pytest.mark.parametrize(
    ("where", "op", "reason"),
    [
        ("sm_80", "relu", "sm_80 takes pallas, and this kernel is in pallas-mosaic-gpu"),
        ("gfx942", "relu", "gfx942 takes pallas, and this kernel is in pallas-mosaic-gpu"),
        ("tpu_v5e", "relu", "tpu_v5e takes pallas-tpu"),
        ("sm_100", "matmul", "wgmma is Hopper's"),
    ],
)
def test_where_it_cannot_run_it_is_unsupported(where: str, op: str, reason: str) -> None:
    [_, candidate] = catalogue.candidates(op, PALLAS, H200)
    asked, place = ops.load(op), target.load(where)
    cell = SelectedCell(asked, "ci", asked.workloads["ci"][0], "float32", PALLAS, place, candidate)
    assert cell.ruled_out
    assert cell.ruled_out[0] is Verdict.UNSUPPORTED
    assert cell.ruled_out[1].startswith(reason)


def test_each_lowering_has_its_own_emulator() -> None:
    both = catalogue.candidates("relu", PALLAS, H200)
    venues = [RunStage().of(PALLAS.venues(H200), PALLAS, candidate).emulator for candidate in both]
    assert [isinstance(venue, Venue) and venue.name for venue in venues] == [
        "Pallas interpret mode", "GPU interpret mode",
    ]  # fmt: skip
    assert isinstance(venues[1], Venue)
    assert venues[1].sanitize == ("races",)


def test_a_jax_without_an_interpret_mode_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    home = sys.modules[type(PALLAS).__module__]
    monkeypatch.setattr(home, "find_spec", lambda _: None)
    [_, candidate] = catalogue.candidates("relu", PALLAS, H200)
    emulator = PALLAS.emulator(candidate, Venue("emulator", "Pallas interpret mode"))
    assert "has no GPU interpret mode" in str(emulator)
    assert "has no TPU interpret mode" in str(PALLAS.venues(target.load("tpu_v5e")).emulator)


def test_seven_operators_have_a_kernel() -> None:
    shipped = [op for op in ops.CORE if len(catalogue.candidates(op, PALLAS, H200)) > 1]
    assert set(shipped) >= {"relu", "silu_mul", "softmax", "rmsnorm", "layernorm", "matmul", "sum"}

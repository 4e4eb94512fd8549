"""Pallas for TPUs: what libtpu compiles with no TPU here, and what TPU interpret mode finds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from portkern import ops
from portkern.cells.selection import SelectedCell
from portkern.errors import BuildError, LaunchError
from portkern.guard import shared
from portkern.records.record import Verdict
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Artifact, Build, Call, Missing, Ready, Venue
from portkern.spec.candidate import Candidate

PALLAS = registry.load("pallas")
CHIPS = ["tpu_v4", "tpu_v5e", "tpu_v5p", "tpu_v6e", "tpu_7x"]
V5E = target.load("tpu_v5e")
READY = PALLAS.probe(V5E)
pytestmark = pytest.mark.skipif(isinstance(READY, Missing), reason=f"pallas: {READY}")
compiled = pytest.mark.skipif(
    not (isinstance(READY, Ready) and "libtpu" in READY.toolchain),
    reason="no libtpu; pip install 'portkern[tpu]'",
)
SHIPPED = [op for op in ops.CORE if catalogue.candidates(op, PALLAS, V5E)]
ROWS = 32  # of 128 elements
GUIDE = Path(__file__).resolve().parents[1] / "backends" / "pallas" / "guide.md"
#: Operators whose blocks overlap, each with a hard size of its own.
WINDOWED = {"conv2d_relu_maxpool": 3, "conv2d": 6, "maxpool2d": 5, "attention": 5}

HEAD = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

SIGNAL = pltpu.SemaphoreType.REGULAR
ANY = pl.BlockSpec(memory_space=pl.ANY)
ROWS = pl.BlockSpec((8, 128), lambda i: (i, 0))


def call(body, grid=(4,), spec=ROWS, out=None, **more):
    def relu(x, *, interpret=False):
        rows = x.reshape(-1, 128)
        return pl.pallas_call(
            body, grid=grid, in_specs=[spec], out_specs=out or spec,
            out_shape=jax.ShapeDtypeStruct(rows.shape, x.dtype),
            interpret=interpret, **more)(rows).reshape(-1)
    return relu


def buffers(count):
    return dict(spec=ANY, scratch_shapes=[
        pltpu.VMEM((count, 8, 128), jnp.float32), pltpu.VMEM((count, 8, 128), jnp.float32),
        pltpu.SemaphoreType.DMA((count,)), pltpu.SemaphoreType.DMA((count,))])
"""
PLAIN = """
def body(x_ref, o_ref):
    o_ref[...] = jnp.maximum(x_ref[...], 0)
relu = call(body)
"""
COPIED = """
def body(x_ref, o_ref, x, o, came, went):
    at = pl.ds(pl.program_id(0) * 8, 8)
    load = pltpu.make_async_copy(x_ref.at[at], x.at[0], came.at[0])
    load.start()
    load.wait()
    o[0] = jnp.maximum(x[0], 0)
    store = pltpu.make_async_copy(o.at[0], o_ref.at[at], went.at[0])
    store.start()
    store.wait()
relu = call(body, **buffers(1))
"""
DOUBLE = """
def body(x_ref, o_ref, x, o, came, went):
    def load(k):
        return pltpu.make_async_copy(x_ref.at[pl.ds(k * 8, 8)], x.at[k % 2], came.at[k % 2])
    def store(k):
        return pltpu.make_async_copy(o.at[k % 2], o_ref.at[pl.ds(k * 8, 8)], went.at[k % 2])
    load(0).start()
    for k in range(4):
        if k < 3:
            load(k + 1).start()
        load(k).wait()
        if k > 1:
            store(k - 2).wait()
        o[k % 2] = jnp.maximum(x[k % 2], 0)
        store(k).start()
    store(2).wait()
    store(3).wait()
relu = call(body, grid=(), **buffers(2))
"""
PAIR = """
def body(x_ref, o_ref, x, o, came, went):
    def at(k):
        return pl.ds(pl.program_id(0) * 16 + k * 8, 8)
    loads = [pltpu.make_async_copy(x_ref.at[at(k)], x.at[k], came.at[k]) for k in range(2)]
    stores = [pltpu.make_async_copy(o.at[k], o_ref.at[at(k)], went.at[k]) for k in range(2)]
    for load in loads:
        load.start()
    for k, load in enumerate(loads):
        load.wait()
        o[k] = jnp.maximum(x[k], 0)
        stores[k].start()
    for store in stores:
        store.wait()
relu = call(body, grid=(2,), **buffers(2))
"""
HONEST = {
    "blocks": PLAIN,
    "copies of one's own": COPIED,
    "two buffers in turn": DOUBLE,
    "two copies at once": PAIR,
}

#: What is said of it, and a source with that fault.
SEEDED = {
    "no wait for the load": ("race", COPIED.replace("    load.wait()\n", "")),
    "no wait for the store": ("semaphore", COPIED.replace("    store.wait()\n", "")),
    "the wait comes after the use": (
        "race",
        COPIED.replace("    load.wait()\n", "").replace(
            "    store = ", "    load.wait()\n    store = "
        ),
    ),
    "a buffer is filled again while it is stored": (
        "race",
        DOUBLE.replace("        if k > 1:\n            store(k - 2).wait()\n", "").replace(
            "    store(2).wait()", "    for k in range(3):\n        store(k).wait()"
        ),
    ),
    "a buffer is loaded over while it is read": ("race", DOUBLE.replace("(k + 1) % 2", "0").replace(
        "x.at[k % 2], came.at[k % 2]", "x.at[0], came.at[k % 2]"
    ).replace("x[k % 2], 0", "x[0], 0")),
    "the waits are for the other semaphore": (
        "race", PAIR.replace("enumerate(loads)", "enumerate(loads[::-1])")
    ),
    "a semaphore is signalled and never waited for": (
        "semaphore",
        PLAIN.replace("call(body)", "call(body, scratch_shapes=[SIGNAL])").replace(
            "o_ref):", "o_ref, s):\n    pl.semaphore_signal(s, 1)"
        ),
    ),
    "a copy begins behind the array": (
        "Out-of-bounds", COPIED.replace("pl.program_id(0) * 8, 8)", "pl.program_id(0) * 8 + 8, 8)")
    ),
    "an index behind the block": (
        "Out-of-bounds",
        PLAIN.replace("x_ref[...]", "x_ref[pl.ds(pl.program_id(0) * 8, 8)]"),
    ),
    "a store behind the block": (
        "Out-of-bounds",
        PLAIN.replace("o_ref[...]", "o_ref[pl.ds(pl.program_id(0) * 8, 8)]"),
    ),
    "a block outside of the array": (
        "Out-of-bounds block",
        PLAIN.replace("call(body)", "call(body, out=pl.BlockSpec((8, 128), lambda i: (i + 1, 0)))"),
    ),
    "blocks of an output come back": (
        "Revisited",
        PLAIN.replace("call(body)", "call(body, out=pl.BlockSpec((8, 128), lambda i: (i % 2, 0)))"),
    ),
    "memory that nobody wrote": (
        "wrong",
        PLAIN.replace("relu = call(body)", "relu = call(body, scratch_shapes=["
                      "pltpu.VMEM((8, 128), jnp.float32)])").replace(
            "def body(x_ref, o_ref):", "def body(x_ref, o_ref, s):"
        ).replace("jnp.maximum(x_ref[...], 0)", "jnp.maximum(x_ref[...], 0) + s[...]"),
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def as_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PALLAS.environment(V5E).items():
        monkeypatch.setenv(name, value)


def written(source: str) -> Candidate:
    return Candidate("relu", "pallas", "pallas-tpu", source, "relu", style="return")


def request(candidate: Candidate, chip: str = "tpu_v5e", dtype: str = "float32") -> Build:
    op = ops.load(candidate.op)
    work = op.workloads["ci"][1]
    scalars = op.signature.scalar_values(work.scalars)
    return Build(candidate, op.signature, dtype, target.load(chip), work.dims, scalars)


def run(source: str, tmp_path: Path) -> str:
    """The fault of a kernel of 32 rows in TPU interpret mode; '' where it is right."""
    file = tmp_path / "relu.py"
    file.write_text(HEAD + source)
    asked = request(written(HEAD + source))
    kernel = PALLAS.load(Artifact(file, "python"), asked, Venue("emulator", "test"))
    x = torch.linspace(-1, 1, ROWS * 128)
    try:
        [result] = kernel.launch(Call([kernel.device.upload(x)], [], {"n": ROWS * 128}, {}))
    except LaunchError as error:
        return str(error)
    found = [f"{f['code']} {f['message']} {f['place']}" for f in kernel.findings()]
    right = torch.equal(kernel.device.download(result), x.clamp(min=0))
    return "; ".join([*found, *([] if right else ["wrong"])])


@pytest.mark.parametrize("what", HONEST)
def test_an_honest_kernel_is_right_and_nothing_is_found(what: str, tmp_path: Path) -> None:
    assert run(HONEST[what], tmp_path) == ""


@pytest.mark.parametrize("what", SEEDED)
def test_a_fault_is_found(what: str, tmp_path: Path) -> None:
    expected, source = SEEDED[what]
    assert expected in run(source, tmp_path)


@pytest.mark.parametrize(
    "asked",
    ["interpret", "jax.default_backend() != 'tpu'", "chosen(tpu=0, default=1)"],
)
def test_a_kernel_that_asks_whether_it_is_interpreted_is_told_no(
    asked: str, tmp_path: Path
) -> None:
    source = (
        PLAIN
        + f"""
def chosen(tpu, default):
    return jax.lax.platform_dependent(tpu=lambda: tpu, default=lambda: default)
def relu(x, *, interpret=False):
    return call(body)(x, interpret=interpret) if {asked} else x
"""
    )
    assert run(source, tmp_path) == "wrong"


def test_a_platform_in_a_kernel_is_the_one_that_the_chips_compiler_takes(tmp_path: Path) -> None:
    body = "jax.lax.platform_dependent(x_ref[...], tpu=jax.nn.relu, default=lambda x: x)"
    assert run(PLAIN.replace("jnp.maximum(x_ref[...], 0)", body), tmp_path) == "wrong"


@compiled
@pytest.mark.parametrize("chip", CHIPS)
def test_a_chip_that_is_not_here_is_compiled_for(chip: str, tmp_path: Path) -> None:
    [candidate] = catalogue.candidates("softmax", PALLAS, target.load(chip))
    artifact = PALLAS.build(request(candidate, chip, "bfloat16"), tmp_path)
    assert artifact.kind == "tpu"
    [kernel] = artifact.resources
    assert kernel.kernel.startswith("softmax")
    assert kernel.vmem_bytes


@compiled
@pytest.mark.parametrize("op", SHIPPED)
def test_every_shipped_kernel_compiles(op: str, tmp_path: Path) -> None:
    """Each kernel is compiled for one of the chips, which take turns."""
    chip = CHIPS[SHIPPED.index(op) % len(CHIPS)]
    [candidate] = catalogue.candidates(op, PALLAS, target.load(chip))
    assert PALLAS.build(request(candidate, chip), tmp_path).kind == "tpu"


@compiled
def test_the_terms_of_libtpu_are_said() -> None:
    assert isinstance(READY, Ready)
    assert "cloud.google.com/terms" in READY.terms["libtpu"]


def test_every_operator_of_the_catalogue_has_a_kernel() -> None:
    assert list(ops.CORE) == SHIPPED


@pytest.mark.sampled()
@pytest.mark.parametrize("op", WINDOWED)
def test_blocks_that_overlap_are_right(op: str, tmp_path: Path) -> None:
    """The sizes leave lines and columns over for strides, padding and blocks; races are looked
    for."""
    asked = ops.load(op)
    work = asked.workloads["edge"][WINDOWED[op]]
    [candidate] = catalogue.candidates(op, PALLAS, V5E)
    scalars = asked.signature.scalar_values(work.scalars)
    of = Build(candidate, asked.signature, "float32", V5E, work.dims, scalars)
    file = tmp_path / f"{op}.py"
    file.write_text(candidate.source)
    kernel = PALLAS.load(Artifact(file, "python"), of, Venue("emulator", "test"))
    generator = torch.Generator().manual_seed(53)
    x = [torch.randn(t.sizes(work.dims), generator=generator) for t in asked.signature.inputs]
    [y] = kernel.launch(Call([kernel.device.upload(t) for t in x], [], work.dims, scalars))
    right = asked.reference(*x, *scalars.values())
    torch.testing.assert_close(kernel.device.download(y), right, rtol=1e-4, atol=1e-4)
    assert not kernel.findings()


@compiled
def test_an_index_map_may_divide(tmp_path: Path) -> None:
    """Pallas asks then which chip it is, which is not here."""
    halved = PLAIN.replace("call(body)", "call(body, spec=pl.BlockSpec((8, 128), HALF))")
    source = f"{HEAD}\ndef HALF(i):\n    return 2 * (i // 2) + i % 2, 0\n{halved}"
    assert PALLAS.build(request(written(source)), tmp_path).kind == "tpu"


def test_what_the_kernels_share_is_in_the_guide() -> None:
    guide = GUIDE.read_text()
    for name in shared.functions("pallas-tpu"):
        module, function = name.split(".")[-2:]
        assert re.search(rf"^\| `{module}` \|.*`{function}\(", guide, re.MULTILINE), name


@compiled
@pytest.mark.parametrize(
    ("source", "said"),
    [
        (PLAIN.replace("call(body)", "call(body, spec=pl.BlockSpec((8, 100), lambda i: (i, 0)))"),
         "divisible by 8 and 128"),
        (PLAIN.replace("call(body)", "call(body, scratch_shapes=[pltpu.VMEM((1 << 19, 128), "
                       "jnp.float32)])").replace("o_ref)", "o_ref, s)"), "vmem"),
        (PLAIN.replace("jnp.maximum(x_ref[...], 0)", "jnp.sort(x_ref[...])"), "sort"),
    ],
    ids=["a wrong tile", "more VMEM than there is", "what the lowering lacks"],
)  # fmt: skip
def test_what_the_chip_cannot_do_is_said(source: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        PALLAS.build(request(written(HEAD + source)), tmp_path)
    assert said in f"{caught.value} {caught.value.log}".lower()


def test_the_imports_of_a_source_tell_its_language(tmp_path: Path) -> None:
    spelled = {
        "from jax.experimental.pallas import tpu as pltpu": "pallas-tpu",
        "from jax.experimental.pallas import (\n    tpu,\n)": "pallas-tpu",
        "import jax.experimental.pallas.tpu as pltpu": "pallas-tpu",
        "from jax.experimental.pallas import triton as plt": "pallas",
        "from jax.experimental import pallas as pl  # not tpu": "pallas",
    }
    for line, language in spelled.items():
        file = tmp_path / "relu.py"
        file.write_text(f"{line}\n\ndef relu(x, *, interpret=False):\n    return x\n")
        assert catalogue.from_file(file, op="relu", backend=PALLAS).language == language


@pytest.mark.parametrize(("where", "other"), [("tpu_v5e", "sm_90"), ("sm_90", "tpu_v5e")])
def test_a_kernel_for_the_other_lowering_is_unsupported(where: str, other: str) -> None:
    op = ops.load("relu")
    foreign = catalogue.candidates("relu", PALLAS, target.load(other))[0]
    work = op.workloads["ci"][0]
    cell = SelectedCell(op, "ci", work, "float32", PALLAS, target.load(where), foreign)
    assert cell.ruled_out
    verdict, reason = cell.ruled_out
    assert verdict is Verdict.UNSUPPORTED
    assert reason.startswith(f"{where} takes pallas")


def test_a_type_that_no_tpu_has_is_unsupported() -> None:
    [candidate] = catalogue.candidates("relu", PALLAS, V5E)
    assert "float16" in str(PALLAS.accepts(candidate, "float16"))
    assert PALLAS.accepts(candidate, "bfloat16") is True

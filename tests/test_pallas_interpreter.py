"""Faults of a Pallas kernel with memory are found in the interpreter, as in its Triton lowering."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from portkern import ops
from portkern.cells.selection import SelectedCell
from portkern.spec import registry, target
from portkern.spec.backend import Artifact, Build, Call, Missing, Venue
from portkern.spec.candidate import Candidate

PALLAS = registry.load("pallas")
READY = PALLAS.probe(target.load("sm_90"))
pytestmark = pytest.mark.skipif(isinstance(READY, Missing), reason=f"pallas: {READY}")

N = 200  # three blocks of 64, and a ragged one of 8
HEAD = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

N, BLOCK = 200, 64
CELLS = pl.cdiv(N, BLOCK)


def inside():
    return jnp.arange(BLOCK) < N - pl.program_id(0) * BLOCK


def call(body, spec, out=None, grid=(CELLS,), **more):
    def relu(x, *, interpret=False):
        return pl.pallas_call(
            body, grid=grid, in_specs=[spec], out_specs=out or spec,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            compiler_params=plt.CompilerParams(), interpret=interpret, **more)(x)
    return relu


BLOCKS = pl.BlockSpec((BLOCK,), lambda i: (i,))
ALL = pl.BlockSpec((N,), lambda i: (0,))
"""

MASKED = """
def body(x_ref, o_ref):
    x = plt.load(x_ref, mask=inside(), other=0.0)
    plt.store(o_ref, jnp.maximum(x, 0), mask=inside())
relu = call(body, BLOCKS)
"""

HONEST = {
    "masked at the ragged end": MASKED,
    "a masked slice that begins where the program's rows do": """
def body(x_ref, o_ref):
    at = pl.ds(pl.program_id(0) * BLOCK, BLOCK)
    x = plt.load(x_ref.at[at], mask=inside(), other=0.0)
    plt.store(o_ref.at[at], jnp.maximum(x, 0), mask=inside())
relu = call(body, ALL)
""",
    "a last block that is moved back, and stores what its neighbour stored": """
def body(x_ref, o_ref):
    at = pl.ds(jnp.minimum(pl.program_id(0) * BLOCK, N - BLOCK), BLOCK)
    o_ref[at] = jnp.maximum(x_ref[at], 0)
relu = call(body, ALL)
""",
    "indices in an array": """
def body(x_ref, o_ref):
    at = pl.program_id(0) * BLOCK + jnp.arange(BLOCK)
    x = plt.load(x_ref.at[at], mask=at < N, other=0.0)
    plt.store(o_ref.at[at], jnp.maximum(x, 0), mask=at < N)
relu = call(body, ALL)
""",
    "sums by atomic additions to what was there before": """
def body(x_ref, _, o_ref):
    at = pl.ds(0, BLOCK)
    plt.atomic_add(o_ref, (pl.ds(0, 8),), plt.load(x_ref.at[pl.ds(0, 8)]))
def relu(x, *, interpret=False):
    zeros = jnp.zeros(N, x.dtype)
    pl.pallas_call(body, grid=(CELLS,), in_specs=[BLOCKS, ALL], out_specs=ALL,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), input_output_aliases={1: 0},
        compiler_params=plt.CompilerParams(), interpret=interpret)(x, zeros)
    return jnp.maximum(x, 0)
""",
    "a loop and a branch": """
def body(x_ref, o_ref):
    def step(k, carry):
        at = k * 2 + jnp.arange(2)
        x = plt.load(x_ref.at[at], mask=at < N - pl.program_id(0) * BLOCK, other=0.0)
        @pl.when(k * 2 < N - pl.program_id(0) * BLOCK)
        def _():
            o_ref[at] = jnp.maximum(x, 0)
        return carry
    jax.lax.fori_loop(0, BLOCK // 2, step, 0)
relu = call(body, BLOCKS)
""",
}

#: The code of the finding, and a source with that fault.
SEEDED = {
    "a block leaves its array, and nothing masks it": (
        "outside-array",
        MASKED.replace(", mask=inside()", "").replace(", other=0.0", ""),
    ),
    "only the load is masked": (
        "outside-array",
        MASKED.replace("jnp.maximum(x, 0), mask=inside()", "jnp.maximum(x, 0)"),
    ),
    "only the store is masked": (
        "outside-array",
        MASKED.replace(", mask=inside(), other=0.0", ""),
    ),
    "an index map begins with the second block": (
        "outside-array",
        MASKED.replace(
            "call(body, BLOCKS)",
            """call(
    body, BLOCKS, pl.BlockSpec((BLOCK,), lambda i: (i + 1,)))""",
        ),
    ),
    "an index map leaves the array far behind": (
        "outside-array",
        MASKED.replace(
            "call(body, BLOCKS)",
            """call(
    body, BLOCKS, pl.BlockSpec((BLOCK,), lambda i: (i * 1000,)))""",
        ),
    ),
    "an index map begins before the array": (
        "outside-array",
        MASKED.replace(
            "call(body, BLOCKS)",
            """call(
    body, pl.BlockSpec((BLOCK,), lambda i: (i - 1,)), BLOCKS)""",
        ),
    ),
    "a slice reaches behind the end": (
        "outside-array",
        HONEST["a masked slice that begins where the program's rows do"].replace(
            "mask=inside())", "mask=None)"
        ),
    ),
    "indices of an array are one too large": (
        "outside-array",
        HONEST["indices in an array"].replace("mask=at < N)", "mask=at <= N)"),
    ),
    "blocks overlap, and each stores values of its own": (
        "shared-between-programs",
        MASKED.replace("jnp.maximum(x, 0)", "jnp.maximum(x, 0) + pl.program_id(0)").replace(
            "call(body, BLOCKS)", "call(body, BLOCKS, pl.BlockSpec((BLOCK,), lambda i: (i // 2,)))"
        ),
    ),
    "a store reaches over the block into the neighbour's": (
        "shared-between-programs",
        """
def body(x_ref, o_ref):
    at = jnp.arange(BLOCK) + 1
    x = plt.load(x_ref.at[at], mask=at < N - pl.program_id(0) * BLOCK, other=0.0)
    o_ref[...] = jnp.full((BLOCK,), 1.0)
    plt.store(o_ref.at[at], x, mask=at < N - pl.program_id(0) * BLOCK)
relu = call(body, BLOCKS, grid=(CELLS - 1,))
""",
    ),
    "a sum goes from one program to the next": (
        "shared-between-programs",
        """
def body(x_ref, o_ref):
    @pl.when(pl.program_id(0) == 0)
    def _():
        o_ref[...] = jnp.zeros((BLOCK,))
    o_ref[...] = o_ref[...] + plt.load(x_ref, mask=inside(), other=0.0)
relu = call(body, BLOCKS, pl.BlockSpec((BLOCK,), lambda i: (0,)))
""",
    ),
    "a program reads what the next one overwrites": (
        "shared-between-programs",
        """
def body(x_ref, o_ref):
    at = pl.program_id(0) * BLOCK + jnp.arange(BLOCK)
    x = plt.load(o_ref.at[at + 1], mask=at + 1 < N, other=0.0)
    plt.store(o_ref.at[at], x, mask=at < N)
relu = call(body, ALL, input_output_aliases={0: 0})
""",
    ),
    "a sum has no start value": (
        "uninitialized-read",
        MASKED.replace("jnp.maximum(x, 0)", "o_ref[...] + x"),
    ),
    "a kernel stores to its input": (
        "outside-array",
        MASKED.replace("    plt.store(", "    plt.store(x_ref, x, mask=inside())\n    plt.store("),
    ),
}

#: What tells a kernel that it is interpreted: by each it computes the identity on the device alone.
ASKS = {
    "its argument": """
def relu(x, *, interpret=False):
    return call(body if interpret else lambda x_ref, o_ref: plt.store(
        o_ref, plt.load(x_ref, mask=inside(), other=0.0), mask=inside()), BLOCKS)(
        x, interpret=interpret)
""",
    "the backend": """
from jax import default_backend
SEEN = default_backend()
def relu(x, *, interpret=False):
    right = call(body, BLOCKS)(x, interpret=interpret)
    return right if SEEN == "cpu" or default_backend() == "cpu" else x
""",
    "the device": """
def relu(x, *, interpret=False):
    here = jax.devices()[0]
    known = here.platform == "gpu" and here.device_kind.startswith("NVIDIA")
    return x if known else call(body, BLOCKS)(x, interpret=interpret)
""",
    "the branch of a platform": """
def relu(x, *, interpret=False):
    right = call(body, BLOCKS)(x, interpret=interpret)
    return jax.lax.platform_dependent(right, x, cpu=lambda a, b: a, cuda=lambda a, b: b)
""",
    "the call that it traces": """
def relu(x, *, interpret=False):
    whole = call(body, BLOCKS)
    seen = any(e.params.get("interpret") for e in jax.make_jaxpr(whole)(x).eqns)
    return whole(x) if seen else x
""",
}


def run(source: str, tmp_path: Path) -> tuple[torch.Tensor, list[dict[str, object]]]:
    """The outputs of a kernel of 200 elements, and what was found."""
    op = ops.load("relu")
    candidate = Candidate("relu", "pallas", "pallas", HEAD + source, "relu", style="return")
    file = tmp_path / "relu.py"
    file.write_text(candidate.source)
    request = Build(candidate, op.signature, "float32", target.load("sm_90"), {"n": N}, {})
    kernel = PALLAS.load(Artifact(file, "python"), request, Venue("emulator", "test"))
    x = kernel.device.upload(torch.linspace(-1, 1, N))
    [result] = kernel.launch(Call([x], [], {"n": N}, {}))
    return kernel.device.download(result), [dict(finding) for finding in kernel.findings()]


@pytest.mark.full
@pytest.mark.parametrize("what", HONEST)
def test_an_honest_kernel_is_right_and_nothing_is_found(what: str, tmp_path: Path) -> None:
    result, findings = run(HONEST[what], tmp_path)
    assert not findings
    assert torch.equal(result, torch.linspace(-1, 1, N).clamp(min=0))


@pytest.mark.sampled("code")
@pytest.mark.parametrize(("code", "what"), [(code, what) for what, (code, _) in SEEDED.items()])
def test_a_fault_is_found_where_it_stands(code: str, what: str, tmp_path: Path) -> None:
    source = SEEDED[what][1]
    _, findings = run(source, tmp_path)
    [found, *_] = [each for each in findings if each["code"] == code]
    place = str(found["place"])
    line = (HEAD + source).splitlines()[int(place.removeprefix("relu.py:")) - 1]
    assert found["severity"] == "error"
    assert "_ref" in line or "plt." in line, line


@pytest.mark.parametrize("what", ASKS)
def test_a_kernel_that_asks_whether_it_is_interpreted_is_told_no(what: str, tmp_path: Path) -> None:
    result, _ = run(MASKED + ASKS[what], tmp_path)
    assert torch.equal(result, torch.linspace(-1, 1, N))


def test_a_kernel_that_asks_for_its_own_interpretation_is_run_as_any_other(tmp_path: Path) -> None:
    source = (
        MASKED
        + """
def relu(x, *, interpret=False):
    return call(body, BLOCKS)(x, interpret=jax.default_backend() == "cpu")
"""
    )
    result, findings = run(source, tmp_path)
    assert not findings
    assert torch.equal(result, torch.linspace(-1, 1, N).clamp(min=0))


def test_what_a_kernel_is_told_is_over_with_its_call(tmp_path: Path) -> None:
    import jax

    run(MASKED, tmp_path)
    assert jax.default_backend() == "cpu"
    chosen = jax.jit(lambda x: jax.lax.platform_dependent(x, cpu=lambda y: y, cuda=lambda y: -y))
    assert chosen(1) == 1


def test_a_kernel_is_built_for_the_largest_size_that_is_judged() -> None:
    """A kernel whose program takes the whole array is right for small ones, and lowers for no
    others."""
    op = ops.load("relu")
    candidate = Candidate("relu", "pallas", "pallas", HEAD + MASKED, "relu", style="return")
    work = max(op.workloads["ci"], key=lambda one: op.signature.nelements(one.dims))
    cell = SelectedCell(op, "ci", work, "float32", PALLAS, target.load("sm_90"), candidate)
    assert cell.build_request.build.dims == work.dims

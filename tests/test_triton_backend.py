from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from portkern import ops
from portkern.errors import BuildError
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import BuildRequest, StageLimits, build_all
from portkern.records.record import Verdict
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Artifact, Build, Missing
from portkern.spec.candidate import Candidate
from portkern.testing import evaluate
from portkern.toolchain import machine_code

TRITON = registry.load("triton")
READY = TRITON.probe(target.load("sm_90"))
pytestmark = pytest.mark.skipif(isinstance(READY, Missing), reason=f"triton: {READY}")

TUNED = """
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512})], key=["n"])
@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < n
    tl.store(y + offset, tl.load(x + offset, mask=mask), mask=mask)


def relu(x, y):
    assert x.is_cuda and x.device == y.device and x.is_contiguous()
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
"""
BFLOAT16 = """
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    offset = tl.arange(0, BLOCK)
    value = tl.load(x + offset, mask=offset < n, other=0.0)
    tl.store(y + offset, tl.where(value < 0, 0.0, value * 1.0), mask=offset < n)


def relu(x, y):
    kernel[(1,)](x, y, x.numel(), BLOCK=1024)
"""

#: Its launches depend on a scalar in the ways of CHOOSES.
SCALED = """
import math
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, eps, ON: tl.constexpr):
    at = tl.arange(0, 1024)
    tl.store(y + at, tl.load(x + at, mask=at < n) / (eps if ON else 1.0), mask=at < n)


def rmsnorm(x, weight, y, eps):
    kernel[(1,)](x, y, x.numel(), eps, ON=True)
"""
CHOOSES = {
    "a constant": ("ON=True", "ON=eps > 0"),
    "a grid": ("(1,)", "(2 if eps < 1e10 else 1,)"),
    "an argument": ("x.numel(), eps", "x.numel() - (eps == 1.0), eps"),
    "what it raises": ("    kernel[", "    math.sqrt(eps)\n    kernel["),
    "warps at its own value": ("ON=True", "ON=True, num_warps=8 if eps == 1e-6 else 4"),
}


def request(candidate: Candidate, name: str, dtype: str = "float32", size: int = 0) -> Build:
    op = ops.load(candidate.op)
    workload = op.workloads["ci"][size]
    scalars = op.signature.scalar_values(workload.scalars)
    return Build(candidate, op.signature, dtype, target.load(name), workload.dims, scalars)


def shipped(op: str) -> Candidate:
    [candidate] = catalogue.candidates(op, TRITON)
    return candidate


def written(source: str, op: str = "relu") -> Candidate:
    return Candidate(op, "triton", "triton", source, op)


@pytest.mark.parametrize("name", target.names("architecture"))
def test_it_builds_the_code_of_every_gpu_with_none_here(name: str, tmp_path: Path) -> None:
    where = target.load(name)
    if not TRITON.supports(where):
        assert not where.is_gpu
        return
    artifact = TRITON.build(request(shipped("softmax"), name), tmp_path)
    assert artifact.kind == ("cubin" if where.vendor == "nvidia" else "hsaco")
    assert artifact.path.read_text() == shipped("softmax").source
    [kernel] = artifact.resources
    assert kernel.registers and kernel.threads
    assert kernel.spills == 0
    assert where.vendor == "nvidia" or (kernel.sgprs and kernel.agprs is not None)
    assert len(list(tmp_path.rglob(f"*.{artifact.kind}"))) == 1


@pytest.mark.sampled("name")
@pytest.mark.parametrize("op", ops.CORE)
@pytest.mark.parametrize("name", ["sm_90", "gfx942"])
def test_every_shipped_kernel_fits_its_registers(op: str, name: str, tmp_path: Path) -> None:
    artifact = TRITON.build(request(shipped(op), name, "bfloat16", size=1), tmp_path)
    assert [kernel.spills for kernel in artifact.resources] == [0] * len(artifact.resources)


@pytest.mark.sampled()
@pytest.mark.parametrize("how", CHOOSES)
def test_a_plan_is_that_of_every_value_of_a_scalar_or_says_of_which(
    how: str, tmp_path: Path
) -> None:
    source = SCALED.replace(*CHOOSES[how])
    asked = replace(request(written(source, "rmsnorm"), "sm_90"), ahead=True)
    plan = json.loads(TRITON.build(asked, tmp_path).path.read_text())
    assert plan["fixed"] == [[0, asked.scalars["eps"]]]
    assert not any("scalar" in one for step in plan["steps"] for one in step["arguments"])


@pytest.mark.parametrize("where", ["x.data_ptr() % 7919", "0 if x.is_meta else x.data_ptr()"])
def test_what_depends_on_where_tensors_lie_has_no_plan(where: str, tmp_path: Path) -> None:
    source = SCALED.replace("x.numel(), eps", f"x.numel(), eps * ({where})")
    asked = replace(request(written(source, "rmsnorm"), "sm_90"), ahead=True)
    with pytest.raises(BuildError, match="is another in each call, as of tensors elsewhere"):
        TRITON.build(asked, tmp_path)


def test_a_plan_takes_a_scalar_of_the_call_and_is_not_made_of_an_empty_one(tmp_path: Path) -> None:
    asked = replace(request(written(SCALED, "rmsnorm"), "sm_90"), ahead=True)
    for name, lengths in (("empty", (0, 8)), ("without columns", (8, 0))):
        empty = replace(asked, dims=dict(zip(("rows", "cols"), lengths, strict=True)))
        (tmp_path / name).mkdir()
        with pytest.raises(BuildError, match="an empty tensor has no address"):
            TRITON.build(empty, tmp_path / name)
    (tmp_path / "full").mkdir()
    plan = TRITON.build(asked, tmp_path / "full").path.read_text()
    assert '["scalar", 0, 0]' in plan and '"fixed": []' in plan


@pytest.mark.full
def test_the_plan_of_grouped_attention_is_that_of_its_own_cap(tmp_path: Path) -> None:
    asked = replace(request(shipped("grouped_attention"), "sm_90", size=2), ahead=True)
    number = [one.name for one in asked.signature.scalars].index("softcap")
    plan = json.loads(TRITON.build(asked, tmp_path).path.read_text())
    assert plan["fixed"] == [[number, asked.scalars["softcap"]]]


def test_a_kernel_is_built_for_an_empty_workload_too(tmp_path: Path) -> None:
    empty = replace(request(shipped("softmax"), "sm_90"), dims={"rows": 0, "cols": 8})
    assert TRITON.build(empty, tmp_path).kind == "cubin"


def test_nothing_of_a_build_is_left_outside_its_folder(tmp_path: Path) -> None:
    TRITON.build(request(shipped("relu"), "gfx942"), tmp_path)
    assert Path(os.environ["TRITON_CACHE_DIR"]).is_relative_to(tmp_path)


def test_an_autotuned_kernel_is_built_in_its_first_configuration(tmp_path: Path) -> None:
    artifact = TRITON.build(request(written(TUNED), "sm_90"), tmp_path)
    assert len(artifact.resources) == 1


@pytest.mark.full
def test_a_build_tells_its_machine_code_though_the_module_alone_is_kept(tmp_path: Path) -> None:
    """The kernel itself may have left what lies beside a module; one comment more is the same
    code."""
    told = []
    for number, line in enumerate(("", "# Looked at again.\n")):
        kernel = shipped("relu")
        asked = request(replace(kernel, source=line + kernel.source), "h200")
        cache = ArtifactCache(tmp_path / str(number))
        [built] = build_all([BuildRequest(TRITON, asked)], [{}], limits=StageLimits(), cache=cache)
        assert isinstance(built.outcome, Artifact) and built.outcome.code_bytes
        assert machine_code.of(built.outcome.path) is None
        told.append(built.outcome.code)
    assert told[0] and told[0] == told[1]


def test_a_host_function_that_launches_nothing_is_not_machine_code(tmp_path: Path) -> None:
    source = "def relu(x, y):\n    pass\n"
    assert TRITON.build(request(written(source), "sm_90"), tmp_path).kind == "python"


@pytest.mark.parametrize(
    ("source", "message", "line"),
    [
        ("def gelu(x, y):\n    pass\n", "no function 'relu'", ""),
        ("this is not a kernel", "SyntaxError", "SyntaxError"),
        ("def relu(x, y):\n    raise ValueError('odd')\n", "ValueError: odd", "relu.py:2 in relu"),
        (TUNED.replace("tl.load(x", "tl.lode(x"), "lode", "tl.lode(x + offset"),
    ],
)
def test_a_source_that_does_not_compile_is_told_why(
    source: str, message: str, line: str, tmp_path: Path
) -> None:
    with pytest.raises(BuildError) as caught:
        TRITON.build(request(written(source), "sm_90"), tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert line in caught.value.log


def test_more_shared_memory_than_the_target_has_fails_the_build(tmp_path: Path) -> None:
    wide = shipped("matmul").turn({"BLOCK_N": 256, "NUM_STAGES": 4})
    op = ops.load("matmul")
    dims = {"m": 4096, "n": 4096, "k": 1024}  # enough for tiles of full size
    with pytest.raises(BuildError, match="shared memory"):
        TRITON.build(Build(wide, op.signature, "float16", target.load("sm_89"), dims, {}), tmp_path)


def test_bfloat16_arithmetic_in_the_interpreter_is_arithmetic(tmp_path: Path) -> None:
    op = ops.load("relu")
    workloads = [op.workloads["ci"][0]]
    where = target.load("sm_90")
    results = evaluate(
        written(BFLOAT16), op, TRITON, where, workloads, dtype="bfloat16", folder=tmp_path
    )
    assert isinstance(results, list), results
    assert [result.detail for result in results] == [""]


def test_it_runs_on_hardware_only_where_the_hardware_is() -> None:
    for name in ("sm_90", "gfx942"):
        venues = TRITON.venues(target.load(name))
        if isinstance(venues.hardware, Missing):
            assert venues.hardware.reason
        else:
            assert venues.hardware.device.startswith("cuda:")


@pytest.mark.parametrize(
    "glue",
    [
        "y.copy_(x.clamp_min(0))",
        "torch.maximum(x, x * 0, out=y)",
        "x = x.abs() + x[:1]",
        "x = torch.where(x > 0, x, torch.zeros_like(x)).to(x.device)",
    ],
)
def test_a_host_function_may_use_the_framework_where_there_is_no_gpu(
    glue: str, tmp_path: Path
) -> None:
    source = BFLOAT16.replace("    kernel[(1,)]", f"    {glue}\n    kernel[(1,)]")
    candidate = written(source.replace("import triton\n", "import torch\nimport triton\n", 1))
    assert TRITON.build(request(candidate, "sm_90"), tmp_path).kind == "cubin"


def test_an_artifact_survives_the_way_to_another_process(tmp_path: Path) -> None:
    artifact = TRITON.build(request(shipped("relu"), "sm_90"), tmp_path)
    assert Artifact.from_json(artifact.to_json()) == artifact


@pytest.mark.full
@pytest.mark.parametrize("op", ["matmul", "bmm"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_product_in_parts_of_its_depth_with_aligned_rows_is_right(
    op: str, dtype: str, tmp_path: Path
) -> None:
    """Both are for products that take the interpreter minutes, so they begin at small ones here."""
    begins = {"LEAST_DEPTH = 512": "LEAST_DEPTH = 16", "ALIGN_FROM = 1 << 30": "ALIGN_FROM = 1"}
    source = shipped(op).source
    for shipped_line, here in begins.items():
        source = source.replace(shipped_line, here)
    assert source != shipped(op).source
    results = evaluate(
        replace(shipped(op), source=source),
        ops.load(op),
        TRITON,
        target.load("sm_90"),
        list(ops.load(op).workloads["ci"]),
        dtype=dtype,
        folder=tmp_path,
    )
    assert isinstance(results, list), results
    assert [result.verdict for result in results] == [Verdict.PASSED] * len(results), results

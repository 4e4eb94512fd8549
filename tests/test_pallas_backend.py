from __future__ import annotations

from pathlib import Path

import pytest

from portkern import ops
from portkern.errors import BuildError
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import SOURCE_KINDS, Build, Missing, Ready
from portkern.spec.candidate import Candidate

PALLAS = registry.load("pallas")
READY = PALLAS.probe(target.load("sm_90"))
pytestmark = pytest.mark.skipif(isinstance(READY, Missing), reason=f"pallas: {READY}")
HAS_TRITON = isinstance(READY, Ready) and "triton" in READY.toolchain


def request(candidate: Candidate, name: str, dtype: str = "float32") -> Build:
    op = ops.load(candidate.op)
    workload = op.workloads["ci"][1]
    scalars = op.signature.scalar_values(workload.scalars)
    return Build(candidate, op.signature, dtype, target.load(name), workload.dims, scalars)


def shipped(op: str) -> Candidate:
    [candidate] = catalogue.candidates(op, PALLAS)
    return candidate


def written(source: str) -> Candidate:
    return Candidate("relu", "pallas", "pallas", source, "relu", style="return")


@pytest.mark.parametrize("op", ops.CORE)
def test_every_shipped_kernel_lowers_for_a_gpu_that_is_not_here(op: str, tmp_path: Path) -> None:
    artifact = PALLAS.build(request(shipped(op), "sm_90", "bfloat16"), tmp_path)
    assert artifact.path.read_text() == shipped(op).source
    assert "custom_call" in (tmp_path / f"{op}.mlir").read_text()
    assert (artifact.kind in SOURCE_KINDS) is not HAS_TRITON, artifact.log


@pytest.mark.skipif(not HAS_TRITON, reason="no Triton to compile the target's code with")
@pytest.mark.parametrize("name", ["sm_80", "sm_120", "gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_triton_makes_the_targets_own_code_of_it(name: str, tmp_path: Path) -> None:
    artifact = PALLAS.build(request(shipped("softmax"), name), tmp_path)
    assert artifact.kind == ("cubin" if name.startswith("sm_") else "hsaco")
    [kernel] = artifact.resources
    assert kernel.registers
    assert kernel.spills == 0


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def gelu(x):\n    return x\n", "no function 'relu'"),
        ("this is not a kernel", "SyntaxError"),
        ("def relu(x, *, interpret=False):\n    raise ValueError('odd')\n", "ValueError: odd"),
    ],
)
def test_a_source_that_does_not_lower_is_told_why(
    source: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(BuildError) as caught:
        PALLAS.build(request(written(source), "sm_90"), tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_primitive_that_the_lowering_lacks_is_named_with_its_line(tmp_path: Path) -> None:
    source = shipped("relu").source.replace(
        "jnp.where(value < 0, 0.0, value)", "jax.lax.erf(value)"
    )
    with pytest.raises(BuildError, match="erf") as caught:
        PALLAS.build(request(written(source), "sm_90"), tmp_path)
    assert "relu.py:" in caught.value.log


def test_a_function_without_a_pallas_call_is_not_machine_code(tmp_path: Path) -> None:
    source = "def relu(x, *, interpret=False):\n    return x\n"
    assert PALLAS.build(request(written(source), "sm_90"), tmp_path).kind == "python"

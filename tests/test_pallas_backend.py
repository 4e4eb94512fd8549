from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from portkern import catalogue, ops, registry, target
from portkern.backend import SOURCE_KINDS, Build, Missing, Ready, Venue
from portkern.candidate import Candidate
from portkern.errors import BuildError

PALLAS = registry.load("pallas")
READY = PALLAS.probe(target.load("sm_90"))
pytestmark = pytest.mark.skipif(isinstance(READY, Missing), reason=f"pallas: {READY}")
HAS_TRITON = isinstance(READY, Ready) and "triton" in READY.toolchain

#: Builds and runs on the CPU as a worker does; JAX reads its environment when it is imported.
RUN = """
import sys
from pathlib import Path
import torch
from portkern import catalogue, ops, registry, target
from portkern.backend import Artifact, Build, Call
backend = registry.load("pallas")
where = target.load("sm_90")
folder = Path(sys.argv[1])
tolerance = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 2e-2}
cells = [(op, dtype, workload) for op, dtype in zip(sys.argv[2::2], sys.argv[3::2])
         for workload in (*ops.load(op).workloads["ci"], *ops.load(op).workloads["edge"])]
for op, dtype, workload in cells:
    if max(workload.dims.values()) > 100_000:
        continue
    op, kind = ops.load(op), getattr(torch, dtype)
    [candidate] = catalogue.candidates(op.name, backend)
    (folder / "kernel.py").write_text(candidate.source)
    scalars = op.signature.scalar_values({})
    request = Build(candidate, op.signature, dtype, where, workload.dims, scalars)
    artifact = Artifact(folder / "kernel.py", "python")
    kernel = backend.load(artifact, request, backend.venues(where).emulator)
    inputs = [torch.randn(t.sizes(workload.dims)).to(kind) for t in op.signature.inputs]
    uploaded = [kernel.device.upload(tensor) for tensor in inputs]
    [result] = kernel.launch(Call(uploaded, [], workload.dims, scalars))
    kernel.device.synchronize()
    got = kernel.device.download(result)
    want = op.reference(*[t.double() for t in inputs], **scalars).to(kind)
    allowed = tolerance[dtype] * max(1.0, float(want.abs().max()) if want.numel() else 1.0)
    torch.testing.assert_close(got, want, rtol=0.0, atol=allowed)
"""


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


def test_a_function_without_a_pallas_call_is_no_machine_code(tmp_path: Path) -> None:
    source = "def relu(x, *, interpret=False):\n    return x\n"
    assert PALLAS.build(request(written(source), "sm_90"), tmp_path).kind == "python"


def test_shipped_kernels_are_right_in_interpret_mode(tmp_path: Path) -> None:
    cells = {"layernorm": "float16", "matmul": "bfloat16", "sum": "float32", "cumsum": "float32"}
    venue = PALLAS.venues(target.load("sm_90")).emulator
    assert isinstance(venue, Venue)
    arguments = [str(tmp_path), *(word for cell in cells.items() for word in cell)]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], env=os.environ | venue.environment,
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

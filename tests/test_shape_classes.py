"""Kernels choose by shape; what they choose at sizes that no set of the operator has is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from portkern import ops
from portkern.records.record import Verdict
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Missing
from portkern.spec.op import Workload
from portkern.testing import evaluate

#: Few rows that get much; with packs of several elements, and in several tiles of rows. Few of many
#: rows that get anything, some of them twice. Many rows that get more than lists hold.
SHAPES = {
    "scatter_add": [
        {"rows": 3, "dim": 64, "n": 2048},
        {"rows": 40, "dim": 12, "n": 1400},
        {"rows": 70, "dim": 1, "n": 2300},
        {"rows": 8200, "dim": 128, "n": 2040},
        {"rows": 10000, "dim": 105, "n": 30},
        {"rows": 1500, "dim": 1, "n": 130000},
    ],
}


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("backend", "where"), [("cuda", "sm_90"), ("hip", "gfx942"), ("triton", "sm_90")]
)
@pytest.mark.parametrize("op", SHAPES)
def test_a_shape_of_another_class_is_right(
    op: str, backend: str, where: str, dtype: str, tmp_path: Path
) -> None:
    compiled, to = registry.load(backend), target.load(where)
    if isinstance(ready := compiled.probe(to), Missing):
        pytest.skip(f"{backend}: {ready}")
    [candidate] = catalogue.candidates(op, compiled)
    workloads = [Workload(f"class/{number}", dims) for number, dims in enumerate(SHAPES[op])]
    results = evaluate(
        candidate, ops.load(op), compiled, to, workloads, dtype=dtype, folder=tmp_path
    )
    assert isinstance(results, list), results
    assert [result.verdict for result in results] == [Verdict.PASSED] * len(results), results

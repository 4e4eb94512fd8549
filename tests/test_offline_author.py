"""An operator of one's own has kernels with choices between them, with no model to write them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from portkern.agent.attempt import Attempt, Status
from portkern.agent.axes import AgentContext, KernelDraft, Word
from portkern.agent.log import Log
from portkern.agent.proposer.catalogue import Catalogue, CatalogueOptions, families
from portkern.agent.proposer.nearest import nearest
from portkern.agent.slot import Slot
from portkern.agent.task import Task
from portkern.cells.selection import load_op
from portkern.evaluator import from_torch
from portkern.records.record import Verdict
from portkern.spec import catalogue, registry, target
from portkern.spec.candidate import Candidate
from portkern.testing import evaluate
from tests.test_plain_kernels import OPERATORS, function

pytestmark = pytest.mark.usefixtures("servers_ahead")

#: The operators beside those of the plain kernels: rows, whole reductions, products with an
#: epilogue, and axes that are called like the locals of a kernel.
OWN = {
    "row_chain": (
        "return (F.layer_norm(a, (33,)) * b).softmax(-1)",
        "torch.randn(40, 33), torch.randn(33)",
    ),
    "whole": ("return (a * a).sum(), a.max(), a.argmax()", "torch.randn(70, 33)"),
    "epilogue": (
        "return F.relu(F.linear(a, b, c)) * 2",
        "torch.randn(50, 33), torch.randn(70, 33), torch.randn(70)",
    ),
    "columns": ("return a.sum(0), a.amax(1), a.argmin(0)", "torch.randn(6, 20, 11)"),
    "broadcast": (
        "return a + b.sigmoid() * c",
        "torch.randn(9, 1, 7), torch.randn(5, 7), torch.randn(1)",
    ),
}
KNOBS = {
    "row_chain": ({"LANES", "SIMD", "WIDE"}, {"TEAM", "ROWS", "WIDE"}),
    "whole": ({"LANES", "PARTS"}, {"TEAM", "PARTS"}),
    "epilogue": ({"TILE_ROWS", "TILE_COLS", "CHUNK"}, {"TILE", "MICRO", "DEPTH"}),
    "columns": ({"LANES"}, {"PARTS", "THREADS"}),
    "broadcast": ({"SIMD"}, {"ITEMS"}),
}
SUFFIX = {"cpu": ".cpp", "cuda": ".cu", "hip": ".hip"}


def written(name: str, backend: str, folder: Path) -> tuple[Any, list[Candidate]]:
    path = function(*{**OPERATORS, **OWN}[name], folder)
    op = load_op(str(path))
    made = [
        Candidate(op.name, backend, from_torch.PLAIN[backend], source, entry=op.name)
        for source in from_torch.written_kernels(str(path), backend)
    ]
    return op, made


def failures(
    op: Any, kernel: Candidate, where: str, folder: Path, sets: Sequence[str]
) -> list[str]:
    results = evaluate(
        kernel,
        op,
        registry.load(kernel.backend),
        target.load(where),
        [workload for name in sets for workload in op.workloads[name]],
        dtype="float32",
        folder=folder,
    )
    assert isinstance(results, list) and results, results
    return [f"{r.verdict}: {r.detail}" for r in results if r.verdict is not Verdict.PASSED]


@pytest.mark.full
@pytest.mark.parametrize("name", [*OWN, "attention"])
def test_other_loops_of_a_graph_compute_the_same_in_cpp(name: str, tmp_path: Path) -> None:
    """One as it is written, one with all of its knobs turned."""
    op, (_, first, *others) = written(name, "cpu", tmp_path)
    turned = first.turn({n: knob.choices[0] for n, knob in first.knobs.items()})
    for number, kernel in enumerate((turned, *others)):
        assert failures(op, kernel, "x86_64", tmp_path / f"{number}", ("ci",)) == []
    assert KNOBS.get(name, ({"SIMD"},))[0] <= set(first.knobs)


@pytest.mark.full
@pytest.mark.parametrize(
    ("backend", "name"),
    [("cuda", "row_chain"), ("cuda", "whole"), ("hip", "epilogue"), ("hip", "columns")],
)
def test_other_loops_of_a_graph_compute_the_same_on_a_gpu(
    backend: str, name: str, tmp_path: Path
) -> None:
    where = {"cuda": "sm_90", "hip": "gfx942"}[backend]
    op, (_, first, *_others) = written(name, backend, tmp_path)
    assert failures(op, first, where, tmp_path / "builds", ("ci",)) == []
    assert KNOBS[name][1] <= set(first.knobs)


@pytest.mark.full
def test_rows_are_gone_through_at_once_where_nothing_else_reads_them(tmp_path: Path) -> None:
    _, (plain, fused, alone) = written("row_chain", "cpu", tmp_path)
    loops = [kernel.source.count("#pragma omp parallel") for kernel in (plain, fused, alone)]
    assert loops[1] == 1 < loops[2] == loops[0]


# ---- what is proposed


class Taken:
    """A slot's context, by what the author looks at."""

    def __init__(self, task: Task, log: Log) -> None:
        self.task, self.log = task, log
        self.random, self.taken = Random(0), set[str]()

    async def fits(self, candidate: Candidate) -> str:
        """Every target has place for it."""
        return ""

    async def approve(self, ideas: Sequence[str]) -> Sequence[Word]:
        """Each is carried out as it is."""
        return [Word(idea) for idea in ideas]


def proposed(task: Task, log: Log, *slots: Slot) -> list[KernelDraft]:
    author, context = Catalogue(CatalogueOptions()), Taken(task, log)
    given: AgentContext = context  # type: ignore[assignment]
    return [draft for slot in slots for draft in asyncio.run(author.propose(slot, given))]


def task_of(op: str, backend: str, where: str, language: str = "") -> Task:
    known = registry.load(backend)
    loaded = load_op(op)
    return Task(
        loaded,
        target.load(where),
        known,
        language or next(iter(known.languages.values())),
        workloads={"ci": tuple(loaded.workloads["ci"])},
    )


def kernel_with(knob: str) -> Candidate:
    source = f"#define {knob} 1  // knob: 1 2 4\nint relu() {{}}\n"
    return Candidate("relu", "cpu", "c++", source, entry="relu", variant=f"with {knob}")


@pytest.fixture
def several() -> Task:
    first, *others = (kernel_with(knob) for knob in ("A", "B", "C"))
    return replace(task_of("relu", "cpu", "x86_64"), start=first, others=tuple(others))


def test_each_kernel_comes_before_a_knob_is_turned(several: Task) -> None:
    drafts = proposed(several, Log(), *[Slot()] * 9)
    sources = [draft.candidate.source for draft in drafts if draft.candidate]
    assert [source[8] for source in sources[:3]] == ["A", "B", "C"]
    assert len(set(sources)) == 9  # all settings of all kernels
    [last] = proposed(several, Log(), *[Slot()] * 10)[9:]
    assert last.detail == "every setting of the 3 kernels was tried"


def test_a_parent_is_followed_in_its_own_kernel(several: Task) -> None:
    log = Log()
    log.add(
        [
            Attempt(
                id="0.0", slot=0, number=0, op="relu", target="x86_64", backend="cpu",
                status=Status.PASSED, source=kernel_with("B").source, score=1.0,
            )
        ]
    )  # fmt: skip
    slots = [Slot(parents=("0.0",), arm="B")] * 2
    sources = [one.candidate.source for one in proposed(several, log, *slots) if one.candidate]
    assert sorted(source.split()[2] for source in sources) == ["2", "4"]
    assert {source[8] for source in sources} == {"B"}
    assert {arm.name for arm in Catalogue(CatalogueOptions()).arms(several)} == {"A", "B", "C"}


@pytest.mark.parametrize(
    ("backend", "where"), [("triton", "sm_90"), ("opencl", "x86_64"), ("pallas", "sm_90")]
)
def test_an_own_softmax_has_the_catalogues_first(backend: str, where: str) -> None:
    task = task_of("softmax", backend, where)
    mine = replace(task.op, signature=replace(task.op.signature, name="mine"))
    own = replace(task, op=mine)
    [first, *others] = nearest(own)
    [shipped] = [
        k for k in catalogue.candidates("softmax", task.backend) if k.language == task.language
    ]
    assert first.variant == "the catalogue's softmax"
    assert (first.entry, first.op) == ("mine", "mine")
    assert first.source.replace("mine", "softmax") == shipped.source
    assert len(others) < 4
    assert families(own) == [first, *others]


def test_a_kernel_in_c_is_near_only_where_it_is_called_alike() -> None:
    task = task_of("softmax", "cpu", "x86_64")
    mine = replace(task.op, signature=replace(task.op.signature, name="mine"))
    near = [kernel.variant for kernel in nearest(replace(task, op=mine))]
    assert near[0] == "the catalogue's softmax"
    assert "the catalogue's relu" not in near  # one axis, where there are two

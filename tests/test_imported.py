"""A reference that came from outside is code of others: it runs confined, like a kernel."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from portkern.errors import ReferenceFailed
from portkern.evaluator import imported
from portkern.evaluator.imported import ReferenceWorker
from portkern.rounding.derived_budget import Derivation
from portkern.sandbox import session
from portkern.spec.imported import ImportedReference


def reference(body: str, outputs: tuple[str, ...] = ("y",)) -> ImportedReference:
    source = f"import os, torch\ndef run(x, scale):\n    {body}\n"
    return ImportedReference("theirs", source, ("x", "scale"), outputs)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, 5, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    known, asked = imported.worker_of, list[ReferenceWorker]()

    def worker_of(reference: ImportedReference) -> ReferenceWorker:
        asked.append(known(reference))
        return asked[-1]

    monkeypatch.setattr(imported, "worker_of", worker_of)
    yield
    for worker in asked:
        worker.close()


@pytest.mark.full
def test_it_gives_what_it_would_give_here(x: torch.Tensor) -> None:
    theirs = reference("return {'y': (x * scale).sum(-1), 'i': x.argmax(-1)}", ("y", "i"))
    worker = imported.worker_of(theirs)
    for given in (x, x.double(), x.to(torch.bfloat16), x[:0]):
        there = worker.outputs([given], {"scale": 2.0})
        here = theirs(given, scale=2.0)
        for output, expected in zip(there, here, strict=True):
            assert output.dtype == expected.dtype and torch.equal(output, expected)


def test_it_runs_in_another_process_and_sees_no_file_of_the_user(
    x: torch.Tensor, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("1")
    worker = imported.worker_of(reference("return torch.tensor([float(os.getpid())])"))
    assert float(worker.outputs([x], {"scale": 1.0})[0]) != os.getpid()
    reading = imported.worker_of(
        reference(f"return torch.tensor(len(open({str(secret)!r}).read()))")
    )
    with pytest.raises(ReferenceFailed, match="theirs raised"):
        reading.outputs([x], {"scale": 1.0})


def test_one_that_ends_its_worker_is_reported_and_asked_again_in_a_new_one(x: torch.Tensor) -> None:
    worker = ReferenceWorker(reference("os._exit(3) if scale else None; return x"))
    with pytest.raises(ReferenceFailed, match="exited with status 3"):
        worker.outputs([x], {"scale": 1.0})
    assert torch.equal(worker.outputs([x], {"scale": 0.0})[0], x)
    worker.close()


def test_its_budget_is_the_one_that_would_be_derived_here(x: torch.Tensor) -> None:
    theirs = reference("return (x.exp() * scale).sum(-1)")
    worker, scalars = imported.worker_of(theirs), {"scale": 3.0}
    exact, own = ([theirs(given, scale=3.0)] for given in (x.double(), x))
    here = Derivation(lambda given: (theirs(*given, scale=3.0),), [x], exact, own, 7).budget
    there = worker.derived([x], scalars, exact, own, 7)
    assert here.allowed[0] is not None and there.allowed[0] is not None
    assert torch.equal(here.allowed[0], there.allowed[0])
    assert (here.integers, here.unruled, here.problem) == (
        there.integers,
        there.unruled,
        there.problem,
    )


def teardown_module() -> None:
    session.close_servers()

"""Which groups of cells are evaluated side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest

from portkern.cells import together
from portkern.cells.selection import SelectedCell, Selection
from portkern.spec.target import Target

GIB = 1 << 30


@pytest.fixture(autouse=True)
def large_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1024 * GIB))


def groups(where: str, backend: str, workloads: str = "typical") -> list[list[SelectedCell]]:
    """Six, of an operator each."""
    names = ["add", "relu", "gelu", "softmax", "rmsnorm", "layernorm"]
    return [
        Selection(
            ops=[name],
            targets=[where],
            backends=[backend],
            workloads=[workloads],
            dtypes=["float32"],
        ).cells()
        for name in names
    ]


def sizes(asked: Sequence[list[SelectedCell]]) -> list[int]:
    found = list(together.in_order(asked))
    assert [group for some in found for group in some] == list(asked)
    return [len(some) for some in found]


def test_on_a_processor_four_are_loaded_together_at_most() -> None:
    assert sizes(groups("x86_64", "cpu")) == [4, 2]


def test_on_a_gpu_as_many_are_checked_together_as_its_memory_has_room_for() -> None:
    large = groups("h200", "cuda")
    assert sizes(large)[0] > 1
    little = [[replace(c, target=_with_memory(c, 12)) for c in group] for group in large]
    assert sizes(little) == [1] * 6
    assert sizes(groups("h200", "cuda", "ci"))[0] == together.MOST


def _with_memory(cell: SelectedCell, gb: float) -> Target:
    return cell.target.model_copy(update={"memory_gb": gb})


def test_a_gpu_whose_memory_is_not_known_has_one_at_a_time() -> None:
    assert sizes(groups("sm_90", "cuda", "ci")) == [1] * 6


def test_where_a_processor_is_timed_too_each_is_checked_by_itself() -> None:
    mixed = [
        [*a, *b]
        for a, b in zip(groups("h200", "cuda", "ci"), groups("x86_64", "cpu", "ci"), strict=True)
    ]
    assert sizes(mixed) == [1] * 6


@pytest.mark.parametrize(("processors", "memory_gib"), [(2, 1024), (64, 1)])
def test_a_small_host_has_one_at_a_time(
    processors: int, memory_gib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SimpleNamespace(available=memory_gib * GIB)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(processors))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    assert sizes(groups("h200", "cuda")) == [1] * 6
